"""The sharded controller's chart on real pods, as its operator meets it: looked at, evicted, upgraded.

One controller serves all of these tests; the last one uninstalls it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from localcluster import AdminError
from shardsdk.protocol.labels import LEASE_RING_LABEL
from tests.chart.helm import CONTROLLER, NAMESPACE, merge
from tests.integration.chronicle import LEASES
from tests.integration.plugin import Plugin, Said
from tests.node.clusters import PATIENCE_SECONDS, Cluster, Complaints, cordoned, evict, evictable, until_right
from tests.node.controllers import fill, install, pods_are, shares, uninstall, values, world_of
from tests.node.owners import World, watched, writing
from tests.node.test_sharder import PODS_OF_SHARDER

KIND: Final = "StatefulSet"
SHARDS: Final = ["statefulset-0", "statefulset-1", "statefulset-2"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * PATIENCE_SECONDS)]


@pytest_asyncio.fixture
async def controller(sharder: Cluster) -> World:
    """Three shards with objects; installed by the first test that asks."""
    world = world_of(sharder, KIND)
    found = await sharder.release("list", "--namespace", world.namespace, "--short")
    if "controller" not in found.split():
        await install(world, KIND)
        await fill(world)
    shares(await world.settled(3), 3)
    return world


@pytest.fixture
def plugin(controller: World, tmp_path: Path) -> Plugin:
    """`kubectl sharding` as its administrator."""
    return Plugin.of(tmp_path, controller.cluster.kubectl_command, controller.cluster.kubeconfig)


async def test_status_shows_its_shards_and_their_objects(controller: World, plugin: Plugin) -> None:
    owners = await controller.settled(3)

    said = await plugin.sharding("status", controller.ring, "--output=json")

    assert (said.code, said.err) == (0, "")
    [ring] = said.data["rings"]
    assert (ring["ready"], ring["settled"], ring["problems"]) == (True, True, [])
    shown = {shard["name"]: shard for shard in ring["shards"]}
    assert sorted(shown) == SHARDS
    assert {name: shard["objects"]["secrets"] for name, shard in shown.items()} == dict(owners)
    assert {(shard["state"], shard["available"], shard["fenced"]) for shard in shown.values()} == {
        ("ready", True, True)
    }
    text = (await plugin.sharding("status", controller.ring)).out
    assert all(name in text for name in SHARDS)


async def test_check_follows_the_webhook_to_the_endpoints_of_its_service(controller: World, plugin: Plugin) -> None:
    """What it finds without a call, with one, and when nobody is behind the Service; then its remedy has helped."""
    cluster = controller.cluster
    await cluster.working_pods(NAMESPACE, PODS_OF_SHARDER, 2)

    await checked(plugin, controller, 0, "reachable", "put a label back that a dry run had taken off")
    service = f"Service {NAMESPACE}/sharder"
    await checked(plugin, controller, 0, "reachable", f"{service} has 2 ready endpoints", "--no-probe")

    async def replicas(count: int) -> None:
        await cluster.kubectl("--namespace", NAMESPACE, "scale", "deployment/sharder", f"--replicas={count}")
        await cluster.working_pods(NAMESPACE, PODS_OF_SHARDER, count)

    await replicas(0)
    try:
        await checked(plugin, controller, 1, "reachable", f"{service} has no ready endpoint")
    finally:
        await replicas(2)
    await checked(plugin, controller, 0, "reachable", "put a label back that a dry run had taken off")


async def checked(plugin: Plugin, world: World, code: int, topic: str, words: str, *arguments: str) -> None:
    """Check until it ends with `code` and says so: leases and endpoints take a moment to follow the pods."""

    async def check() -> None:
        said: Said = await plugin.sharding("check", world.ring, "--output=json", *arguments)
        assert said.code in (0, 1, 3), said.err
        found: list[dict[str, Any]] = said.data["findings"]
        if said.code != code or not any(each["topic"] == topic and words in each["message"] for each in found):
            raise Complaints(f"{said.code}, not {code} with {words!r}: {found}")

    await until_right(check)


async def test_of_its_shards_one_may_be_evicted_at_a_time(controller: World) -> None:
    """The budget refuses the second, and the others have the first one's objects as long as it is away."""
    cluster = controller.cluster
    names = await evictable(cluster, controller.namespace, KIND.lower(), controller.pods, 3)
    async with watched(controller):
        async with cordoned(cluster):
            await evict(cluster, controller.namespace, names[0])
            with pytest.raises(AdminError, match="disruption budget") as refused:
                await evict(cluster, controller.namespace, names[1])
            assert refused.value.status == 429
            owners = await controller.settled(2)
            assert sorted(owners) == names[1:]
        shares(await controller.settled(3), 3)


async def test_its_chart_is_upgraded_and_rolled_back_under_load(controller: World) -> None:
    """Arguments and resources change, so that every pod is another one; the objects of none are taken from it."""
    cluster, into = controller.cluster, ("--namespace", controller.namespace)
    before = values(controller, KIND)
    after = merge(before, {"args": [*before["args"], "--lease-seconds=20"], "resources": {"requests": {"cpu": "60m"}}})
    async with watched(controller):
        async with writing(controller, 1000):
            await cluster.release("upgrade", "controller", str(CONTROLLER), *into, "--reset-values", values=after)
            await pods_are(controller, 3)
        shares(await controller.settled(3), 3)
        assert await lease_seconds(controller) == {20}
        async with writing(controller, 5000):
            await cluster.release("rollback", "controller", "1", *into)
            await pods_are(controller, 3)
        shares(await controller.settled(3), 3)
        assert await lease_seconds(controller) == {15}
    await uninstall(controller, KIND)


async def lease_seconds(world: World) -> set[int]:
    leases = await world.cluster.admin.list(LEASES, world.namespace, labels=f"{LEASE_RING_LABEL}={world.ring}")
    return {each["spec"]["leaseDurationSeconds"] for each in leases}
