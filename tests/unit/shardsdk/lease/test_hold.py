"""When work that does not end is told that its hold is over, on a machine that has stood still with its clock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from shardsdk.errors import LeaseLost
from shardsdk.kube.doubts import FenceDoubted, check_open
from shardsdk.lease import hold as holds
from shardsdk.lease.hold import Hold, watched
from shardsdk.lease.tenure import TICK_SECONDS
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.election_rig import NAME, Candidates, running
from tests.lease_rig import NAMESPACE, SHARD, Rig
from tests.simulation.machines import MachineClock

#: Longer than any lease of these tests.
MISSED_SECONDS: Final = 30.0
WAIT_SECONDS: Final = 60.0


@dataclass
class Working:
    """Work under a hold that goes on whatever it is told, as a plain function does, and when it was told."""

    clock: MachineClock
    server: MemoryServer
    api: MemoryApi
    hold: Hold
    lease: str
    told: list[float]

    def take(self) -> None:
        """Somebody takes the lease."""
        body = {"spec": {"holderIdentity": SHARDER_HOLDER, "renewTime": "2031-01-01T00:00:00.000000Z"}}
        self.server.patch(LEASES, self.lease, NAMESPACE, body)

    async def until_told(self) -> float:
        """How many seconds it takes."""
        began = self.clock.monotonic()
        async with asyncio.timeout(WAIT_SECONDS):
            while not self.told:
                await asyncio.sleep(0.01)
        return self.told[0] - began


Begin = Callable[[VirtualClock], AbstractAsyncContextManager[Working]]


async def outlast(event: asyncio.Event) -> None:
    """Wait for `event`, however often this is cancelled."""
    while not event.is_set():
        try:
            await event.wait()
        except asyncio.CancelledError:
            continue


@asynccontextmanager
async def shard(virtual: VirtualClock) -> AsyncIterator[Working]:
    rig, clock, told = Rig(virtual), MachineClock(virtual), list[float]()
    api, begun, ended = MemoryApi(rig.server, clock), asyncio.Event(), asyncio.Event()
    lease = rig.shard(api, clock=clock, on_deadline=lambda: told.append(clock.monotonic()))

    async def work() -> None:
        async with lease:
            begun.set()
            await outlast(ended)

    async with running(work()) as task:
        await begun.wait()
        try:
            yield Working(clock, rig.server, api, lease.fence, SHARD, told)
        finally:
            ended.set()
            await asyncio.wait((task,))


@asynccontextmanager
async def leader(virtual: VirtualClock) -> AsyncIterator[Working]:
    candidates, clock, told = Candidates(virtual), MachineClock(virtual), list[float]()
    begun, ended = asyncio.Queue[Hold](), asyncio.Event()
    elector, api = candidates.make("a", clock=clock, on_deadline=lambda: told.append(clock.monotonic()))

    async def lead(hold: Hold) -> None:
        begun.put_nowait(hold)
        await outlast(ended)

    async with running(elector.run(lead)) as task:
        working = Working(clock, candidates.server, api, await begun.get(), NAME, told)
        try:
            yield working
        finally:
            ended.set()
            await asyncio.wait((task,))


@pytest.mark.parametrize("begin", [shard, leader])
@in_virtual_time
async def test_a_lease_that_was_taken_while_the_machine_stood_still_leaves_work_no_time(
    clock: VirtualClock, begin: Begin
) -> None:
    async with begin(clock) as working:
        await asyncio.sleep(0.5)
        working.take()
        working.clock.lapses.note(MISSED_SECONDS)
        assert await working.until_told() < 0.1
        assert working.hold.ends_at > working.clock.monotonic() + 5, "by the clock alone there were some seconds left"


@pytest.mark.parametrize("begin", [shard, leader])
@in_virtual_time
async def test_a_lease_that_is_taken_by_hand_leaves_work_the_time_of_its_hold(
    clock: VirtualClock, begin: Begin
) -> None:
    async with begin(clock) as working:
        working.take()
        await working.until_told()
        assert working.told == [pytest.approx(working.hold.ends_at, abs=0.01)]


@pytest.mark.parametrize("begin", [shard, leader])
@in_virtual_time
async def test_a_hold_that_is_merely_doubted_tells_nobody(clock: VirtualClock, begin: Begin) -> None:
    async with begin(clock) as working:
        working.api.fault = Fault.LOST
        working.clock.lapses.note(MISSED_SECONDS)
        await asyncio.sleep(4)
        with pytest.raises(FenceDoubted):
            check_open(working.hold, "nothing begins")
        working.api.fault = Fault.NONE
        await asyncio.sleep(30)
        check_open(working.hold, "nothing begins")
        assert working.told == []


@pytest.mark.parametrize("begin", [shard, leader])
@in_virtual_time
async def test_a_doubt_that_no_renewal_has_dispelled_by_its_deadline_leaves_work_no_time(
    clock: VirtualClock, begin: Begin
) -> None:
    async with begin(clock) as working:
        working.api.fault = Fault.LOST
        working.clock.lapses.note(MISSED_SECONDS)
        await working.until_told()
        assert working.hold.ends_at > working.clock.monotonic() + 1, "the renew deadline, and not the end by the clock"
        assert not working.hold.doubted
        with pytest.raises(LeaseLost):
            check_open(working.hold, "nothing begins")


@pytest.mark.parametrize("begin", [shard, leader])
@in_virtual_time
async def test_what_is_found_missing_after_the_loss_counts_as_well(clock: VirtualClock, begin: Begin) -> None:
    async with begin(clock) as working:
        working.take()
        await asyncio.sleep(3)
        assert working.hold.remaining() <= 0
        assert working.told == []
        working.clock.lapses.note(MISSED_SECONDS)
        assert await working.until_told() <= TICK_SECONDS + 0.01


@pytest.mark.parametrize("taken", [True, False])
def test_a_thread_that_watches_a_hold_counts_what_was_missed_once_it_is_lost(
    monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    monkeypatch.setattr(holds, "WATCH_SECONDS", 0.01)
    clock, told = MachineClock(VirtualClock()), threading.Event()
    hold = Hold("the lease", clock)
    hold.extend(clock.monotonic() + MISSED_SECONDS / 2)
    with watched(hold, told.set):
        clock.lapses.note(MISSED_SECONDS)
        assert not told.wait(0.2), "a renewal may follow"
        hold.lose(taken=taken)
        assert told.wait(WAIT_SECONDS)
    assert clock.monotonic() < hold.ends_at
