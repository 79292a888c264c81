"""Whom a signal reaches: one during the start, children that were forked, and programs that a manager is a part of."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.process.process import ExitCode, run_process, stop_on_signal

ROOT = Path(__file__).parents[4]


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)


#: What begins, as process 1 of a container would, before it has come to handle signals.
FIRST = """
import os, signal, sys
from {module} import {function}
os.getpid = lambda: 1
{call}
signal.raise_signal(signal.SIGTERM)
print("still runs", flush=True)
"""
RUNS = """
async def main():
    signal.raise_signal(signal.SIGTERM)
    print("still runs", flush=True)
    return 0

run_process(main())
"""


@pytest.mark.parametrize(
    ("module", "function", "call"),
    [
        ("sharder.__main__", "main", "sys.argv[1:] = ['version']; main()"),
        ("shardsdk.__main__", "main", "sys.argv[1:] = ['version']; main()"),
        ("shardsdk.process.process", "run_process", RUNS),
    ],
)
def test_a_signal_during_the_start_ends_the_first_process_of_a_container(module: str, function: str, call: str) -> None:
    """The kernel has no default for it: what it does not handle is lost."""
    done = run(FIRST.format(module=module, function=function, call=call))
    assert done.returncode == 128 + signal.SIGTERM
    assert "still runs" not in done.stdout


#: A child waits for a signal; its parent tells what has become of both.
FORKED = """
import asyncio, os, signal
from shardsdk.process.process import ExitCode, run_process, stop_on_signal

async def main():
    stopped = []
    with stop_on_signal(lambda: stopped.append("parent")):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            {child}
        os.read(reading, 1)
        os.kill(child, signal.SIGTERM)
        status = os.waitpid(child, 0)[1]
        for _ in range(5):
            await asyncio.sleep(0)
        print(os.waitstatus_to_exitcode(status), stopped)
        os.kill(os.getpid(), signal.SIGTERM)
        while not stopped:
            await asyncio.sleep(0)
        print(stopped)
    return ExitCode.OK

run_process(main())
"""


WAITS = """
            os.write(writing, b"x")
            signal.pause()
            os._exit(0)
"""


def test_a_forked_child_ends_by_its_own_signals_and_its_parent_by_its_own() -> None:
    done = run(FORKED.format(child=WAITS))
    assert done.stdout == f"-{signal.SIGTERM:d} []\n['parent']\n", done.stderr


#: One that runs something itself which signals stop.
STOPS = """
            async def run():
                own = asyncio.Event()
                with stop_on_signal(own.set):
                    os.write(writing, b"x")
                    await own.wait()
            asyncio.run(run())
            os._exit(7)
"""


def test_a_forked_child_may_have_its_own_way_to_stop() -> None:
    done = run(FORKED.format(child=STOPS))
    assert done.stdout == "7 []\n['parent']\n", done.stderr


async def test_a_program_that_handles_signals_itself_is_told_as_well() -> None:
    told: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        told.append(number)

    before = signal.signal(signal.SIGTERM, handle)
    try:
        stopped = asyncio.Event()
        with stop_on_signal(stopped.set):
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(60):
                await stopped.wait()
        assert told == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is handle
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_so_is_one_that_handles_them_by_its_event_loop_and_goes_on_with_that() -> None:
    loop, told, stopped = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, told.set)
    try:
        with stop_on_signal(stopped.set):
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(60):
                await stopped.wait()
                await told.wait()
        told.clear()
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(60):
            await told.wait()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_a_signal_wakes_an_idle_loop_whichever_thread_the_kernel_gives_it_to() -> None:
    """As it does one for the main thread that comes just before that begins to wait."""
    stopped, idle = asyncio.Event(), threading.Event()

    def signal_this_thread() -> None:
        idle.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    thread = threading.Thread(target=signal_this_thread)
    thread.start()
    with stop_on_signal(stopped.set):
        asyncio.get_running_loop().call_soon(idle.set)
        async with asyncio.timeout(60):
            await stopped.wait()
    thread.join()
    assert signal.set_wakeup_fd(-1) == -1


async def test_in_another_thread_it_is_refused_whatever_runs_in_the_main_one() -> None:
    """A signal would stop it by the main thread's event loop, which may be closed by then."""

    async def run() -> None:
        with stop_on_signal(lambda: None):
            raise AssertionError("it is refused")

    def refused() -> str:
        with pytest.raises(ConfigurationError) as caught:
            asyncio.run(run())
        return str(caught.value)

    alone = await asyncio.to_thread(refused)
    assert "run it in the main thread" in alone
    with stop_on_signal(lambda: None):
        assert await asyncio.to_thread(refused) == alone


#: A loop that is closed by hand, in the middle of what it ran.
CLOSED = """
import asyncio, signal
from shardsdk.process.process import stop_on_signal

async def main():
    with stop_on_signal(lambda: None):
        await asyncio.Event().wait()

loop = asyncio.new_event_loop()
running = loop.create_task(main())
loop.run_until_complete(asyncio.sleep(0))
loop.close()
signal.raise_signal(signal.SIGTERM)
print("still runs", flush=True)
"""


def test_a_signal_for_an_event_loop_that_is_closed_ends_the_process_as_it_would_without() -> None:
    done = run(CLOSED)
    assert (done.stdout, done.returncode) == ("", -signal.SIGTERM), done.stderr


#: The same, with another one after it in a loop of its own.
SECOND = """
import asyncio, signal
from shardsdk.process.process import stop_on_signal

async def main(name):
    stopping = asyncio.Event()
    with stop_on_signal(stopping.set):
        asyncio.get_running_loop().call_later(0.1, signal.raise_signal, signal.SIGTERM)
        await stopping.wait()
        print(name, flush=True)

loop = asyncio.new_event_loop()
running = loop.create_task(main("first"))
loop.run_until_complete(asyncio.sleep(0))
loop.close()
asyncio.run(main("second"))
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
"""


def test_a_manager_after_one_whose_event_loop_is_closed_is_stopped_in_order() -> None:
    done = run(SECOND)
    assert (done.stdout, done.returncode) == ("second\nTrue\n", 0), done.stderr


#: A manager under uvicorn: what it does, once a signal has come, takes until the server has stopped.
UNDER_UVICORN = """
import asyncio, os, signal, uvicorn
from shardsdk.process.process import stop_on_signal

working, served = asyncio.Event(), asyncio.Event()

async def manage():
    stopping = asyncio.Event()
    with stop_on_signal(stopping.set):
        working.set()
        await stopping.wait()
        print("stopping", flush=True)
        await served.wait()
        print("released", flush=True)

async def app(scope, receive, send):
    await receive()
    managing = asyncio.create_task(manage())
    await send({{"type": "lifespan.startup.complete"}})
    await receive()
    served.set()
    await managing
    await send({{"type": "lifespan.shutdown.complete"}})

server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan={lifespan!r}))

async def tell():
    await working.wait()
    while not server.started:
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)

async def main():
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(tell())
        tasks.create_task(server.serve())
        {beside}

asyncio.run(main())
"""


def test_under_uvicorn_a_manager_of_its_lifespan_stops_in_order() -> None:
    done = run(UNDER_UVICORN.format(lifespan="on", beside=""))
    assert done.stdout == "stopping\nreleased\n", done.stderr


#: The lifespan of docs/sdk/controllers.md, with a manager whose lease is lost, and a client whose answer never ends.
LIFESPAN = """
import asyncio, socket, uvicorn
from shardsdk.errors import LeaseLost
from shardsdk.process.process import exit_code_for

class manager:
    stopping = asyncio.Event()

    async def run_async():
        if {streams}:
            reader, manager.writer = await asyncio.open_connection(*listener.getsockname())
            manager.writer.write(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
            await reader.readline()
        return exit_code_for(LeaseLost("it was taken"))

{lifespan}

async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({{"type": "http.response.start", "status": 200}})
        while True:
            await send({{"type": "http.response.body", "body": b"x", "more_body": True}})
            await asyncio.sleep(0.1)
    await receive()
    async with lifespan(app):
        await send({{"type": "lifespan.startup.complete"}})
        await receive()
    print("stopped", flush=True)
    await send({{"type": "lifespan.shutdown.complete"}})

listener = socket.create_server(("127.0.0.1", 0))
uvicorn.run(app, fd=listener.fileno(), log_level="warning")
"""


@pytest.mark.parametrize(
    ("streams", "ended"),
    [(False, ("stopped\n", -signal.SIGTERM)), (True, ("", int(ExitCode.LEASE_LOST)))],
    ids=["in order", "by its limit, for a client has no end"],
)
def test_under_uvicorn_a_lost_lease_ends_the_server(streams: bool, ended: tuple[str, int]) -> None:
    page = (ROOT / "docs/sdk/controllers.md").read_text()
    blocks = page.split("```python\n")[1:]
    lifespan = next(block.partition("```")[0] for block in blocks if "def lifespan" in block)
    done = run(LIFESPAN.format(lifespan=lifespan, streams=streams))
    assert (done.stdout, done.returncode) == ended, done.stderr
    assert "The manager has ended, and its process is to be ended, too: it was taken" in done.stderr


def test_beside_uvicorn_it_is_ended_in_the_middle_of_its_stop() -> None:
    """Uvicorn puts back the handlers that it has found, and raises its signal again for them."""
    done = run(UNDER_UVICORN.format(lifespan="off", beside="tasks.create_task(manage())"))
    assert (done.stdout, done.returncode) == ("stopping\n", -signal.SIGTERM), done.stderr


def test_in_a_process_of_its_own_nobody_else_is_told() -> None:
    """A handler that ends the process, say, would keep it from stopping in order."""
    told: list[int] = []

    async def main() -> ExitCode:
        stopped = asyncio.Event()
        with stop_on_signal(stopped.set):
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(60):
                await stopped.wait()
        return ExitCode.OK

    before = signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    try:
        assert run_process(main()) is ExitCode.OK
        assert told == []
    finally:
        signal.signal(signal.SIGTERM, before)


def test_ctrl_c_does_not_cancel_what_stops_in_order() -> None:
    """`asyncio.run` would."""

    async def main() -> str:
        stopped = asyncio.Event()
        with stop_on_signal(stopped.set):
            signal.raise_signal(signal.SIGINT)
            async with asyncio.timeout(60):
                await stopped.wait()
        return "in order"

    assert asyncio.run(main()) == "in order"


def test_a_task_that_exits_the_program_does_not_keep_the_process_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardsdk.process.process.CANCELLED_SECONDS", 0.1)
    returns, deaths = threading.Event(), list[int]()

    def die(code: int, why: str) -> None:
        deaths.append(code)
        returns.set()

    async def main() -> ExitCode:
        async def leave() -> None:
            sys.exit("enough")

        asyncio.get_running_loop().run_in_executor(None, returns.wait, 60)
        leaving = asyncio.create_task(leave())
        try:
            await asyncio.Event().wait()
        finally:
            assert isinstance(leaving.exception(), SystemExit)
        raise AssertionError("it has left")

    with pytest.raises(SystemExit, match="enough"):
        run_process(main(), die=die)
    assert deaths == [ExitCode.FAILED]
