"""A fence that is merely doubted is told from one that is shut for good, also when that changes as it is asked.

What works under a hold that has run out by what the clock has missed is ended before that is confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from shardsdk.contrib.kubernetes import FencedWrites
from shardsdk.kube.api import Fence
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.doubts import DOUBT_SECONDS, FenceDoubted, check_open, end_in_doubt
from shardsdk.kube.fencing import Guard, Ledger
from shardsdk.lease.hold import Hold
from shardsdk.protocol.objects import PartialObject
from shardsdk.queueing.queue import RateLimit, WorkQueue
from shardsdk.queueing.workers import WorkerPool
from shardsdk.reconcile.context import Context
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import Rig
from tests.simulation.machines import MachineClock


class Changing:
    """A fence that is doubted, or open, as in these turns: whenever it is asked anything, the next one begins."""

    name = "the lease of shard-1"

    def __init__(self, *doubts: bool) -> None:
        self._doubts = list(doubts)

    @property
    def doubted(self) -> bool:
        return self._doubts.pop(0) if len(self._doubts) > 1 else self._doubts[0]

    def remaining(self) -> float:
        return 0.0 if self.doubted else 10.0


def send(fence: Fence) -> object:
    clock = SystemClock()
    return Guard([fence], 30.0, clock, Ledger(clock)).remaining()


def begin(fence: Fence) -> None:
    check_open(fence, "nothing is begun")


def send_from_thread(fence: Fence) -> object:
    return FencedWrites(fence, SystemClock()).begin()


@pytest.mark.parametrize("ask", [send, begin, send_from_thread])
def test_one_that_a_renewal_opens_meanwhile_is_not_lost(ask: Callable[[Fence], object]) -> None:
    ask(Changing(True, False))


@pytest.mark.parametrize("ask", [send, begin])
def test_one_that_comes_into_doubt_meanwhile_is_not_lost(ask: Callable[[Fence], object]) -> None:
    with pytest.raises(FenceDoubted):
        ask(Changing(False, True))


def test_a_thread_waits_for_one_that_comes_into_doubt_meanwhile() -> None:
    send_from_thread(Changing(False, True, True, False))


# -- what goes on meanwhile --------------------------------------------------


@dataclass
class Working:
    """Work under a hold of ten seconds, and when it was told to end first, and to go on."""

    clock: MachineClock
    hold: Hold
    ended: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    _ending: bool = False

    def end(self) -> None:
        if not self._ending:
            self.ended.append(self.clock.monotonic())
        self._ending = True

    def go_on(self) -> None:
        if self._ending:
            self.again.append(self.clock.monotonic())
        self._ending = False

    def renew(self) -> None:
        self.hold.extend(self.clock.monotonic() + 10)


@asynccontextmanager
async def working(clock: VirtualClock) -> AsyncIterator[Working]:
    machine = MachineClock(clock)
    work = Working(machine, Hold("the lease of shard-1", machine))
    work.renew()
    task = asyncio.create_task(end_in_doubt(work.hold, machine, work.end, work.go_on))
    await asyncio.sleep(0)
    try:
        yield work
    finally:
        task.cancel()
        await asyncio.wait([task])


@in_virtual_time
async def test_what_a_stop_has_outlasted_ends_as_soon_as_that_is_found(clock: VirtualClock) -> None:
    async with working(clock) as work:
        await clock.sleep(3)
        work.clock.lapses.note(7)
        await clock.sleep(5)
        assert work.ended == [pytest.approx(3)]
        assert work.again == []
        work.renew()
        await clock.sleep(1)
        assert work.again == [pytest.approx(8, abs=2 * DOUBT_SECONDS)]


@in_virtual_time
async def test_what_a_renewal_has_left_of_a_doubt_ends_it_once_more(clock: VirtualClock) -> None:
    async with working(clock) as work:
        work.clock.lapses.note(20)
        await clock.sleep(1)
        work.hold.extend(clock.monotonic() + 10, missed=20)
        work.clock.lapses.note(6)  # found by the answer to that renewal
        work.go_on()
        await clock.sleep(8)
        assert work.ended == [pytest.approx(0), pytest.approx(5, abs=2 * DOUBT_SECONDS)]


@in_virtual_time
async def test_what_was_missed_before_anybody_looked_counts(clock: VirtualClock) -> None:
    machine = MachineClock(clock)
    work = Working(machine, Hold("the lease of shard-1", machine))
    work.renew()
    machine.lapses.note(20)
    task = asyncio.create_task(end_in_doubt(work.hold, machine, work.end, work.go_on))
    await clock.sleep(1)
    task.cancel()
    await asyncio.wait([task])
    assert work.ended == [pytest.approx(0)]


@in_virtual_time
async def test_what_a_stop_has_left_some_time_ends_with_that(clock: VirtualClock) -> None:
    async with working(clock) as work:
        work.clock.lapses.note(4)
        await clock.sleep(2)
        work.clock.lapses.note(1)
        await clock.sleep(8)
        assert work.ended == [pytest.approx(5, abs=DOUBT_SECONDS)]


@in_virtual_time
async def test_a_renewal_that_comes_in_time_lets_it_go_on(clock: VirtualClock) -> None:
    async with working(clock) as work:
        work.clock.lapses.note(4)
        await clock.sleep(2)
        work.renew()
        await clock.sleep(9)
        assert not work.ended
        work.clock.lapses.note(4)
        await clock.sleep(0.1)
        assert len(work.ended) == 1, "the next stop counts as the first did"


@in_virtual_time
async def test_whoever_is_not_at_work_any_more_is_told_nothing(clock: VirtualClock) -> None:
    async with working(clock) as work:
        pass
    work.clock.lapses.note(20)
    await clock.sleep(1)
    assert not work.ended


@in_virtual_time
async def test_reconciles_in_doubt_are_cancelled_and_come_back_once_it_is_dispelled(clock: VirtualClock) -> None:
    calls: list[tuple[str, float]] = []

    async def work(item: str) -> None:
        calls.append((item, clock.monotonic()))
        try:
            await clock.sleep(10)
        except asyncio.CancelledError:
            await clock.sleep(2.0 if item == "slow" else 0.0)  # it takes its time to end
            raise

    queue: WorkQueue[str] = WorkQueue(clock, rate_limit=RateLimit(base_seconds=1, per_second=None))
    workers = WorkerPool("test", work, queue, clock=clock, concurrency=2)
    task = asyncio.create_task(workers.run())
    queue.add("a")
    queue.add("slow")
    await clock.sleep(5)
    workers.cancel_in_doubt()
    workers.cancel_in_doubt()  # twice does no harm
    await clock.sleep(1)
    assert len(calls) == 2
    workers.go_on()
    await clock.sleep(60)
    task.cancel()
    await asyncio.wait([task])
    assert calls == [("a", 0), ("slow", 0), ("a", pytest.approx(6)), ("slow", pytest.approx(7))]


@in_virtual_time
async def test_a_controller_ends_its_reconciles_in_doubt_and_takes_them_up_again(clock: VirtualClock) -> None:
    machine = MachineClock(clock)
    hold = Hold("the lease of shard-1", machine)
    hold.extend(clock.monotonic() + 10)
    rig = Rig(clock)
    rig.clock, rig.hold = machine, hold  # type: ignore[assignment]
    ran: list[str] = []

    async def work(context: Context[PartialObject]) -> None:
        try:
            await clock.sleep(5)
        except asyncio.CancelledError:
            ran.append("cancelled")
            raise
        ran.append("done")

    rig.secret("a")
    async with rig.shard(work):
        await clock.sleep(2)
        machine.lapses.note(20)
        await clock.sleep(1)
        assert ran == ["cancelled"]
        hold.extend(clock.monotonic() + 60)
        await clock.sleep(6)
        assert ran == ["cancelled", "done"]
