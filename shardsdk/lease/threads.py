"""Plain functions in threads, for those who answer for what the functions do.

A thread cannot be cancelled.  Whoever awaits a function here goes on only when it has returned, however often
that is cancelled: until then nobody may take it for ended.  One that is cancelled before there is a thread for it
never begins, nor does one for which no thread can be started.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor
from typing import Any, TypeVar

R = TypeVar("R")


def call_plainly(function: Callable[..., R], *arguments: Any) -> R:
    """Call a plain function for somebody who awaits it in another thread.

    A future refuses a `StopIteration`, and whoever awaits it would wait for ever; so it becomes a `RuntimeError`,
    as in a coroutine.  So does a cancellation, of something that the function waited for: it would look as if whoever
    awaits had been cancelled.
    """
    try:
        return function(*arguments)
    except (StopIteration, CancelledError, asyncio.CancelledError) as error:
        raise RuntimeError(f"the function raised {type(error).__name__}") from error


async def wait_in_thread(
    pool: Executor | None, function: Callable[[], R], cancelled: Callable[[], object] = lambda: None
) -> R:
    """What `function` returns, called in a thread of `pool` (`None`: of the event loop's).

    When this is cancelled, `cancelled()` is called, which may tell the function.
    """
    #: Taken once: by the thread that begins, by whoever is cancelled before, or because there is no thread to be had.
    begun = threading.Lock()
    #: Held until it is known whether there is one: a pool queues a call before it starts a thread for that.
    queueing = threading.RLock()  # one of a program may also call it at once

    def begin() -> R:
        with queueing:
            if not begun.acquire(blocking=False):
                raise CancelledError
        return call_plainly(function)

    # With the context variables of whoever calls, as `asyncio.to_thread`.
    within = functools.partial(contextvars.copy_context().run, begin)
    with queueing:
        try:
            future = asyncio.get_running_loop().run_in_executor(pool, within)
        except BaseException:
            begun.acquire(blocking=False)  # it is queued all the same, and another thread would begin it later
            raise
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        cancelled()
        if begun.acquire(blocking=False):
            future.cancel()
            raise
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # nobody waits for it
        raise
