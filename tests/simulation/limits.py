"""How long something may take: `asyncio.timeout`, for what happens some thousand times a run."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from types import TracebackType
from typing import Any, Final


class Limit:
    """Cancels the block that takes longer, which then raises TimeoutError."""

    __slots__ = ("_cancelling", "_expired", "_seconds", "_task", "_timer")

    _timer: asyncio.Handle | None

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._expired = False

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        seconds = self._seconds
        if seconds is None:
            self._timer = None
        elif seconds > 0:
            self._timer = loop.call_later(seconds, self._expire)
        else:
            self._timer = loop.call_soon(self._expire)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # As asyncio does it: somebody else's cancellation goes on.
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()


class _Done:
    """Something awaited that is there already."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


_DONE: Final = _Done()


class Timeout(Limit):
    """The same as the context manager that asyncio's is; what it is in the product while a plan is played."""

    __slots__ = ()

    def __aenter__(self) -> _Done:
        self.__enter__()
        return _DONE

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> _Done:
        self.__exit__(kind, error, trace)
        return _DONE

    def expired(self) -> bool:
        return self._expired

    def reschedule(self, when: float) -> None:
        """Have it expire at this time of the loop instead."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(when, self._expire) if when > loop.time() else loop.call_soon(self._expire)
