"""A leader that renews too slowly notices no crash; people hear of that, and no lease is taken meanwhile."""

from __future__ import annotations

from sharder.replica import Replica
from sharder.takeover.alarm import RESUMED, SUSPENDED
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import RING, SlowApi, Stage, leading, make_stage, ring


def slow_stage(clock: VirtualClock) -> tuple[Stage, SlowApi]:
    stage = make_stage(clock, api=SlowApi)
    assert isinstance(stage.api, SlowApi)
    stage.create(CLUSTERRINGS, ring(), None)
    return stage, stage.api


def suspended(replica: Replica) -> float:
    metrics = replica._metrics
    return float(metrics.detection_suspended.labels(RING)._value.get())


@in_virtual_time
async def test_renewals_that_stay_slow_suspend_detection_until_they_are_quick_again(clock: VirtualClock) -> None:
    stage, api = slow_stage(clock)
    for shard in ("one", "two"):
        stage.start(shard)
    async with leading(stage) as replica:
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert suspended(replica) == 0
        api.slow[LEASES.plural] = 3.0
        stage.crash("two")
        await stage.pass_time(60)
        assert stage.holder("two") == "two", "nobody can tell whether it crashed"
        assert suspended(replica) == 1
        [message] = stage.events.of(SUSPENDED)
        assert "5.0 s are bearable for leases of 15 s" in message
        assert "leaderElection.retryPeriod (now 2s)" in message
        api.slow.clear()
        await stage.until(lambda: stage.holder("two") != "two", seconds=30)
        assert suspended(replica) == 0
        assert len(stage.events.of(RESUMED)) == 1


@in_virtual_time
async def test_what_a_ring_bears_is_decided_by_its_shortest_lease(clock: VirtualClock) -> None:
    stage, api = slow_stage(clock)
    stage.start("long")
    async with leading(stage) as replica:
        api.slow[LEASES.plural] = 1.5
        await stage.pass_time(30)
        assert suspended(replica) == 0
        stage.start("short", duration=6)
        await stage.until(lambda: suspended(replica) == 1, seconds=10)
        assert "3.0 s are bearable for leases of 6 s" in stage.events.of(SUSPENDED)[0]


@in_virtual_time
async def test_one_outage_is_no_slowness(clock: VirtualClock) -> None:
    stage, api = slow_stage(clock)
    stage.start("one")
    async with leading(stage) as replica:
        await stage.pass_time(20)
        api.slow[LEASES.plural] = 5.0
        await stage.pass_time(3)
        api.slow.clear()
        await stage.pass_time(30)
        assert suspended(replica) == 0
        assert not stage.events.of(SUSPENDED)
