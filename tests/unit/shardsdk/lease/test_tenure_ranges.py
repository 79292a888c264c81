"""A tenure says what is held, and tells its owner when a write has said so; what is promised, it says as well."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime

from shardsdk.lease.claim import Claim
from shardsdk.lease.hold import Hold
from shardsdk.lease.tenure import Goodbye, Listener, Tenure
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.ranges import NOWHERE, SPACE, HashRanges
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.lease_rig import NAMESPACE, RING, SHARD, Rig

LOW = HashRanges.of((0, SPACE // 2))


@in_virtual_time
async def test_ranges_are_written_at_once_and_their_number_is_told_once_a_write_has_said_so(
    clock: VirtualClock,
) -> None:
    rig, told = Rig(clock), list[int]()
    api, acquired, timings = rig.api(), asyncio.Event(), LeaseTimings()
    claim = Claim(NAMESPACE, SHARD, SHARD, 15, instance="uid-1", ring=RING)
    listener = Listener(acquired=acquired.set, held=told.append)
    tenure = Tenure(claim, timings, Hold("it", clock), clock=clock, rng=random.Random(1), listener=listener)
    running = asyncio.create_task(tenure.run(api))

    def said() -> HashRanges:
        lease = rig.lease()
        assert lease is not None
        assert lease.held_ranges is not None
        return lease.held_ranges

    await acquired.wait()
    began = clock.monotonic()
    tenure.hold_ranges(LOW, 1)
    await rig.until(lambda: told == [1])
    assert said() == LOW
    assert clock.monotonic() - began < 0.1
    await asyncio.sleep(10)
    assert told == [1], "renewals tell nothing new"
    api.fault = Fault.REFUSED
    tenure.hold_ranges(NOWHERE, 2)
    await asyncio.sleep(1)
    assert (told, said()) == ([1], LOW)
    api.fault = Fault.NONE
    await rig.until(lambda: told == [1, 2])
    assert said() == NOWHERE
    tenure.leave(Goodbye())
    assert await running


class Stopped:
    """A clock whose wall stands still."""

    def __init__(self, clock: VirtualClock) -> None:
        self.monotonic = clock.monotonic
        self.sleep = clock.sleep

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC)


@in_virtual_time
async def test_what_a_write_has_said_is_told_though_it_renewed_nothing(clock: VirtualClock) -> None:
    """Until the lease is lost, which it will be unless the wall clock goes on."""
    rig, told, renewed = Rig(clock), list[int](), list[float]()
    acquired, stopped = asyncio.Event(), Stopped(clock)
    claim, hold = Claim(NAMESPACE, SHARD, SHARD, 15, instance="uid-1", ring=RING), Hold("it", clock)
    listener = Listener(acquired=acquired.set, held=told.append, renewed=lambda sent, came: renewed.append(sent))
    tenure = Tenure(claim, LeaseTimings(), hold, clock=stopped, rng=random.Random(1), listener=listener)
    running = asyncio.create_task(tenure.run(rig.api()))
    await acquired.wait()
    ends_at = hold.ends_at
    await asyncio.sleep(3)
    tenure.hold_ranges(LOW, 1)
    await rig.until(lambda: told == [1])
    assert (len(renewed), hold.ends_at) == (1, ends_at), "nobody else would count it as a renewal"
    tenure.leave(Goodbye())
    await running


@in_virtual_time
async def test_that_writes_are_fenced_is_said_at_once_and_from_then_on(clock: VirtualClock) -> None:
    """Else the sharder waits, for every shard that crashes, as long as for one whose writes nothing stops."""
    rig, acquired = Rig(clock), asyncio.Event()
    claim, hold = Claim(NAMESPACE, SHARD, SHARD, 15, instance="uid-1", ring=RING), Hold("it", clock)
    listener = Listener(acquired=acquired.set)
    tenure = Tenure(claim, LeaseTimings(), hold, clock=clock, rng=random.Random(1), listener=listener)
    running = asyncio.create_task(tenure.run(rig.api()))

    def said() -> bool:
        lease = rig.lease()
        return lease is not None and lease.fenced

    await acquired.wait()
    await asyncio.sleep(0.5)
    assert not said()
    tenure.promise_fence()
    assert await rig.until(said, seconds=0.1) < 0.1
    await asyncio.sleep(10)
    assert said(), "of every renewal"
    tenure.leave(Goodbye())
    assert await running
