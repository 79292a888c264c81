"""What `shardsdk manifests` prints of examples/website.py, on real pods: two replicas, of which one leads."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from localcluster import AdminError
from tests.node.clusters import PATIENCE_SECONDS, Cluster, Complaints, cordoned, evict, evictable, until_right
from tests.node.operators import FILE, NAME, PODS, WEBSITES, installed_operator, shardsdk, until_accepted, website

#: For the entry point of the image with the examples, `python -m`.
ARGUMENTS: Final = ("shardsdk", "run", f"/opt/examples/{FILE}")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * PATIENCE_SECONDS)]


@pytest_asyncio.fixture
async def installed(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Cluster]:
    image = f"{cluster.examples.repository}:{cluster.examples.tag}"
    async with installed_operator(cluster, tmp_path, FILE, image, *(f"--arg={each}" for each in ARGUMENTS)):
        yield cluster


async def test_an_operator_works_as_its_manifests_install_it(installed: Cluster, tmp_path: Path) -> None:
    cluster, admin = installed, installed.admin
    await cluster.working_pods(NAME, PODS, 2)
    await until_accepted(lambda: admin.create(WEBSITES, website("<h1>one</h1>"), NAME))
    with pytest.raises(AdminError, match="there is nothing on the page"):
        await admin.patch(WEBSITES, "home", {"spec": {"html": " "}}, NAME)
    await page_is(cluster, "<h1>one</h1>")
    [deployment] = [
        each for each in await admin.list("apps/v1/deployments", NAME) if each["metadata"]["name"] == "home"
    ]
    assert deployment["metadata"]["ownerReferences"][0]["kind"] == "Website"
    services = {each["metadata"]["name"] for each in await admin.list("v1/services", NAME)}
    assert services == {"home", "websites-webhooks"}

    leader = await leading(cluster)
    await lines_are_json(cluster, leader)
    explained = await shardsdk(
        cluster, tmp_path, "explain", FILE, "website/home", "-n", NAME, "--pod", f"{NAME}/{leader}"
    )
    assert explained == (0, f"websites.example.com: {NAME}/home: waits for its next event\n")

    # As draining a node does: the budget lets one go, and the other has to stay until there is another.
    pods = await evictable(cluster, NAME, NAME, PODS, 2)
    async with cordoned(cluster):
        await evict(cluster, NAME, leader)
        [other] = set(pods) - {leader}
        with pytest.raises(AdminError, match="disruption budget") as refused:
            await evict(cluster, NAME, other)
        assert refused.value.status == 429
        await leading(cluster, after=leader)
    await until_accepted(lambda: admin.patch(WEBSITES, "home", {"spec": {"html": "<h1>two</h1>"}}, NAME))
    await page_is(cluster, "<h1>two</h1>")
    await cluster.working_pods(NAME, PODS, 2)

    await cluster.kubectl("--namespace", NAME, "delete", "website/home", f"--timeout={PATIENCE_SECONDS:.0f}s")
    await until_right(lambda: no_page(cluster))
    # Events are written by the side of everything else.
    await admin.eventually("v1/events", lambda events: any(each["reason"] == "TakenDown" for each in events), NAME)


async def page_is(cluster: Cluster, html: str) -> None:
    """Wait until the page is kept, and its Website says how many of its pods are ready (none: nobody pulls images)."""

    async def check() -> None:
        pages = {each["metadata"]["name"]: each.get("data") for each in await cluster.admin.list("v1/configmaps", NAME)}
        found = await cluster.admin.get(WEBSITES, "home", NAME)
        status = found.get("status") or {}
        conditions = {each["type"]: each["observedGeneration"] for each in status.get("conditions", ())}
        if pages.get("home") != {"index.html": html} or conditions.get("Ready") != found["metadata"]["generation"]:
            raise Complaints(f"the pages are {pages}, the status is {status}")

    await until_right(check)


async def no_page(cluster: Cluster) -> None:
    names = {each["metadata"]["name"] for each in await cluster.admin.list("v1/configmaps", NAME)}
    if "home" in names:
        raise Complaints(f"there are {names}")


async def leading(cluster: Cluster, *, after: str = "") -> str:
    """Wait until a pod leads, and not that one; returns its name."""

    async def check() -> str:
        lease = await cluster.admin.get("coordination.k8s.io/v1/leases", NAME, NAME)
        holder = (lease["spec"].get("holderIdentity") or "").rpartition("_")[0]
        pods = {each["metadata"]["name"] for each in await cluster.admin.list("v1/pods", NAME)}
        if holder not in pods - {after}:
            raise Complaints(f"{holder!r} leads")
        return str(holder)

    pod: str = await until_right(check)
    return pod


async def lines_are_json(cluster: Cluster, pod: str) -> None:
    """In a pod a line of the log is one object."""
    lines = (await cluster.kubectl("--namespace", NAME, "logs", pod)).splitlines()
    said = [json.loads(line) for line in lines]
    assert {"Running", "Leader is working"} <= {each["message"] for each in said}
    assert not [each for each in said if each["level"] in ("error", "critical")]
