"""A sharded controller on real pods, through everything that happens to one, while its objects are written.

After each step every object has one owner and the child that this owner makes;
during all of them nobody took an object from a living shard.
"""

from __future__ import annotations

import json
from typing import Final

import pytest

from localcluster.binaries import say
from tests.chart.helm import NAMESPACE
from tests.node.clusters import PATIENCE_SECONDS, Cluster
from tests.node.controllers import fill, install, pods_are, scale, shares, uninstall, world_of
from tests.node.owners import watched, writing
from tests.node.test_sharder import INSPECT, NOBODY, PODS_OF_SHARDER

STEPS: Final = 9

pytestmark = [pytest.mark.slow, pytest.mark.timeout(STEPS * PATIENCE_SECONDS)]


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
async def test_every_object_has_one_owner_whatever_happens_to_the_pods(sharder: Cluster, kind: str) -> None:
    world = world_of(sharder, kind)
    kubectl, namespace = sharder.kubectl, ("--namespace", world.namespace)
    await install(world, kind)
    async with watched(world):
        await fill(world)
        shares(await world.settled(3), 3)
        async with writing(world, 1000):
            [pod, *_] = await sharder.working_pods(world.namespace, world.pods, 3)
            assert await sharder.python(world.namespace, pod, INSPECT) == NOBODY

            await scale(world, kind, 5)
            await pods_are(world, 5)
            await scale(world, kind, 2)
            await pods_are(world, 2)
        shares(await world.settled(2), 2)

        async with writing(world, 2000):
            await kubectl(*namespace, "rollout", "restart", f"{kind}/{kind.lower()}")
            await kubectl(
                *namespace, "rollout", "status", f"{kind}/{kind.lower()}", f"--timeout={PATIENCE_SECONDS:.0f}s"
            )
        shares(await world.settled(2), 2)

        async with writing(world, 3000):
            await scale(world, kind, 3)
            [pod, *_] = await pods_are(world, 3)
            await kubectl(*namespace, "delete", "pod", pod, "--grace-period=0", "--force")
            await pods_are(world, 3)
        shares(await world.settled(3), 3)
    await uninstall(world, kind)


async def test_upgrade_and_rollback_under_load(sharder: Cluster) -> None:
    """The sharder's replicas are exchanged twice while objects are written and shards come and go."""
    world = world_of(sharder, "Deployment")
    await install(world, "Deployment")
    async with watched(world):
        await fill(world)
        shares(await world.settled(3), 3)
        revision = await revision_of(sharder)
        async with writing(world, 1000) as writer:
            before = await sharder.working_pods(NAMESPACE, PODS_OF_SHARDER, 2)
            await sharder.upgrade_sharder({"replicas": 3, "log": {"level": "debug"}})
            after = await sharder.working_pods(NAMESPACE, PODS_OF_SHARDER, 3)
            assert not set(before) & set(after)
            await scale(world, "Deployment", 4)
        shares(await world.settled(4), 4)
        async with writing(world, 5000) as again:
            await sharder.release("rollback", "sharder", str(revision), "--namespace", NAMESPACE)
            await scale(world, "Deployment", 3)
        shares(await world.settled(3), 3)
        written, unlabelled = writer.created + again.created, writer.unlabelled + again.unlabelled
        say(f"{written} Secrets were created meanwhile, {unlabelled} without an answer of the webhook")
    restored = await sharder.kubectl(
        "--namespace", NAMESPACE, "get", "deployment/sharder", "--output=jsonpath={.spec.replicas}"
    )
    assert restored == "2"
    await uninstall(world, "Deployment")


async def revision_of(sharder: Cluster) -> int:
    output = await sharder.release("history", "sharder", "--namespace", NAMESPACE, "--max=1", "--output=json")
    return int(json.loads(output)[-1]["revision"])
