"""What stands in for `asyncio.timeout` while a plan is played does the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from shardsdk.testing.virtual import VirtualClock, run_virtual
from tests.simulation.limits import Timeout

Make = Callable[[float | None], Any]


async def _story(clock: VirtualClock, make: Make, seconds: float | None, cancel_at: float, again: float) -> list[Any]:
    told: list[Any] = []

    async def work() -> None:
        scope = make(seconds)
        try:
            async with scope:
                if again:
                    scope.reschedule(again)
                await asyncio.sleep(5.0)
                told.append("done")
        except TimeoutError:
            told.append("late")
        finally:
            told.append((clock.monotonic(), scope.expired()))

    task = asyncio.create_task(work())
    asyncio.get_running_loop().call_later(cancel_at, task.cancel)
    await asyncio.wait([task])
    return [*told, task.cancelled()]


@pytest.mark.parametrize("seconds", [None, -1.0, 0.0, 1.0, 5.0, 9.0])
@pytest.mark.parametrize("cancel_at", [0.5, 1.0, 20.0])
@pytest.mark.parametrize("again", [0.0, 2.0])
def test_it_ends_as_asyncios_does(seconds: float | None, cancel_at: float, again: float) -> None:
    def play(make: Make) -> list[Any]:
        return run_virtual(lambda clock: _story(clock, make, seconds, cancel_at, again))

    assert play(Timeout) == play(asyncio.timeout)
