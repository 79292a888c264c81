"""Children that are not this shard's yet: of which resources they are looked for, and for how long each is awaited."""

from __future__ import annotations

import math
from typing import Final

from shardsdk.kube.clock import Clock
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import GroupResource, ObjectMeta

log: Final = logger_of(__name__)

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
