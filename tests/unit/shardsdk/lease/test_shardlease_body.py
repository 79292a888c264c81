"""What a ShardLease takes for its body: the task that has entered it, and functions in threads."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress

import pytest

from shardsdk.errors import ConfigurationError, LeaseLost
from shardsdk.kube.clock import SystemClock
from shardsdk.lease import body
from shardsdk.lease.body import Body
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.timings import LeaseTimings
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.lease_rig import NAMESPACE, RING, SHARD, Rig, connecting, lease_in

#: Lost soon after the API server has gone.
BRIEF = LeaseTimings(lease_duration=2, renew_deadline=1.4, retry_period=0.2)
#: Kept by a machine on which nothing of this process runs for some seconds.
STEADY = LeaseTimings(lease_duration=60, renew_deadline=40, retry_period=0.2)


class Stage:
    """A lease in real time, of which `told` says that its deadline was told, and a function that works until `done`."""

    def __init__(self, timings: LeaseTimings = STEADY) -> None:
        self.server = MemoryServer()
        self.api = MemoryApi(self.server, SystemClock())
        self.told, self.begun, self.done = threading.Event(), threading.Event(), threading.Event()
        self.lease = ShardLease(
            connecting(self.api), RING, SHARD, NAMESPACE,
            instance="uid-1", timings=timings, on_deadline=self.told.set,
        )  # fmt: skip

    def work(self) -> str:
        self.begun.set()
        self.done.wait(40)
        return "done"

    async def leave_working(self) -> tuple[asyncio.Task[None], asyncio.Task[str]]:
        """A task that has entered the lease and whose body has ended, and the function that this has left."""

        async def enter() -> None:
            async with self.lease as lease:
                left.append(asyncio.create_task(lease.to_thread(self.work)))
                await soon(self.begun)

        left = list[asyncio.Task[str]]()
        task = asyncio.create_task(enter())
        await soon(self.begun)
        return task, left[0]

    async def renewed(self, times: int = 3) -> None:
        """Wait until the lease has been renewed so often."""
        async with asyncio.timeout(40):
            for _ in range(times):
                before = self.lease.fence.ends_at
                while self.lease.fence.ends_at == before:
                    await asyncio.sleep(0.02)

    @property
    def holder(self) -> str:
        found = lease_in(self.server, SHARD)
        assert found is not None
        return found.holder


def raising(error: type[BaseException]) -> None:
    raise error


async def soon(event: threading.Event) -> None:
    """Wait for it without a thread."""
    async with asyncio.timeout(40):
        while not event.is_set():
            await asyncio.sleep(0.02)


async def test_it_gives_what_a_function_returns_or_raises() -> None:
    stage = Stage()
    async with stage.lease as lease:
        assert await lease.to_thread(int, "10", base=16) == 16
        with pytest.raises(ValueError, match="invalid literal"):
            await lease.to_thread(int, "x")
        with pytest.raises(RuntimeError, match="StopIteration"):
            await lease.to_thread(next, iter(()))
        for cancelled in (CancelledError, asyncio.CancelledError):  # nobody has cancelled the body
            with pytest.raises(RuntimeError, match="the function raised CancelledError"):
                await lease.to_thread(raising, cancelled)


async def test_without_the_lease_nothing_is_begun_in_a_thread() -> None:
    stage = Stage()
    with pytest.raises(LeaseLost, match="nothing is begun in a thread"):
        await stage.lease.to_thread(stage.work)
    async with stage.lease:
        pass
    with pytest.raises(LeaseLost, match="nothing is begun in a thread"):
        await stage.lease.to_thread(stage.work)
    assert not stage.begun.is_set()


async def test_of_a_lost_lease_the_deadline_is_told_while_a_function_still_works() -> None:
    stage = Stage(BRIEF)

    async def work() -> None:
        async with stage.lease as lease:
            working = asyncio.create_task(lease.to_thread(stage.work))
            await soon(stage.begun)
            stage.api.fault = Fault.LOST
            await working

    task = asyncio.create_task(work())
    await soon(stage.told)
    assert stage.lease.fence.remaining() <= 0
    assert not task.done()
    stage.done.set()
    with pytest.raises(LeaseLost, match="not renewed"):
        await task


@pytest.mark.parametrize("awaited", [True, False])
async def test_a_body_that_is_cancelled_keeps_its_lease_until_its_functions_have_returned(awaited: bool) -> None:
    stage = Stage()

    async def work() -> None:
        async with stage.lease as lease:
            working = asyncio.create_task(lease.to_thread(stage.work))
            if awaited:
                await working
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await soon(stage.begun)
    for _ in range(3):
        task.cancel()
        await stage.renewed()
        assert (stage.holder, task.done()) == (SHARD, False)
    stage.done.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stage.holder == ""
    assert not stage.told.is_set()


async def test_a_body_that_has_ended_keeps_its_lease_until_its_functions_have_returned() -> None:
    stage = Stage()
    task, working = await stage.leave_working()
    await stage.renewed()
    assert (stage.holder, task.done()) == (SHARD, False)
    task.cancel()  # whoever asks for it is heard, afterwards
    await asyncio.sleep(0.1)
    stage.done.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (stage.holder, await working) == ("", "done")


async def test_a_lease_that_is_lost_while_only_functions_work_is_told_too() -> None:
    stage = Stage(BRIEF)
    task, working = await stage.leave_working()
    stage.api.fault = Fault.LOST
    await soon(stage.told)
    stage.done.set()
    with pytest.raises(LeaseLost, match="not renewed"):
        await task
    assert await working == "done"


# -- functions that wait for a thread --------------------------------------------


async def test_a_function_that_waits_for_a_thread_when_the_lease_is_lost_never_begins() -> None:
    stage, called = Stage(BRIEF), list[int]()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))

    async def work() -> None:
        async with stage.lease as lease:
            first = asyncio.create_task(lease.to_thread(stage.work))
            await soon(stage.begun)
            # One is cancelled with the body; of the other nobody thinks.
            others.append(asyncio.create_task(lease.to_thread(called.append, 1)))
            stage.api.fault = Fault.LOST
            try:
                await lease.to_thread(called.append, 2)
            finally:
                cancelled.append(stage.done.is_set())
                stage.done.set()
                await first

    others, cancelled = list[asyncio.Task[None]](), list[bool]()
    with pytest.raises(LeaseLost, match="not renewed"):
        await work()
    assert cancelled == [False]  # without waiting for the thread
    with pytest.raises(LeaseLost, match="nothing is begun in a thread"):
        await others[0]
    assert called == []


async def test_of_a_body_that_has_failed_and_whose_functions_go_on_it_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(body, "TOLD_FIRST_SECONDS", 0.2)
    monkeypatch.setattr(body, "TOLD_AGAIN_SECONDS", 0.1)
    stage = Stage()

    async def fail() -> None:
        async with stage.lease as lease:
            working.append(asyncio.create_task(lease.to_thread(stage.work)))
            await soon(stage.begun)
            raise ValueError("boom")

    def told() -> list[tuple[object, ...]]:
        lines = [vars(record) for record in caplog.records if "still run by to_thread" in record.message]
        return [tuple(line[field] for field in ("levelname", "shard", "functions", "error")) for line in lines]

    working = list[asyncio.Task[str]]()
    failing = asyncio.create_task(fail())
    async with asyncio.timeout(40):
        while len(told()) < 2:
            await asyncio.sleep(0.02)
    assert set(told()) == {("ERROR", SHARD, 1, "ValueError('boom')")}
    stage.done.set()
    with pytest.raises(ValueError, match="boom"):
        await failing


async def test_on_another_event_loop_nothing_is_begun_and_the_lease_is_left() -> None:
    stage = Stage()
    async with stage.lease as lease:
        with pytest.raises(ConfigurationError, match="another event loop"):
            await lease.to_thread(asyncio.run, lease.to_thread(stage.work))
    assert (stage.holder, stage.begun.is_set()) == ("", False)


# -- what a cancellation is taken for, and what is left of a lease ----------------


@in_virtual_time
async def test_a_cancellation_that_did_not_reach_the_body_is_not_taken_back(clock: VirtualClock) -> None:
    rig, stack = Rig(clock), AsyncExitStack()
    api = rig.api()

    async def start() -> ShardLease:
        return await stack.enter_async_context(rig.shard(api))

    lease = await asyncio.create_task(start())
    api.fault = Fault.REFUSED
    await asyncio.wait_for(lease.lost.wait(), 60)
    with pytest.raises(asyncio.CancelledError):
        async with stack:
            raise asyncio.CancelledError  # of whoever closes the stack


@in_virtual_time
async def test_nothing_is_left_of_a_lease_that_was_lost(clock: VirtualClock) -> None:
    """A program that takes one lease after the other in one task keeps none."""
    rig = Rig(clock)

    async def lose() -> weakref.ref[Body]:
        api = rig.api()
        lease = rig.shard(api)
        with suppress(LeaseLost):
            async with lease:
                api.fault = Fault.REFUSED
                await asyncio.sleep(60)
        assert lease.loss is not None
        return weakref.ref(lease._body)

    left = await lose()
    await clock.sleep(60)
    gc.collect()
    assert left() is None


# -- a body that nobody can cancel ----------------------------------------------


async def entered_alone(lease: ShardLease) -> None:
    await asyncio.create_task(lease.__aenter__())


async def entered_on_a_stack(lease: ShardLease) -> None:
    async with AsyncExitStack() as stack:
        await asyncio.create_task(stack.enter_async_context(lease))


@pytest.mark.parametrize("enter", [entered_alone, entered_on_a_stack])
@in_virtual_time
async def test_a_task_that_only_enters_is_refused(
    clock: VirtualClock, enter: Callable[[ShardLease], Awaitable[None]]
) -> None:
    """Such as `asyncio.wait_for` makes before Python 3.12."""
    rig = Rig(clock)
    with pytest.raises(ConfigurationError, match=r"asyncio\.timeout"):
        await enter(rig.shard())
    assert rig.lease() is None


@in_virtual_time
async def test_with_a_deadline_it_is_not_for_the_process_is_ended(clock: VirtualClock) -> None:
    rig, told = Rig(clock), list[int]()
    api = rig.api()
    async with AsyncExitStack() as stack:
        lease = await asyncio.create_task(stack.enter_async_context(rig.shard(api, on_deadline=lambda: told.append(1))))
        api.fault = Fault.REFUSED
        await asyncio.wait_for(lease.lost.wait(), 60)
        await asyncio.sleep(30)
        assert told
        with pytest.raises(LeaseLost):
            await stack.aclose()


@in_virtual_time
async def test_an_entering_task_that_has_ended_is_told_of_at_once_and_at_the_loss(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig, stack = Rig(clock), AsyncExitStack()
    api = rig.api()

    async def start() -> ShardLease:
        return await stack.enter_async_context(rig.shard(api))

    lease = await asyncio.create_task(start())
    await asyncio.sleep(0)
    assert "The lease's body cannot be cancelled" in caplog.text
    assert "asyncio.timeout" in caplog.text
    api.fault = Fault.REFUSED
    await asyncio.wait_for(lease.lost.wait(), 60)
    assert "The lease is lost, and its body is not cancelled" in caplog.text
    with pytest.raises(LeaseLost):
        await stack.aclose()


@in_virtual_time
async def test_of_a_body_that_ends_with_its_task_nothing_is_told(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(clock)

    async def work() -> None:
        async with rig.shard():
            await asyncio.sleep(5)

    await asyncio.create_task(work())
    assert "cancelled" not in caplog.text


async def test_a_thread_renews_no_more_for_a_body_that_was_cancelled_again_while_its_writes_settled() -> None:
    stage = Stage()

    async def settled() -> None:
        await asyncio.Event().wait()

    async def enter() -> None:
        async with stage.lease:
            stage.begun.set()
            await asyncio.Event().wait()

    def lease() -> object:
        return lease_in(stage.server, SHARD)

    stage.lease.settle_first(settled)
    task = asyncio.create_task(enter())
    await soon(stage.begun)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(STEADY.retry_period)
    await asyncio.wait((task,))
    left = lease()
    await asyncio.sleep(4 * STEADY.retry_period)
    assert lease() == left


async def test_a_body_that_has_ended_in_time_is_not_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(body, "TOLD_FIRST_SECONDS", 0)
    under = Body(RING, SHARD, ended_by_force=False)
    under.enter(ShardLease.__aenter__.__code__)
    under.begin()
    under.tell_overdue()
    assert len(caplog.records) == 1
    await under.end(None)
    under.tell_overdue()
    assert len(caplog.records) == 1
