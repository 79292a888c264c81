"""Lists of children that owners wait for: how long none begins after one, and telling of owners that wait long."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from shardsdk.cache.objects import Request
from shardsdk.kube.clock import Clock
from shardsdk.kube.pace import AtMostEvery
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import GroupResource
from shardsdk.reconcile.state import Children, ObjectState

log: Final = logger_of(__name__)

#: Lists take no more than this share of the time: after one, we wait four times
#: as long as it took, and more owners share the next.
LIST_SHARE: Final = 0.2
#: And there are no more than twenty a second, however quick they are.
LIST_PAUSE_SECONDS: Final = 0.05
#: But where one takes far longer than others lately, most of that was waiting, for a network or a server that hung,
#: and is over when the list is here: no more is counted than so many times what the quickest of the last few took.  If
#: all of them are slow, there is too much to list or to do, and that is counted in full.
HANG_FACTOR: Final = 4.0
RECENT_LISTS: Final = 3
#: So much is counted in any case; of the first list no more is, since nobody knows yet what one takes.
LIST_COST_SECONDS: Final = 0.25
#: From when on an owner's waiting for a list is told, and how often.
LATE_SECONDS: Final = 10.0
TELL_SECONDS: Final = 60.0


class ListPauses:
    """How long no list is to begin after one.  Reads no clock."""

    __slots__ = ("_recent",)

    def __init__(self) -> None:
        #: The seconds that each of the last lists took.
        self._recent: deque[float] = deque(maxlen=RECENT_LISTS)

    def after(self, seconds: float) -> float:
        """For how many seconds none begins after one that took so many `seconds`."""
        usual = HANG_FACTOR * min(self._recent, default=0.0)
        self._recent.append(seconds)
        cost = min(seconds, max(usual, LIST_COST_SECONDS))
        return max(cost * (1 / LIST_SHARE - 1), LIST_PAUSE_SECONDS)


class LateLists:
    """Tells of those of `waiting` that wait for a list for long; `run` it next to who lists."""

    __slots__ = ("_clock", "_listed", "_news", "_possible_since", "_waiting")

    def __init__(self, waiting: Mapping[Request, ObjectState], clock: Clock) -> None:
        self._waiting = waiting
        self._clock = clock
        self._news = AtMostEvery(TELL_SECONDS)
        #: What is being listed.
        self._listed: GroupResource | None = None
        #: Since when a list may begin.
        self._possible_since = -math.inf

    @contextlib.contextmanager
    def held_up(self) -> Iterator[None]:
        """Within this context no list may begin: owners wait for writes of ours, and for no API server."""
        self._possible_since = math.inf
        try:
            yield
        finally:
            self._possible_since = self._clock.monotonic()

    @contextlib.contextmanager
    def listing(self, resource: GroupResource) -> Iterator[None]:
        """Within this context `resource` is listed."""
        self._listed = resource
        try:
            yield
        finally:
            self._listed = None

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            await self._clock.sleep(LATE_SECONDS)
            self._tell()

    def _tell(self) -> None:
        now = self._clock.monotonic()
        since = {
            owner: max(state.arrival.since, self._possible_since)
            for owner, state in self._waiting.items()
            if state.children is Children.LISTING and state.arrival is not None
        }
        late = [owner for owner, moment in since.items() if now - moment >= LATE_SECONDS]
        if not late or not self._news.passes(now):
            return
        first = min(late, key=since.__getitem__)
        log.warning(
            "Owners wait for a list of their children: is the API server slow, or the network?",
            extra={
                "namespace": first.namespace,
                "object": first.name,
                "owners": len(late),
                "seconds": round(now - since[first]),
                # Between two lists it is none, and the next begins soon.
                **({} if self._listed is None else {"resource": str(self._listed)}),
            },
        )
