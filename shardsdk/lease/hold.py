"""The hold: until when this process may write, by its own clock.

Whoever is about to write asks `remaining()`, from any thread.  What the clock is
found to have missed (`shardsdk.kube.lapses`) shortens it until a renewal that was
sent afterwards is confirmed.  Once closed it is never opened again.

`watched` tells who works under it when it is over, whatever event loops and the
handlers of log lines do at that moment; `watch_closing` those whose work has ended
and has left something behind that keeps the program from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial
from typing import Final

from shardsdk.kube.clock import Clock
from shardsdk.kube.lapses import lapses_of

#: How often the thread of `watched` looks at the clock while the hold is far from its end.
WATCH_SECONDS: Final = 0.5
#: How long the end of an event loop takes that waits for nothing.
_CLOSING_SECONDS: Final = 1.0
#: A program that has gone on for so long after a hold's end does not end because of it.
_GONE_ON_SECONDS: Final = 60.0

#: What event loops end first when they are closed; they themselves forget what nobody keeps.
_ENDED_FIRST: Final[list[tuple[asyncio.AbstractEventLoop, AsyncGenerator[None, None]]]] = []


class Hold:
    """A fence (`shardsdk.kube.api.Fence`) that is open while a lease is held.

    Its keeper moves the end; everybody else only asks.  Each field is written by
    one thread and read as one value, so there is no lock.  A process that was
    forked has none: nobody renews there, nor waits for its writes before a release.
    """

    __slots__ = ("_clock", "_closed", "_lapses", "_name", "_process", "_until")

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._lapses = lapses_of(clock)
        #: When it ends, and what had been missed when the renewal was sent that says so.
        self._until = (-math.inf, 0.0)
        self._closed = False
        self._process = os.getpid()

    @property
    def name(self) -> str:
        """The lease, for messages."""
        return self._name

    @property
    def ends_at(self) -> float:
        """When the hold ends unless the lease is renewed, on the clock's `monotonic`; minus infinity: never held."""
        return self._until[0]

    @property
    def closed(self) -> bool:
        """Whether it was closed for good."""
        return self._closed

    def remaining(self) -> float:
        """Seconds for which writes are allowed; zero or less: none are."""
        if self._closed or os.getpid() != self._process:
            return -math.inf
        ends_at, missed = self._until
        return ends_at - self._clock.monotonic() - (self._lapses.seconds - missed)

    @property
    def doubted(self) -> bool:
        """Whether only time that the clock may have missed has closed it, so that a renewal may open it again."""
        return not self._closed and self._until[0] > self._clock.monotonic() and self._lapses.seconds > self._until[1]

    def extend(self, ends_at: float, missed: float | None = None) -> None:
        """A renewal was confirmed: the hold lasts until `ends_at` at least.

        `missed` is what the clock had been found to have missed when the renewal
        was sent (`None`: what it has by now).
        """
        missed = self._lapses.seconds if missed is None else missed
        self._until = (max(self._until[0], ends_at), max(self._until[1], missed))

    def close(self) -> None:
        """Allow no write any more."""
        self._closed = True


@contextlib.contextmanager
def watched(hold: Hold, clock: Clock, overdue: Callable[[], None]) -> Iterator[None]:
    """Within this context a thread calls `overdue` once `hold` has ended.

    The thread does nothing else, so that nothing can keep it: it neither renews nor logs.
    """
    ended = threading.Event()

    def watch() -> None:
        # Not `remaining`: a hold that was closed early still leaves the work until its end to stop.
        while (left := hold.ends_at - clock.monotonic()) > 0:
            if ended.wait(min(left, WATCH_SECONDS)):
                return
        if not ended.is_set():
            overdue()

    threading.Thread(target=watch, name="hold-watch", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


async def watch_closing(hold: Hold, clock: Clock, overdue: Callable[[], None]) -> None:
    """Have `overdue` called, in a thread, if this event loop is being closed and still is when `hold` has ended.

    For a lease that was lost, when the work under it has ended.  What it has left in threads (`asyncio.to_thread`)
    nobody can see; but a program that ends waits for them when it closes its loop, as `asyncio.run` does.  One that
    goes on is told nothing.
    """
    loop = asyncio.get_running_loop()
    first = _end_first(partial(_watch_closing, loop, hold, clock, overdue))
    await anext(first)
    _ENDED_FIRST[:] = [(loop, first), *(each for each in _ENDED_FIRST if not each[0].is_closed())]


async def _end_first(told: Callable[[], None]) -> AsyncGenerator[None, None]:
    """A loop that is closed ends its asynchronous generators, and then waits for its threads."""
    try:
        yield
    finally:
        told()


def _watch_closing(loop: asyncio.AbstractEventLoop, hold: Hold, clock: Clock, overdue: Callable[[], None]) -> None:
    begun = clock.monotonic()

    def watch() -> None:
        while not loop.is_closed():
            left = max(hold.ends_at, begun + _CLOSING_SECONDS) - clock.monotonic()
            if left <= 0:
                overdue()
                return
            threading.Event().wait(min(left, WATCH_SECONDS))

    if begun < hold.ends_at + _GONE_ON_SECONDS:
        threading.Thread(target=watch, name="closing-watch", daemon=True).start()
