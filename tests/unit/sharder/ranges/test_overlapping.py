"""Leases that say that they hold one range, or what nobody can read: whom people are told of, and when."""

from __future__ import annotations

import pytest

from sharder.core.conditions import ConditionReason
from sharder.ranges.assignment import RangeAssignment
from sharder.ranges.overlapping import NONE, OVERLAP_SECONDS, Overlapping
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES
from shardsdk.protocol.ranges import EVERYWHERE, HELD_RANGES_ANNOTATION, HashRanges, render_held
from shardsdk.testing.virtual import SkewedClock, VirtualClock, in_virtual_time
from tests.ranges_rig import HIGH, LOW
from tests.unit.sharder.placement.stage import RING, SHARDS, leading, lease
from tests.unit.sharder.ranges.rig import Ring, ranged, sharder

NAMED = {"a": LOW, "b": HIGH}
NOBODY: frozenset[str] = frozenset()


def said(assignment: RangeAssignment) -> tuple[int, ConditionReason | None, str]:
    summary = assignment.summarize().ranges
    assert summary is not None
    return summary.overlaps, *(summary.overlapping or (None, ""))


def a_range_of(ring: Ring, shard: str) -> str:
    return str(HashRanges.of(next(iter(ring.named().of(shard)))))


@in_virtual_time
async def test_that_two_leases_hold_one_range_is_told_once_it_has_lasted_and_until_it_is_over(
    clock: VirtualClock,
) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        await ring.until_spread("a", "b")
        ring.shards["b"].claims = a_range_of(ring, "a")
        await clock.sleep(OVERLAP_SECONDS - 1)
        assert said(assignment) == (0, None, "")
        await ring.stage.until(lambda: said(assignment)[0] == 1, seconds=5)
        _, reason, words = said(assignment)
        assert reason is ConditionReason.RANGES_OVERLAP
        assert f"the Leases of b, a all hold the range {a_range_of(ring, 'a')}, so" in words
        assert "; look into the logs of b, a; stop b, " in words
        ring.shards["b"].claims = ""
        await ring.stage.until(lambda: said(assignment) == (0, None, ""), seconds=5)


@in_virtual_time
async def test_that_what_a_lease_holds_cannot_be_read_is_told(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        await ring.until_spread("a", "b")
        ring.shards["b"].claims = "and more"
        await ring.stage.until(lambda: said(assignment)[1] is not None, seconds=OVERLAP_SECONDS + 5)
        overlaps, reason, words = said(assignment)
        assert (overlaps, reason) == (0, ConditionReason.RANGES_UNREADABLE)
        assert words.startswith(f"the Lease of b has an annotation {HELD_RANGES_ANNOTATION} that cannot be read")


@in_virtual_time
async def test_the_ring_says_so_with_an_event(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring:
        spec = {"assignment": "Ranges", "hashBy": "Namespace"}
        ring.stage.server.patch(CLUSTERRINGS, RING, None, {"spec": spec})
        async with leading(ring.stage):
            await ring.until_spread("a", "b")
            ring.shards["b"].claims = str(EVERYWHERE)
            await ring.stage.until(lambda: ring.stage.condition("ShardsFit") == "False", seconds=30)
            condition = ring.stage.said("ShardsFit")
            assert condition["reason"] == "RangesOverlap"
            assert ring.stage.events.of("RangesOverlap") == [condition["message"]]


@in_virtual_time
async def test_the_lease_of_a_dead_shard_that_a_backup_brought_back_overlaps_nothing(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        await ring.until_spread("a", "b")
        body = lease(SkewedClock(clock, ahead_seconds=-86_400), "gone", duration=60)
        body["metadata"]["annotations"][HELD_RANGES_ANNOTATION] = render_held(EVERYWHERE, body["spec"]["renewTime"])
        ring.stage.create(LEASES, body, SHARDS)
        told = set[object]()
        for _ in range(150):
            await ring.stage.pass_time(1)
            told.add(said(assignment))
        assert told == {(0, None, "")}
        assert ring.stage.holder("gone") != "gone"


@in_virtual_time
async def test_what_several_hold_by_turns_for_a_moment_each_is_no_trouble(clock: VirtualClock) -> None:
    overlapping = Overlapping(clock)
    for _ in range(10):
        assert overlapping.look({"a": LOW, "b": EVERYWHERE}, NAMED, NOBODY, ()) == NONE
        assert overlapping.due_in() == pytest.approx(OVERLAP_SECONDS)
        await clock.sleep(3)
        assert overlapping.look(NAMED, NAMED, NOBODY, ()) == NONE
        assert overlapping.due_in() is None


@in_virtual_time
async def test_a_lease_that_has_run_out_holds_nothing_together_with_others(clock: VirtualClock) -> None:
    overlapping, held = Overlapping(clock), {"a": LOW, "b": EVERYWHERE, "c": EVERYWHERE}
    overlapping.look(held, NAMED, frozenset("c"), ())
    await clock.sleep(OVERLAP_SECONDS)
    assert overlapping.look(held, NAMED, frozenset("c"), ("b", "c")) == NONE
    # The worse first, and the other beside it.
    overlapping.look(held, NAMED, frozenset("c"), ())
    await clock.sleep(OVERLAP_SECONDS)
    found = overlapping.look(held, NAMED, frozenset("c"), ())
    assert (found.ranges, found.told and found.told[0]) == (1, ConditionReason.RANGES_OVERLAP)
    assert found.told is not None
    assert "and the Lease of c has an annotation" in found.told[1]
