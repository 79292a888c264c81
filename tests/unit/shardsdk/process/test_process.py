"""Signals reach every manager of a process, and are handled as before when the last has ended."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack

from shardsdk.process.process import stop_on_signal


async def test_a_signal_stops_every_manager_of_the_process() -> None:
    before = signal.getsignal(signal.SIGTERM)
    first, second = asyncio.Event(), asyncio.Event()
    outer, inner = ExitStack(), ExitStack()
    outer.enter_context(stop_on_signal(first.set))
    inner.enter_context(stop_on_signal(second.set))
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(60):
        await first.wait()
        await second.wait()
    outer.close()
    assert signal.getsignal(signal.SIGTERM) is not before, "the second manager still runs"
    inner.close()
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_manager_that_has_ended_is_not_stopped() -> None:
    stopped: list[str] = []
    with stop_on_signal(lambda: stopped.append("first")):
        pass
    done = asyncio.Event()
    with stop_on_signal(done.set):
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(60):
            await done.wait()
    assert stopped == []
