"""Tells people how a ring by ranges is: the status of its RingAssignment, and what the ring's own is made from.

Refuses: to judge, and to write often; numbers that keep changing are written now and then only.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Mapping
from random import Random
from typing import Final

from sharder.core.rangestatus import Loads, Moving, describe_moving, in_transit, render_range_status
from sharder.core.summary import OldestDrain, RangesSummary
from sharder.ranges.state import State
from sharder.ranges.store import AssignmentStore, Read
from shardsdk.errors import FenceClosed, NotFound, RetryRule, ShardingError
from shardsdk.kube.backoff import Backoff
from shardsdk.kube.clock import Clock
from shardsdk.protocol.ranges import RING_ASSIGNMENTS, HashRanges, Named, render_bound

log = logging.getLogger(__name__)

#: Between two writes while ranges are on their way.
REPORT_SECONDS: Final = 3.0
#: The longest pause before one is tried again that was refused.
AGAIN_SECONDS: Final = 60.0


class RangeReport:
    """Of one ring, while one replica leads; since when ranges are on their way begins anew with the next leader."""

    def __init__(self, ring: str, store: AssignmentStore, clock: Clock, rng: Random) -> None:
        self._ring = ring
        self._store = store
        self._clock = clock
        self._backoff = Backoff(rng, first_seconds=2 * REPORT_SECONDS, max_seconds=AGAIN_SECONDS)
        self._moving: tuple[Moving, ...] = ()
        self._loads = Loads({})
        self._written_at = float("-inf")
        #: Why the last write was refused; `None`: it was not.  Nothing is assigned otherwise for that.
        self.failure: ShardingError | None = None
        self._again_at = float("-inf")

    def due_in(self) -> float | None:
        """In how many seconds a write is to be tried again that was refused; `None`: none was."""
        return None if self.failure is None else max(0.0, self._again_at - self._clock.monotonic())

    def follow(self, waits: HashRanges, aim: Named | None, held: Mapping[str, HashRanges]) -> None:
        """From now on `waits` is on its way to whom `aim` names; `None`: nothing is assigned."""
        now = self._clock.now()
        if aim is None:
            self.failure = None
        self._moving = () if aim is None else in_transit(waits, aim, held, self._moving, now)

    async def show(self, read: Read, named: Named, loads: Loads, homes: Collection[str], left: Container[str]) -> None:
        """Have the RingAssignment that was `read` say how it is, if it says otherwise.

        Raises: FenceClosed.
        """
        self._loads = loads
        now = self._clock.now()
        status = render_range_status(read.generation, named, self._moving, loads, homes, read.status, now, left)
        early = bool(self._moving) and self._clock.monotonic() - self._written_at < REPORT_SECONDS
        if early or self.due_in():
            return
        try:
            if any(read.status.get(name) != value for name, value in status.items()):
                self._written_at = self._clock.monotonic()
                await self._store.write_status(status)
        except FenceClosed:
            raise
        except ShardingError as error:
            if error.retry is not RetryRule.REFRESH and not isinstance(error, NotFound):
                extra = {"ring": self._ring, "error": str(error)}
                log.warning("status of a RingAssignment not written, will retry", extra=extra)
            self.failure, self._again_at = error, self._clock.monotonic() + self._backoff.next()
        else:
            self._backoff.reset()
            self.failure = None

    def summarize(self, found: State | None, there: Collection[str], contested: str | None = None) -> RangesSummary:
        """For the ring's status and metrics, after what was `found` last; `there` are all shards that hold Leases.

        They may have come since what each has was looked at.  `contested`: that somebody undoes what is written.
        """
        loads = self._loads if self._loads.shards else Loads(dict.fromkeys(there, 0.0))
        return RangesSummary(
            len(self._moving),
            sum(each.holder is None for each in self._moving),
            describe_moving(self._moving, loads),
            self._loads.fullest[1],
            found.silent if found is not None else frozenset(),
            found.idle if found is not None else frozenset(),
            self._store.dropped,
            contested,
            *(found.overlaps if found is not None else ()),
        )

    def longest(self) -> OldestDrain | None:
        """The range that a shard has kept for longest although another shall have it."""
        longest = next((each for each in self._moving if each.holder is not None), None)
        if longest is None or longest.holder is None:
            return None
        seconds = max(0.0, (self._clock.now() - longest.since).total_seconds())
        name = f"{render_bound(longest.start)}-{render_bound(longest.end)}"
        return OldestDrain(RING_ASSIGNMENTS.group_resource, "", name, longest.holder, seconds)
