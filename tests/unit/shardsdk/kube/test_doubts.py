"""A fence that is merely doubted is told from one that is shut for good, also when that changes as it is asked.

What works under a hold that has run out by what the clock has missed is ended before that is confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from shardsdk.contrib.kubernetes import FencedWrites
from shardsdk.errors import LeaseLost, TerminalError
from shardsdk.kube.api import Fence
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.doubts import DOUBT_SECONDS, FenceDoubted, check_open, end_in_doubt
from shardsdk.kube.fencing import Guard, Ledger
from shardsdk.lease.hold import Hold
from shardsdk.protocol.objects import PartialObject
from shardsdk.queueing.queue import Priority, RateLimit, WorkQueue
from shardsdk.queueing.workers import Outcome, Requeue, RequeueAfter, WorkerPool
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
async def test_a_hold_that_is_renewed_after_it_has_run_out_by_every_clock_lets_it_go_on(clock: VirtualClock) -> None:
    async with working(clock) as work:
        work.clock.lapses.note(20)
        await clock.sleep(12)
        assert work.ended
        assert not work.hold.doubted
        work.renew()
        await clock.sleep(1)
        assert work.again == [pytest.approx(12, abs=2 * DOUBT_SECONDS)]


@in_virtual_time
async def test_whoever_is_not_at_work_any_more_is_told_nothing(clock: VirtualClock) -> None:
    async with working(clock) as work:
        pass
    work.clock.lapses.note(20)
    await clock.sleep(1)
    assert not work.ended


@asynccontextmanager
async def pool(
    clock: VirtualClock,
    reconcile: Callable[[str], Awaitable[Outcome | None]],
    *,
    concurrency: int = 1,
    limit: float | None = None,
) -> AsyncIterator[WorkerPool[str]]:
    queue: WorkQueue[str] = WorkQueue(clock, rate_limit=RateLimit(base_seconds=1, per_second=None))
    workers = WorkerPool(
        "test", reconcile, queue, clock=clock, concurrency=concurrency, timeout_seconds=limit,
    )  # fmt: skip
    task = asyncio.create_task(workers.run())
    try:
        yield workers
    finally:
        task.cancel()
        await asyncio.wait([task])


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

    async with pool(clock, work, concurrency=2) as workers:
        workers.queue.add("a")
        workers.queue.add("slow")
        await clock.sleep(5)
        workers.cancel_in_doubt()
        workers.cancel_in_doubt()  # twice does no harm
        await clock.sleep(1)
        assert len(calls) == 2
        workers.go_on()
        await clock.sleep(60)
    assert calls == [("a", 0), ("slow", 0), ("a", pytest.approx(6)), ("slow", pytest.approx(7))]


@pytest.mark.parametrize("how", ["limit in doubt", "limit", "drain", "doubt"])
@in_virtual_time
async def test_one_that_goes_on_after_a_doubt_ends_by_whatever_comes_next(clock: VirtualClock, how: str) -> None:
    """As one does in which a cancellation of its own part has swallowed that of its task."""
    calls: list[tuple[str, float]] = []

    async def work(item: str) -> None:
        if calls:
            return
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        try:
            await asyncio.Event().wait()
        finally:
            calls.append((item, clock.monotonic()))

    async with pool(clock, work, limit=60 if how.startswith("limit") else None) as workers:
        workers.queue.add("a")
        await clock.sleep(10)
        workers.cancel_in_doubt()
        await clock.sleep(1)
        if how != "limit in doubt":
            workers.go_on()
        await clock.sleep(19)
        if how == "drain":
            assert workers.cancel("a")
        elif how == "doubt":
            workers.cancel_in_doubt()
        await clock.sleep(50)
    assert calls == [("a", 60 if how.startswith("limit") else 30)]


@pytest.mark.parametrize("answer", [None, RequeueAfter(1000), Requeue(), TerminalError("no"), LeaseLost("in doubt")])
@in_virtual_time
async def test_one_cancelled_in_doubt_comes_back_whatever_it_says_to_that(
    clock: VirtualClock, answer: Outcome | Exception | None
) -> None:
    calls: list[float] = []

    async def work(item: str) -> Outcome | None:
        calls.append(clock.monotonic())
        if len(calls) == 1:
            with suppress(asyncio.CancelledError):
                await clock.sleep(100)
            if isinstance(answer, Exception):
                raise answer
            return answer
        return None

    async with pool(clock, work) as workers:
        workers.queue.add("a")
        await clock.sleep(5)
        workers.cancel_in_doubt()
        await clock.sleep(5)
        workers.go_on()
        await clock.sleep(2000)
    assert calls == [0, pytest.approx(10)]


@in_virtual_time
async def test_one_that_had_said_what_it_has_to_say_before_a_doubt_has_been_heard(clock: VirtualClock) -> None:
    calls: list[float] = []

    async def work(item: str) -> None:
        calls.append(clock.monotonic())
        asyncio.get_running_loop().call_soon(workers.cancel_in_doubt)

    async with pool(clock, work) as workers:
        workers.queue.add("a")
        await clock.sleep(5)
        workers.go_on()
        await clock.sleep(100)
    assert calls == [0]


def test_none_begins_in_doubt_and_what_waits_keeps_its_place(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def wait_it_out(clock: VirtualClock) -> None:
        calls: list[str] = []

        async def work(item: str) -> None:
            calls.append(item)
            if item == "bulk 0" and calls.count(item) == 1:
                await clock.sleep(10)

        async with pool(clock, work) as workers:
            for number in range(4):
                workers.queue.add(f"bulk {number}", Priority.BULK)
            await clock.sleep(1)
            workers.cancel_in_doubt()
            workers.queue.add("fresh")
            await clock.sleep(5)
            assert calls == ["bulk 0"]
            workers.go_on()
            await clock.sleep(5)
            assert calls == ["bulk 0", "fresh", "bulk 1", "bulk 2", "bulk 3", "bulk 0"]

    wait_it_out()
    assert not caplog.records


@in_virtual_time
async def test_a_pool_that_is_in_doubt_can_be_stopped(clock: VirtualClock) -> None:
    calls: list[str] = []

    async def work(item: str) -> None:
        calls.append(item)

    queue: WorkQueue[str] = WorkQueue(clock)
    workers = WorkerPool("test", work, queue, clock=clock, concurrency=2)
    workers.cancel_in_doubt()
    task = asyncio.create_task(workers.run())
    queue.add("a")
    await clock.sleep(1)
    await queue.shut_down()
    await clock.sleep(1)
    assert task.done()
    assert not calls


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
