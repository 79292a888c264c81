"""What a dead process had sent may still be executed: who goes on with its lease gives nothing away before."""

from __future__ import annotations

import asyncio

import pytest

from shardsdk.lease.shardlease import ShardLease
from shardsdk.protocol.ranges import EVERYWHERE, HELD_RANGES_ANNOTATION, NOWHERE, HashRanges
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.processes import Process
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.lease_rig import SHARD, Rig, stay
from tests.ranges_rig import HIGH, LOW, Member, RangesWorld

DURATION = 15.0


async def crash(rig: Rig, lease: ShardLease, ranges: HashRanges | None = None, seconds: float = 20) -> None:
    """Hold the lease for some seconds, saying that it holds `ranges` (`None`: nothing of any), and die amid that."""
    process = Process("before")
    process.start(stay(lease))
    await rig.until(lambda: lease.fence.remaining() > 0)
    if ranges is not None:
        lease.hold_ranges(ranges, 1)
    await asyncio.sleep(seconds)
    process.kill()


def says_of_ranges(rig: Rig) -> bool:
    """Whether the lease speaks of ranges, be it of none."""
    lease = rig.lease()
    assert lease is not None
    return HELD_RANGES_ANNOTATION in (lease.metadata.annotations or {})


async def holding_all(world: RangesWorld) -> Member:
    """A shard that works everywhere."""
    world.name({"a": EVERYWHERE})
    a = world.start("a")
    await world.until(lambda: a.holder.working == EVERYWHERE)
    return a


@in_virtual_time
@pytest.mark.parametrize(("fenced", "lasts"), [(True, DURATION), (False, 2 * DURATION)])
async def test_no_write_counts_as_settled_before_those_of_the_dead_process(
    clock: VirtualClock, fenced: bool, lasts: float
) -> None:
    rig = Rig(clock)
    await crash(rig, rig.shard(fenced=fenced))
    await asyncio.sleep(1)
    async with rig.shard(fenced=fenced) as lease:
        began = clock.monotonic()
        await MemoryApi(rig.server, clock, fence=lease.fence).writes_settled()
        assert lasts - 0.1 <= clock.monotonic() - began <= lasts
        began = clock.monotonic()
        await lease.writes_settled()
        assert clock.monotonic() == began, "once it is over, it is"


@in_virtual_time
@pytest.mark.parametrize("grace", [0, 60])
async def test_who_ends_within_that_time_leaves_the_lease_to_run_out_and_waits_for_nothing(
    clock: VirtualClock, grace: int
) -> None:
    rig = Rig(clock)
    await crash(rig, rig.shard())
    async with rig.shard(restart_grace_seconds=grace):
        await asyncio.sleep(5)
        began = clock.monotonic()
    assert clock.monotonic() - began < 0.1
    lease = rig.lease()
    assert lease is not None
    assert (lease.holder, lease.instance, lease.duration_seconds) == (SHARD, "uid-1", DURATION)


@in_virtual_time
async def test_who_ends_later_releases_it(clock: VirtualClock) -> None:
    rig = Rig(clock)
    await crash(rig, rig.shard(fenced=True))
    async with rig.shard(fenced=True):
        await asyncio.sleep(DURATION + 1)
    assert rig.holder() == ""


@in_virtual_time
@pytest.mark.parametrize("instance", ["uid-1", "uid-2"])
async def test_whoever_has_left_in_order_or_was_waited_for_leaves_nothing(clock: VirtualClock, instance: str) -> None:
    rig = Rig(clock)
    if instance == "uid-1":
        async with rig.shard(restart_grace_seconds=60):
            await asyncio.sleep(1)
    else:
        await crash(rig, rig.shard())
    async with rig.shard(instance=instance) as lease:
        began = clock.monotonic()
        await lease.writes_settled()
        assert (clock.monotonic(), lease.fence.owed_ranges) == (began, NOWHERE)


@in_virtual_time
async def test_ranges_that_only_the_dead_process_had_stay_on_the_lease_so_long(clock: VirtualClock) -> None:
    world = RangesWorld(clock)
    a, b = await holding_all(world), world.start("b")
    a.process.kill()
    world.name({"a": LOW, "b": HIGH})
    again = world.start("a", instance=a.instance)
    took = await world.until(lambda: again.holder.working == LOW)
    assert took < 0.5, "what is its own it works on at once"
    await asyncio.sleep(DURATION - 2)
    assert (world.held("a"), b.holder.working) == (EVERYWHERE, NOWHERE)
    await world.until(lambda: b.holder.working == HIGH, 10)
    assert world.held("a") == LOW


@in_virtual_time
async def test_they_are_on_the_lease_from_the_write_that_acquires_it(clock: VirtualClock) -> None:
    """Whoever looks in between, and the next process if this one dies at once, would take them for nobody's."""
    world = RangesWorld(clock)
    a, b = await holding_all(world), world.start("b")
    with world.never_two_owners():
        a.process.kill()
        world.name({"b": EVERYWHERE})
        for _ in range(2):
            a = world.start("a", instance=a.instance)
            await world.until(lambda it=a: it.lease.fence.remaining() > 0)
            assert world.held("a") == EVERYWHERE
            a.process.kill()
        last = clock.monotonic()
        world.start("a", instance=a.instance)
        await world.until(lambda: b.holder.working == EVERYWHERE, 60)
        assert clock.monotonic() - last >= DURATION - 0.1


@in_virtual_time
async def test_whoever_goes_on_with_all_of_it_works_on_all_of_it_at_once(clock: VirtualClock) -> None:
    world = RangesWorld(clock)
    a = await holding_all(world)
    for _ in range(3):
        a.process.kill()
        a = world.start("a", instance=a.instance)
        assert await world.until(lambda it=a: it.holder.working == EVERYWHERE, 1) < 0.5


@in_virtual_time
@pytest.mark.parametrize("by_ranges", [True, False], ids=["knows ranges", "knows labels alone"])
async def test_who_takes_its_ring_for_one_by_labels_says_what_is_owed_so_long_and_then_nothing(
    clock: VirtualClock, by_ranges: bool
) -> None:
    """Else the sharder would leave it what it had, and nobody would work there."""
    rig = Rig(clock)
    await crash(rig, rig.shard(), LOW, 5)
    async with rig.shard(ranges=by_ranges) as lease:
        until = lease.fence.owed_until
        while clock.monotonic() < until:
            found = rig.lease()
            assert found is not None
            assert found.held_ranges == LOW
            await asyncio.sleep(0.5)
        await asyncio.sleep(2 * lease.timings.retry_period + 1)
        assert not says_of_ranges(rig)


@in_virtual_time
async def test_who_takes_it_so_and_ends_meanwhile_leaves_it_said(clock: VirtualClock) -> None:
    rig = Rig(clock)
    await crash(rig, rig.shard(), LOW, 5)
    async with rig.shard(ranges=True) as lease:
        lease.settle_first(lambda: asyncio.sleep(6))  # a write of its own has no answer yet
    found = rig.lease()
    assert found is not None
    assert (found.holder, found.held_ranges) == (SHARD, LOW)


@in_virtual_time
async def test_a_lease_that_never_spoke_of_ranges_does_not_begin_to(clock: VirtualClock) -> None:
    """Who says that it holds none is taken for one that knows them."""
    rig = Rig(clock)
    await crash(rig, rig.shard())
    async with rig.shard(ranges=True):
        for _ in range(20):
            await asyncio.sleep(1)
            assert not says_of_ranges(rig)


@in_virtual_time
async def test_what_was_revoked_meanwhile_is_worked_on_until_it_can_be_given_away(clock: VirtualClock) -> None:
    world = RangesWorld(clock)
    a, b = await holding_all(world), world.start("b")
    with world.never_two_owners():
        a.process.kill()
        again = world.start("a", instance=a.instance)
        await world.until(lambda: again.holder.working == EVERYWHERE)
        until = again.lease.fence.owed_until
        world.name({"a": LOW, "b": HIGH})
        while clock.monotonic() < until - 0.1:
            assert again.holder.working == EVERYWHERE
            await asyncio.sleep(0.5)
        await world.until(lambda: again.holder.working == LOW, 0.2)
        await world.until(lambda: b.holder.working == HIGH, 5.1)


@in_virtual_time
async def test_what_is_named_again_meanwhile_is_kept(clock: VirtualClock) -> None:
    world = RangesWorld(clock)
    a = await holding_all(world)
    a.process.kill()
    again = world.start("a", instance=a.instance)
    await world.until(lambda: again.holder.working == EVERYWHERE)
    world.name({"a": LOW})
    await asyncio.sleep(5)
    world.name({"a": EVERYWHERE})
    await asyncio.sleep(2 * DURATION)
    assert again.holder.working == EVERYWHERE
    assert all(not each.revoked for each in again.changes)


@in_virtual_time
@pytest.mark.parametrize("crashes", [True, False])
async def test_a_line_says_how_long_nothing_is_given_away(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, crashes: bool
) -> None:
    caplog.set_level("INFO")
    rig = Rig(clock)
    if crashes:
        await crash(rig, rig.shard(fenced=True))
    async with rig.shard(fenced=True):
        await asyncio.sleep(1)
    line = (
        "Goes on with the lease of a process that is dead; gives nothing away for 15 s, until nothing that that"
        " had sent can be executed any more"
    )
    assert caplog.text.count(line) == crashes
