"""A machine that stands still stops the timers of its process, and nobody else's."""

from __future__ import annotations

import asyncio

import pytest

from shardsdk.testing.processes import Process, outside
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.simulation.timers import StoppedTimers

STOPPED_SECONDS = 100.0


async def stand_still(clock: VirtualClock, process: Process) -> None:
    process.pause()
    timers = StoppedTimers(process)
    await clock.sleep(STOPPED_SECONDS)
    timers.go_on(STOPPED_SECONDS)
    process.resume()


@in_virtual_time
async def test_what_a_sleep_had_left_it_has_left_when_the_machine_goes_on(clock: VirtualClock) -> None:
    process = Process("stopped")
    naps = [process.start(clock.sleep(seconds)) for seconds in (5.0, 3.0)]
    await clock.sleep(1.0)
    await stand_still(clock, process)
    await naps[1]
    assert clock.monotonic() == STOPPED_SECONDS + 3.0
    await naps[0]
    assert clock.monotonic() == STOPPED_SECONDS + 5.0


@in_virtual_time
async def test_an_answer_that_came_meanwhile_is_in_time(clock: VirtualClock) -> None:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def ask() -> str:
        async with asyncio.timeout(2.0):
            return await answer

    process = Process("stopped")
    asking = process.start(ask())
    outside(clock.sleep(10.0)).add_done_callback(lambda _: answer.set_result("executed"))
    await clock.sleep(1.0)
    await stand_still(clock, process)
    assert await asking == "executed"
    assert clock.monotonic() == 1.0 + STOPPED_SECONDS


@in_virtual_time
async def test_the_timers_of_others_go_on(clock: VirtualClock) -> None:
    other = Process("other").start(clock.sleep(5.0))
    await clock.sleep(1.0)
    standing = asyncio.create_task(stand_still(clock, Process("stopped")))
    await other
    assert clock.monotonic() == 5.0
    await standing


@pytest.mark.parametrize("timers", [1, 500])
@in_virtual_time
async def test_what_is_cancelled_meanwhile_never_fires(clock: VirtualClock, timers: int) -> None:
    process, fired = Process("stopped"), list[float]()

    async def wait() -> list[asyncio.TimerHandle]:
        loop = asyncio.get_running_loop()
        return [loop.call_later(5.0 + each, fired.append, 5.0 + each) for each in range(timers)]

    handles = await process.start(wait())
    standing = asyncio.create_task(stand_still(clock, process))
    await clock.sleep(1.0)
    for each in handles[1:]:
        each.cancel()
    await standing
    await clock.sleep(1000.0)
    assert fired == [5.0]
