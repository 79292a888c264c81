"""The last part of docs/tutorial.md works as it is written: its controller as three pods, and then as five."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pytest

from docsite.pages import Block, blocks_of, read_pages
from sharder.core.hashring import HashRing
from sharder.core.keys import resource_key
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import Resource
from shardsdk.version import VERSION
from tests.node.clusters import PATIENCE_SECONDS, Cluster
from tests.node.owners import SECRETS, World, watched
from tests.node.readers import Reader
from tests.walking import section_of

TUTORIAL: Final = read_pages()["tutorial.md"]
BLOCKS: Final = blocks_of("tutorial.md", section_of(TUTORIAL, "## 8. On a cluster"))
#: Of all parts: the controller comes from the second.
FILES: Final = {block.file: block.text for block in blocks_of("tutorial.md", TUTORIAL) if block.file}
#: The block from which on there are more pods.
SCALING: Final = next(number for number, block in enumerate(BLOCKS) if "kubectl scale" in block.text)
NAMESPACE: Final = "default"
SECRET: Final = Resource("", "v1", "secrets", "Secret")
#: What tests/node/test_readme.py types.
GIVES_IMAGES: Final = "python -m localcluster images --load"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE_SECONDS)]


async def test_the_tutorials_controller_runs_as_three_pods_and_is_scaled(cluster: Cluster, reader: Reader) -> None:
    """Every Secret has one owner, which did its work; scaling moves some of them, each after it was let go of."""
    await reader.call_image(cluster.sharder, f"docker.io/library/controller-sharding:{VERSION}")
    world = World(cluster, "checksum", NAMESPACE, NAMESPACE, "app.kubernetes.io/name=checksum")

    await reader.type(commands(BLOCKS[:SCALING]), FILES)
    shares = await world.settled(3)
    before = await owners(world)
    assert before == by_the_ring(before, shares)

    async with watched(world):
        await reader.type(commands(BLOCKS[SCALING:]))
        shares = await world.settled(5)
    after = await owners(world)
    assert after == by_the_ring(after, shares)
    moved = {name for name in before if after[name] != before[name]}
    # Nobody moves from one of the old shards to another.
    assert {after[name] for name in moved}.isdisjoint(before.values())


def by_the_ring(names: Iterable[str], shards: Iterable[str]) -> dict[str, str | None]:
    """Which Secret belongs on which shard: of a dozen, by the names that pods get, one of three may have none."""
    ring = HashRing(shards)
    return {name: ring.owner(resource_key(SECRET, NAMESPACE, name)) for name in names}


def commands(blocks: tuple[Block, ...]) -> list[str]:
    return [command for block in blocks for command in block.commands if command != GIVES_IMAGES]


async def owners(world: World) -> dict[str, str]:
    """Each Secret's shard; Helm's own Secrets, which come and go with its releases, are left out."""
    label = parse_ring_name(world.ring).shard
    found: list[dict[str, Any]] = await world.cluster.admin.list(SECRETS, world.objects)
    return {each["metadata"]["name"]: each["metadata"]["labels"][label] for each in found if each["type"] == "Opaque"}
