"""Whether a shard that is gone has nothing left that its lease is kept for: what is known of it, and what is read.

A lease that is given back or deleted too early lets its shard, or another of that name, work where somebody else does.
"""

from __future__ import annotations

from dataclasses import replace

from shardsdk.protocol.ranges import RING_ASSIGNMENTS, Named
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import RING
from tests.unit.sharder.ranges.rig import ranged, sharder


@in_virtual_time
async def test_a_shard_has_nothing_left_once_it_is_named_for_nothing(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        assert assignment.is_empty_of("a") is assignment.is_empty_of("nobody") is None, "nothing is read yet"
        await ring.until_spread("a", "b")
        for shard in ("a", "b"):
            assert assignment.is_empty_of(shard) is False
            assert not await assignment.confirm_empty_of(shard)
        assert assignment.is_empty_of("nobody") is True
        assert await assignment.confirm_empty_of("nobody")
        ring.stage.server.delete(RING_ASSIGNMENTS, RING, None)
        assert not await assignment.confirm_empty_of("nobody"), "there is no assignment that would say so"
        assignment.place(None)
        assert not await assignment.confirm_empty_of("nobody"), "nobody assigns any more"


@in_virtual_time
async def test_who_holds_something_or_is_named_has_something_left(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        await ring.until_spread("a", "b")
        found = assignment.state
        assert found is not None
        assignment.state = replace(found, named=Named(found.named.by, {}))
        assert assignment.is_empty_of("a") is False, "its lease says so still"
        assert assignment.is_empty_of("nobody") is True
        assignment.state = replace(found, named=Named(found.named.by, {"nobody": found.named.of("a")}))
        assert assignment.is_empty_of("nobody") is False, "it is named, though no lease of it is there"
