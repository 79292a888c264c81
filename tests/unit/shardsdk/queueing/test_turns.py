"""However many items there are for which nothing is waited for, everything else in the process gets its turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from shardsdk.queueing.queue import ITEMS_PER_TURN, WorkQueue
from shardsdk.queueing.workers import WorkerPool
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

ITEMS = 5000


async def most_between_turns(count: Callable[[], int]) -> int:
    """How much `count` grows between two turns at the most, until it is at `ITEMS`."""
    seen = [count()]
    while seen[-1] < ITEMS:
        await asyncio.sleep(0)
        seen.append(count())
    return max(later - sooner for sooner, later in pairwise(seen))


@in_virtual_time
@pytest.mark.parametrize("concurrency", [1, 8, 100])
async def test_reconciles_that_wait_for_nothing(clock: VirtualClock, concurrency: int) -> None:
    done: list[int] = []

    async def reconcile(item: int) -> None:
        done.append(item)

    queue: WorkQueue[int] = WorkQueue(clock)
    running = asyncio.create_task(WorkerPool("test", reconcile, queue, clock=clock, concurrency=concurrency).run())
    for item in range(ITEMS):
        queue.add(item)
    assert await most_between_turns(lambda: len(done)) <= max(ITEMS_PER_TURN, concurrency)
    await queue.shut_down(drain=True)
    await running


@in_virtual_time
async def test_an_object_that_is_wanted_again_at_once_for_ever(clock: VirtualClock) -> None:
    done: list[str] = []

    async def reconcile(item: str) -> None:
        done.append(item)
        queue.add(item)

    queue: WorkQueue[str] = WorkQueue(clock)
    running = asyncio.create_task(WorkerPool("test", reconcile, queue, clock=clock).run())
    queue.add("a")
    assert await most_between_turns(lambda: len(done)) <= ITEMS_PER_TURN
    await queue.shut_down()
    await running


@in_virtual_time
async def test_what_a_queue_processes(clock: VirtualClock) -> None:
    done: list[int] = []

    async def handle(item: int) -> None:
        done.append(item)

    queue: WorkQueue[int] = WorkQueue(clock)
    for item in range(ITEMS):
        queue.add(item)
    running = asyncio.create_task(queue.process(handle, lambda item, error: None))
    assert await most_between_turns(lambda: len(done)) <= ITEMS_PER_TURN
    await queue.shut_down(drain=True)
    await running


@in_virtual_time
async def test_items_that_come_back_at_one_moment(clock: VirtualClock) -> None:
    queue: WorkQueue[int] = WorkQueue(clock)
    for item in range(ITEMS):
        queue.add_at(item, 10)
    await clock.sleep(10)
    assert await most_between_turns(lambda: len(queue)) < ITEMS / 10
