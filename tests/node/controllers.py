"""The sharded controller's chart on real pods: the example in it, a world of Secrets around it."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from tests.chart.helm import CONTROLLER, merge, parse
from tests.node.clusters import PATIENCE_SECONDS, Cluster, Complaints, until_right
from tests.node.owners import World, Writing, make_namespace

OBJECTS: Final = 60


def world_of(cluster: Cluster, kind: str) -> World:
    """Where a controller of that kind lives, and its objects."""
    name = kind.lower()
    return World(cluster, f"ring-of-{name}", f"shards-{name}", f"objects-{name}", f"app.kubernetes.io/name={name}")


async def install(world: World, kind: str) -> None:
    """Install the controller's chart with the example in it."""
    await make_namespace(world.cluster, world.objects, {"objects-of": world.ring})
    await world.cluster.release(
        "install", "controller", str(CONTROLLER), "--namespace", world.namespace, "--create-namespace",
        values=values(world, kind),
    )  # fmt: skip


def values(world: World, kind: str) -> dict[str, Any]:
    """Those of the example, for three shards in a world of their own."""
    [example] = parse((CONTROLLER / "examples" / "checksum.yaml").read_text())
    return merge(
        example,
        world.cluster.examples.values,
        {
            "name": kind.lower(),
            "kind": kind,
            "replicas": 3,
            "ring": {"name": world.ring, "namespaceSelector": {"matchLabels": {"objects-of": world.ring}}},
            "args": ["examples.checksum", f"--ring={world.ring}", "--health=:8081", "--metrics=:8080"],
        },
    )


async def scale(world: World, kind: str, replicas: int) -> None:
    """Ask for so many shards."""
    await world.cluster.kubectl(
        "--namespace", world.namespace, "scale", f"{kind}/{kind.lower()}", f"--replicas={replicas}"
    )


def shares(owners: Counter[str], shards: int) -> None:
    """Every shard has some of the objects."""
    assert len(owners) == shards
    assert min(owners.values()) > 0, owners


async def fill(world: World) -> None:
    """Make the first Secrets."""
    writer = Writing(world)
    for number in range(OBJECTS):
        await writer.create(number)


async def pods_are(world: World, count: int) -> list[str]:
    """Wait until so many are ready and the others are gone."""
    return await world.cluster.working_pods(world.namespace, world.pods, count)


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
