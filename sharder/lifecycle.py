"""Runs the service's coroutine as a process: event loop, signals, last resort.

The first SIGTERM or SIGINT cancels the coroutine, so that it can stop in order;
the second ends the process at once, and so does an orderly stop that takes
longer than it may.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

from shardsdk.kube.cut import hush_cut_connections
from shardsdk.process.memory import spare_memory
from shardsdk.process.process import die, raise_file_limit, stop_on_signal

#: What an orderly stop gets on top of its own limit, before the process is ended.
STOP_MARGIN_SECONDS: Final = 3.0


def run_until_signal(main: Callable[[], Coroutine[Any, Any, int]], *, stop_limit_seconds: float | None) -> int:
    """Run `main()` to its end, or cancel it when a signal asks to stop; returns the exit code.

    `main` stops in order when it is cancelled, and returns its exit code or lets
    the cancellation through, which counts as 0.  `stop_limit_seconds` None: it
    may take as long as it likes.
    """
    spare_memory()
    raise_file_limit()
    with contextlib.ExitStack() as once_closed, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_run(main, stop_limit_seconds, once_closed))


async def _run(
    main: Callable[[], Coroutine[Any, Any, int]], stop_limit_seconds: float | None, once_closed: contextlib.ExitStack
) -> int:
    loop = asyncio.get_running_loop()
    hush_cut_connections(loop)
    task = loop.create_task(main(), name="sharder")
    stopping = False

    def stop() -> None:
        nonlocal stopping
        stopping = True
        task.cancel()  # first: the system may have no thread left
        if stop_limit_seconds is not None:
            # By a thread of its own: the loop may be what hangs.
            why = f"not stopped in time, {stop_limit_seconds:g} s after it was asked to"
            forced = threading.Timer(stop_limit_seconds + STOP_MARGIN_SECONDS, die, (1, why))
            forced.daemon = True
            forced.start()
            once_closed.callback(forced.cancel)

    with stop_on_signal(stop):
        try:
            return await task
        except asyncio.CancelledError:
            if stopping and task.cancelled():
                return 0
            raise


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it can be installed; it halves what a request of the webhook costs."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
