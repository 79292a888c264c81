"""Shards that are about to leave, that are left to their next process, that fail, and that renew irregularly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from sharder.core.resync import SILENCE_SECONDS
from sharder.replica import Replica
from shardsdk.errors import ConnectionFailed
from shardsdk.kube.api import ListOptions, Selection, T, WatchEvent, WatchOptions
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    CHILDREN,
    OWNERS,
    RING,
    SHARDS,
    Stage,
    leading,
    lease,
    make_replica,
    make_stage,
    names_on,
    ring,
    running,
    thing,
)
from tests.unit.sharder.takeover.test_silence import SHARDS_OF_RING, Story, new_names, settled_ring

HAD = names_on("one", *SHARDS_OF_RING, count=10)


def on(stage: Stage, names: list[str]) -> set[str | None]:
    return {stage.label(OWNERS, name) for name in names}


async def create(stage: Stage, names: list[str]) -> None:
    for name in names:
        stage.create(OWNERS, thing(name))
    await stage.until(lambda: None not in on(stage, names), seconds=2)


@in_virtual_time
async def test_a_shard_that_is_about_to_leave_gets_nothing_new_and_gives_away_what_it_has(clock: VirtualClock) -> None:
    stage, story = settled_ring(clock)
    async with leading(stage):
        await stage.until_settled()
        stage.leave_soon("one")
        await clock.sleep(0.1)
        await create(stage, new_names())
        assert "one" not in on(stage, new_names())
        await stage.until(lambda: "one" not in on(stage, HAD), seconds=3)
        assert story.drains == len(HAD), "each was asked for, and nothing of others"
        await stage.until(lambda: "one will leave soon" in stage.message("ShardsAvailable"), seconds=5)
        await stage.pass_time(30)
        assert stage.holder("one") == "one", "it holds its lease for what still runs"
        stage.release("one")
        await stage.until_settled()
        await stage.pass_time(60)
        assert story.drains == len(HAD)
        assert "leave" not in stage.message("ShardsAvailable")


@in_virtual_time
async def test_what_a_leaving_shard_does_not_give_away_stays_with_it_while_it_holds_its_lease(
    clock: VirtualClock,
) -> None:
    stage, story = settled_ring(clock)
    async with leading(stage):
        await stage.until_settled()
        story._acknowledge = lambda name: None  # type: ignore[method-assign]
        stage.leave_soon("one")
        await stage.pass_time(40)
        assert on(stage, HAD) == {"one"}, "it may be at work on them"
        assert any(stage.draining(OWNERS, name) for name in HAD)
        stage.crash("one")
        await stage.pass_time(12)
        assert on(stage, HAD) == {"one"}
        await stage.until(lambda: "one" not in on(stage, HAD), seconds=20)


@pytest.mark.parametrize("others", ["silent", "left", "leaving", "unsteady"])
def test_nothing_moves_off_a_leaving_shard_that_nobody_else_could_take(others: str) -> None:
    @in_virtual_time
    async def scene(clock: VirtualClock) -> None:
        stage, story = settled_ring(clock)
        async with leading(stage):
            await stage.until_settled()
            for shard in ("two", "three"):
                if others == "left":
                    stage.leave_in_grace(shard, 60)
                elif others == "leaving":
                    stage.leave_soon(shard)
                else:
                    stage.crash(shard)
            if others == "unsteady":
                await stage.until(lambda: stage.holder("two") == stage.holder("three") == "", seconds=60)
                for shard in ("two", "three"):
                    stage.start(shard)
            await stage.pass_time(7)
            drains = story.drains
            stage.leave_soon("one")
            await stage.pass_time(5)
            assert on(stage, HAD) == {"one"}
            assert story.drains == drains

    scene()


@in_virtual_time
async def test_families_go_away_from_a_leaving_shard_and_nobodys_do_not_go_there(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(), "one", "two")
    (mine,) = names_on("one", "one", "two")
    owner = stage.create(OWNERS, thing(mine, shard="one"))
    stage.create(CHILDREN, thing("child", shard="one", owner=owner))
    Story(stage)
    async with leading(stage):
        await stage.until_settled()
        stage.leave_soon("one")
        await stage.until(
            lambda: stage.label(OWNERS, mine) == stage.label(CHILDREN, "child") == "two" and not
            stage.draining(OWNERS, mine), seconds=5,
        )  # fmt: skip


@in_virtual_time
async def test_a_process_that_comes_after_one_that_was_leaving_is_as_any(clock: VirtualClock) -> None:
    stage, story = settled_ring(clock)
    async with leading(stage):
        await stage.until_settled()
        stage.leave_soon("one")
        await stage.until(lambda: "one" not in on(stage, HAD), seconds=3)
        stage.release("one")
        await stage.pass_time(20)
        stage.start("one")
        await stage.until(lambda: on(stage, HAD) == {"one"}, seconds=5)
        assert story.drains == 2 * len(HAD)


class Deaf(MemoryApi):
    """While `deaf`, neither leases nor rings are listed or watched; all that is read or written by its name is."""

    deaf = False

    async def read_pages(self, selection: Selection[T], options: ListOptions) -> AsyncIterator[list[T]]:
        self._check(selection)
        async for page in super().read_pages(selection, options):
            yield page

    async def read_events(self, selection: Selection[T], options: WatchOptions) -> AsyncIterator[WatchEvent[T]]:
        self._check(selection)
        async for event in super().read_events(selection, options):
            self._check(selection)
            yield event

    def _check(self, selection: Selection[Any]) -> None:
        if self.deaf and selection.resource in (LEASES, CLUSTERRINGS):
            raise ConnectionFailed("no answer")


@in_virtual_time
async def test_who_begins_to_lead_after_it_was_cut_off_takes_no_shard_for_the_one_that_was_leaving(
    clock: VirtualClock,
) -> None:
    stage, story = settled_ring(clock, api=Deaf)
    assert isinstance(stage.api, Deaf)
    election = lease(clock, "another", duration=60, fenced=False)
    election["metadata"] = {"name": "sharder"}
    stage.create(LEASES, election, "sharding-system")
    replica = make_replica(stage)
    async with running(stage, replica.run()):
        await stage.pass_time(5)
        stage.leave_soon("one")
        await stage.pass_time(1)
        stage.api.deaf = True
        stage.release("one")
        await stage.pass_time(1.5)
        stage.start("one")
        await stage.until(lambda: replica.elector.is_leader)
        await stage.pass_time(10)
        assert not story.drains, "it has not heard of the one that has come since"
        stage.api.deaf = False
        await stage.until_settled()
        await stage.pass_time(20)
        assert not story.drains
        assert on(stage, HAD) == {"one"}


@in_virtual_time
async def test_nothing_goes_to_a_shard_that_was_left_with_a_grace_and_what_it_has_stays(clock: VirtualClock) -> None:
    stage, story = settled_ring(clock, objects=40)
    had = names_on("one", *SHARDS_OF_RING, count=40)
    async with leading(stage):
        await stage.until_settled()
        stage.start("four")
        await stage.until(lambda: story.drains > 3, seconds=3)
        stage.leave_in_grace("four", 60)
        await clock.sleep(0.5)
        drains = story.drains
        names = names_on("four", *SHARDS_OF_RING, "four", count=60)[-10:]
        await create(stage, names)
        assert "four" not in on(stage, names)
        await stage.pass_time(50)
        assert story.drains == drains, "nobody is there who would take it"
        stage.leave_in_grace("one", 60)
        await stage.pass_time(50)
        assert "one ended with a restart grace" in stage.message("ShardsAvailable")
        mine = [name for name in had if stage.label(OWNERS, name) == "one"]
        assert mine
        stage.start("one")
        await stage.pass_time(30)
        assert set(mine) <= {name for name in had if stage.label(OWNERS, name) == "one"}
        await stage.until(lambda: "grace" not in stage.message("ShardsAvailable"), seconds=5)


@pytest.mark.parametrize("how", ["killed", "failed"])
def test_a_shard_that_ends_soon_after_each_start_gets_nothing_that_others_have(how: str) -> None:
    """Killed, it is back within its lease each time; failing, it gives it back."""

    @in_virtual_time
    async def scene(clock: VirtualClock) -> None:
        stage, story = settled_ring(clock)
        async with leading(stage):
            await stage.until_settled()
            stage.crash("one")
            stage.start("one", instance="1")
            await stage.pass_time(20)
            for life in range(6):
                await stage.pass_time(3)
                if how == "failed":
                    stage.release("one", failed=True)
                else:
                    stage.crash("one")
                await stage.pass_time(8)
                if life == 0:
                    await create(stage, new_names())  # past it
                stage.start("one", instance="1")
            await stage.pass_time(3)
            assert not story.drains
            assert "one crashed lately" in stage.message("ShardsAvailable")
            await stage.pass_time(100)
            assert not story.drains, "it is to show for longer that it lives"
            await stage.until(lambda: on(stage, new_names()) == {"one"}, seconds=60)
            await stage.until_settled()
            await stage.until(lambda: "crashed" not in stage.message("ShardsAvailable"), seconds=5)

    scene()


def passes(replica: Replica) -> int:
    """How often everything was gone through."""
    return int(
        sum(
            sample.value
            for family in replica._metrics.ring(RING).resync_duration.collect()
            for sample in family.samples
            if sample.name.endswith("_count")
        )
    )


@pytest.mark.parametrize("irregular", [1, 3])
def test_shards_that_renew_irregularly_have_few_passes_made_over_all_objects(irregular: int) -> None:
    @in_virtual_time
    async def scene(clock: VirtualClock) -> None:
        stage, _ = settled_ring(clock)
        rng = Random(3)

        async def renew(shard: str) -> None:
            while True:
                await asyncio.sleep(rng.uniform(1, 7))
                stage._patch_lease(shard, SHARDS, stage._renewed(shard, SHARDS))

        for shard in SHARDS_OF_RING[:irregular]:
            stage.shards[shard].cancel()
            stage.shards[shard] = asyncio.create_task(renew(shard))
        async with leading(stage) as replica:
            await stage.until_settled()
            before = passes(replica)
            unsettled = 0
            for _ in range(1800):
                await clock.sleep(1)
                unsettled += stage.condition("Settled") != "True"
            assert passes(replica) - before <= 3 * 1800 / SILENCE_SECONDS
            assert unsettled < 180

    scene()
