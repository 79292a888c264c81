"""Resources that are taken off a ring: who may touch their objects keeps that until they have lost their labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster import AdminClient
from shardsdk.protocol.labels import parse_ring_name
from tests.chart.helm import CONTROLLER, Documents, Helm, find, merge
from tests.chart.releases import CONFIG_RING, RINGS, SECRETS, Cluster, free_ports, ring_is, running
from tests.chart.test_running import PATIENCE_SECONDS, in_use, shards, some_namespace
from tests.permissions import Permission, read_permissions

CLUSTER_ROLES = "rbac.authorization.k8s.io/v1/clusterroles"
CHECKSUM: dict[str, Any] = yaml.safe_load((CONTROLLER / "examples" / "checksum.yaml").read_text())
RING = parse_ring_name("one")
BOTH = {"resources": [*CONFIG_RING["resources"], {"group": "", "resource": "secrets"}]}
FORMER: list[dict[str, Any]] = [
    {"group": "batch", "resource": "jobs"},
    {"group": "", "resource": "pods", "controlled": True},
]


# -- told by the values -----------------------------------------------------------


def test_former_resources_are_in_the_role_and_not_in_the_ring(helm: Helm) -> None:
    documents = helm.render({"rings": {"one": {**CONFIG_RING, "formerResources": FORMER}}})

    assert find(documents, "ClusterRing", "one")["spec"] == CONFIG_RING
    assert find(documents, "ClusterRole", "sharding:clusterring:one")["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["list", "watch", "patch"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "watch", "patch"]},
    ]


def test_a_controllers_former_resources_are_in_both_roles_and_not_in_the_ring(helm: Helm) -> None:
    def rendered(ring: dict[str, Any]) -> Documents:
        return helm.render(merge(CHECKSUM, {"ring": ring}), chart=CONTROLLER, namespace="default", release="checksum")

    before, after = rendered({}), rendered({"formerResources": FORMER})

    assert find(after, "ClusterRing") == find(before, "ClusterRing")
    assert more(before, after, "default/checksum") == {
        *(("jobs.batch", verb) for verb in ("list", "watch", "patch")),
        ("jobs.batch/status", "patch"),
        *(("pods", verb) for verb in ("list", "watch")),
    }
    assert more(before, after, "sharding-system/sharder") == {
        (resource, verb) for resource in ("jobs.batch", "pods") for verb in ("list", "watch", "patch")
    }


def more(before: Documents, after: Documents, account: str) -> set[tuple[str, str]]:
    """What is granted after, and was not before."""
    new: set[Permission] = set(read_permissions(after)[account]) - set(read_permissions(before)[account])
    return {(each.resource, each.verb) for each in new}


# -- looked up on the cluster --------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_resource_that_an_upgrade_takes_off_a_ring_loses_its_labels(cluster: Cluster, api: AdminClient) -> None:
    with free_ports() as ports:

        def values(ring: dict[str, Any]) -> dict[str, Any]:
            return merge(ports.values(), {"rings": {"one": ring}, "crds": {"upgrade": False}})

        await cluster.install("--no-hooks", values=values(BOTH))
        async with (
            some_namespace(api) as namespace,
            shards(api, namespace) as start,
            running(cluster, ports),
        ):
            await start("shard-a")
            await in_use(api, namespace)
            made = await api.create(SECRETS, {"metadata": {"name": "s"}}, namespace)
            assert made["metadata"]["labels"] == {RING.shard: "shard-a"}

            await cluster.upgrade("--no-hooks", values=values(CONFIG_RING))

            assert (await api.get(RINGS, "one"))["spec"]["resources"] == CONFIG_RING["resources"]
            assert await granted(api, "sharding:clusterring:one") == {"configmaps", "secrets"}
            await api.eventually(SECRETS, drained, namespace, timeout_seconds=PATIENCE_SECONDS)
            assert ring_is("PermissionsGranted")([await api.get(RINGS, "one")])
            await let_go(api, namespace)
            await api.eventually(RINGS, lists_no_secrets, timeout_seconds=PATIENCE_SECONDS)
            assert ring_is("PermissionsGranted")([await api.get(RINGS, "one")])
            assert ring_is("Ready")([await api.get(RINGS, "one")])
            assert not labels_of(await api.get(SECRETS, "s", namespace))

            await cluster.upgrade("--no-hooks", values=values(CONFIG_RING))

            assert await granted(api, "sharding:clusterring:one") == {"configmaps"}


async def granted(api: AdminClient, role: str) -> set[str]:
    """The resources of a ClusterRole."""
    rules = (await api.get(CLUSTER_ROLES, role))["rules"]
    return {resource for rule in rules for resource in rule["resources"]}


def labels_of(item: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = item["metadata"].get("labels") or {}
    return found


def drained(secrets: list[dict[str, Any]]) -> bool:
    return any(RING.drain in labels_of(each) for each in secrets)


async def let_go(api: AdminClient, namespace: str) -> None:
    """As the Secret's shard does it."""
    secret = await api.get(SECRETS, "s", namespace)
    change = {"resourceVersion": secret["metadata"]["resourceVersion"], "labels": {RING.shard: None, RING.drain: None}}
    await api.patch(SECRETS, "s", {"metadata": change}, namespace)


def lists_no_secrets(rings: list[dict[str, Any]]) -> bool:
    placed = [each["resource"] for ring in rings for each in ring["status"]["placedResources"]]
    return placed == ["configmaps"]


@pytest.mark.timeout(600)
async def test_a_controllers_upgrade_keeps_what_its_rings_status_remembers(cluster: Cluster, api: AdminClient) -> None:
    await cluster.plane.apply(Path("crds"))
    release = ("checksum", str(CONTROLLER), "--namespace", "default")
    fewer = merge(CHECKSUM, {"ring": {"resources": [{"group": "", "resource": "configmaps"}]}})
    await cluster.run("install", *release, values=CHECKSUM)
    try:
        await remember(api, [*FORMER, {"group": "", "resource": "secrets", "controlled": False}])
        await cluster.run("upgrade", *release, values=fewer)
        # The status grants nobody what the role did not: it is the sharder that writes it.
        assert await granted(api, "sharding:clusterring:checksum") == {"configmaps", "secrets"}
        assert {"configmaps", "secrets"} <= await granted(api, "checksum")
        assert not {"jobs", "pods"} & await granted(api, "checksum")

        await remember(api, [])
        await cluster.run("upgrade", *release, values=fewer)
        assert await granted(api, "sharding:clusterring:checksum") == {"configmaps"}
        assert not {"jobs", "pods", "secrets"} & await granted(api, "checksum")
    finally:
        await cluster.run("uninstall", "checksum", "--namespace", "default")


async def remember(api: AdminClient, placed: list[dict[str, Any]]) -> None:
    """As the sharder writes it down."""
    await api.patch(RINGS, "checksum", {"status": {"placedResources": placed}}, subresource="status")
