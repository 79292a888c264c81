"""What `shardsdk manifests` prints of examples/website.py with `sharded=True`, on real pods: shards share the objects.

Scaled, and with a pod killed, every Website has one owner, and the page, the
pods and the Service that this owner makes; at no time was one taken from a
living shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from localcluster.installation import ROOT
from shardsdk.protocol.labels import LEASE_RING_LABEL, parse_ring_name
from tests.integration.chronicle import LEASES, Chronicle
from tests.node.clusters import PATIENCE_SECONDS, Cluster, Complaints, until_right
from tests.node.operators import (
    FILE,
    NAME,
    PODS,
    WEBSITES,
    build_operator,
    installed_operator,
    until_accepted,
    website,
)
from tests.node.owners import RINGS, held_by_itself, status_of, taken_from_the_living

OBJECTS: Final = "pages"
COUNT: Final = 30
CHILDREN: Final = ("v1/configmaps", "apps/v1/deployments", "v1/services")
IMAGE: Final = "websites:1"
LABELS: Final = parse_ring_name(NAME)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * PATIENCE_SECONDS)]


@pytest_asyncio.fixture
async def installed(sharder: Cluster, tmp_path: Path) -> AsyncIterator[Cluster]:
    """The operator as its user would have it: one word more in its file, an image, what is printed of it."""
    text = (ROOT / FILE).read_text()
    assert text.count('Operator("websites")') == 1
    text = text.replace('Operator("websites")', 'Operator("websites", sharded=True)')
    file, image = await build_operator(sharder, tmp_path, text, IMAGE)
    await sharder.admin.namespace(OBJECTS)
    # Their pods are the kubelet's matter, and none of this test's.
    quota = {"metadata": {"name": "no-pods"}, "spec": {"hard": {"pods": "0"}}}
    await sharder.admin.create("v1/resourcequotas", quota, OBJECTS)
    async with installed_operator(sharder, tmp_path, file, image, websites=(OBJECTS,)):
        yield sharder


async def test_every_website_has_one_owner_whatever_happens_to_the_pods(installed: Cluster) -> None:
    cluster, admin = installed, installed.admin
    await cluster.working_pods(NAME, PODS, 3)
    for number in range(COUNT):
        await until_accepted(lambda number=number: admin.create(WEBSITES, website("1", f"w{number}"), OBJECTS))  # type: ignore[misc]
    async with (
        Chronicle(admin, LABELS, OBJECTS, WEBSITES) as websites,
        Chronicle(admin, LABELS, NAME) as leases,
    ):
        await settled(cluster, 3, "1")
        await scale(cluster, 5)
        await write(cluster, "2")
        await cluster.working_pods(NAME, PODS, 5)
        shares = await settled(cluster, 5, "2")

        [busiest, _] = shares.most_common(1)[0]
        await cluster.kubectl("--namespace", NAME, "delete", "pod", busiest, "--grace-period=0", "--force")
        await write(cluster, "3")
        pods = await cluster.working_pods(NAME, PODS, 5)
        assert busiest not in pods
        await settled(cluster, 5, "3")

        await scale(cluster, 2)
        await write(cluster, "4")
        await cluster.working_pods(NAME, PODS, 2)
        await settled(cluster, 2, "4")

        await websites.caught_up()
        await leases.caught_up()
        steps = websites.steps([WEBSITES])
        assert any(before.shard == busiest != after.shard for before, after in steps)
        assert taken_from_the_living(steps, leases.lease) == []


async def scale(cluster: Cluster, shards: int) -> None:
    await cluster.kubectl("--namespace", NAME, "scale", f"deployment/{NAME}", f"--replicas={shards}")


async def write(cluster: Cluster, html: str) -> None:
    """Change every Website, whoever has it just now."""
    for number in range(COUNT):
        change = {"spec": {"html": html}}
        await until_accepted(
            lambda name=f"w{number}", change=change: cluster.admin.patch(WEBSITES, name, change, OBJECTS)  # type: ignore[misc]
        )


async def settled(cluster: Cluster, shards: int, html: str) -> Counter[str]:
    """Wait until there are so many shards and every Website has one owner, which has seen `html`; how many each has."""
    found: Counter[str] = await until_right(lambda: _check(cluster, shards, html))
    return found


async def _check(cluster: Cluster, shards: int, html: str) -> Counter[str]:
    admin = cluster.admin
    leases = await admin.list(LEASES, NAME, labels=f"{LEASE_RING_LABEL}={NAME}")
    ring, found = await admin.get(RINGS, NAME), await admin.list(WEBSITES, OBJECTS)
    children = {kind: _by_name(await admin.list(kind, OBJECTS)) for kind in CHILDREN}
    ready = await cluster.ready_pods(NAME, PODS)
    holding = sorted(each["metadata"]["name"] for each in leases if held_by_itself(each))
    wrong = [] if ready == holding and len(holding) == shards else [f"{ready} are ready, leases are held by {holding}"]
    wrong += [f"the ring is not {each}" for each in ("Ready", "Settled") if status_of(ring, each) != "True"]
    owners: Counter[str] = Counter()
    for each in found:
        name, labels = each["metadata"]["name"], each["metadata"].get("labels") or {}
        shard = labels.get(LABELS.shard, "")
        owners[shard] += 1
        if shard not in holding or LABELS.drain in labels:
            wrong.append(f"{name} carries {labels}")
        for kind, made in children.items():
            carried = (made.get(name, {"metadata": {}})["metadata"].get("labels") or {}).get(LABELS.shard)
            if carried != shard:
                wrong.append(f"{name} is on {shard}, its {kind} on {carried}")
        page, seen = children["v1/configmaps"].get(name, {}).get("data"), _generation(each)
        if page != {"index.html": html} or seen != each["metadata"]["generation"]:
            wrong.append(f"{name} has the page {page}, and was seen in generation {seen}")
    if wrong or len(found) != COUNT:
        raise Complaints(f"of {len(found)}: " + "; ".join(wrong[:8]))
    return owners


def _by_name(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in found}


def _generation(found: dict[str, Any]) -> int:
    """Which one its conditions are about."""
    conditions = (found.get("status") or {}).get("conditions") or [{}]
    return int(conditions[0].get("observedGeneration") or 0)
