"""Watches that are open, and may hang.

Behind a proxy, a machine of the API server that dies without a word leaves the connections to the proxy open: the
proxy's kernel answers for it.  Whoever sends a request learns of it when no answer comes; a watch would be silent until
that is too long for any (90 s), and its reader blind meanwhile.  So what a request has found out counts for watches as
well, once a later one is answered: what has said nothing since the first was sent ends, as an API server ends watches
every few minutes, and begins anew where it was.

Refuses: to end any while nothing is answered, or only that there is too much to do (429, 5xx).  An API server that
hangs would have all of them to open again, and one that refuses would leave those blind that can still see.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from weakref import WeakSet

from shardsdk.kube.pace import AtMostEvery
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

#: Whoever has waited so long for an answer, and gives up, doubts the watches.
DOUBT_SECONDS: Final = 1.5
#: Watches are doubted so rarely: an API server may be slow for hours, and a bookmark comes 60 s to 62 s after a watch
#: began.  One that never lived to have it would be taken for silent, and everything listed again and again.
#: Source: kube-apiserver, storage/cacher, defaultBookmarkFrequency and dispatchEvents.
AGAIN_SECONDS: Final = 120.0
#: From one watch that ends to the next: what opens hundreds anew is no burst.
APART_SECONDS: Final = 0.01


class OpenStream:
    """One of them; times are its event loop's, which are the system's monotonic ones as those of other loops are."""

    __slots__ = ("_heard_at", "_limit", "over", "resumable")

    def __init__(self, *, resumable: bool) -> None:
        #: Whether its reader goes on where it was; until initial events are complete, it would begin from nothing.
        self.resumable: bool = resumable
        self._heard_at = asyncio.get_running_loop().time()
        #: Of the read that is under way.
        self._limit: asyncio.Timeout | None = None
        #: Whether it is as if the API server had ended it, rather than that it was silent for too long.
        self.over: bool = False

    @contextmanager
    def reading(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Around each read, which ends by this `limit`."""
        self._limit, self.over = limit, False
        try:
            yield
            self._heard_at = asyncio.get_running_loop().time()
        finally:
            self._limit = None

    def silent_since(self, at: float) -> bool:
        """Whether it waits, and nothing has come since then."""
        return self._limit is not None and self._heard_at < at and not self._limit.expired()

    def end(self, at: float) -> None:
        """End it then, unless something comes before."""
        assert self._limit is not None
        until = self._limit.when()
        if until is None or at < until:
            self.over = True
            self._limit.reschedule(at)


class OpenStreams:
    """All of one client.  What one finds out counts for all clients of that host, as a shard's lease has its own."""

    def __init__(self, host: str) -> None:
        self._host = host
        #: Where they are read, while the client is open.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: dict[OpenStream, None] = {}
        #: Since when one request has had no answer, and when it gave up; infinite: what was found out has been used.
        self._silent_since: float = -math.inf
        self._given_up_at: float = math.inf
        self._doubts = AtMostEvery(AGAIN_SECONDS)
        with _ADDING:
            _EVERYWHERE.add(self)

    def run_on(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """The client is open on this loop, or closed."""
        self._loop = loop

    @contextmanager
    def kept(self, stream: OpenStream) -> Iterator[None]:
        """While it is read."""
        self._open[stream] = None
        try:
            yield
        finally:
            del self._open[stream]

    def unanswered(self, sent_at: float) -> None:
        """A request that was sent then is given up."""
        now = asyncio.get_running_loop().time()
        if now - sent_at >= DOUBT_SECONDS:
            self._silent_since, self._given_up_at = max(self._silent_since, sent_at), now

    def answered(self, sent_at: float) -> None:
        """A request that was sent then has an answer, and no such as tells that the API server has too much to do."""
        if sent_at < self._given_up_at:
            return
        since, self._given_up_at = self._silent_since, math.inf
        with _ADDING:
            everywhere = tuple(_EVERYWHERE)
        for each in everywhere:
            loop = each._loop
            if each._host == self._host and loop is not None:
                with suppress(RuntimeError):  # it closes just now
                    loop.call_soon_threadsafe(each._end_silent, since)

    def _end_silent(self, since: float) -> None:
        silent = [stream for stream in self._open if stream.resumable and stream.silent_since(since)]
        if self._loop is None or not silent or not self._doubts.passes(now := self._loop.time()):
            return
        log.info(
            "A request had no answer, and a later one has: %d watches that said nothing meanwhile begin anew",
            len(silent),
        )
        for number, stream in enumerate(silent):
            stream.end(now + number * APART_SECONDS)


#: Of all clients of this process, whose loops may run in threads.
_EVERYWHERE: Final[WeakSet[OpenStreams]] = WeakSet()
_ADDING: Final = threading.Lock()
