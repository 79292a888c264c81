"""Which reconciles were told to end, however they have gone on since."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.shardsdk.queueing.test_tasks import own_task, running


@pytest.mark.parametrize("how", ["asked", "in doubt", "pool"])
@in_virtual_time
async def test_one_that_was_cancelled_is_told_to_end_however_it_goes_on(clock: VirtualClock, how: str) -> None:
    told: list[bool] = []

    async def reconcile(item: str) -> None:
        told.append(pool.is_told_to_end(item))
        with suppress(asyncio.CancelledError):
            await clock.sleep(1000)
        own_task().uncancel()
        told.append(pool.is_told_to_end(item))

    async with running(clock, reconcile) as (pool, task):
        pool.queue.add("a")
        await clock.sleep(1)
        match how:
            case "asked":
                pool.cancel("a")
            case "in doubt":
                pool.cancel_in_doubt()
                pool.go_on()  # what it says counts for nothing all the same
            case _:
                task.cancel()
        await clock.sleep(0.1)
        assert told[:2] == [False, True]
        assert not pool.is_told_to_end("b")


@in_virtual_time
async def test_a_group_that_fails_in_one_tells_nobody_to_end(clock: VirtualClock) -> None:
    told: list[bool] = []

    async def fail() -> None:
        raise LookupError

    async def reconcile(item: str) -> None:
        with suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                group.create_task(fail())
        told.append(pool.is_told_to_end(item))

    async with running(clock, reconcile) as (pool, _):
        pool.queue.add("a")
        await clock.sleep(1)
    assert told == [False]
