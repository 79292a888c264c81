"""A resource that a ring listed as main and lists as controlled: what shards have of it is asked back, never taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from sharder.backlog.scope import Wanted
from sharder.core.mains import AWAY_SECONDS
from sharder.core.ringspec import parse_ring, resolve
from shardsdk.protocol.objects import CLUSTERRINGS, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    OWNERS,
    RING,
    Stage,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)
from tests.unit.sharder.ranges.rig import ranged, sharder
from tests.unit.sharder.rings.edited import FAMILY, OTHERS, SHARDS, Edited, prepare, settled


@in_virtual_time
async def test_what_is_apart_from_its_owner_is_asked_back_and_nothing_else_moves(clock: VirtualClock) -> None:
    async with settled(clock) as edited:
        stage = edited.stage
        edited.edit(FAMILY)
        await edited.until_asked_back()
        await stage.pass_time(120)
        assert edited.asked_back == {*edited.apart.values(), edited.orphan}
        assert edited.placed_as == "main"
        assert stage.condition("Settled") == "False"
        assert stage.message("Settled").endswith(
            "the ring lists as controlled now (owners stay where they are until all of it is with them, each has a"
            " shard, and none reconciles it as main, or did when it went a few minutes ago), and shards have as main"
            " objects where their owners are not: 3 configmaps"
        )
        edited.let_all_go()
        await stage.until(lambda: edited.placed_as == "controlled")
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert {shard: stage.label(CHILDREN, name) for shard, name in edited.apart.items()} == {
            "one": "two", "two": "one",
        }  # fmt: skip
        assert {shard: stage.label(CHILDREN, name) for shard, name in edited.together.items()} == {
            "one": "one", "two": "two",
        }  # fmt: skip
        assert stage.label(CHILDREN, edited.orphan) is None
        assert not edited.taken


@in_virtual_time
async def test_the_next_leader_goes_on_and_knows_it_from_the_status(clock: VirtualClock) -> None:
    edited = prepare(clock)
    stage = edited.stage
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
    for shard in SHARDS:
        stage.start(shard)
    edited.edit(FAMILY)  # nobody leads
    async with leading(stage):
        await edited.until_asked_back()
    for shard in SHARDS:
        stage.start(shard)
    async with leading(stage):
        await stage.pass_time(60)
        assert edited.placed_as == "main"
        edited.let_all_go()
        await stage.until(lambda: edited.placed_as == "controlled")
    assert not edited.taken


@in_virtual_time
async def test_who_leads_knows_it_also_when_somebody_empties_the_status(clock: VirtualClock) -> None:
    async with settled(clock) as edited:
        edited.stage.server.patch(CLUSTERRINGS, RING, None, {"status": {"placedResources": None}}, subresource="status")
        edited.edit(FAMILY)
        await edited.until_asked_back()
        assert edited.placed_as == "main"
        assert not edited.taken


@in_virtual_time
async def test_owners_stay_meanwhile_and_move_with_their_children_afterwards(clock: VirtualClock) -> None:
    async with settled(clock) as edited:
        stage = edited.stage
        edited.edit(FAMILY)
        await edited.until_asked_back()
        first = set(names_on("one", *SHARDS, count=90))
        owner = next(name for name in names_on("three", *SHARDS, "three", count=50) if name in first)
        body = stage.create(OWNERS, thing(owner, shard="one"))
        stage.create(CHILDREN, thing("with-it", shard="one", owner=body))
        stage.start("three")
        stage.create(CHILDREN, thing("where-it-will-be", shard="three", owner=body))
        await stage.until(lambda: stage.draining(CHILDREN, "where-it-will-be"))
        edited.let_all_go()
        await stage.pass_time(120)
        assert not stage.draining(OWNERS, owner)
        assert edited.placed_as == "main"
        edited.let_go("where-it-will-be")
        await stage.until(lambda: edited.placed_as == "controlled")
        assert stage.label(CHILDREN, "where-it-will-be") == "one"
        assert not edited.taken
        await stage.until(lambda: stage.draining(OWNERS, owner))
        stage.acknowledge(owner)
        await stage.until(lambda: stage.label(OWNERS, owner) == "three")
        assert edited.taken == ["where-it-will-be", "with-it"]


@in_virtual_time
async def test_it_is_main_as_long_as_a_shard_says_that_it_reconciles_it_as_main(clock: VirtualClock) -> None:
    """Whatever has become of the drains: objects of an owner that moves would be taken from it."""
    async with settled(clock) as edited:
        stage = edited.stage
        stage.start("three", mains=[OWNERS.group_resource, CHILDREN.group_resource])
        edited.edit(FAMILY)
        await stage.until(lambda: bool(edited.asked_back))
        edited.let_all_go()
        await stage.until(lambda: stage.condition("ShardsFit") == "False")
        assert "configmaps on three, so that two may" in stage.message("ShardsFit")
        await stage.pass_time(240)
        assert edited.placed_as == "main"
        assert stage.message("Settled").endswith("as main objects where their owners are not: 0 configmaps")
        stage.start("four", mains=[OWNERS.group_resource])
        stage.release("three")
        await stage.pass_time(AWAY_SECONDS - 5)
        assert edited.placed_as == "main"
        await stage.until(lambda: edited.placed_as == "controlled")
        await stage.until(lambda: stage.condition("ShardsFit") == "True")
        assert not edited.taken


@pytest.mark.parametrize("leave", [Stage.crash, Stage.release])
@pytest.mark.parametrize("seconds", [3, 25, 200])
@in_virtual_time
async def test_a_shard_that_is_restarted_has_it_as_main_meanwhile(
    clock: VirtualClock, leave: Callable[[Stage, str], None], seconds: int
) -> None:
    """Also where nobody has been there when the ring was edited."""
    async with settled(clock) as edited:
        stage = edited.stage
        stage.start("three", mains=[CHILDREN.group_resource])
        await stage.pass_time(5)
        leave(stage, "three")
        await stage.pass_time(seconds / 2)
        edited.edit(FAMILY)
        await edited.until_asked_back()
        edited.let_all_go()
        await stage.pass_time(seconds / 2)
        stage.start("three", mains=[CHILDREN.group_resource])
        await stage.pass_time(AWAY_SECONDS)
        assert edited.placed_as == "main"
        assert not edited.taken
        stage.release("three")
        await stage.pass_time(seconds)
        stage.start("three")  # another program
        await stage.until(lambda: edited.placed_as == "controlled")


class Halting(MemoryApi):
    """A list or stream of children, once it has begun, goes on when `go` is set."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.go = asyncio.Event()
        self.go.set()
        self.halted = False

    async def stream(self, resource: Resource, *args: Any, **more: Any) -> AsyncIterator[list[Any]]:
        async for batch in super().stream(resource, *args, **more):
            yield batch
        if resource == CHILDREN:
            self.halted = not self.go.is_set()
            await self.go.wait()


def restart(stage: Stage, shard: str, **options: Any) -> None:
    stage.crash(shard)
    stage.start(shard, **options)


@pytest.mark.parametrize("comes", [True, False])
@in_virtual_time
async def test_it_has_not_joined_by_a_pass_in_the_middle_of_which_a_shard_had_it_as_main(
    clock: VirtualClock, comes: bool
) -> None:
    """Be it when that begins, or when it ends."""
    async with settled(clock, api=Halting) as edited:
        stage, mains = edited.stage, [CHILDREN.group_resource]
        assert isinstance(stage.api, Halting)
        stage.start("three", mains=mains)
        edited.edit(FAMILY)
        await edited.until_asked_back()
        edited.let_all_go()
        await stage.pass_time(120)
        if comes:
            restart(stage, "three")
        stage.api.go.clear()
        await stage.until(lambda: stage.api.halted)  # type: ignore[attr-defined]
        assert edited.placed_as == "main"
        restart(stage, "three", mains=mains if comes else ())
        await stage.pass_time(5)
        stage.api.go.set()
        await stage.pass_time(5)
        assert edited.placed_as == "main"
        if not comes:
            await stage.until(lambda: edited.placed_as == "controlled")


@in_virtual_time
async def test_of_what_was_controlled_all_along_it_is_told_that_a_shard_has_it_as_main(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(FAMILY), None)
    stage.start("one", mains=[OWNERS.group_resource, CHILDREN.group_resource])
    async with leading(stage):
        await stage.until(lambda: stage.condition("ShardsFit") == "False")
        assert "list it as a main resource" in stage.events.of("ControlledAsMain")[0]
        await stage.until(lambda: stage.condition("Settled") == "True")
        edited = Edited(stage, {}, {}, {}, "")
        edited.edit(ALONE, OTHERS)
        await stage.until(lambda: stage.condition("ShardsFit") == "True")


@in_virtual_time
async def test_what_a_shard_has_that_is_gone_goes_to_its_owner(clock: VirtualClock) -> None:
    async with settled(clock) as edited:
        stage = edited.stage
        edited.edit(FAMILY)
        await edited.until_asked_back()
        stage.crash("two")
        await stage.until(lambda: stage.label(OWNERS, edited.owners["two"]) == "one")
        for name in (edited.apart["two"], edited.together["two"], edited.apart["one"]):
            await stage.until(lambda name=name: stage.label(CHILDREN, name) == "one")  # type: ignore[misc]
        await stage.until(lambda: edited.placed_as == "controlled")
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert stage.label(CHILDREN, edited.orphan) is None
        assert not edited.taken


@in_virtual_time
async def test_an_owner_whose_shard_is_gone_does_not_wait_for_what_is_asked_back(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE, OTHERS), None)
    shards = (*SHARDS, "three")
    for shard in shards:
        stage.start(shard)
    then_on_one = names_on("one", "one", "three", count=50)
    name = next(each for each in names_on("two", *shards, count=50) if each in then_on_one)
    owner = stage.create(OWNERS, thing(name, shard="two"))
    [elsewhere, with_it] = [names_on(shard, *shards, resource=CHILDREN)[0] for shard in ("three", "two")]
    stage.create(CHILDREN, thing(elsewhere, shard="three", owner=owner))
    stage.create(CHILDREN, thing(with_it, shard="two", owner=owner))
    edited = Edited(stage, {}, {"three": elsewhere}, {"two": with_it}, elsewhere)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        edited.edit(FAMILY)
        await stage.until(lambda: stage.draining(CHILDREN, elsewhere))
        stage.crash("two")
        await stage.until(lambda: stage.label(OWNERS, name) == "one")
        assert stage.label(CHILDREN, with_it) == "one"
        assert stage.label(CHILDREN, elsewhere) == "three"
        edited.let_go(elsewhere)
        await stage.until(lambda: edited.placed_as == "controlled")
        assert stage.label(CHILDREN, elsewhere) == "one"


@in_virtual_time
async def test_what_was_main_by_mistake_is_controlled_again_though_nobody_lets_go(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(FAMILY), *SHARDS)
    edited = Edited(stage, {}, {}, {}, "")
    owner = stage.create(OWNERS, thing(names_on("one", *SHARDS)[0]))
    [child] = names_on("two", *SHARDS, resource=CHILDREN)
    stage.create(CHILDREN, thing(child, owner=owner))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        edited.edit(ALONE, OTHERS)
        await stage.until(lambda: stage.draining(CHILDREN, child))
        assert edited.placed_as == "main"
        edited.edit(FAMILY)
        await stage.until(lambda: edited.placed_as == "controlled")
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert stage.label(CHILDREN, child) == "one"


@in_virtual_time
async def test_it_is_main_again_when_the_ring_says_so_again(clock: VirtualClock) -> None:
    async with settled(clock) as edited:
        stage = edited.stage
        edited.edit(FAMILY)
        await edited.until_asked_back()
        edited.edit(ALONE, OTHERS)
        await stage.pass_time(5)
        edited.let_all_go()
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert {shard: stage.label(CHILDREN, name) for shard, name in edited.apart.items()} == {
            "one": "one", "two": "two",
        }  # fmt: skip
        assert stage.label(CHILDREN, edited.orphan) == "two"
        assert edited.placed_as == "main"
        assert not edited.taken


@in_virtual_time
async def test_by_ranges_an_edit_of_the_parts_moves_nothing(clock: VirtualClock) -> None:
    served = {OWNERS.group_resource: OWNERS, CHILDREN.group_resource: CHILDREN}
    async with ranged(clock, *SHARDS) as made, sharder(made.stage) as assignment:
        await made.until_spread(*SHARDS)
        await clock.sleep(60)
        writes = made.writes()
        for resources in ((ALONE, OTHERS), (FAMILY,), (ALONE, OTHERS)):
            spec = parse_ring(ring(*resources, assignment="Ranges", hashBy="Namespace"))
            assignment.place(Wanted(resolve(spec, served)[0], ()))
            await clock.sleep(60)
        assert made.writes() == writes
