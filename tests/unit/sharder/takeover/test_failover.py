"""A leader that dies together with a shard: how long that shard's objects wait, and what is never taken early."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shardsdk.errors import ServerError
from shardsdk.kube.api import Operation, T
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.processes import Process
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    LABELS,
    OWNERS,
    SETTINGS,
    Stage,
    make_replica,
    make_stage,
    names_on,
    ring,
    thing,
)


class Refusing(MemoryApi):
    """While `refuses`, no write to a lease is taken; reads are answered."""

    refuses = False

    async def send(self, operation: Operation[T]) -> T:
        if self.refuses and operation.writes and operation.resource == LEASES:
            raise ServerError("etcdserver: mvcc: database space exceeded", status=500, reason="InternalError")
        return await super().send(operation)


def start(stage: Stage, identity: str) -> Process:
    """A replica as a process, which can be killed."""
    process = Process(identity)
    process.start(make_replica(stage, dataclasses.replace(SETTINGS, identity=identity)).run())
    return process


def leader(stage: Stage) -> str | None:
    return stage.holder("sharder", "sharding-system")


def on(stage: Stage, shard: str) -> int:
    """How many objects a shard has."""
    things = stage.server.select(OWNERS)
    return sum(1 for each in things if each["metadata"].get("labels", {}).get(LABELS.shard) == shard)


@asynccontextmanager
async def led(clock: VirtualClock, *, fenced: bool = True) -> AsyncIterator[tuple[Stage, Process]]:
    """A settled ring of three shards with ten objects on each; what leads it."""
    stage = make_stage(clock, api=Refusing)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    for shard in ("one", "two", "three"):
        stage.start(shard, fenced=fenced)
        for name in names_on(shard, "one", "two", "three", count=10):
            stage.create(OWNERS, thing(name, shard=shard))
    first = start(stage, "a")
    await stage.until(lambda: stage.condition("Settled") == "True")
    try:
        yield stage, first
    finally:
        for task in stage.shards.values():
            task.cancel()


@in_virtual_time
async def test_a_standby_counts_what_it_saw_before_it_led(clock: VirtualClock) -> None:
    async with led(clock) as (stage, first):
        start(stage, "b")
        await stage.pass_time(20)
        first.kill()
        stage.crash("one")
        # The leader's lease has to run out as well, and is looked at every two seconds.
        assert await stage.until(lambda: on(stage, "one") == 0, seconds=60) <= 19


@in_virtual_time
async def test_of_an_unfenced_shard_the_second_duration_is_counted_from_its_last_renewal_too(
    clock: VirtualClock,
) -> None:
    async with led(clock, fenced=False) as (stage, first):
        start(stage, "b")
        await stage.pass_time(20)
        first.kill()
        stage.crash("one")
        took = await stage.until(lambda: on(stage, "one") == 0, seconds=60)
        assert 28 <= took <= 32


@in_virtual_time
async def test_a_single_sharder_that_begins_anew_counts_while_it_waits_for_the_leaders_lease(
    clock: VirtualClock,
) -> None:
    async with led(clock, fenced=False) as (stage, first):
        first.kill()
        stage.crash("one")
        await stage.pass_time(2)
        start(stage, "a-again")
        took = await stage.until(lambda: on(stage, "one") == 0, seconds=90)
        assert 28 <= took <= 33


@in_virtual_time
async def test_a_standby_that_wrote_nothing_believes_no_time_in_which_leases_could_not_be_written(
    clock: VirtualClock,
) -> None:
    """Reads are answered all the time, and the leader is gone; no shard's lease may run out by that."""
    async with led(clock) as (stage, first):
        assert isinstance(stage.api, Refusing)
        start(stage, "b")
        await stage.pass_time(20)
        first.kill()
        living = list(stage.shards)
        for shard in living:
            stage.crash(shard)
        stage.api.refuses = True
        await stage.pass_time(60)
        stage.api.refuses = False
        await stage.until(lambda: leader(stage) == "b")
        # They have their whole duration to come back.
        await stage.pass_time(13)
        for shard in living:
            stage.start(shard)
        await stage.pass_time(30)
        assert [on(stage, shard) for shard in living] == [10, 10, 10]
        assert not any(stage.draining(OWNERS, each["metadata"]["name"]) for each in stage.server.select(OWNERS))


@in_virtual_time
async def test_a_standby_whose_watch_is_silent_takes_nobody_for_dead(clock: VirtualClock) -> None:
    async with led(clock) as (stage, first):
        start(stage, "b")
        await stage.pass_time(20)
        listen = stage.server.changes
        stage.server.changes = lambda resource, since: (  # type: ignore[method-assign]
            [] if resource == LEASES else listen(resource, since)
        )
        await stage.pass_time(5)
        first.kill()
        await asyncio.sleep(60)
        assert [on(stage, shard) for shard in ("one", "two", "three")] == [10, 10, 10]
        assert {stage.holder(shard) for shard in ("one", "two", "three")} == {"one", "two", "three"}
