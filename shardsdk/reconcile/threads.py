"""Plain functions as reconciles: they run in threads.

A thread cannot be cancelled.  So when its reconcile is cancelled, the function
is told (`Context.cancelled`, and `Context.run` fails), and its object stays
busy until it returns, however often it is cancelled: it is not reconciled again,
its drain is not acknowledged and its range not given away.  A process that is to
end, or has lost its lease, ends without it (`ExitCode.STUCK`, `LEASE_LOST`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from shardsdk.reconcile.context import Context

T = TypeVar("T")
R = TypeVar("R")


def is_async(function: Any) -> bool:
    """Whether calling it gives something to await."""
    if isinstance(function, functools.partial):
        return is_async(function.func)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def call_plainly(function: Callable[..., R], *arguments: Any) -> R:
    """Call a plain function for somebody who awaits it in another thread.

    A future refuses a `StopIteration`, and whoever awaits it would wait for ever; so it becomes a `RuntimeError`,
    as in a coroutine.
    """
    try:
        return function(*arguments)
    except StopIteration as error:
        raise RuntimeError("the function raised StopIteration") from error


class Threads:
    """Threads that run plain functions, as many as are needed up to `most`."""

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=most, thread_name_prefix="reconcile")
        self._running = 0

    @property
    def running(self) -> int:
        """How many functions have not returned."""
        return self._running

    def wrap(self, function: Callable[[Context[T]], R]) -> Callable[[Context[T]], Awaitable[R]]:
        """An async reconcile that runs `function` in a thread."""
        plainly = functools.partial(call_plainly, function)

        @functools.wraps(function)
        async def call(context: Context[T]) -> R:
            self._running += 1
            future = asyncio.get_running_loop().run_in_executor(self._pool, plainly, context)
            future.add_done_callback(self._returned)
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                context.cancel()
                # However often: whoever waits for the object, to give it away, must not take it for idle.
                while not future.done():
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.wait([future])
                raise

        return call

    def close(self) -> None:
        """Take no further work; does not wait for what runs."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _returned(self, future: asyncio.Future[R]) -> None:
        self._running -= 1
        if not future.cancelled():
            future.exception()  # whoever waited has it; nobody may have waited
