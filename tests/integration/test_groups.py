"""An owner and what it controls change hands together: children first, the owner last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from localcluster import AdminError
from shardsdk.protocol.labels import parse_ring_name
from tests.integration.chronicle import Chronicle
from tests.integration.harness import Stage
from tests.integration.scripted import Object, ScriptedShard
from tests.integration.world import Ring

OWNERS, CHILDREN = "v1/secrets", "v1/configmaps"
EACH = 4
#: Between two children of one owner: however long a machine takes to move them, they do not become too many to move.
PAUSE_SECONDS = 0.15


async def set_up(stage: Stage) -> tuple[Ring, ScriptedShard]:
    ring = await stage.ring()
    one = await stage.shard(ring, "one")
    await stage.sharder()
    await ring.in_force()
    return ring, one


def chronicle_of(stage: Stage, ring: Ring) -> Chronicle:
    return Chronicle(stage.admin, parse_ring_name(ring.name), ring.namespace, OWNERS, CHILDREN)


async def make_families(ring: Ring, *, children: int = 1) -> list[str]:
    """Families, all of them on `one`; those of the owners returned belong to `two` once it is there."""
    places = await ring.create_families(EACH, {"one", "two"}, children=children)
    return [name for name, shard in places.items() if shard == "two"]


@asynccontextmanager
async def making_children(ring: Ring, owners: Iterable[str]) -> AsyncIterator[None]:
    """Each of the owners gets one child after the other, until the block is left."""
    stopped = asyncio.Event()

    async def keep_making(name: str) -> None:
        owner = await ring.get(name)
        while not stopped.is_set():
            await ring.create_child(owner)
            await asyncio.sleep(PAUSE_SECONDS)

    async with asyncio.TaskGroup() as makers:
        for name in owners:
            makers.create_task(keep_making(name))
        yield
        stopped.set()


def parents(objects: list[Object]) -> dict[str, str]:
    """Name of each child's owner."""
    return {obj["metadata"]["name"]: obj["metadata"]["ownerReferences"][0]["name"] for obj in objects}


async def test_owners_and_children_stay_together_whoever_comes_and_goes(stage: Stage) -> None:
    ring, one = await set_up(stage)
    places = await ring.create_families(EACH, {"one", "two", "three"}, children=2)
    await stage.shard(ring, "two")
    three = await stage.shard(ring, "three")
    await ring.in_place({"one", "two", "three"})
    assert await ring.shards_of() == places
    await three.release()
    await ring.in_place({"one", "two"})
    await one.crash()
    await ring.in_place({"two"})
    assert len(await ring.objects(CHILDREN)) == 2 * 3 * EACH


@pytest.mark.parametrize("leave", ["drained", "released", "crashed"])
async def test_children_are_labelled_before_their_owner_is_anyones(stage: Stage, leave: str) -> None:
    ring, one = await set_up(stage)
    moving = await make_families(ring, children=2)
    async with chronicle_of(stage, ring) as chronicle:
        if leave != "drained":
            one.acknowledging.clear()
        await stage.shard(ring, "two")
        if leave != "drained":
            await (one.release() if leave == "released" else one.crash())
        await ring.in_place({"one", "two"} if leave == "drained" else {"two"})
        await chronicle.caught_up()
        owners = {each.name: each.at for each in reversed(chronicle.of(OWNERS)) if each.shard == "two"}
        children = {each.name: each.at for each in reversed(chronicle.of(CHILDREN)) if each.shard == "two"}
    assert owners.keys() == set(moving if leave == "drained" else await ring.shards_of())
    assert len(children) == 2 * len(owners)
    for child, owner in parents(await ring.objects(CHILDREN)).items():
        assert children.get(child, 0) <= owners.get(owner, 0)


async def test_a_child_made_in_the_last_moment_before_the_acknowledgement_goes_along(stage: Stage) -> None:
    """The shard's very last write before it lets go is a child that nobody else has seen."""
    ring, one = await set_up(stage)

    async def one_more(owner: Object) -> None:
        made = await ring.create_child(owner, name=f"last-of-{owner['metadata']['name']}")
        assert ring.shard_of(made) == "one"

    one.before_acknowledging = one_more
    moving = await make_families(ring)
    async with chronicle_of(stage, ring) as chronicle:
        await stage.shard(ring, "two")
        await ring.in_place({"one", "two"})
        await chronicle.caught_up()
        owners = {each.name: each.at for each in reversed(chronicle.of(OWNERS)) if each.shard == "two"}
        children = {each.name: each.at for each in reversed(chronicle.of(CHILDREN)) if each.shard == "two"}
    assert owners.keys() == set(moving)
    for owner, at in owners.items():
        assert children[f"last-of-{owner}"] < at


async def test_children_made_while_nobody_has_their_owner_follow_it(stage: Stage) -> None:
    """Between acknowledgement and move, and on through it: children are made all the time."""
    ring, one = await set_up(stage)
    moving = await make_families(ring)
    async with making_children(ring, moving):
        await stage.shard(ring, "two")
        for name in moving:
            await ring.until_on(name, "two")
    await ring.in_place({"one", "two"})
    assert one.acknowledged


async def test_children_made_while_their_owners_shard_is_dead_follow_it(stage: Stage) -> None:
    """The lease runs out, is taken over, the group moves: children are made all the time."""
    ring, one = await set_up(stage)
    places = await ring.create_families(EACH, {"one"})
    await stage.shard(ring, "two")
    await one.crash()
    async with making_children(ring, places):
        for name in places:
            await ring.until_on(name, "two")
    await ring.in_place({"two"})


async def test_a_child_of_an_owner_that_is_gone_is_placed_by_the_ring(stage: Stage) -> None:
    """Between the end of its owner and its own the garbage collector takes its time."""
    ring, _ = await set_up(stage)
    owner = await ring.create(name="mine")
    child = await ring.create_child(owner, name="child", finalizers=["example.com/hold"])
    assert ring.shard_of(child) == "one"
    await stage.admin.delete(OWNERS, "mine", ring.namespace)
    await ring.until("child", lambda obj: "deletionTimestamp" in obj["metadata"], CHILDREN)
    await stage.shard(ring, "two")
    await stage.shards[0].release()
    await ring.until_on("child", "two", CHILDREN)
    await ring.patch("child", {"metadata": {"finalizers": None}}, CHILDREN)


async def test_what_nobody_controls_is_left_alone(stage: Stage) -> None:
    ring, one = await set_up(stage)
    label = ring.labels[0]
    await ring.create(CHILDREN, name="mine")
    await ring.create(CHILDREN, name="by-hand", labels={label: "elsewhere"})
    stranger = {"apiVersion": "v1", "kind": "ReplicationController", "name": "x", "uid": "0000", "controller": True}
    await ring.create(CHILDREN, name="anothers", ownerReferences=[stranger | {"uid": "1"}], finalizers=["a.example/b"])
    before = {obj["metadata"]["name"]: obj["metadata"].get("labels") for obj in await ring.objects(CHILDREN)}
    await ring.create_families(1, {"one", "two"})
    await stage.shard(ring, "two")
    await one.release()
    await ring.in_place({"two"})
    after = {obj["metadata"]["name"]: obj["metadata"].get("labels") for obj in await ring.objects(CHILDREN)}
    assert after.items() >= before.items()
    await ring.patch("anothers", {"metadata": {"finalizers": None}}, CHILDREN)


async def test_an_owner_deleted_while_its_group_moves_leaves_nothing_behind(stage: Stage) -> None:
    ring, one = await set_up(stage)
    moving = await make_families(ring) + await make_families(ring)
    one.acknowledge_after = 0.01
    await stage.shard(ring, "two")

    async def delete(name: str) -> None:
        await ring.until(name, lambda obj: ring.where(obj) != "one")
        await stage.admin.delete(OWNERS, name, ring.namespace)

    async with asyncio.TaskGroup() as deleting:
        for name in moving[::2]:
            deleting.create_task(delete(name))
    await ring.in_place({"one", "two"})
    await ring.condition("Settled")
    with pytest.raises(AdminError, match="404"):
        await ring.get(moving[0])
