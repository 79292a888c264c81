"""The body of a lease: the task that has entered it, and what that has given to threads.

Guarantees, each with its test in tests/unit/shardsdk/lease/test_shardlease_body.py: a body has not ended while a
function that was given to `to_thread` has not returned, and none begins once the lease is lost; one that could not be
cancelled is refused, or told, and so is one that has ended and whose functions go on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import CodeType
from typing import Final, TypeVar

from shardsdk.errors import ConfigurationError
from shardsdk.lease.threads import wait_in_thread
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

R = TypeVar("R")

#: How long functions may go on after the body itself before that is told, and how often it is told then.
TOLD_FIRST_SECONDS: Final = 5.0
TOLD_AGAIN_SECONDS: Final = 60.0

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
        self._loop: asyncio.AbstractEventLoop | None = None
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
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
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
            self._cancelled = self._task.cancel()
            if not self._cancelled:
                log.critical(
                    "The lease is lost, and its body is not cancelled: the task that entered it has ended",
                    extra=self._where(),
                )

    async def call(self, function: Callable[[], R], check: Callable[[], None]) -> R:
        """What `function` returns, called in a thread of the event loop's; cancelled, when it has returned.

        Nothing is begun unless `check` returns.

        Raises: ConfigurationError on another event loop than the body's; what `check` and `function` raise.
        """
        check()
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise ConfigurationError(
                "to_thread of a ShardLease is awaited on another event loop than the one that entered it: hand it to"
                " that one by asyncio.run_coroutine_threadsafe, or call the function as it is, if this is a function of"
                " to_thread already"
            )

        def begin() -> R:
            check()  # it may have waited for a thread
            return function()

        returned = loop.create_future()
        self._threads.add(returned)
        try:
            return await wait_in_thread(None, begin)
        finally:
            self._threads.discard(returned)
            returned.set_result(None)

    async def end(self, error: BaseException | None) -> asyncio.CancelledError | None:
        """The body itself has ended, with `error`: wait for its threads; gives what has cancelled that."""
        self._inside, cancelled, pause = False, None, TOLD_FIRST_SECONDS
        if self._task is not None:
            self._task.remove_done_callback(self._on_task_end)
        while self._threads:
            try:
                done, _ = await asyncio.wait(self._threads, timeout=pause)
            except asyncio.CancelledError as why:
                cancelled = why
            else:
                if not done:
                    self._tell_going_on(error)
                    pause = TOLD_AGAIN_SECONDS
        return cancelled

    def tell_overdue(self) -> None:
        """The lease has ended, and nobody ends the body by force: say so, if it goes on; called in a thread."""
        threading.Event().wait(TOLD_FIRST_SECONDS)  # a machine that wakes up has both at once
        if self.runs and self._loop is not None and not self._loop.is_closed():
            log.critical(
                "The lease is lost, and its body goes on beside whoever has its objects now: end the process, and pass"
                " an on_deadline that does",
                extra=self._where(),
            )

    def uncancel(self) -> bool:
        """Take our cancellation back; whether it was the only one, as in `asyncio.timeout`."""
        return self._cancelled and self._task is not None and self._task.uncancel() <= self._cancelling

    def _on_task_end(self, task: asyncio.Task[object]) -> None:
        if self._inside and not self._ended_by_force:
            log.error(
                "The lease's body cannot be cancelled, for the task that entered it has ended: %s", _REMEDY,
                extra=self._where(),
            )  # fmt: skip

    def _tell_going_on(self, error: BaseException | None) -> None:
        """`error` comes out only when the functions have returned, and that may be never."""
        left: dict[str, object] = {"functions": len(self._threads)}
        if error is not None:
            left["error"] = repr(error)
        log.error(
            "The lease's body has ended, and its lease is kept for functions that still run by to_thread: tell them"
            " when it ends",
            extra={**self._where(), **left},
        )

    def _where(self) -> dict[str, str]:
        return {"ring": self._ring, "shard": self._shard}
