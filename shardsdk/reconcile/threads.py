"""Plain functions as reconciles: they run in threads.

A thread cannot be cancelled.  So when its reconcile is cancelled, the function
is told (`Context.cancelled`, and `Context.run` fails), and its object stays
busy until it returns, however often it is cancelled: it is not reconciled again,
its drain is not acknowledged and its range not given away.  A process that is to
end, or has lost its lease, ends without it (`ExitCode.STUCK`, `LEASE_LOST`).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from shardsdk.lease.threads import call_plainly, wait_in_thread
from shardsdk.queueing.functions import is_async
from shardsdk.reconcile.context import Context

T = TypeVar("T")
R = TypeVar("R")


async def call_any(function: Any, *arguments: Any) -> Any:
    """Call a function that is async, or plain: that in a thread."""
    if is_async(function):
        return await function(*arguments)
    return await _awaited(await asyncio.to_thread(call_plainly, function, *arguments))


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
        """An async reconcile that runs `function` in a thread, and awaits what it returns if that has to be."""

        @functools.wraps(function)
        async def call(context: Context[T]) -> R:
            returned: R = await _awaited(await self._run(function, context))
            return returned

        return call

    def close(self) -> None:
        """Take no further work; does not wait for what runs."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _run(self, function: Callable[[Context[T]], R], context: Context[T]) -> R:
        self._running += 1
        try:
            # However often it is cancelled: whoever waits for the object, to give it away, must not take it for idle.
            return await wait_in_thread(self._pool, functools.partial(function, context), context.cancel)
        finally:
            self._running -= 1


async def _awaited(returned: Any) -> Any:
    return await returned if inspect.isawaitable(returned) else returned
