"""A leader that is told to stop: what it begins no more, and what it hands back at once."""

from __future__ import annotations

import asyncio

from sharder.replica import Replica
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    LABELS,
    OWNERS,
    RING,
    SHARDS,
    SlowApi,
    Stage,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)


def leader(stage: Stage) -> str | None:
    return stage.holder("sharder", "sharding-system")


def two_shards(clock: VirtualClock, objects: int) -> Stage:
    """A ring of two shards; `one` has objects."""
    stage = make_stage(clock, api=SlowApi)
    stage.set_up(ring(ALONE), "one", "two")
    for name in names_on("one", "one", "two", count=objects):
        stage.create(OWNERS, thing(name, shard="one"))
    return stage


async def stop_while_it_writes(stage: Stage, replica: Replica, *, seconds: float) -> asyncio.Task[None]:
    """Tell the leader of a settled ring to stop once it has sent a patch that takes so long."""
    assert isinstance(stage.api, SlowApi)
    await stage.until(lambda: stage.condition("Settled") == "True")
    stage.api.slow[OWNERS.plural] = seconds
    before = stage.patches(OWNERS)
    stage.create(OWNERS, thing("new"))
    await stage.until(lambda: stage.patches(OWNERS) > before)
    return asyncio.create_task(replica.resign())


@in_virtual_time
async def test_a_leader_that_was_told_to_stop_takes_over_no_lease(clock: VirtualClock) -> None:
    stage = two_shards(clock, objects=3)
    async with leading(stage) as replica:
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.crash("one")
        await stage.pass_time(12)
        asked_at = clock.monotonic()
        await replica.resign()
        assert clock.monotonic() - asked_at <= 1.5
        assert leader(stage) == "", "the next leader need not wait"
        await stage.pass_time(30)
        assert stage.holder("one") == "one"
        # It still serves the webhook, from caches that are kept.
        view = replica.cache.view(RING)
        assert view is not None
        assert not view.stale


@in_virtual_time
async def test_a_leader_that_stops_amid_a_takeover_gives_everything_back_at_once(clock: VirtualClock) -> None:
    stage = two_shards(clock, objects=200)
    assert isinstance(stage.api, SlowApi)

    def moved() -> int:
        things = stage.server.select(OWNERS)
        return sum(1 for each in things if each["metadata"]["labels"].get(LABELS.shard) == "two")

    async with leading(stage) as replica:
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.slow[OWNERS.plural] = 0.5
        stage.crash("one")
        await stage.until(lambda: moved() > 10)
        assert stage.holder("one") == SHARDER_HOLDER
        asked_at = clock.monotonic()
        stopping = asyncio.create_task(replica.resign())
        await stage.until(lambda: leader(stage) == "", seconds=1.5)
        await stopping
        assert clock.monotonic() - asked_at <= 1.5
        assert stage.holder("one") == "", "its shard may start at once"
        moved_until_then, left = moved(), clock.monotonic()
        await stage.pass_time(20)
        assert moved() == moved_until_then < 200
        assert clock.monotonic() > left
    # Whoever leads next goes on where this one stopped.
    stage.api.slow.clear()
    async with leading(stage):
        await stage.until(lambda: moved() == 200, seconds=20)
    assert stage.holder("one", SHARDS) in ("", SHARDER_HOLDER)


@in_virtual_time
async def test_a_leader_that_stops_does_not_give_its_lease_away_while_its_writes_may_be_executed(
    clock: VirtualClock,
) -> None:
    stage = two_shards(clock, objects=3)
    async with leading(stage) as replica:
        stopping = await stop_while_it_writes(stage, replica, seconds=8.0)
        for _ in range(14):
            await stage.pass_time(0.5)
            assert leader(stage) == "sharder-a"
        await stopping
        assert leader(stage) == ""
        assert stage.label(OWNERS, "new") is not None


@in_virtual_time
async def test_a_leader_that_stops_writes_nothing_more_while_it_waits_for_what_it_has_sent(
    clock: VirtualClock,
) -> None:
    """Else what is written last is on its way when the next leader begins."""
    stage = two_shards(clock, objects=3)
    async with leading(stage) as replica:
        before = stage.patches(OWNERS)
        stopping = await stop_while_it_writes(stage, replica, seconds=0.8)
        await stage.pass_time(0.1)
        stage.create(OWNERS, thing("newer"))
        await stopping
        assert stage.patches(OWNERS) == before + 1
        assert stage.label(OWNERS, "new") is not None
        assert stage.label(OWNERS, "newer") is None
