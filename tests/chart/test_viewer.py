"""The role for people who look: what `kubectl sharding` shows to somebody who has that and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from localcluster import AdminClient
from shardsdk.protocol.labels import LEASE_RING_LABEL, parse_ring_name
from tests.chart.helm import Helm, find, merge, select
from tests.chart.options import OPTIONS
from tests.chart.releases import CONFIG_RING, CONFIGMAPS, LEASES, Cluster
from tests.integration.plugin import SECONDS, Plugin, make_account

BINDINGS = "rbac.authorization.k8s.io/v1/clusterrolebindings"
AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-view"
SPACE = "looked-at"
#: No other test has a ring of this name: shards of theirs whose namespace is still going would be shown with ours.
RING = "looked-at"
VALUES = {"rings": {RING: CONFIG_RING}}


@pytest_asyncio.fixture
async def viewer(cluster: Cluster, api: AdminClient, tmp_path: Path) -> AsyncIterator[Plugin]:
    """The plugin as a ServiceAccount `viewer`, with a shard `a` of the ring that has one of two ConfigMaps."""
    await api.namespace(SPACE)
    kubeconfig = await make_account(cluster.plane, api, SPACE)
    lease = {"metadata": {"name": "a", "labels": {LEASE_RING_LABEL: RING}}, "spec": {"holderIdentity": "a"}}
    await api.create(LEASES, lease, SPACE)
    labels = {parse_ring_name(RING).shard: "a"}
    await api.create(CONFIGMAPS, {"metadata": {"name": "mine", "labels": labels}}, SPACE)
    await api.create(CONFIGMAPS, {"metadata": {"name": "nobodys"}}, SPACE)
    yield Plugin.install(tmp_path, cluster.plane, kubeconfig)
    await api.delete(BINDINGS, "looking")
    await api.delete("v1/namespaces", SPACE)
    await api.eventually("v1/namespaces", lambda found: SPACE not in [each["metadata"]["name"] for each in found])


async def bind(api: AdminClient, role: str) -> None:
    subject = {"kind": "ServiceAccount", "name": "viewer", "namespace": SPACE}
    role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    await api.create(BINDINGS, {"metadata": {"name": "looking"}, "roleRef": role_ref, "subjects": [subject]})


async def status(viewer: Plugin, *, unread: list[str]) -> dict[str, Any]:
    """What it says of the ring, once exactly `unread` cannot be read (rights take a moment to count)."""
    seen: list[str] = []
    async with asyncio.timeout(SECONDS):
        while True:
            said = await viewer.sharding("status", RING, "-n", SPACE, "-o", "json")
            assert not said.err.startswith("Traceback"), said.err
            [found] = said.data["rings"]
            seen = [each["what"] for each in [*found["unread"], *said.data.get("unread", ())]]
            if seen == unread:
                ring: dict[str, Any] = found
                return ring


@pytest.mark.timeout(600)
async def test_whoever_may_view_sees_everything_of_a_ring_of_what_they_may_view(
    cluster: Cluster, api: AdminClient, viewer: Plugin
) -> None:
    await cluster.install(values=merge(VALUES, OPTIONS["viewers"]))
    await bind(api, "view")

    found = await status(viewer, unread=[])

    assert [shard["name"] for shard in found["shards"]] == ["a"]
    assert found["shards"][0]["objects"] == {"configmaps": 1}
    said = await viewer.sharding("explain", "cm/nobodys", "-n", SPACE, "-o", "json")
    assert (said.code, said.err, said.data["rings"][0]["ring"]) == (1, "", RING)
    described = await viewer.run("describe", "clusterring", RING)
    assert (described.code, described.err) == (0, "")


@pytest.mark.timeout(600)
async def test_the_role_alone_shows_all_but_the_objects(cluster: Cluster, api: AdminClient, viewer: Plugin) -> None:
    await cluster.install(values=VALUES)
    await bind(api, "sharding:viewer")

    found = await status(viewer, unread=[f"configmaps in namespace {SPACE}"])

    assert [shard["name"] for shard in found["shards"]] == ["a"]


def test_it_is_aggregated_only_when_asked_and_asks_nobody_about_others_then(helm: Helm) -> None:
    plain, aggregated = (
        find(helm.render(OPTIONS[name]), "ClusterRole", "sharding:viewer") for name in ("defaults", "viewers")
    )

    assert AGGREGATE not in plain["metadata"]["labels"]
    assert aggregated["metadata"]["labels"][AGGREGATE] == "true"
    reviews = [rule for rule in plain["rules"] if "subjectaccessreviews" in rule["resources"]]
    assert [rule for rule in plain["rules"] if rule not in aggregated["rules"]] == reviews
    assert len(reviews) == 1


def test_it_can_be_left_out(helm: Helm) -> None:
    for name in ("no viewer", "no rbac"):
        assert not select(helm.render(OPTIONS[name]), "ClusterRole", "sharding:viewer")
