from __future__ import annotations

import asyncio

import pytest

from shardsdk.testing.virtualtime import EPOCH, Deadlock, VirtualClock, in_virtual_time, run_virtual


@in_virtual_time
async def test_a_sleeping_day_passes_at_once(clock: VirtualClock) -> None:
    await clock.sleep(86_400)
    assert clock.monotonic() == pytest.approx(86_400)
    assert (clock.now() - EPOCH).total_seconds() == pytest.approx(86_400)


@in_virtual_time
async def test_timeouts_and_sleeps_share_one_time(clock: VirtualClock) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await clock.sleep(10)
    assert clock.monotonic() == pytest.approx(5)


@in_virtual_time
async def test_tasks_wake_in_the_order_of_their_moments(clock: VirtualClock) -> None:
    woken: list[float] = []

    async def nap(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    async with asyncio.TaskGroup() as group:
        for seconds in (3.0, 1.0, 2.0):
            group.create_task(nap(seconds))
    assert woken == [1.0, 2.0, 3.0]


@in_virtual_time
async def test_a_jump_makes_every_timer_in_it_late(clock: VirtualClock) -> None:
    nap = asyncio.create_task(clock.sleep(1))
    await asyncio.sleep(0)
    clock.jump(100)
    await nap
    assert clock.monotonic() == pytest.approx(100)


@in_virtual_time
async def test_fixtures_reach_a_decorated_test(clock: VirtualClock, tmp_path: object) -> None:
    assert tmp_path


def test_waiting_for_what_cannot_happen_is_an_error() -> None:
    async def wait_for_ever(clock: VirtualClock) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_virtual(wait_for_ever)
