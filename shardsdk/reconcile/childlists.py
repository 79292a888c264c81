"""Lists of children that owners wait for.

How long none begins after one, of which resources they look for what is not this shard's yet and for how long each such
child is awaited, and telling of owners that wait long.
"""

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
from shardsdk.protocol.objects import GroupResource, ObjectMeta
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
#: A child that is without a label for so long may stay so; its owner must not.  A sharder
#: labels some hundreds a second, so this is enough for a resource that has 100,000.
UNLABELLED_SECONDS: Final = 600.0
#: Children that are awaited no more, and remembered.
GIVEN_UP_MAX: Final = 10_000
#: So long after a type is served again the sharder knows it: it looks every 10 s.  Until then owners may still come
#: without what they control of it.
LEARNT_SECONDS: Final = 60.0


class AssignedTypes:
    """Resources of which lists have shown that our owners' children are all ours, so that nobody looks for others.

    Each is told with how often it was found not to be served: owners that came meanwhile are looked at anew.
    """

    __slots__ = ("_assigned", "_clock", "_served_since")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._assigned: dict[GroupResource, int] = {}
        #: When a list was complete for the first time since.
        self._served_since: dict[GroupResource, tuple[int, float]] = {}

    def has(self, name: GroupResource, absences: int) -> bool:
        """Whether nobody needs to look any more."""
        return self._assigned.get(name) == absences

    def listed(self, name: GroupResource, absences: int, *, all_ours: bool) -> None:
        """A list that was begun after so many absences is complete."""
        now = self._clock.monotonic()
        of, since = self._served_since.get(name, (-1, now))
        if of != absences:
            self._served_since[name] = absences, (since := now)
        served = now - since if absences else math.inf
        # Where new owners go on bringing such as nobody labels, the search ends as well, but for the first.
        if (all_ours and served >= LEARNT_SECONDS) or (absences and served >= UNLABELLED_SECONDS):
            self._assigned[name] = absences


class Unlabelled:
    """Since when each is awaited, and which are awaited no more as long as they stay as they are."""

    __slots__ = ("_clock", "_given_up", "since")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: By the uid of each of the last list.
        self.since: dict[str, float] = {}
        self._given_up: dict[str, str] = {}

    def gives_up(self, child: ObjectMeta, since: dict[str, float]) -> bool:
        """Whether a child has been without a label for so long that its owner goes on without it; notes since when."""
        now = self._clock.monotonic()
        first = since[child.uid] = self.since.get(child.uid, now)
        if self._given_up.get(child.uid) == child.resource_version:
            return True
        if now - first < UNLABELLED_SECONDS:
            return False
        if len(self._given_up) >= GIVEN_UP_MAX:
            del self._given_up[next(iter(self._given_up))]
        self._given_up[child.uid] = child.resource_version
        log.warning(
            "A child is never labelled; its owner goes on without it",
            extra={"namespace": child.namespace, "object": child.name, "seconds": round(now - first)},
        )
        return True


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
