from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from shardsdk.errors import (
    ApiError,
    ConfigurationError,
    Conflict,
    FenceClosed,
    Forbidden,
    Invalid,
    ServerError,
    TerminalError,
    TooManyRequests,
)
from shardsdk.kube.backoff import ASKED_MAX_SECONDS, UNWELL_MAX_SECONDS
from shardsdk.kube.doubts import FenceDoubted
from shardsdk.queueing.metrics import Metrics
from shardsdk.queueing.queue import Priority, RateLimit, WorkQueue
from shardsdk.queueing.workers import Done, Outcome, Requeue, RequeueAfter, WorkerPool
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

Reconcile = Callable[[str], Awaitable[Outcome | None]]


def make(
    clock: VirtualClock, reconcile: Reconcile, *, concurrency: int = 1, limit: float | None = None
) -> WorkerPool[str]:
    queue: WorkQueue[str] = WorkQueue(clock, rate_limit=RateLimit(base_seconds=1, per_second=None))
    return WorkerPool(
        "test", reconcile, queue, clock=clock, concurrency=concurrency, timeout_seconds=limit,
        metrics=Metrics().controller("test", concurrency),
    )  # fmt: skip


@asynccontextmanager
async def running(workers: WorkerPool[str]) -> AsyncIterator[WorkQueue[str]]:
    task = asyncio.create_task(workers.run())
    try:
        yield workers.queue
    finally:
        task.cancel()
        await asyncio.wait([task])


class Script:
    """A reconcile that answers as told, one answer after the other, then `None`."""

    def __init__(self, clock: VirtualClock, *answers: Outcome | Exception | None) -> None:
        self.clock = clock
        self.answers = list(answers)
        self.calls: list[float] = []

    async def __call__(self, item: str) -> Outcome | None:
        self.calls.append(self.clock.monotonic())
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


@in_virtual_time
async def test_done_is_not_called_again(clock: VirtualClock) -> None:
    script = Script(clock, Done())
    async with running(make(clock, script)) as queue:
        queue.add("a")
        await clock.sleep(10_000)
    assert script.calls == [0]


@in_virtual_time
async def test_requeue_after_comes_back_then(clock: VirtualClock) -> None:
    script = Script(clock, RequeueAfter(30), RequeueAfter(5))
    async with running(make(clock, script)) as queue:
        queue.add("a")
        await clock.sleep(10_000)
    assert script.calls == pytest.approx([0, 30, 35])


@in_virtual_time
@pytest.mark.parametrize("answer", [None, TerminalError("spec makes no sense"), RequeueAfter(1000)])
@pytest.mark.parametrize("before", [RequeueAfter(30), RuntimeError("boom")])
async def test_what_an_earlier_reconcile_asked_for_does_not_outlive_a_later_one(
    clock: VirtualClock, before: Outcome | Exception, answer: Outcome | Exception | None
) -> None:
    script = Script(clock, before, answer)
    async with running(make(clock, script)) as queue:
        queue.add("a")
        await clock.sleep(0.5)
        queue.add("a")
        await clock.sleep(0.1)
        assert queue.where("a").due == (1000.5 if isinstance(answer, RequeueAfter) else None)
        await clock.sleep(900)
    assert script.calls == [0, 0.5]


@in_virtual_time
async def test_errors_and_requeue_come_back_with_a_growing_pause_until_success(clock: VirtualClock) -> None:
    script = Script(clock, RuntimeError("boom"), Requeue(), Conflict("stale"), None)
    async with running(make(clock, script)) as queue:
        queue.add("a")
        await clock.sleep(10_000)
        assert queue.requeues("a") == 0
    assert script.calls == pytest.approx([0, 1, 3, 7])


@in_virtual_time
@pytest.mark.parametrize("error", [Forbidden, Invalid])
async def test_what_a_role_or_a_policy_may_mend_is_tried_again_as_any_error(
    clock: VirtualClock, error: type[ApiError]
) -> None:
    script = Script(clock, error("no"), error("still no"))
    async with running(make(clock, script)) as queue:
        queue.add("a")
        await clock.sleep(10_000)
    assert script.calls == pytest.approx([0, 1, 3])


@in_virtual_time
async def test_a_terminal_error_waits_for_the_next_event(clock: VirtualClock) -> None:
    script = Script(clock, TerminalError("spec makes no sense"))
    async with running(make(clock, script)) as queue:
        queue.add("a")
        await clock.sleep(10_000)
        assert len(script.calls) == 1
        queue.add("a")
        await clock.sleep(1)
    assert len(script.calls) == 2


@in_virtual_time
async def test_an_answer_that_is_none_is_refused_with_what_to_return(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(item: str) -> Any:
        return {"requeue": True}

    async with running(make(clock, answer)) as queue:
        queue.add("a")
        await clock.sleep(1)
    assert "returned a dict: return None, Done(), Requeue() or RequeueAfter" in caplog.text


@in_virtual_time
async def test_a_closed_fence_is_not_retried(clock: VirtualClock) -> None:
    script = Script(clock, FenceClosed("the lease ran out"))
    async with running(make(clock, script)) as queue:
        queue.add("a")
        await clock.sleep(10_000)
    assert len(script.calls) == 1


@in_virtual_time
async def test_a_fence_that_is_merely_doubted_is_asked_again(clock: VirtualClock) -> None:
    """The machine stood still, and the lease is about to be confirmed: nobody else will reconcile the object."""
    script = Script(clock, FenceDoubted("the lease has yet to be confirmed"))
    async with running(make(clock, script)) as queue:
        queue.add("a")
        await clock.sleep(10_000)
    assert len(script.calls) == 2


def wrapped(how: str) -> Exception:
    """A closed fence as reconciles let it out."""
    closed = FenceClosed("the lease ran out")
    if how == "cause":
        error = RuntimeError("the child could not be written")
        error.__cause__ = closed
        return error
    return ExceptionGroup("unhandled errors in a TaskGroup", [closed, ExceptionGroup("inner", [closed])])


@pytest.mark.parametrize("how", ["cause", "group"])
@in_virtual_time
async def test_a_closed_fence_is_one_line_whatever_it_is_wrapped_in(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    script = Script(clock, wrapped(how))
    async with running(make(clock, script)) as queue:
        queue.add("a")
        await clock.sleep(10_000)
    assert len(script.calls) == 1
    [line] = caplog.records
    assert (line.msg, line.exc_info) == ("Reconcile stopped: the lease is gone", None)


@in_virtual_time
async def test_a_group_with_another_error_in_it_is_that_error(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(clock, ExceptionGroup("both", [FenceClosed("the lease ran out"), KeyError("a bug")]))
    async with running(make(clock, script)) as queue:
        queue.add("a")
        await clock.sleep(1.5)
    assert len(script.calls) == 2
    assert [line.exc_info is not None for line in caplog.records] == [True]


@in_virtual_time
async def test_the_stack_is_shown_once_for_each_object_and_error(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    full, odd = [RuntimeError("the bucket is full") for _ in range(3)], ValueError("odd")
    script = Script(clock, *full, odd, full[0], None, full[0])
    async with running(make(clock, script)) as queue:
        queue.add("a")
        await clock.sleep(20)
        queue.add("a")  # after a success it is news again
        await clock.sleep(10)
        queue.add("b")
        await clock.sleep(10)
    assert [line.exc_info is not None for line in caplog.records] == [True, False, False, True, True, True]
    assert [line.attempts for line in caplog.records] == [1, 2, 3, 4, 5, 1]  # type: ignore[attr-defined]
    assert {line.msg for line in caplog.records} == {"Reconcile raised; trying again"}


@in_virtual_time
async def test_retry_after_is_honoured(clock: VirtualClock) -> None:
    script = Script(clock, TooManyRequests("slow down", status=429, retry_after_seconds=60))
    async with running(make(clock, script)) as queue:
        queue.add("a")
        await clock.sleep(10_000)
    assert script.calls == pytest.approx([0, 60])


@in_virtual_time
@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (TooManyRequests("slow down", status=429, retry_after_seconds=3600), ASKED_MAX_SECONDS),
        (ServerError("no backend", status=503, retry_after_seconds=60), UNWELL_MAX_SECONDS),
    ],
    ids=["too many requests", "no backend"],
)
async def test_no_answer_keeps_an_item_away_for_as_long_as_it_likes(
    clock: VirtualClock, error: Exception, seconds: float
) -> None:
    script = Script(clock, error)
    async with running(make(clock, script)) as queue:
        queue.add("a")
        await clock.sleep(10_000)
    assert script.calls == pytest.approx([0, seconds])


@in_virtual_time
async def test_a_reconcile_beyond_its_limit_is_cancelled_and_comes_back(clock: VirtualClock) -> None:
    calls: list[float] = []

    async def stuck(item: str) -> None:
        calls.append(clock.monotonic())
        if len(calls) == 1:
            await asyncio.Event().wait()

    async with running(make(clock, stuck, limit=20)) as queue:
        queue.add("a")
        await clock.sleep(100)
    assert calls == pytest.approx([0, 21])


@in_virtual_time
async def test_a_timeout_of_the_reconcile_itself_is_an_ordinary_error(clock: VirtualClock) -> None:
    script = Script(clock, TimeoutError("the database is slow"))
    async with running(make(clock, script, limit=20)) as queue:
        queue.add("a")
        await clock.sleep(100)
    assert script.calls == pytest.approx([0, 1])


@in_virtual_time
async def test_one_reconcile_is_cancelled_by_its_item_and_not_retried(clock: VirtualClock) -> None:
    ended: list[str] = []

    async def work(item: str) -> None:
        try:
            await clock.sleep(10)
            ended.append(f"{item} done")
        except asyncio.CancelledError:
            ended.append(f"{item} cancelled")
            raise

    workers = make(clock, work, concurrency=2)
    async with running(workers) as queue:
        queue.add("a")
        queue.add("b")
        await clock.sleep(1)
        assert workers.cancel("a")
        assert workers.cancel("a")  # twice does no harm
        await clock.sleep(1000)
        assert not workers.cancel("a")
    assert ended == ["a cancelled", "b done"]


@in_virtual_time
async def test_a_worker_survives_whatever_a_reconcile_awaits_being_cancelled(clock: VirtualClock) -> None:
    calls = 0

    async def awaits_a_cancelled_task(item: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            other = asyncio.create_task(asyncio.sleep(100))
            other.cancel()
            await other

    async with running(make(clock, awaits_a_cancelled_task)) as queue:
        queue.add("a")
        await clock.sleep(100)
    assert calls == 2


@in_virtual_time
async def test_no_more_reconciles_than_allowed_run_at_once_and_never_one_item_twice(clock: VirtualClock) -> None:
    now: list[str] = []
    most = 0

    async def work(item: str) -> None:
        nonlocal most
        assert item not in now
        now.append(item)
        most = max(most, len(now))
        await clock.sleep(1)
        now.remove(item)

    async with running(make(clock, work, concurrency=3)) as queue:
        for round_ in range(3):
            for number in range(10):
                queue.add(f"{number}")
            await clock.sleep(0.5 * round_)
        await clock.sleep(100)
    assert most == 3


@in_virtual_time
async def test_shutdown_lets_running_reconciles_end(clock: VirtualClock) -> None:
    ended: list[str] = []

    async def work(item: str) -> None:
        await clock.sleep(10)
        ended.append(item)

    workers = make(clock, work)
    task = asyncio.create_task(workers.run())
    workers.queue.add("a")
    workers.queue.add("dropped")
    await clock.sleep(1)
    await workers.queue.shut_down()
    await task
    assert ended == ["a"]


@in_virtual_time
async def test_concurrency_has_bounds(clock: VirtualClock) -> None:
    with pytest.raises(ValueError, match="concurrency"):
        make(clock, Script(clock), concurrency=0)


@in_virtual_time
async def test_a_moment_that_has_passed_comes_back_with_a_growing_pause(clock: VirtualClock) -> None:
    script = Script(clock, RequeueAfter(0), RequeueAfter(-5), RequeueAfter(0), RequeueAfter(3), RequeueAfter(0))
    async with running(make(clock, script)) as queue:
        queue.add("a")
        await clock.sleep(10_000)
    assert script.calls == pytest.approx([0, 1, 3, 7, 10, 11])


@pytest.mark.parametrize("seconds", [timedelta(seconds=30), math.nan, math.inf, "30", None])
def test_what_is_no_number_of_seconds_is_refused_where_it_is_said(seconds: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"say a finite number, of a timedelta its total_seconds\(\)"):
        RequeueAfter(seconds)


@pytest.mark.parametrize("outcome", [lambda priority: RequeueAfter(1, priority), Requeue])
def test_a_priority_that_is_none_is_refused_where_it_is_said(outcome: Callable[[Any], Outcome]) -> None:
    outcome(Priority.BULK)
    with pytest.raises(ConfigurationError, match="10 is no priority"):
        outcome(10)


@in_virtual_time
async def test_an_outcome_that_is_wrong_is_the_reconciles_error(clock: VirtualClock) -> None:
    calls: list[float] = []
    wrong: Any = timedelta(seconds=30)

    async def answer(item: str) -> Outcome:
        calls.append(clock.monotonic())
        return RequeueAfter(wrong)

    async with running(make(clock, answer)) as queue:
        queue.add("a")
        await clock.sleep(10)
    assert calls == pytest.approx([0, 1, 3, 7])
