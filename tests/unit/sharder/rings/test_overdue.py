"""A drain that is overdue stays so when another replica leads, which has not seen for how long it waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from sharder.replica import Replica
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    OWNERS,
    SETTINGS,
    Stage,
    make_replica,
    make_stage,
    names_on,
    ring,
    scrape,
    thing,
)


@asynccontextmanager
async def leads(stage: Stage, number: int) -> AsyncIterator[Replica]:
    """One replica after another."""
    replica = make_replica(stage, replace(SETTINGS, identity=f"sharder-{number}"))
    task = asyncio.create_task(replica.run())
    await stage.until(lambda: replica.elector.is_leader)
    yield replica
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def overdue_stage(clock: VirtualClock) -> tuple[Stage, str]:
    """A ring whose first shard lets go of an object never, for twenty minutes; the object."""
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "one")
    [name] = names_on("two", "one", "two")
    stage.create(OWNERS, thing(name, shard="one"))
    async with leads(stage, 0):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.start("two")
        await stage.until(lambda: stage.condition("DrainsAcknowledged") == "False")
        await stage.pass_time(1200)
    return stage, name


@in_virtual_time
async def test_it_is_neither_taken_back_nor_young_again_until_it_is_acknowledged(clock: VirtualClock) -> None:
    stage, name = await overdue_stage(clock)
    before, said = stage.said("DrainsAcknowledged"), set[str]()
    stage.server.listeners.append(lambda change: said.add(stage.said("DrainsAcknowledged")["status"]))
    for number in (1, 2, 3):
        async with leads(stage, number) as replica:
            await stage.pass_time(number * 40)
            [age] = scrape(replica, replica._metrics.oldest_drain_age)
            assert age > 1200
    assert said == {"False"}
    assert stage.said("DrainsAcknowledged")["lastTransitionTime"] == before["lastTransitionTime"]
    assert len(stage.events.of("Overdue")) == 1
    assert not stage.events.of("Acknowledged")
    async with leads(stage, 4) as replica:
        await stage.pass_time(10)
        stage.acknowledge(name)
        await stage.until(lambda: stage.condition("DrainsAcknowledged") == "True")
        assert scrape(replica, replica._metrics.oldest_drain_age) == [0]
    for shard in stage.shards.values():
        shard.cancel()


@in_virtual_time
async def test_one_that_was_acknowledged_while_nobody_led_is_told_so(clock: VirtualClock) -> None:
    stage, name = await overdue_stage(clock)
    stage.acknowledge(name)
    async with leads(stage, 1):
        await stage.until(lambda: stage.condition("DrainsAcknowledged") == "True", seconds=60)
        assert len(stage.events.of("Acknowledged")) == 1
    for shard in stage.shards.values():
        shard.cancel()


@in_virtual_time
async def test_others_that_began_since_are_not_said_to_be_as_old(clock: VirtualClock) -> None:
    stage, name = await overdue_stage(clock)
    stage.server.delete(OWNERS, name, "default")
    for other in names_on("two", "one", "two", count=4)[1:]:
        stage.create(OWNERS, thing(other, shard="one"))
    async with leads(stage, 1) as replica:
        await stage.until(lambda: scrape(replica, replica._metrics.draining) == [3])
        for _ in range(10):
            await stage.pass_time(4)
            [age] = scrape(replica, replica._metrics.oldest_drain_age)
            assert age <= 60
            assert name in stage.message("DrainsAcknowledged") or stage.condition("DrainsAcknowledged") == "True"
    for shard in stage.shards.values():
        shard.cancel()


@in_virtual_time
async def test_a_younger_one_is_not_taken_for_it_for_long(clock: VirtualClock) -> None:
    stage, name = await overdue_stage(clock)
    stage.server.delete(OWNERS, name, "default")
    async with leads(stage, 1) as replica:
        await stage.until(lambda: stage.condition("Settled") == "True")
        [other] = names_on("two", "one", "two", count=2)[1:]
        stage.create(OWNERS, thing(other, shard="one", draining=True))
        await stage.pass_time(30)
        assert stage.condition("DrainsAcknowledged") == "True"
        [age] = scrape(replica, replica._metrics.oldest_drain_age)
        assert age <= 30
    for shard in stage.shards.values():
        shard.cancel()


@in_virtual_time
async def test_one_of_a_shard_that_gets_nothing_is_told_too(clock: VirtualClock) -> None:
    """Nobody moves it, or releases it: two leases have the shard's name."""
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "one", "two")
    [name] = names_on("two", "one", "two")
    stage.create(OWNERS, thing(name, shard="one"))
    async with leads(stage, 0):
        await stage.until(lambda: stage.draining(OWNERS, name))
        stage.start("one", namespace="elsewhere")
        await stage.pass_time(3600)
        assert stage.condition("DrainsAcknowledged") == "False"
