"""Shards that have missed renewals, or crash again and again: they keep what they have, and others get what is free."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from sharder.core.cutting import cut
from sharder.core.membership import Membership
from sharder.ranges.assignment import RangeAssignment
from sharder.ranges.takers import Takers
from shardsdk.protocol.objects import LEASES, NAMESPACES
from shardsdk.protocol.ranges import EVERYWHERE, HELD_RANGES_ANNOTATION, NOWHERE, HashBy, HashRanges, Named, render_held
from shardsdk.testing.virtual import SkewedClock, VirtualClock, in_virtual_time
from tests.ranges_rig import LOW
from tests.unit.sharder.placement.stage import SHARDS, lease
from tests.unit.sharder.ranges.rig import Ring, ranged, sharder
from tests.unit.sharder.ranges.test_assignment import make_namespaces

#: The shards' leases.
DURATION = 15


async def spread(ring: Ring, assignment: RangeAssignment, *shards: str) -> Named:
    """Who is named for what once these have it all."""
    await ring.until_spread(*shards)
    await ring.stage.until(lambda: assignment.summarize().settled)
    return ring.named()


def records(ring: Ring, assignment: RangeAssignment, holds: Callable[[], bool]) -> list[HashRanges]:
    """Of every change from now on while something `holds`: what c is named for."""
    seen: list[HashRanges] = []
    assignment.when_changed.append(lambda: seen.append(ring.named().of("c")) if holds() else None)
    return seen


async def crash(ring: Ring, assignment: RangeAssignment, shard: str) -> None:
    """And not be back before the sharder has its lease."""
    ring.shards[shard].crash()
    await ring.stage.until(lambda: shard not in assignment._takeover.membership.available, seconds=2 * DURATION)


async def is_silent(ring: Ring, assignment: RangeAssignment, shard: str) -> None:
    await ring.stage.until(lambda: shard in assignment._takeover.membership.silent, seconds=DURATION)


@in_virtual_time
async def test_what_is_free_goes_past_a_shard_that_has_missed_renewals(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b", "c", "d") as ring, sharder(ring.stage, cut) as assignment:
        make_namespaces(ring)
        named = await spread(ring, assignment, "a", "b", "c", "d")
        ring.shards["c"].crash()
        await is_silent(ring, assignment, "c")
        assert ring.named() == named, "nothing moves for that alone"
        await ring.shards["d"].leave()
        await ring.stage.until(lambda: ring.workers.covered() == EVERYWHERE - named.of("c"), seconds=3)
        assert ring.named().of("c") == named.of("c"), "it may be at work"
        await ring.until_spread("a", "b", seconds=2 * DURATION)


@in_virtual_time
async def test_what_is_on_its_way_to_a_shard_goes_elsewhere_once_that_is_silent(clock: VirtualClock) -> None:
    async with ranged(clock, "b") as ring, sharder(ring.stage) as assignment:
        ring.start("slow", drain_seconds=8)
        await spread(ring, assignment, "b", "slow")
        ring.start("c")
        await ring.stage.until(lambda: bool(ring.workers.working.get("c")))
        going = ring.named().nobodys
        assert going
        ring.shards["c"].crash()
        await is_silent(ring, assignment, "c")
        kept = ring.named().of("c")
        await ring.stage.until(lambda: not going & ring.workers.working["slow"], seconds=10)
        await ring.stage.until(lambda: not going - ring.workers.covered(), seconds=2)
        assert ring.named().of("c") == kept


@in_virtual_time
async def test_a_newcomer_that_is_back_before_others_have_ended_gets_all_that_it_was_to_have(
    clock: VirtualClock,
) -> None:
    async with ranged(clock, "b") as ring, sharder(ring.stage, cut) as assignment:
        make_namespaces(ring)
        ring.start("slow", drain_seconds=12)
        await spread(ring, assignment, "b", "slow")
        ring.start("c")
        await ring.stage.until(lambda: bool(ring.workers.working.get("c")))
        assert assignment.state is not None
        aim = assignment.state.aim
        ring.shards["c"].crash()
        await is_silent(ring, assignment, "c")
        await ring.stage.pass_time(1)
        assert assignment.state.aim == aim, "it is nobody's before others have ended"
        ring.start("c")
        assert await spread(ring, assignment, "b", "slow", "c") == aim


@pytest.mark.parametrize("seed", [1, 2, 3])
@in_virtual_time
async def test_a_newcomer_whose_part_went_elsewhere_gets_it_once_it_renews_again(
    clock: VirtualClock, seed: int
) -> None:
    rng, others = Random(seed), [f"s{number}" for number in range(8)]
    async with ranged(clock) as ring, sharder(ring.stage, cut) as assignment:
        for number in range(120):
            ring.stage.create(NAMESPACES, {"metadata": {"name": f"{rng.getrandbits(40):x}-{number}"}}, None)
        for shard in others:
            ring.start(shard, drain_seconds=0.3 if shard == "s0" else 9)
        await spread(ring, assignment, *others)
        ring.start("c")
        await ring.stage.until(lambda: bool(ring.workers.working.get("c")))
        first = ring.named().of("c")
        ring.shards["c"].crash()
        await is_silent(ring, assignment, "c")
        await ring.stage.until(lambda: assignment.summarize().settled, seconds=10)
        assert "c" in assignment._takeover.membership.silent
        assert ring.named().of("c") == first
        ring.start("c")
        await ring.stage.pass_time(30)
        assert assignment.summarize().settled
        assert assignment.wanted is not None
        loads = assignment._weights.loads(ring.named(), assignment.wanted, {"c", *others})
        assert loads.shards["c"] >= 0.8 * loads.total / 9, loads.shards
        named = ring.named()
        await ring.stage.pass_time(600)
        assert ring.named() == named


@in_virtual_time
async def test_a_shard_that_renews_again_is_given_its_part_as_ever(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b", "c") as ring, sharder(ring.stage) as assignment:
        named = await spread(ring, assignment, "a", "b", "c")
        ring.shards["c"].crash()
        await is_silent(ring, assignment, "c")
        ring.start("d")
        await ring.stage.until(lambda: bool(ring.workers.working.get("d")))
        assert ring.named().of("c") == named.of("c"), "who comes takes from those who are there"
        ring.start("c")
        await ring.until_spread("a", "b", "c", "d")
        assert "c" not in assignment._takeover.membership.silent
        await ring.shards["d"].leave()
        await ring.until_spread("a", "b", "c")
        assert ring.named().of("c") & named.of("c") == named.of("c")


@in_virtual_time
async def test_nothing_moves_and_nothing_waits_where_all_are_silent(clock: VirtualClock) -> None:
    """As when the API server takes no writes: nobody is there that would do better."""
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        named = await spread(ring, assignment, "a", "b")
        for shard in ring.shards.values():
            shard.crash()
        await ring.stage.pass_time(DURATION - 5)
        assert ring.named() == named
        for name in ("a", "b"):
            ring.start(name)
        await ring.until_spread("a", "b")
        assert ring.named() == named


@in_virtual_time
async def test_a_shard_that_crashes_again_and_again_is_given_nothing_until_it_has_held_its_lease_for_a_while(
    clock: VirtualClock,
) -> None:
    async with ranged(clock, "a", "b", "c") as ring, sharder(ring.stage, cut) as assignment:
        make_namespaces(ring)
        await spread(ring, assignment, "a", "b", "c")
        unsteady = records(ring, assignment, lambda: "c" in assignment._takeover.membership.unsteady)
        for _ in range(3):
            await crash(ring, assignment, "c")
            named = await spread(ring, assignment, "a", "b")
            ring.start("c")
            await ring.stage.pass_time(DURATION - 3)
            assert ring.named() == named
        await crash(ring, assignment, "c")
        ring.start("c")
        took = await ring.until_spread("a", "b", "c", seconds=200)
        assert took > 4 * DURATION
        assert not HashRanges.union(unsteady)


@in_virtual_time
async def test_who_is_back_before_its_lease_was_taken_keeps_what_it_has(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b", "c") as ring, sharder(ring.stage) as assignment:
        named = await spread(ring, assignment, "a", "b", "c")
        ring.shards["c"].crash()
        await ring.stage.pass_time(DURATION - 3)
        ring.start("c")
        await ring.until_spread("a", "b", "c")
        assert ring.named() == named


@in_virtual_time
async def test_an_unsteady_shard_gets_what_is_free_where_no_other_is_left(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        await spread(ring, assignment, "a", "b")
        await crash(ring, assignment, "b")
        await spread(ring, assignment, "a")
        ring.start("b")
        await ring.stage.pass_time(2)
        await ring.shards["a"].leave()
        assert "b" in assignment._takeover.membership.unsteady
        assert await ring.until_spread("b") < 3


@in_virtual_time
async def test_who_comes_takes_from_an_unsteady_shard_that_has_something(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage, cut) as assignment:
        make_namespaces(ring)
        await spread(ring, assignment, "a", "b")
        for crashed, other in (("a", "b"), ("b", "a")) * 3:
            await crash(ring, assignment, crashed)
            await spread(ring, assignment, other)
            ring.start(crashed)
            await ring.stage.pass_time(2)
        assert ring.named().of("a") == EVERYWHERE
        assert "a" in assignment._takeover.membership.unsteady
        ring.start("d")
        await ring.stage.until(lambda: bool(ring.workers.working.get("d")), seconds=3)


@in_virtual_time
async def test_where_all_are_unsteady_who_has_nothing_takes_nothing(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        await spread(ring, assignment, "a", "b")
        for crashed, other in (("a", "b"), ("b", "a")):
            await crash(ring, assignment, crashed)
            await spread(ring, assignment, other)
            ring.start(crashed)
            await ring.stage.pass_time(2)
        unsteady = assignment._takeover.membership.unsteady
        assert "b" in unsteady
        assert ring.named().of("a") == EVERYWHERE
        await ring.until_spread("a", "b", seconds=4 * DURATION)


def restore(ring: Ring, *shards: str) -> None:
    """Leases of shards that are long gone are back from a backup."""
    then = SkewedClock(ring.stage.clock, ahead_seconds=-86_400)
    for shard in shards:
        body = lease(then, shard)
        body["metadata"]["annotations"][HELD_RANGES_ANNOTATION] = render_held(NOWHERE, body["spec"]["renewTime"])
        ring.stage.create(LEASES, body, SHARDS)


@pytest.mark.parametrize("known", [True, False])
def test_nothing_is_taken_from_shards_for_restored_leases_that_nobody_renews(known: bool) -> None:
    @in_virtual_time
    async def scene(clock: VirtualClock) -> None:
        async with ranged(clock, "a", "b", "c") as ring:
            async with sharder(ring.stage, cut) as assignment:
                make_namespaces(ring)
                named = await spread(ring, assignment, "a", "b", "c")
                if known:
                    restore(ring, "x", "y")
                    await ring.stage.pass_time(3 * DURATION)
                    assert ring.named() == named
            restore(ring, "z")
            async with sharder(ring.stage, cut):
                await ring.stage.pass_time(3)
                await ring.shards["c"].leave()
                await ring.until_spread("a", "b", seconds=5)
                assert not ring.named().of("z")
                await ring.stage.pass_time(3 * DURATION)
            for shard in ("a", "b"):
                assert named.of(shard) & ring.named().of(shard) == named.of(shard)

    scene()


def test_what_is_free_goes_past_a_shard_that_is_named_and_has_yet_to_renew() -> None:
    """Of a RingAssignment that a backup has brought back with the Lease, say."""
    there = frozenset("ab")
    membership = Membership(available=there, ready=there, unrenewed=frozenset("b"))
    named, takers = Named(HashBy.NAMESPACE, {"b": LOW}), Takers()
    assert takers.look(there, membership, named, named, {}) == {"b": LOW}
    assert takers.now == frozenset("a")


@in_virtual_time
async def test_a_leader_that_has_just_come_takes_nobody_for_unsteady(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring:
        async with sharder(ring.stage) as assignment:
            await spread(ring, assignment, "a", "b")
        async with sharder(ring.stage):
            ring.start("c")
            assert await ring.until_spread("a", "b", "c") < 3


def leave_in_grace(ring: Ring, shard: str, seconds: int = 60) -> None:
    """End, and leave the lease to the next process."""
    ring.shards[shard].crash()
    body = lease(ring.stage.clock, shard, duration=seconds, instance="")
    body["metadata"]["annotations"][HELD_RANGES_ANNOTATION] = None
    ring.stage.server.patch(LEASES, shard, SHARDS, {"metadata": body["metadata"], "spec": body["spec"]})


@in_virtual_time
async def test_a_shard_that_is_about_to_leave_gives_away_its_ranges_while_it_holds_its_lease(
    clock: VirtualClock,
) -> None:
    async with ranged(clock, "a", "b", "c") as ring, sharder(ring.stage, cut) as assignment:
        make_namespaces(ring)
        named = await spread(ring, assignment, "a", "b", "c")
        ring.shards["c"].leave_soon()
        assert await ring.until_spread("a", "b", seconds=6) < 5
        assert not ring.named().of("c")
        assert ring.stage.holder("c") == "c"
        for shard in ("a", "b"):
            assert named.of(shard) & ring.named().of(shard) == named.of(shard), "no more moves than has to"
        await ring.stage.until(lambda: assignment.summarize().settled)
        named = ring.named()
        await ring.shards["c"].leave()
        await ring.stage.pass_time(30)
        assert ring.named() == named


@pytest.mark.parametrize("others", ["silent", "left", "leaving", "unsteady"])
def test_a_leaving_shard_keeps_its_ranges_where_nobody_else_could_take_them(others: str) -> None:
    @in_virtual_time
    async def scene(clock: VirtualClock) -> None:
        async with ranged(clock, "a", "b", "c") as ring, sharder(ring.stage, cut) as assignment:
            make_namespaces(ring)
            await spread(ring, assignment, "a", "b", "c")
            match others:
                case "silent":
                    for shard in ("a", "b"):
                        ring.shards[shard].crash()
                    await ring.stage.pass_time(7)
                case "left":
                    for shard in ("a", "b"):
                        leave_in_grace(ring, shard)
                    await ring.stage.pass_time(1)
                case "leaving":
                    for shard in ("a", "b"):
                        ring.shards[shard].leave_soon()
                    await ring.stage.pass_time(0)
                case _:
                    for shard in ("a", "b"):
                        await crash(ring, assignment, shard)
                    await spread(ring, assignment, "c")
                    for shard in ("a", "b"):
                        ring.start(shard)
                    await ring.stage.pass_time(1)
            named = ring.named()
            ring.shards["c"].leave_soon()
            await ring.stage.pass_time(5)
            assert ring.named() == named
            assert ring.workers.working["c"] == named.of("c")

    scene()


@in_virtual_time
async def test_what_is_free_does_not_go_to_a_shard_that_is_left_to_its_next_process(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b", "c") as ring, sharder(ring.stage, cut) as assignment:
        make_namespaces(ring)
        named = await spread(ring, assignment, "a", "b", "c")
        leave_in_grace(ring, "c")
        await ring.stage.pass_time(2)
        assert ring.named() == named, "its next process goes on there"
        await ring.shards["b"].leave()
        await ring.stage.until(lambda: ring.workers.covered() == EVERYWHERE - named.of("c"), seconds=3)
        await ring.stage.pass_time(30)
        assert ring.named().of("c") == named.of("c")
        ring.start("c")
        await ring.until_spread("a", "c", seconds=5)


@in_virtual_time
async def test_what_was_on_its_way_to_a_shard_that_is_left_with_a_grace_goes_elsewhere(clock: VirtualClock) -> None:
    async with ranged(clock, "b") as ring, sharder(ring.stage, cut) as assignment:
        make_namespaces(ring)
        ring.start("slow", drain_seconds=8)
        await spread(ring, assignment, "b", "slow")
        ring.start("c")
        await ring.stage.until(lambda: bool(ring.workers.working.get("c")))
        going = ring.named().nobodys
        assert going
        leave_in_grace(ring, "c")
        await ring.stage.pass_time(0.3)
        kept = ring.named().of("c")
        await ring.stage.until(lambda: not ring.workers.working["slow"] & going, seconds=10)
        await ring.stage.until(lambda: not going - ring.workers.covered(), seconds=2)
        assert ring.named().of("c") == kept
        ring.start("c")
        await ring.until_spread("b", "slow", "c", seconds=30)
        assert assignment.wanted is not None
        await ring.stage.until(lambda: assignment.summarize().settled)
        loads = assignment._weights.loads(ring.named(), assignment.wanted, {"b", "slow", "c"})
        assert loads.shards["c"] >= 0.8 * loads.total / 3, loads.shards
