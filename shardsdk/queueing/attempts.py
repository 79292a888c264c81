"""One reconcile that runs, in a task of its own, and its early end.

A task is cancelled, and may go on all the same: one that waits for a plain function does until that returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Final

#: Who goes on for so long after it was cancelled is told of, and again after twice as long, and so on.
CANCELLED_SECONDS: Final = 10.0


class Early(Enum):
    """Why a reconcile was cancelled by its pool's doing."""

    CANCELLED = "somebody asked for it"
    LIMIT = "it ran for too long"
    DOUBT = "the hold under which it ran may have run out"


class Attempt:
    """A reconcile that runs as `task`; `goes_on(seconds)` tells that it does, so many seconds after it was cancelled.

    Whoever has made it calls `ended` when the task has.
    """

    __slots__ = ("_goes_on", "_timer", "concluded", "ended_early", "task", "told")

    def __init__(self, task: asyncio.Task[None], goes_on: Callable[[float], object]) -> None:
        self.task: asyncio.Task[None] = task
        self._goes_on = goes_on
        self._timer: asyncio.TimerHandle | None = None
        self.ended_early: Early | None = None
        #: What it said has been heeded: a cancellation that comes as it returns says nothing any more.
        self.concluded: bool = False
        #: It was told that it goes on.
        self.told: bool = False

    def limit(self, seconds: float) -> None:
        """Cancel it in so many seconds."""
        self._timer = self.task.get_loop().call_later(seconds, self.end, Early.LIMIT)

    def end(self, why: Early) -> None:
        """Cancel it, once."""
        if self.ended_early is None:
            self.ended_early = why
            self.task.cancel()
            self.ended()
            self._look_in(CANCELLED_SECONDS, CANCELLED_SECONDS)

    def ended(self) -> None:
        """Look after it no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_in(self, seconds: float, since_cancelled: float) -> None:
        self._timer = self.task.get_loop().call_later(seconds, self._tell, since_cancelled)

    def _tell(self, since_cancelled: float) -> None:
        self._goes_on(since_cancelled)
        self.told = True
        self._look_in(since_cancelled, 2 * since_cancelled)
