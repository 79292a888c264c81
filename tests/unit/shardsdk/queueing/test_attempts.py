"""What becomes of a reconcile that is cancelled for several reasons, or for one as it ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from shardsdk.queueing.attempts import Attempt, Early
from shardsdk.queueing.queue import RateLimit, WorkQueue
from shardsdk.queueing.workers import RequeueAfter, WorkerPool
from shardsdk.testing.virtual import VirtualClock, in_virtual_time


@pytest.mark.parametrize(("says", "again"), [(False, 61.0), (True, 60.0)], ids=["nothing", "to come back later"])
@in_virtual_time
async def test_one_that_reaches_its_limit_after_a_doubt_comes_back_when_its_line_says(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, says: bool, again: float
) -> None:
    calls: list[float] = []

    async def work(item: str) -> RequeueAfter | None:
        calls.append(clock.monotonic())
        if len(calls) > 1:
            return None
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not says:
                raise
        return RequeueAfter(1000)

    queue: WorkQueue[str] = WorkQueue(clock, rate_limit=RateLimit(base_seconds=1))
    pool = WorkerPool("test", work, queue, clock=clock, timeout_seconds=60)
    running = asyncio.create_task(pool.run())
    queue.add("a")
    await clock.sleep(10)
    pool.cancel_in_doubt()
    pool.go_on()
    await clock.sleep(2000)
    await queue.shut_down()
    await running
    assert calls == [0, pytest.approx(again)]
    pauses = [getattr(line, "next_attempt_seconds", None) for line in caplog.records if "its time limit" in line.msg]
    assert pauses == ([] if says else [1.0]), "what it says in doubt is not heeded"


@pytest.mark.parametrize("why", Early)
@in_virtual_time
async def test_one_that_has_ended_by_itself_is_cancelled_no_more(clock: VirtualClock, why: Early) -> None:
    attempt = Attempt(asyncio.create_task(asyncio.sleep(1000)), lambda seconds: None)
    attempt.task.cancel()
    await asyncio.wait([attempt.task])
    assert not attempt.end(why)
    assert attempt.ended_early is None
