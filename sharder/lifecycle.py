"""Runs the service's coroutine as a process: event loop, signals, last resort.

The first SIGTERM or SIGINT cancels the coroutine, so that it can stop in order;
the second ends the process at once, and so does an orderly stop that takes
longer than it may.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final, NoReturn

from shardsdk.kube.cut import hush_cut_connections
from shardsdk.process.memory import spare_memory

log = logging.getLogger(__name__)

#: What an orderly stop gets on top of its own limit, before the process is ended.
STOP_MARGIN_SECONDS: Final = 3.0
#: A process that a signal ended exits with this plus the signal's number, as shells have it.
SIGNAL_EXIT_BASE: Final = 128
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def run_until_signal(main: Callable[[], Coroutine[Any, Any, int]], *, stop_limit_seconds: float | None) -> int:
    """Run `main()` to its end, or cancel it when a signal asks to stop; returns the exit code.

    `main` stops in order when it is cancelled, and returns its exit code or lets
    the cancellation through, which counts as 0.  `stop_limit_seconds` None: it
    may take as long as it likes.
    """
    spare_memory()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_run(main, stop_limit_seconds))


async def _run(main: Callable[[], Coroutine[Any, Any, int]], stop_limit_seconds: float | None) -> int:
    loop = asyncio.get_running_loop()
    hush_cut_connections(loop)
    task = loop.create_task(main(), name="sharder")
    stopping = False

    def stop(number: signal.Signals) -> None:
        nonlocal stopping
        stopping = True
        log.info("stopping; a second signal ends the process at once", extra={"signal": number.name})
        for each in STOP_SIGNALS:
            # Not the loop's own handlers: these work even while something blocks the loop.
            loop.remove_signal_handler(each)
            signal.signal(each, _exit_at_once)
        if stop_limit_seconds is not None:
            loop.call_later(stop_limit_seconds + STOP_MARGIN_SECONDS, _give_up, stop_limit_seconds)
        task.cancel()

    for each in STOP_SIGNALS:
        loop.add_signal_handler(each, stop, each)
    try:
        return await task
    except asyncio.CancelledError:
        if stopping and task.cancelled():
            return 0
        raise


def _exit_at_once(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(SIGNAL_EXIT_BASE + number)


def _give_up(limit_seconds: float) -> NoReturn:
    log.error("not stopped in time, ending the process", extra={"limit_seconds": limit_seconds})
    sys.stderr.flush()
    os._exit(1)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it can be installed; it halves what a request of the webhook costs."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
