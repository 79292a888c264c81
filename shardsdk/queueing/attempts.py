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

    Whose task makes it is its worker, and calls `ended` when the task has.
    """

    __slots__ = ("_goes_on", "_limit", "_look", "_reasons", "_worker", "concluded", "doubted", "task")

    def __init__(self, task: asyncio.Task[None], goes_on: Callable[[float], object]) -> None:
        self.task: asyncio.Task[None] = task
        self._worker = asyncio.current_task()
        self._goes_on = goes_on
        self._limit: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        #: What it has been cancelled for; a doubt that is dispelled is none any more.
        self._reasons: set[Early] = set()
        #: It has been cancelled in doubt, however it went on.
        self.doubted: bool = False
        #: What it said has been heeded: a cancellation that comes as it returns says nothing any more.
        self.concluded: bool = False

    @property
    def ended_early(self) -> Early | None:
        """What becomes of its item, whatever else it was cancelled for."""
        for why in (Early.CANCELLED, Early.LIMIT):
            if why in self._reasons:
                return why
        return Early.DOUBT if self.doubted else None

    @property
    def told(self) -> bool:
        """Whether it was cancelled, by this or with its worker, however it has gone on since.

        Its own task does not tell: a function takes cancellations back, and a group that fails in it leaves one behind.
        """
        return self.ended_early is not None or (self._worker is not None and self._worker.cancelling() > 0)

    @property
    def is_stale(self) -> bool:
        """What it has seen and said may be of before another worked on its item, which is to come back at once.

        Who has asked for its end sees to that; at its limit nothing was said, and it comes back after its backoff.
        """
        early = self.ended_early
        return self.doubted and (early is Early.DOUBT or (early is Early.LIMIT and self.concluded))

    def limit(self, seconds: float, reached: Callable[[], object]) -> None:
        """Cancel it in so many seconds, and call `reached` then."""
        self._limit = self.task.get_loop().call_later(seconds, lambda: self.end(Early.LIMIT) and reached())

    def end(self, why: Early) -> bool:
        """Cancel it, once for each reason: one that takes no notice of a doubt has its limit still, and may be drained.

        `False`: it had been, or has ended.
        """
        if self.concluded or self.task.done() or not self._reasons.isdisjoint((why, Early.CANCELLED)):
            return False
        self._reasons.add(why)
        self.doubted |= why is Early.DOUBT
        self.task.cancel()
        if self._look is None:
            self._look_in(CANCELLED_SECONDS, CANCELLED_SECONDS)
        return True

    def dispelled(self) -> None:
        """The next doubt is another."""
        self._reasons.discard(Early.DOUBT)

    def ended(self) -> None:
        """Look after it no more."""
        for timer in (self._limit, self._look):
            if timer is not None:
                timer.cancel()

    def _look_in(self, seconds: float, since_cancelled: float) -> None:
        self._look = self.task.get_loop().call_later(seconds, self._tell, since_cancelled)

    def _tell(self, since_cancelled: float) -> None:
        self._goes_on(since_cancelled)
        self._look_in(since_cancelled, 2 * since_cancelled)
