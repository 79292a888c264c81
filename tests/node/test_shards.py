"""A sharded controller on real pods, through everything that happens to one, while its objects are written.

After each step every object has one owner and the child that this owner makes;
during all of them nobody took an object from a living shard.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

import pytest

from localcluster.binaries import say
from tests.chart.helm import CONTROLLER, NAMESPACE, merge, parse
from tests.node.clusters import PATIENCE_SECONDS, Cluster, Complaints, until_right
from tests.node.owners import World, Writing, make_namespace, watched, writing
from tests.node.test_sharder import INSPECT, NOBODY, PODS_OF_SHARDER

OBJECTS: Final = 60
STEPS: Final = 9

pytestmark = [pytest.mark.slow, pytest.mark.timeout(STEPS * PATIENCE_SECONDS)]


def world_of(cluster: Cluster, kind: str) -> World:
    name = kind.lower()
    return World(cluster, f"ring-of-{name}", f"shards-{name}", f"objects-{name}", f"app.kubernetes.io/name={name}")


async def install(world: World, kind: str, replicas: int = 3) -> None:
    """Install the controller's chart with the example in it."""
    await make_namespace(world.cluster, world.objects, {"objects-of": world.ring})
    await world.cluster.release(
        "install", "controller", str(CONTROLLER), "--namespace", world.namespace, "--create-namespace",
        values=values(world, kind, replicas),
    )  # fmt: skip


def values(world: World, kind: str, replicas: int) -> dict[str, Any]:
    [example] = parse((CONTROLLER / "examples" / "checksum.yaml").read_text())
    return merge(
        example,
        world.cluster.examples.values,
        {
            "name": kind.lower(),
            "kind": kind,
            "replicas": replicas,
            "ring": {"name": world.ring, "namespaceSelector": {"matchLabels": {"objects-of": world.ring}}},
            "args": ["examples.checksum", f"--ring={world.ring}", "--health=:8081", "--metrics=:8080"],
        },
    )


async def scale(world: World, kind: str, replicas: int) -> None:
    await world.cluster.kubectl(
        "--namespace", world.namespace, "scale", f"{kind}/{kind.lower()}", f"--replicas={replicas}"
    )


def shares(owners: Counter[str], shards: int) -> None:
    """Every shard has some of the objects."""
    assert len(owners) == shards
    assert min(owners.values()) > 0, owners


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


async def fill(world: World) -> None:
    writer = Writing(world)
    for number in range(OBJECTS):
        await writer.create(number)


async def pods_are(world: World, count: int) -> list[str]:
    """Wait until so many are ready and the others are gone."""
    return await world.cluster.working_pods(world.namespace, world.pods, count)


async def revision_of(sharder: Cluster) -> int:
    output = await sharder.release("history", "sharder", "--namespace", NAMESPACE, "--max=1", "--output=json")
    return int(json.loads(output)[-1]["revision"])


async def uninstall(world: World, kind: str) -> None:
    """The controller's chart leaves no object of its own, and its objects stay, with nobody to reconcile them."""
    cluster = world.cluster
    await cluster.release("uninstall", "controller", "--namespace", world.namespace)
    await pods_are(world, 0)

    async def gone() -> None:
        name, labels = kind.lower(), f"app.kubernetes.io/name={kind.lower()}"
        kinds = "deployments,statefulsets,services,serviceaccounts,roles,rolebindings,poddisruptionbudgets,clusterroles"
        left = await cluster.kubectl(
            "get",
            f"{kinds},clusterrolebindings,clusterrings",
            "--all-namespaces",
            "--output=name",
            f"--selector={labels}",
        )
        if left:
            raise Complaints(f"{name} has left {left}")
        webhooks = await cluster.kubectl("get", "mutatingwebhookconfigurations", "--output=json")
        if world.ring in webhooks:
            raise Complaints(f"{world.ring} has left a webhook configuration")

    await until_right(gone)
    assert await cluster.admin.list("v1/secrets", world.objects), "a controller's objects are not its chart's"
    for namespace in (world.objects, world.namespace):
        await cluster.admin.delete("v1/namespaces", namespace)
    await cluster.admin.eventually(
        "v1/namespaces",
        lambda found: not {each["metadata"]["name"] for each in found} & {world.objects, world.namespace},
        timeout_seconds=PATIENCE_SECONDS,
    )
