"""The process around a manager: its event loop, signals, exit codes, the end of last resort."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from enum import IntEnum
from types import FrameType
from typing import Any, Final, NoReturn

from shardsdk.errors import ConfigurationError, LeaseLost, ShardingError
from shardsdk.kube.cut import hush_cut_connections
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
#: A process that a signal ended exits with this plus the signal's number, as shells have it.
SIGNAL_EXIT_BASE: Final = 128
#: How long what a process that is about to end has left in threads may go on, beside whoever has its lease next.
THREADS_SECONDS: Final = 1.0


#: Whom a signal stops; a process has one set of handlers, however many managers it runs.
_STOPS: Final[list[Callable[[], None]]] = []
_RESTORE: Final[list[Callable[[], None]]] = []


class ExitCode(IntEnum):
    """How a manager's process ends."""

    #: It was asked to stop, and its work has ended.
    OK = 0
    #: Something that must not end has ended.
    FAILED = 1
    #: The configuration cannot work; 2 is what command lines exit with for wrong usage.
    CONFIGURATION = 2
    #: The lease was lost.
    LEASE_LOST = 3
    #: Work was still running when the time for stopping was over.
    STUCK = 4


def exit_code_for(error: ShardingError, where: Mapping[str, object] | None = None) -> ExitCode:
    """How a process ends that `error` has ended; says so in the log, with the fields `where`."""
    match error:
        case ConfigurationError():
            log.critical("The process cannot run: %s", error, extra=where)
            return ExitCode.CONFIGURATION
        case LeaseLost():
            log.critical("The process ends: %s", error, extra=where)
            return ExitCode.LEASE_LOST
        case _:
            log.critical("The process cannot go on: %s", error, extra=where)
            return ExitCode.FAILED


def die(code: int, why: str) -> NoReturn:
    """End the process now; no `finally`, no waiting for threads.  Callable from any thread."""
    # Not through logging, whose locks may be held by what is stuck.
    with contextlib.suppress(OSError):
        os.write(2, f"process ends at once (exit code {code}): {why}\n".encode())
    os._exit(code)


def run_process(main: Coroutine[Any, Any, ExitCode], *, die: Callable[[int, str], object] = die) -> ExitCode:
    """Run `main` in an event loop of its own; gives how the process is to end.

    What `main` has left in threads of the loop (`asyncio.to_thread`) nobody can cancel, and a loop that is closed waits
    for them without a limit.  Here they have `THREADS_SECONDS`; then the process ends by `die`.
    """
    with contextlib.ExitStack() as once_closed, asyncio.Runner() as runner:
        hush_cut_connections(runner.get_loop())
        code = runner.run(main)
        # By a thread of its own: the loop, and with it this one, is what waits.
        why = "a function still runs in a thread (asyncio.to_thread) although the process is to end"
        forced = threading.Timer(THREADS_SECONDS, die, (int(code or ExitCode.STUCK), why))
        forced.daemon = True
        forced.start()
        once_closed.callback(forced.cancel)
        # An end by force flushes nothing.
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    return code


@contextlib.contextmanager
def stop_on_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Within this context the first SIGTERM or SIGINT calls `stop` on the running loop, the second ends the process.

    Several contexts may be open at once on one event loop, in a process with
    several managers; a signal stops all of them.

    Raises: ConfigurationError in another thread than the main one, where Python handles signals.
    """
    if not _STOPS:
        _RESTORE.append(_install())
    _STOPS.append(stop)
    try:
        yield
    finally:
        _STOPS.remove(stop)
        if not _STOPS:
            _RESTORE.pop()()


def _install() -> Callable[[], None]:
    """Handle signals from now on; call what is returned to have them handled as before."""
    if threading.current_thread() is not threading.main_thread():
        raise ConfigurationError(
            "it runs in another thread than the main one, and only there signals can be handled that stop it: run it in"
            " the main thread, and what else the program does in others"
        )
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    received = 0

    def count(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received > 1:
            os._exit(SIGNAL_EXIT_BASE + number)

    def announce(number: signal.Signals) -> None:
        log.info("Stopping; a second signal ends the process at once", extra={"signal": number.name})
        for stop in _STOPS:
            stop()

    def restore() -> None:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)

    for number in STOP_SIGNALS:
        # Both are called: the loop's own once it takes a turn, the other even while something blocks the loop.
        loop.add_signal_handler(number, announce, number)
        signal.signal(number, count)
    return restore
