"""Open watches of the simulated API server.

Each watch keeps its own order and has its own delay, so that two watches see
the same writes in different orders.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import NamedTuple

from shardsdk.errors import ShardingError, StreamInterrupted
from shardsdk.kube.api import WatchKind
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.objects import Resource
from tests.simulation.network import Link
from tests.simulation.storage import Commit, Version, selection_of

#: Source: k8s.io/apiserver storage/cacher, bookmarkFrequency = 1 minute.
BOOKMARK_SECONDS = 60.0


class Line(NamedTuple):
    """What goes over a watch; `version` is `None` for a bookmark."""

    kind: WatchKind
    version: Version | None
    number: int
    initial_end: bool = False


class Watch:
    """One connection over `link`; what is sent while that is cut never arrives."""

    def __init__(
        self,
        resource: Resource,
        namespace: str | None,
        selector: Selector,
        link: Link,
        ends_in: float | None,
        since: int = 0,
    ) -> None:
        self.resource = resource
        self.link = link
        #: What is no later is never sent, also if it is yet to come: the store was set back to before this version.
        #: Source: k8s.io/apiserver storage/cacher, cacheWatcher.process.
        self._since = since
        self._selection = selection_of(namespace, selector)
        self._loop = asyncio.get_running_loop()
        self._arrives_at = 0.0
        self._lines: deque[Line] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._over = False
        self._error: ShardingError | None = None
        #: Since when the reader has waited for a line, and the timer that looks at it: one for many lines.
        self._quiet_since = 0.0
        self._silence: asyncio.TimerHandle | None = None
        self._timers: list[asyncio.TimerHandle] = []
        if ends_in is not None:
            self._timers.append(self._loop.call_later(ends_in, self.end, None, context=Context()))

    def tell(self, commit: Commit) -> None:
        """Send what `commit` means to this watch, if anything."""
        before = commit.before is not None and commit.before.matches(self._selection)
        if commit.after is not None and commit.after.matches(self._selection):
            self.send(Line(WatchKind.MODIFIED if before else WatchKind.ADDED, commit.after, commit.number))
        elif before and commit.before is not None:
            self.send(Line(WatchKind.DELETED, _left(commit), commit.number))

    def send(self, line: Line) -> None:
        if self._over or self.link.cut or line.number < self._since + (line.version is not None):
            return
        # Timers of one moment fire in any order, so no two lines share one.
        self._arrives_at = max(self._arrives_at + 1e-6, self._loop.time() + self.link.line_delay())
        self._loop.call_at(self._arrives_at, self._arrive, line, context=Context())

    def stall(self, seconds: float) -> None:
        """Whatever is sent from now on takes so long at least."""
        self._arrives_at = max(self._arrives_at, self._loop.time() + seconds)
        self.link.silent_until = max(self.link.silent_until, self._arrives_at)

    def bookmark(self, number: Callable[[], int]) -> None:
        """Say from time to time how far this watch is."""
        if self._over:
            return
        again = self._loop.call_later(BOOKMARK_SECONDS, self._send_bookmark, number, context=Context())
        self._timers = [again, *self._timers[:1]]

    def _send_bookmark(self, number: Callable[[], int]) -> None:
        self.send(Line(WatchKind.BOOKMARK, None, number()))
        self.bookmark(number)

    def end(self, error: ShardingError | None) -> None:
        """The connection ends; what is on its way is lost if it breaks."""
        if self._over:
            return
        self._over, self._error = True, error
        for timer in (*self._timers, *([self._silence] if self._silence is not None else [])):
            timer.cancel()
        self._wake()

    async def next(self, silence_seconds: float) -> Line | None:
        """The next line; `None`: the connection was closed in order.

        Raises: StreamInterrupted, or whatever error ended it.
        """
        while not self._lines:
            if self._over:
                if self._error is not None:
                    raise self._error
                return None
            self._waiter = self._loop.create_future()
            self._quiet_since = self._loop.time()
            if self._silence is None:
                self._listen(silence_seconds)
            await self._waiter
        return self._lines.popleft()

    def _listen(self, silence_seconds: float) -> None:
        silent_at = self._quiet_since + silence_seconds
        # The reader's own, of whose process it is.
        self._silence = self._loop.call_at(silent_at, self._notice_silence, silence_seconds)

    def _notice_silence(self, silence_seconds: float) -> None:
        self._silence = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() < self._quiet_since + silence_seconds:
            self._listen(silence_seconds)
            return
        silent = f"watch {self.resource.plural}: silent for {silence_seconds:g} s"
        self._waiter.set_exception(StreamInterrupted(silent))
        # A reader that is gone never asks; that is no news.
        self._waiter.exception()

    def _arrive(self, line: Line) -> None:
        if not self._over:
            self._lines.append(line)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _left(commit: Commit) -> Version:
    """The object as it leaves a selection: its old state under the new version."""
    assert commit.before is not None
    if commit.before.number == commit.number:
        return commit.before
    doc = commit.before.doc
    return Version({**doc, "metadata": {**doc["metadata"], "resourceVersion": str(commit.number)}})
