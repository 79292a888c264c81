"""Each reconcile has a task of its own: what one does to it reaches neither the next nor the workers."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from shardsdk.queueing.metrics import ControllerMetrics, Metrics
from shardsdk.queueing.queue import RateLimit, WorkQueue
from shardsdk.queueing.workers import RequeueAfter, WorkerPool
from shardsdk.testing.processes import Process
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

Reconcile = Callable[[str], Awaitable[RequeueAfter | None]]


@asynccontextmanager
async def running(
    clock: VirtualClock,
    reconcile: Reconcile,
    *,
    limit: float | None = None,
    metrics: ControllerMetrics | None = None,
) -> AsyncIterator[tuple[WorkerPool[str], asyncio.Task[None]]]:
    """A pool of one worker, and the task that it runs in."""
    queue: WorkQueue[str] = WorkQueue(clock, rate_limit=RateLimit(base_seconds=1))
    pool = WorkerPool("test", reconcile, queue, clock=clock, timeout_seconds=limit, metrics=metrics)
    task = asyncio.create_task(pool.run())
    try:
        yield pool, task
    finally:
        task.cancel()
        await asyncio.wait([task])


def own_task() -> asyncio.Task[object]:
    """The task that asks."""
    task = asyncio.current_task()
    assert task is not None
    return task


@in_virtual_time
async def test_context_variables_do_not_reach_the_next_reconcile(clock: VirtualClock) -> None:
    bound = contextvars.ContextVar("bound", default="")
    seen: list[str] = []

    async def reconcile(item: str) -> None:
        seen.append(bound.get())
        bound.set(item)
        await clock.sleep(1)
        assert bound.get() == item

    bound.set("the program's")
    async with running(clock, reconcile) as (pool, _):
        for item in "abc":
            pool.queue.add(item)
        await clock.sleep(10)
    assert seen == ["the program's"] * 3


@in_virtual_time
async def test_a_limit_of_its_own_that_is_caught_costs_no_worker(clock: VirtualClock) -> None:
    """As programs did before there was `asyncio.timeout`; they count no cancellation."""
    seen: list[str] = []

    async def reconcile(item: str) -> None:
        seen.append(item)
        if item == "slow":
            timer = asyncio.get_running_loop().call_later(1, own_task().cancel)
            with suppress(asyncio.CancelledError):
                await clock.sleep(60)
            timer.cancel()
        elif seen.count(item) == 1:
            other = asyncio.get_running_loop().create_future()
            other.cancel()
            await other

    async with running(clock, reconcile) as (pool, task):
        pool.queue.add("slow")
        pool.queue.add("other")
        await clock.sleep(10)
        assert not task.done()
    assert seen == ["slow", "other", "other"]


@in_virtual_time
async def test_a_timer_that_outlives_its_reconcile_cancels_no_other(clock: VirtualClock) -> None:
    ended: list[str] = []

    async def reconcile(item: str) -> None:
        if item == "a":
            asyncio.get_running_loop().call_later(1, own_task().cancel)
        else:
            await clock.sleep(10)
        ended.append(item)

    async with running(clock, reconcile) as (pool, _):
        for item in "ab":
            pool.queue.add(item)
        await clock.sleep(100)
    assert ended == ["a", "b"]


@in_virtual_time
async def test_a_cancellation_as_it_returns_changes_nothing(clock: VirtualClock) -> None:
    calls: list[tuple[str, float]] = []

    async def reconcile(item: str) -> RequeueAfter | None:
        calls.append((item, clock.monotonic()))
        own_task().cancel()
        return RequeueAfter(30) if item == "a" and len(calls) == 1 else None

    async with running(clock, reconcile) as (pool, _):
        pool.queue.add("a")
        pool.queue.add("b")
        await clock.sleep(100)
    assert calls == [("a", 0), ("b", 0), ("a", 30)]


@in_virtual_time
@pytest.mark.parametrize("how", ["cancel", "limit", "pool"])
async def test_an_item_is_busy_until_its_cancelled_reconcile_has_ended(clock: VirtualClock, how: str) -> None:
    ends: list[float] = []

    async def reconcile(item: str) -> None:
        try:
            await clock.sleep(1000)
        finally:
            await clock.sleep(5)
            ends.append(clock.monotonic())

    async with running(clock, reconcile, limit=10 if how == "limit" else None) as (pool, task):
        pool.queue.add("a")
        await clock.sleep(10)
        if how == "cancel":
            assert pool.cancel("a")
        if how == "pool":
            task.cancel()
        await clock.sleep(4)
        pool.queue.add("a")
        assert (pool.running, ends, task.done()) == (1, [], False)
        assert pool.queue.where("a").started == 0
        await clock.sleep(1.5)
        assert ends == [15]
        assert (pool.running, task.done()) == ((0, True) if how == "pool" else (1, False))


@in_virtual_time
async def test_one_that_has_not_begun_is_cancelled_and_not_retried(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    async def reconcile(item: str) -> None:
        calls.append(item)

    caplog.set_level("INFO")
    async with running(clock, reconcile) as (pool, _):
        pool.queue.add("a")
        while not pool.running:
            await asyncio.sleep(0)
        assert pool.cancel("a")
        await clock.sleep(100)
    assert calls == []
    assert [line.msg for line in caplog.records] == ["Reconcile cancelled"]


@in_virtual_time
async def test_a_pool_that_is_cancelled_begins_no_other_though_its_reconcile_takes_no_notice(
    clock: VirtualClock,
) -> None:
    calls: list[str] = []

    async def reconcile(item: str) -> None:
        calls.append(item)
        with suppress(asyncio.CancelledError):
            await clock.sleep(1000)

    async with running(clock, reconcile) as (pool, task):
        for item in "ab":
            pool.queue.add(item)
        await clock.sleep(1)
        task.cancel()
        await clock.sleep(1)
        assert task.done()
    assert calls == ["a"]


def begun_at_once(loop: asyncio.AbstractEventLoop, coroutine: Any, **named: Any) -> asyncio.Task[Any]:
    """A task whose first step is taken here, as by `asyncio.eager_task_factory`, which Python has from 3.12 on."""
    outer = asyncio.current_task(loop) if loop.is_running() else None
    if outer is None:
        return asyncio.Task(coroutine, loop=loop, **named)
    steps: list[tuple[Callable[[], object], contextvars.Context]] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "call_soon", lambda step, context: steps.append((step, context)))
        task = asyncio.Task(coroutine, loop=loop, **named)
    [(step, context)] = steps
    asyncio.tasks._leave_task(loop, outer)
    try:
        context.run(step)
    finally:
        asyncio.tasks._enter_task(loop, outer)
    return task


@in_virtual_time
async def test_a_factory_that_begins_tasks_at_once_changes_nothing(clock: VirtualClock) -> None:
    seen: list[tuple[str, float]] = []

    async def reconcile(item: str) -> RequeueAfter | None:
        assert own_task() is not outer
        seen.append((item, clock.monotonic() - begun))
        return RequeueAfter(5) if item == "again" else None

    outer, begun, turns = own_task(), clock.monotonic(), list[int]()
    async with running(clock, reconcile) as (pool, _):
        loop = asyncio.get_running_loop()
        loop.set_task_factory(getattr(asyncio, "eager_task_factory", begun_at_once))
        pool.queue.add("again")
        await clock.sleep(12)
        assert seen == [("again", 0), ("again", 5), ("again", 10)]
        assert pool.running == 0
        # Others have their turns between reconciles that await nothing.
        for number in range(10):
            pool.queue.add(f"once {number}")
        while len(seen) < 13:
            await asyncio.sleep(0)
            turns.append(len(seen))
        assert len(turns) >= 10


@in_virtual_time
async def test_a_reconcile_takes_no_step_while_its_process_stands_still(clock: VirtualClock) -> None:
    """What simulations pause and kill are processes with all that runs in them."""
    steps: list[str] = []

    async def reconcile(item: str) -> None:
        for number in range(3):
            steps.append(f"{item}{number}")
            await clock.sleep(1)

    async def program() -> None:
        async with running(clock, reconcile) as (pool, task):
            pool.queue.add("a")
            await task

    process = Process("shard")
    process.start(program())
    await clock.sleep(1.5)
    process.pause()
    await clock.sleep(60)
    assert steps == ["a0", "a1"]
    process.resume()
    await clock.sleep(0)
    assert steps == ["a0", "a1", "a2"]
    process.kill()
    await clock.sleep(60)
    assert steps == ["a0", "a1", "a2"]


@in_virtual_time
async def test_one_that_answers_its_limit_by_returning_is_taken_at_its_word(clock: VirtualClock) -> None:
    calls, metrics = list[float](), Metrics()

    async def reconcile(item: str) -> RequeueAfter:
        calls.append(clock.monotonic())
        with suppress(asyncio.CancelledError):
            await clock.sleep(1000)
        return RequeueAfter(300)

    async with running(clock, reconcile, limit=10, metrics=metrics.controller("test", 1)) as (pool, _):
        pool.queue.add("a")
        await clock.sleep(315)
    assert calls == [0, 310]
    timeouts = metrics.registry.get_sample_value("controller_runtime_reconcile_timeouts_total", {"controller": "test"})
    assert timeouts == 1


@in_virtual_time
@pytest.mark.parametrize("how", ["cancel", "limit"])
async def test_one_that_goes_on_though_it_was_cancelled_is_told_at_growing_pauses_and_counted_once(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """As one in a plain function does, which may never return; an end in time says nothing."""
    may_end, metrics = asyncio.Event(), Metrics()

    async def reconcile(item: str) -> None:
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()
        raise asyncio.CancelledError

    def timeouts() -> float | None:
        return metrics.registry.get_sample_value("controller_runtime_reconcile_timeouts_total", {"controller": "test"})

    limit = 10 if how == "limit" else None
    async with running(clock, reconcile, limit=limit, metrics=metrics.controller("test", 1)) as (pool, _):
        pool.queue.add("a")
        await clock.sleep(10)
        pool.cancel("a")  # nothing new to one that its limit has cancelled
        told = [0]
        for seconds in (9, 2, 7, 5, 15, 5):
            await clock.sleep(seconds)
            told.append(len(caplog.records))
        asyncio.get_running_loop().call_soon(may_end.set)
        assert told == [0, 0, 1, 1, 2, 2, 3]
        assert timeouts() == (1 if how == "limit" else 0)
        assert {line.msg.partition(",")[0] for line in caplog.records} == {"Reconcile goes on though it was cancelled"}
        assert [line.__dict__["cancelled_seconds"] for line in caplog.records] == [10, 20, 40]
        await clock.sleep(0.5)
        assert timeouts() == (1 if how == "limit" else 0)
        before = len(caplog.records)
        await clock.sleep(1000)
    assert [line for line in caplog.records[before:] if "goes on" in line.msg] == []
