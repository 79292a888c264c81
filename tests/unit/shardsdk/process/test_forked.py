"""What becomes of processes that are forked while a manager runs, and what they leave to their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]

#: Forks a child, by its main thread or another, that says when it is there; then the parent ends by force.
PARENT = """
import asyncio, contextlib, multiprocessing, os, signal, socket, subprocess, threading
from shardsdk.process.accepting import listen
from shardsdk.process.process import ExitCode, run_process, stop_on_signal

reading, writing = os.pipe()

def pause():
    os.write(writing, b"x")
    signal.pause()

def multiprocessed(work=pause):
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    return child.pid

def grandchild():
    os.write(telling, b"%d" % multiprocessed())
    signal.pause()

def deep():
    between = multiprocessed(grandchild)
    child = int(os.read(told, 20))
    os.read(reading, 1)
    os.kill(between, signal.SIGKILL)
    os.write(writing, b"x")
    return child

def forked():
    if (child := os.fork()) == 0:
        pause()
    return child

def program():
    child = subprocess.Popen(["sleep", "60"], preexec_fn=os.setsid).pid
    os.write(writing, b"x")
    return child

told, telling = os.pipe()

def fork():
    print({function}(), flush=True)

async def main():
    listener = listen("127.0.0.1", 0)
    with {context}:
        fork() if {by_main} else await asyncio.to_thread(fork)
        os.read(reading, 1)
    port = listener.getsockname()[1]
    socket.create_connection(("127.0.0.1", port)).close()
    listener.close()
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        print("refused", flush=True)
    os._exit(3)

run_process(main())
"""


def child_of(folder: Path, function: str, *, by_main: bool = True, context: str = "stop_on_signal(print)") -> int:
    """The child of a parent that has ended."""
    program, out = PARENT.format(function=function, by_main=by_main, context=context), folder / "out"
    with out.open("w") as told:  # no pipe: the child has it as well
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stdout=told, timeout=120, check=False)
    child, port = out.read_text().split()
    assert (port, done.returncode) == ("refused", 3)
    return int(child)


def lives(process: int) -> bool:
    """Whether it does; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part is Linux's")
def test_what_the_main_thread_has_forked_by_multiprocessing_ends_with_it(tmp_path: Path) -> None:
    child, until = child_of(tmp_path, "multiprocessed"), time.monotonic() + 40
    while lives(child) and time.monotonic() < until:
        time.sleep(0.02)
    assert not lives(child)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part is Linux's")
@pytest.mark.parametrize(
    ("function", "by_main", "context"),
    [
        ("multiprocessed", False, "stop_on_signal(print)"),
        ("multiprocessed", True, "contextlib.nullcontext()"),
        ("deep", True, "stop_on_signal(print)"),
        ("forked", True, "stop_on_signal(print)"),
        ("program", True, "stop_on_signal(print)"),
    ],
    ids=["another thread's, which may end sooner", "no manager's", "a child's", "os.fork", "preexec_fn"],
)
def test_others_live_on(function: str, by_main: bool, context: str, tmp_path: Path) -> None:
    child = child_of(tmp_path, function, by_main=by_main, context=context)
    time.sleep(0.5)
    assert lives(child)
    os.kill(child, signal.SIGKILL)
