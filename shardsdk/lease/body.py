"""The body of a lease: the task that has entered it, and what that has given to threads.

Guarantees, each with its test in tests/unit/shardsdk/lease/test_shardlease_body.py: a body has not ended while a
function that was given to `to_thread` has not returned; one that could not be cancelled is refused, or told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import CodeType
from typing import Final, TypeVar

from shardsdk.errors import ConfigurationError
from shardsdk.lease.threads import wait_in_thread
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

R = TypeVar("R")

_REMEDY: Final = (
    "enter it in the task that works under it, with asyncio.timeout(…) around instead of asyncio.wait_for(…), or"
    " pass an on_deadline that ends the process"
)


class Body:
    """What runs under a lease."""

    def __init__(self, ring: str, shard: str, *, ended_by_force: bool) -> None:
        self._ring = ring
        self._shard = shard
        self._ended_by_force = ended_by_force
        self._task: asyncio.Task[object] | None = None
        self._inside = False
        #: The task's count before anybody asks for a cancellation, and whether we have.
        self._cancelling = 0
        self._cancelled = False
        self._threads: set[asyncio.Future[None]] = set()

    def enter(self, entering: CodeType) -> None:
        """The running task is about to begin; `entering` is what it runs meanwhile.

        Raises: ConfigurationError when the task is there for nothing else, so that nobody could cancel the body.
        """
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task else 0
        code = getattr(self._task.get_coro() if self._task else None, "cr_code", None)
        if code in (entering, AsyncExitStack.enter_async_context.__code__) and not self._ended_by_force:
            raise ConfigurationError(
                "this ShardLease is entered by a task that ends with that (asyncio.wait_for makes one before Python"
                f" 3.12), so that its body could not be cancelled: {_REMEDY}"
            )

    def begin(self) -> None:
        """The lease is held, and the body begins."""
        self._inside = True
        if self._task is not None:
            self._task.add_done_callback(self._on_task_end)

    @property
    def inside(self) -> bool:
        """Whether the body itself has not ended."""
        return self._inside

    @property
    def runs(self) -> bool:
        """Whether the body, or a function of its in a thread, has not ended."""
        return self._inside or bool(self._threads)

    def cancel(self) -> None:
        """Cancel the body, if it is not over."""
        if self._inside and self._task is not None:
            self._cancelled = True
            if not self._task.cancel():
                log.critical(
                    "The lease is lost, and its body is not cancelled: the task that entered it has ended",
                    extra=self._where(),
                )

    async def call(self, function: Callable[[], R]) -> R:
        """What `function` returns, called in a thread of the event loop's; cancelled, when it has returned."""
        returned = asyncio.get_running_loop().create_future()
        self._threads.add(returned)
        try:
            return await wait_in_thread(None, function)
        finally:
            self._threads.discard(returned)
            returned.set_result(None)

    async def end(self) -> asyncio.CancelledError | None:
        """The body itself has ended: wait for its threads; gives what has cancelled that."""
        self._inside, cancelled = False, None
        while self._threads:
            try:
                await asyncio.wait(self._threads)
            except asyncio.CancelledError as error:
                cancelled = error
        return cancelled

    def uncancel(self) -> bool:
        """Take our cancellation back; whether it was the only one, as in `asyncio.timeout`."""
        return self._cancelled and self._task is not None and self._task.uncancel() <= self._cancelling

    def _on_task_end(self, task: asyncio.Task[object]) -> None:
        if self._inside and not self._ended_by_force:
            log.error(
                "The lease's body cannot be cancelled, for the task that entered it has ended: %s", _REMEDY,
                extra=self._where(),
            )  # fmt: skip

    def _where(self) -> dict[str, str]:
        return {"ring": self._ring, "shard": self._shard}
