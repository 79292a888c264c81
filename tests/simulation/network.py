"""The way between one process and the API server, and what goes wrong on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final


class Fate(Enum):
    """What becomes of one request."""

    NORMAL = "executed and answered"
    LOST = "never arrives"
    UNANSWERED = "executed, its answer is lost"
    LATE = "executed late, up to the time it was granted"
    ERROR = "answered with an error, not executed"
    ERROR_BUT_EXECUTED = "answered with an error, executed all the same"
    ERROR_BEFORE_EXECUTION = "answered with an error, executed a moment later"


#: Those of which its client may hear nothing for as long as it waits.
SILENT: Final = (Fate.LOST, Fate.UNANSWERED, Fate.LATE)


@dataclass(slots=True)
class Trouble:
    """Shares of requests that meet each fate, and how long lines of watches are held up."""

    lost: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0
    error: float = 0.0
    watch_lag_seconds: float = 0.0


CALM = Trouble()

#: Request and answer take from the first to the second.
TRANSIT_SECONDS = (0.001, 0.008)
#: A line of a watch takes this, and now and then up to the second.
LINE_SECONDS = (0.001, 0.02, 0.3)


class Link:
    """One process's way to the API server; a new incarnation gets a new one."""

    def __init__(self, name: str, rng: Random) -> None:
        self.name = name
        self.rng = rng
        self.trouble = CALM
        self.cut = False
        #: Until when its process waits for what may never come: an answer, or lines of a watch.
        self.silent_until = 0.0
        #: Requests that arrive later than this are not executed: the kernel has closed the connections.
        self.closed_from = float("inf")
        #: Seconds by which the next answer comes late.
        self.answers_late = 0.0
        #: Called once, as the next write of a Lease is sent.
        self.at_renewal: Callable[[], object] | None = None

    def die(self, closed_from: float) -> None:
        """The process is gone; what it sent is executed until `closed_from`."""
        self.closed_from = closed_from

    def renews(self) -> None:
        """A write of a Lease is being sent."""
        if self.at_renewal is not None:
            call, self.at_renewal = self.at_renewal, None
            call()

    def fate(self, *, writes: bool) -> Fate:
        """Draw what becomes of a request."""
        trouble = self.trouble
        if self.cut:
            return Fate.LOST
        if trouble is CALM:
            return Fate.NORMAL
        draw = self.rng.random()
        for fate, share in (
            (Fate.LOST, trouble.lost),
            (Fate.UNANSWERED, trouble.unanswered),
            (Fate.LATE, trouble.late if writes else 0.0),
            (Fate.ERROR, trouble.error / 3),
            (Fate.ERROR_BUT_EXECUTED, trouble.error / 3),
            (Fate.ERROR_BEFORE_EXECUTION, trouble.error / 3),
        ):
            if draw < share:
                return fate
            draw -= share
        return Fate.NORMAL

    def transit(self) -> float:
        return self.rng.uniform(*TRANSIT_SECONDS)

    def answer_transit(self) -> float:
        late, self.answers_late = self.answers_late, 0.0
        return late + self.transit()

    def line_delay(self) -> float:
        """Seconds that a line of a watch takes; each watch draws for itself."""
        quick, slow, rare = LINE_SECONDS
        delay = self.rng.uniform(quick, slow)
        if self.rng.random() < 0.05:
            delay += self.rng.random() * rare
        if self.trouble.watch_lag_seconds and self.rng.random() < 0.3:
            delay += self.rng.random() * self.trouble.watch_lag_seconds
        return delay
