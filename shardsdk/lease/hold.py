"""The hold: until when this process may write, by its own clock.

Whoever is about to write asks `remaining()`, from any thread.  What the clock is
found to have missed (`shardsdk.kube.lapses`) shortens it until a renewal that was
sent afterwards is confirmed.  Once closed it is never opened again.

Whoever ends work that outlasts the hold asks `left_to_end()`.  `watched` does so for
who works under it, whatever event loops and the handlers of log lines do at that
moment; `watch` the same until something has ended.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterator
from typing import Final

from shardsdk.kube.clock import Clock
from shardsdk.kube.lapses import lapses_of
from shardsdk.protocol.ranges import NOWHERE, HashRanges

#: How often the thread of `watched` looks at the clock while the hold is far from its end.
WATCH_SECONDS: Final = 0.5


class Hold:
    """A fence (`shardsdk.kube.api.Fence`) that is open while a lease is held.

    Its keeper moves the end; everybody else only asks.  Each field is written by
    one thread and read as one value, so there is no lock.  A process that was forked
    meanwhile has none: nobody renews there, nor waits for its writes before a release.
    """

    __slots__ = ("_clock", "_closed", "_lapses", "_lost", "_name", "_process", "_until", "owed_ranges", "owed_until")

    def __init__(self, name: str, clock: Clock) -> None:
        #: Until when a write may be executed that the process before this one has sent under the same lease, on the
        #: clock's `monotonic`; it is dead, and knew that hold alone.
        self.owed_until: float = -math.inf
        #: Where that may be, as the Lease goes on saying by itself until the body says what is held, and this with it.
        self.owed_ranges: HashRanges = NOWHERE
        self._name = name
        self._clock = clock
        self._lapses = lapses_of(clock)
        #: When it ends, and what had been missed when the renewal was sent that says so.
        self._until = (-math.inf, 0.0)
        #: Nothing extends it any more; and whether nothing may be written either.
        self._lost = self._closed = False
        #: Whose it is since it was extended first.
        self._process = 0

    @property
    def name(self) -> str:
        """The lease, for messages."""
        return self._name

    @property
    def ends_at(self) -> float:
        """When the hold ends unless the lease is renewed, on the clock's `monotonic`; minus infinity: never held.

        What is left of it is `remaining()` or `left_to_end()`: the clock may have missed some time.
        """
        return self._until[0]

    @property
    def closed(self) -> bool:
        """Whether it was closed for good."""
        return self._closed

    def remaining(self) -> float:
        """Seconds for which writes are allowed; zero or less: none are."""
        if self._closed or os.getpid() != self._process:
            return -math.inf
        return self._left(counts_missed=True)

    def left_to_end(self) -> float:
        """Seconds until whatever works under it must have ended; closed early, it still leaves them.

        What the clock may have missed counts once no renewal can follow.  Before that, a mistake would end a process
        whose next renewal confirms the hold.
        """
        return self._left(counts_missed=self._lost or self._closed)

    def _left(self, *, counts_missed: bool) -> float:
        ends_at, missed = self._until
        return ends_at - self._clock.monotonic() - (self._lapses.seconds - missed if counts_missed else 0.0)

    @property
    def doubted(self) -> bool:
        """Whether only time that the clock may have missed has closed it, so that a renewal may open it again."""
        final = self._lost or self._closed
        return not final and self._until[0] > self._clock.monotonic() and self._lapses.seconds > self._until[1]

    def extend(self, ends_at: float, missed: float | None = None) -> None:
        """A renewal was confirmed: the hold lasts until `ends_at` at least.

        `missed` is what the clock had been found to have missed when the renewal
        was sent (`None`: what it has by now).
        """
        missed = self._lapses.seconds if missed is None else missed
        self._process = self._process or os.getpid()
        self._until = (max(self._until[0], ends_at), max(self._until[1], missed))

    def lose(self, *, taken: bool) -> None:
        """No renewal follows; `taken`: the lease is another's, so that nothing may be written any more."""
        self._lost = True
        if taken:
            self.close()

    def close(self) -> None:
        """Allow no write any more."""
        self._closed = True


@contextlib.contextmanager
def watched(hold: Hold, overdue: Callable[[], None]) -> Iterator[None]:
    """Within this context a thread calls `overdue` once `hold` has ended."""
    ended = threading.Event()
    watch(hold, overdue, ended)
    try:
        yield
    finally:
        ended.set()


def watch(hold: Hold, overdue: Callable[[], None], ended: threading.Event) -> None:
    """Have a thread call `overdue` once `hold` has ended, unless `ended` is set before.

    The thread does nothing else, so that nothing can keep it: it neither renews nor logs.
    """

    def wait() -> None:
        while (left := hold.left_to_end()) > 0:
            if ended.wait(min(left, WATCH_SECONDS)):
                return
        if not ended.is_set():
            overdue()

    threading.Thread(target=wait, name="hold-watch", daemon=True).start()
