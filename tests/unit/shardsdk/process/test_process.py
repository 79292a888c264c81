"""How a process ends: by signals, which reach each of its managers, and by force where threads would keep it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.process.process import ExitCode, run_process, stop_on_signal

ROOT = Path(__file__).parents[4]


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


def test_another_thread_than_the_main_one_is_refused_with_what_to_do() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def handle() -> None:
        with stop_on_signal(lambda: None):
            raise AssertionError("no signal would ever come")

    with ThreadPoolExecutor() as threads, pytest.raises(ConfigurationError, match="run it in the main thread"):
        threads.submit(asyncio.run, handle()).result()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_function_that_is_left_in_a_thread_does_not_keep_the_process() -> None:
    returns, deaths = threading.Event(), list[int]()

    def die(code: int, why: str) -> None:
        deaths.append(code)
        returns.set()

    async def main(code: ExitCode) -> ExitCode:
        asyncio.get_running_loop().run_in_executor(None, returns.wait)
        return code

    assert run_process(main(ExitCode.OK), die=die) is ExitCode.OK
    returns.clear()
    assert run_process(main(ExitCode.LEASE_LOST), die=die) is ExitCode.LEASE_LOST
    assert deaths == [ExitCode.STUCK, ExitCode.LEASE_LOST]


def test_a_process_with_nothing_left_in_threads_ends_by_itself() -> None:
    deaths: list[int] = []

    async def main() -> ExitCode:
        await asyncio.to_thread(threading.get_ident)
        return ExitCode.FAILED

    assert run_process(main(), die=lambda code, why: deaths.append(code)) is ExitCode.FAILED
    assert deaths == []


#: A manager that has lost its lease while a function runs in a thread.
LOST = """
import asyncio, threading
from shardsdk import Manager
from shardsdk.process.process import ExitCode

class Lost(Manager):
    async def run_async(self, world=None):
        asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
        print("lost")
        return ExitCode.LEASE_LOST

Lost().run()
"""


def test_a_manager_ends_its_process_by_force_if_need_be() -> None:
    done = subprocess.run([sys.executable, "-c", LOST], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == ExitCode.LEASE_LOST
    assert done.stdout == "lost\n"
    assert "a function still runs in a thread (asyncio.to_thread)" in done.stderr
