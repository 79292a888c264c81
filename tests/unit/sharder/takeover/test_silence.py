"""Shards that are silent get nothing new, and shards that crash again and again get nothing that another has."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.testing.memory import Change
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    LABELS,
    OWNERS,
    RING,
    SETTINGS,
    Stage,
    leading,
    make_replica,
    make_stage,
    names_on,
    ring,
    running,
    thing,
)

SHARDS_OF_RING = ("one", "two", "three")


class Story:
    """What became of each object: every label and drain that it had, in order; drains are acknowledged at once."""

    def __init__(self, stage: Stage) -> None:
        self.of: dict[str, list[str]] = {}
        self.drains = 0
        self._stage = stage
        stage.server.listeners.append(self._look)

    def _look(self, change: Change) -> None:
        if change.resource != OWNERS.group_resource or change.new is None:
            return
        metadata = change.new["metadata"]
        labels, story = metadata.get("labels") or {}, self.of.setdefault(metadata["name"], [])
        now = labels.get(LABELS.shard, "nobody")
        if LABELS.drain in labels:
            self.drains += 1
            asyncio.get_running_loop().call_later(0.01, self._acknowledge, metadata["name"])
        elif not story or story[-1] != now:
            story.append(now)

    def _acknowledge(self, name: str) -> None:
        if self._stage.draining(OWNERS, name) and self._stage.label(OWNERS, name) in self._stage.shards:
            self._stage.acknowledge(name)


def settled_ring(clock: VirtualClock, objects: int = 10, *, api: type[MemoryApi] = MemoryApi) -> tuple[Stage, Story]:
    """Three shards, and for each of them objects that are on it."""
    stage = make_stage(clock, api=api)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    for shard in SHARDS_OF_RING:
        stage.start(shard)
        for name in names_on(shard, *SHARDS_OF_RING, count=objects):
            stage.create(OWNERS, thing(name, shard=shard))
    return stage, Story(stage)


def new_names(count: int = 20) -> list[str]:
    """Names of objects whose place is shard `one`, and which are not there yet."""
    return names_on("one", *SHARDS_OF_RING, count=count + 10)[10:]


@in_virtual_time
async def test_what_is_new_goes_past_a_dead_shard_and_stays_where_it_went(clock: VirtualClock) -> None:
    stage, story = settled_ring(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.crash("one")
        # Two renewals that did not come, and the second in which the shards are looked at.
        await stage.pass_time(7)
        assert stage.holder("one") == "one", "it is still in the ring"
        for name in new_names():
            stage.create(OWNERS, thing(name))
        took = await stage.until(lambda: all(stage.label(OWNERS, name) for name in new_names()))
        assert took <= 2
        await stage.until(lambda: stage.condition("Settled") == "True" and stage.holder("one") == "", seconds=60)
        assert all(len(story.of[name]) == 2 for name in new_names()), "nobody, and then its shard"
        assert not story.drains


@in_virtual_time
async def test_what_a_dead_shard_had_goes_past_another_that_is_silent(clock: VirtualClock) -> None:
    stage, story = settled_ring(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.crash("one")
        await stage.pass_time(6)
        stage.crash("two")
        had = names_on("one", *SHARDS_OF_RING, count=10)
        await stage.until(lambda: all(stage.label(OWNERS, name) != "one" for name in had), seconds=30)
        assert {stage.label(OWNERS, name) for name in had} == {"three"}
        await stage.pass_time(60)
        assert all(story.of[name] == ["three"] for name in had)


@in_virtual_time
async def test_a_shard_that_was_late_gets_what_is_its_own_once_and_no_more(clock: VirtualClock) -> None:
    stage, story = settled_ring(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.crash("one")
        await stage.pass_time(7)
        for name in new_names():
            stage.create(OWNERS, thing(name))
        await stage.until(lambda: all(stage.label(OWNERS, name) for name in new_names()))
        assert not story.drains, "nothing is drained for a shard that does not answer"
        stage.start("one")
        await stage.until(lambda: all(stage.label(OWNERS, name) == "one" for name in new_names()), seconds=10)
        await stage.pass_time(120)
        for name in new_names():
            came, stood_in, *rest = story.of[name]
            assert came == "nobody"
            assert stood_in in ("two", "three")
            assert [each for each in rest if each != "nobody"] == ["one"]
        assert story.drains == len(new_names())


@pytest.mark.parametrize("seconds", [7.1, 7.4, 7.7])
def test_a_shard_that_renews_again_gets_back_at_once_what_it_was_to_give_away(seconds: float) -> None:
    """The shard that it was drained for has left meanwhile; `seconds` is when, between two looks at who is silent."""

    @in_virtual_time
    async def scene(clock: VirtualClock) -> None:
        stage, story = settled_ring(clock)
        async with leading(stage):
            await stage.until(lambda: stage.condition("Settled") == "True")
            stage.crash("one")
            stage.start("four")
            had = names_on("one", *SHARDS_OF_RING, count=10)
            await stage.until(lambda: any(stage.draining(OWNERS, name) for name in had), seconds=3)
            stage.release("four")
            await stage.pass_time(seconds)
            mine = [name for name in had if stage.draining(OWNERS, name)]
            assert mine, "nobody is there who could let go"
            stage.start("one")
            for name in mine:
                stage.acknowledge(name)
            await stage.until(lambda: all(stage.label(OWNERS, name) for name in mine))
            await stage.pass_time(30)
            for name in mine:
                assert [each for each in story.of[name] if each != "nobody"] == ["one"], name

    scene()


@in_virtual_time
async def test_an_outage_makes_nobody_silent_and_moves_nothing(clock: VirtualClock) -> None:
    stage, story = settled_ring(clock)
    async with leading(stage) as replica:
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.fault = Fault.REFUSED
        for shard in SHARDS_OF_RING:
            stage.crash(shard)
        await stage.pass_time(60)
        stage.api.fault = Fault.NONE
        for shard in SHARDS_OF_RING:
            stage.start(shard)
            await stage.pass_time(1.5)
            for name in new_names(5):
                if stage.server.find(OWNERS, name, "default") is None:
                    stage.create(OWNERS, thing(name))
        await stage.until(lambda: replica.elector.is_leader and stage.condition("Settled") == "True")
        await stage.pass_time(30)
        assert not story.drains
        assert all(stage.label(OWNERS, name) == "one" for name in new_names(5))


@in_virtual_time
async def test_a_replica_that_does_not_lead_knows_who_is_silent_as_well(clock: VirtualClock) -> None:
    stage, _ = settled_ring(clock)
    async with leading(stage):
        standby = make_replica(stage, replace(SETTINGS, identity="standby"))
        async with running(stage, standby.run()):
            await stage.pass_time(20)
            stage.crash("one")
            await stage.pass_time(7)
            view = standby.cache.view(RING)
            assert view is not None
            assert view.membership.silent == {"one"}
            assert view.membership.available == set(SHARDS_OF_RING)


@in_virtual_time
async def test_nothing_is_drained_for_a_shard_that_crashes_again_and_again(clock: VirtualClock) -> None:
    stage, story = settled_ring(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        for _ in range(4):
            await stage.pass_time(5)
            stage.crash("one")
            await stage.until(lambda: stage.holder("one") == "", seconds=60)
            await stage.pass_time(20)
            assert not story.drains
            stage.start("one")
        # It lives; the fourth time it has to show that for longer than the first.
        await stage.pass_time(60)
        assert not story.drains
        had = names_on("one", *SHARDS_OF_RING, count=10)
        await stage.until(lambda: all(stage.label(OWNERS, name) == "one" for name in had), seconds=90)
        assert story.drains == len(had)


@in_virtual_time
async def test_after_one_crash_a_shard_gets_its_objects_back_once_it_has_held_its_lease_for_a_duration(
    clock: VirtualClock,
) -> None:
    stage, _ = settled_ring(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.crash("one")
        await stage.until(lambda: stage.holder("one") == "", seconds=60)
        stage.start("one")
        had = names_on("one", *SHARDS_OF_RING, count=10)
        new = new_names(1)[0]
        await stage.pass_time(2)
        stage.create(OWNERS, thing(new))
        await stage.until(lambda: stage.label(OWNERS, new) == "one", seconds=2)
        took = await stage.until(lambda: all(stage.label(OWNERS, name) == "one" for name in had), seconds=30)
        assert 11 <= took <= 17


@in_virtual_time
async def test_a_new_shard_and_one_that_left_in_order_get_their_share_at_once(clock: VirtualClock) -> None:
    stage, story = settled_ring(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.start("four")
        await stage.until(lambda: bool(story.drains), seconds=3)
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=60)
        stage.release("one")
        had = names_on("one", *SHARDS_OF_RING, count=10)
        await stage.until(lambda: all(stage.label(OWNERS, name) != "one" for name in had))
        await stage.until(lambda: stage.holder("one") == "", seconds=60)
        drains = story.drains
        stage.start("one")
        await stage.until(lambda: story.drains > drains, seconds=3)


@in_virtual_time
async def test_a_shard_that_is_not_steady_yet_takes_what_a_dead_one_had(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "one", "two")
    for name in names_on("two", "one", "two", count=5):
        stage.create(OWNERS, thing(name, shard="two"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.crash("one")
        stage.create(OWNERS, thing("left", shard="one"))
        await stage.until(lambda: stage.holder("one") == "", seconds=60)
        stage.start("one")
        await stage.pass_time(1)
        stage.release("two")
        had = names_on("two", "one", "two", count=5)
        took = await stage.until(lambda: all(stage.label(OWNERS, name) == "one" for name in had), seconds=30)
        assert took <= 2
