"""How a process ends: by signals, which reach each of its managers, and by force where threads would keep it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from shardsdk.cache.objects import Request
from shardsdk.errors import ConfigurationError, LeaseLost
from shardsdk.kube.clock import SystemClock
from shardsdk.process.process import ExitCode, exit_code_for, run_process, stop_on_signal
from shardsdk.queueing.queue import WorkQueue
from shardsdk.queueing.workers import WorkerPool

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


def test_a_process_with_nothing_left_in_threads_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardsdk.process.process.THREADS_SECONDS", 60)
    deaths: list[int] = []

    async def main() -> ExitCode:
        await asyncio.to_thread(threading.get_ident)
        return ExitCode.FAILED

    assert run_process(main(), die=lambda code, why: deaths.append(code)) is ExitCode.FAILED
    assert deaths == []


@pytest.mark.parametrize("starts", [asyncio.create_task, asyncio.gather])
def test_an_exit_in_a_task_of_a_reconcile_says_whose(
    starts: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def leaves() -> None:
        await asyncio.sleep(0)
        sys.exit(7)

    async def reconcile(request: Request) -> None:
        await starts(leaves())

    async def main() -> ExitCode:
        clock = SystemClock()
        queue: WorkQueue[Request] = WorkQueue(clock)
        queue.add(Request("default", "home"))
        await WorkerPool("websites", reconcile, queue, clock=clock).run()
        return ExitCode.OK

    with pytest.raises(SystemExit, match="7"):
        run_process(main(), die=lambda code, why: None)
    (line,) = (each for each in caplog.records if each.name == "shardsdk.queueing.exits")
    assert [line.__dict__[name] for name in ("controller", "namespace", "object")] == ["websites", "default", "home"]


@pytest.mark.parametrize(
    ("error", "code", "traced"),
    [
        (SystemExit(7), 7, False),
        (SystemExit(1 << 40 | 7), 7, False),
        (SystemExit(), ExitCode.STUCK, False),
        (SystemExit("enough"), ExitCode.FAILED, False),
        (KeyError("enough"), ExitCode.FAILED, True),
        (KeyboardInterrupt("enough"), 130, True),
        (ConfigurationError("enough"), ExitCode.CONFIGURATION, False),
        (LeaseLost("enough"), ExitCode.LEASE_LOST, True),
    ],
    ids=repr,
)
def test_where_a_function_is_left_in_a_thread_an_error_ends_the_process_as_without(
    error: BaseException, code: int, traced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardsdk.process.process.THREADS_SECONDS", 0.01)
    returns, deaths = threading.Event(), list[tuple[int, str]]()

    def die(code: int, why: str) -> None:
        deaths.append((code, why))
        returns.set()

    async def main() -> ExitCode:
        asyncio.get_running_loop().run_in_executor(None, returns.wait, 60)
        raise error

    with pytest.raises(type(error)):
        run_process(main(), die=die)
    ((ended, why),) = deaths
    assert ended == code
    assert ("in main\n    raise error\n" in why) is traced
    assert str(error) in why


#: A process that was given few open files, of many that it may have.
FEW = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))
from shardsdk.process.process import ExitCode, run_process

async def main():
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))
    return ExitCode.OK

run_process(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_process_takes_as_many_open_files_as_it_may_have() -> None:
    done = subprocess.run([sys.executable, "-c", FEW], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "512 512\n"


#: A manager that has lost its lease while a function runs in a thread.
LOST = """
import asyncio, threading
from shardsdk import Manager
from shardsdk.process.process import ExitCode

class Lost(Manager):
    async def run_async(self, world=None):
        asyncio.get_running_loop().run_in_executor(None, wait)
        print("lost")
        return ExitCode.LEASE_LOST

def wait():
    threading.Event().wait()

Lost().run()
"""


def test_a_manager_ends_its_process_by_force_if_need_be() -> None:
    done = subprocess.run([sys.executable, "-c", LOST], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == ExitCode.LEASE_LOST
    assert done.stdout == "lost\n"
    assert "a function still runs in a thread (asyncio.to_thread)" in done.stderr
    assert done.stderr.rstrip().endswith(": <string>:13 in wait")


#: A process that has lost its lease, and a handler that keeps one line, and with it whoever else has some; or a pool.
HELD_UP = """
import asyncio, logging, threading
from concurrent.futures import ThreadPoolExecutor
from shardsdk import LeaseLost, Resource
from shardsdk.contrib.kopf import KopfShard
from shardsdk.process.process import ExitCode, exit_code_for, run_process

kept = threading.Event()

class Keeps(logging.Handler):
    def emit(self, record):
        kept.set()
        threading.Event().wait()

class Lost(KopfShard):
    async def run_async(self):
        return await tell()

logging.getLogger().addHandler(Keeps())

async def tell():
    return exit_code_for(LeaseLost("taken"))

async def say_nothing():
    threading.Thread(target=logging.critical, args=["a line"], daemon=True).start()
    kept.wait()
    return ExitCode.LEASE_LOST

async def leave_in_a_pool():
    ThreadPoolExecutor().submit(threading.Event().wait)
    return ExitCode.LEASE_LOST

"""


@pytest.mark.parametrize(
    "runs",
    [
        "raise SystemExit(int(run_process(tell())))",
        "raise SystemExit(int(run_process(say_nothing())))",
        "raise SystemExit(int(run_process(leave_in_a_pool())))",
        "Lost('example', main=[Resource('', 'v1', 'secrets', 'Secret')]).run()",
    ],
    ids=["its last line", "the interpreter's end", "a pool of threads", "kopf"],
)
def test_a_process_that_has_lost_its_lease_waits_for_nobody(runs: str) -> None:
    done = subprocess.run([sys.executable, "-c", HELD_UP + runs], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == ExitCode.LEASE_LOST, done.stderr


async def test_a_last_line_that_nobody_takes_keeps_no_program_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardsdk.process.process.THREADS_SECONDS", 0.01)
    let_go, taken = threading.Event(), list[str]()

    class Keeps(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            let_go.wait(40)
            taken.append(record.getMessage())

    handler, logger = Keeps(), logging.getLogger("shardsdk.process.process")
    logger.addHandler(handler)
    try:
        assert exit_code_for(LeaseLost("it was taken")) is ExitCode.LEASE_LOST
        assert taken == []
    finally:
        let_go.set()
        logger.removeHandler(handler)


def test_what_there_is_to_do_after_a_lost_lease_is_not_cut_short() -> None:
    """As by a manager that runs another one: only the end of the outer one is that of the process."""
    forced: list[threading.Thread] = []

    async def main() -> ExitCode:
        before = threading.enumerate()
        code = exit_code_for(LeaseLost("it was taken"))
        forced.extend(each for each in threading.enumerate() if each not in before)
        return ExitCode.OK if code is ExitCode.LEASE_LOST else ExitCode.FAILED

    assert run_process(main(), die=lambda code, why: None) is ExitCode.OK
    assert forced == []


#: A program that goes on after a manager of its has lost its lease, for longer than that had to end.
GOES_ON = """
import threading
import shardsdk.process.process as process

process.THREADS_SECONDS = 3  # for the loop's end as well

async def lost():
    return process.ExitCode.LEASE_LOST

process.run_process(lost())
for thread in threading.enumerate():
    if thread.name == "end-by-force":
        thread.join(60)
print([thread.name for thread in threading.enumerate()])
"""


def test_a_program_that_goes_on_without_its_lease_is_left_alone() -> None:
    done = subprocess.run([sys.executable, "-c", GOES_ON], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("['MainThread']\n", "", 0)


#: One that runs another manager at once, which ends in order, and does something in the end.
RUNS_AGAIN = """
import atexit, threading
import shardsdk.process.process
from shardsdk.process.process import ExitCode, run_process

shardsdk.process.process.THREADS_SECONDS = 3

async def end(code):
    return code

def flush():
    for thread in threading.enumerate():
        if thread.name == "end-by-force":
            thread.join()
    print("flushed")

atexit.register(flush)
run_process(end(ExitCode.LEASE_LOST))
run_process(end(ExitCode.OK))
"""


def test_a_program_that_runs_again_after_a_lost_lease_ends_as_that_run_does() -> None:
    done = subprocess.run([sys.executable, "-c", RUNS_AGAIN], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("flushed\n", "", 0)


#: A process that is to end while nobody reads what it says.
DIES = "from shardsdk.process.process import die; die(3, 'its time is over')"


def test_an_end_by_force_waits_for_nobody_who_reads_why() -> None:
    reads, writes = os.pipe()
    try:
        os.set_blocking(writes, False)
        with suppress(BlockingIOError):
            while True:
                os.write(writes, b"x" * 512)
        os.set_blocking(writes, True)
        done = subprocess.run([sys.executable, "-c", DIES], cwd=ROOT, stderr=writes, timeout=120)
    finally:
        os.close(reads)
        os.close(writes)
    assert done.returncode == ExitCode.LEASE_LOST


def test_an_end_by_force_says_why() -> None:
    done = subprocess.run([sys.executable, "-c", DIES], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == ExitCode.LEASE_LOST
    assert done.stderr == "process ends at once (exit code 3): its time is over\n"


async def test_a_process_within_an_event_loop_says_what_to_await_there() -> None:
    async def main() -> ExitCode:
        return ExitCode.OK

    with pytest.raises(ConfigurationError, match=r"await run_async\(\) of the manager there .*operator\.manager\(\)"):
        run_process(main())
