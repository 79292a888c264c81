"""Somebody who changes a ring's RingAssignment back each time: a second sharder that leads, as a rule.

Two that see the ring differently undo each other's writes, each within a moment, and so ranges change hands for ever.
Whoever notices leaves what the other has written alone for longer and longer, and says so.  What people edit by hand
now and then is put right at once: what was written before that has stood for a while.
"""

from __future__ import annotations

import logging
from typing import Final

from sharder.core.problems import LIST_LEADERS
from sharder.ranges.store import Read
from shardsdk.kube.backoff import double
from shardsdk.kube.clock import Clock
from shardsdk.kube.pace import AtMostEvery
from shardsdk.protocol.ranges import Named

log = logging.getLogger(__name__)

#: So many writes that were undone one after another are no accident: from here on the next one waits, for so long at
#: first, and twice as long each time.
TELL_UNDONE: Final = 3
FIRST_SECONDS: Final = 0.5
MAX_SECONDS: Final = 60.0
#: What has stood for longer, and for twice what was waited before it was written, nobody contests: another sharder that
#: notices waits about as long.
STANDS_SECONDS: Final = 10.0
#: Between two warnings.
TELL_SECONDS: Final = 600.0


class Contest:
    """Of one ring, while one replica leads."""

    def __init__(self, ring: str, clock: Clock) -> None:
        self._ring = ring
        self._clock = clock
        #: What it says if nobody has undone anything: what this leader wrote last; of a write that was not answered,
        #: what it said before as well.
        self._ours: tuple[Named | None, ...] = ()
        self._wrote_at = float("-inf")
        #: How often what it wrote was undone one after another, the last time when and by whom.
        self._undone = 0
        self._undone_at = float("-inf")
        self._manager = ""
        self._warnings = AtMostEvery(TELL_SECONDS)

    def sends(self, read: Read, named: Named) -> None:
        """This leader is about to have it say `named` instead of what was `read`."""
        self._ours = (read.named, named)

    def wrote(self, named: Named) -> None:
        """It says so; what stands is what has been written since anybody undid anything."""
        self._ours = (named,)
        if self._wrote_at <= self._undone_at:
            self._wrote_at = self._clock.monotonic()

    def found(self, read: Read) -> None:
        """It was `read` anew."""
        if not self._ours or read.named in self._ours:
            return
        in_a_row = not self._stands
        self._ours, self._manager, self._undone_at = (), read.manager, self._clock.monotonic()
        self._undone = self._undone + 1 if in_a_row else 1
        if self._undone >= TELL_UNDONE and self._warnings.passes(self._undone_at):
            log.warning(
                "ranges changed back again and again", extra={"ring": self._ring, "manager": self._manager or "unknown"}
            )

    @property
    def left(self) -> float:
        """For how many seconds from now what somebody has written is left alone."""
        return max(0.0, self._undone_at + self._pause - self._clock.monotonic())

    @property
    def due_in(self) -> float | None:
        """In how many seconds it is to be looked again; `None`: nobody contests anything."""
        if self._undone < TELL_UNDONE or self._stands:
            return None
        return self.left or self._stands_at - self._clock.monotonic()

    @property
    def words(self) -> str | None:
        """What people are to know, with its remedy; `None`: nobody contests anything."""
        if self.due_in is None:
            return None
        who = "somebody" + (f" (field manager {self._manager})" if self._manager else "")
        return (
            f"{who} changes what the sharder writes into the RingAssignment back again and again, so that ranges may"
            f" stay where they are for up to a minute each time; if two sharders lead (`{LIST_LEADERS}`), remove one,"
            " else have whoever it is leave RingAssignments alone"
        )

    @property
    def _pause(self) -> float:
        over = self._undone - TELL_UNDONE
        return 0.0 if over < 0 else double(FIRST_SECONDS, over, MAX_SECONDS)

    @property
    def _stands_at(self) -> float:
        """When what was written last has stood for long enough; while that is undone, what could have been written."""
        return max(self._wrote_at, self._undone_at + self._pause) + STANDS_SECONDS + 2 * self._pause

    @property
    def _stands(self) -> bool:
        return self._clock.monotonic() >= self._stands_at
