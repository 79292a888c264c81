"""Drains that wait to be acknowledged, as a shard tells of them, and those that wait no more."""

from __future__ import annotations

from shardsdk.cache.objects import Request
from shardsdk.protocol.labels import DRAIN_VALUE
from shardsdk.protocol.objects import PartialObject
from shardsdk.reconcile.context import Context
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS, Lag, Rig


@in_virtual_time
async def test_the_oldest_of_those_that_wait_is_told_and_none_that_was_given_away(clock: VirtualClock) -> None:
    """Also while the cache still shows the one that was."""
    rig = Rig(clock)

    async def slow(context: Context[PartialObject]) -> None:
        await clock.sleep({"first": 20, "second": 40}.get(context.request.name, 0))

    for name in ("first", "second", "idle"):
        rig.secret(name)
    async with rig.shard(slow, owns=False):
        await clock.sleep(1)
        rig.drain("first")
        await clock.sleep(5)
        rig.drain("second")
        rig.drain("idle")
        await clock.sleep(0.0015)  # the events are here, the acknowledgement under way
        owners = Lag(rig, SECRETS, 1000)
        await clock.sleep(5)
        assert rig.labels("idle") == {}
        assert rig.counter("drains_waiting") == 2
        assert 9.9 < (rig.counter("oldest_drain_seconds") or 0) < 10.1
        await clock.sleep(15)
        assert rig.labels("first") == {}
        assert 19.9 < (rig.counter("oldest_drain_seconds") or 0) < 20.1, "the second one's"
        assert rig.resource.drains is not None
        assert rig.resource.drains.requests() == [Request("default", "second")]
        await clock.sleep(20)
        assert rig.counter("drains_waiting") == 0
        assert rig.counter("oldest_drain_seconds") == 0
        owners.seconds = 0


@in_virtual_time
async def test_what_was_given_away_is_not_given_away_again_while_the_cache_still_shows_it(clock: VirtualClock) -> None:
    """Its child brings it up, and whoever looks at it finds the drain label there."""
    rig = Rig(clock)
    rig.secret("mine")
    rig.child("mine", "child")
    async with rig.shard():
        await clock.sleep(5)
        rig.drain("mine")
        await clock.sleep(0.0015)  # the event is here, the acknowledgement under way
        Lag(rig, SECRETS, 1000)
        await clock.sleep(1)
        assert rig.labels("mine") == {}
        before = len(rig.api.writes)
        rig.server.patch(CONFIGMAPS, "child", "default", {"data": {"k": "v"}})
        await clock.sleep(5)
        assert len(rig.api.writes) == before
    assert rig.reconciled == ["mine"]
    assert rig.counter("acknowledgements_total") == 1


@in_virtual_time
async def test_one_that_comes_back_while_the_watch_has_missed_that_it_was_given_away_is_acknowledged(
    clock: VirtualClock,
) -> None:
    """The list that is begun anew shows a drain label then as before, on a newer object."""
    rig = Rig(clock)
    rig.secret("mine")
    async with rig.shard(owns=False):
        await clock.sleep(1)
        rig.drain("mine")
        await clock.sleep(0.0015)  # the event is here, the acknowledgement under way
        news = Lag(rig, SECRETS, 1000)
        await clock.sleep(5)
        assert rig.labels("mine") == {}
        rig.relabel(SECRETS, "mine", shard="shard-1", drain=DRAIN_VALUE)
        news.seconds, rig.server.compacted = 0, rig.server.version
        rig.nudge(SECRETS)
        await clock.sleep(60)
        assert rig.labels("mine") == {}


@in_virtual_time
async def test_who_is_about_to_end_begins_to_give_nothing_away(clock: VirtualClock) -> None:
    """Its lease goes in a moment, and with it all that it has."""
    rig = Rig(clock)
    rig.secret("mine")
    async with rig.shard():
        await clock.sleep(5)
        await rig.resource.stop()
        rig.drain("mine")
        await clock.sleep(30)
        assert RING.drain in rig.labels("mine")
