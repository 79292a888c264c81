"""Which time counts against a shard's lease: only time in which commits were proven.

The leader's own lease being renewed shows that the API server takes writes;
while it does not, a shard that cannot renew either is no less alive.  How long
a gap between two renewals may be depends on whose lease is judged: a gap that a
lease of 15 s hardly notices is most of one of 6 s.

    leader renews    |--|--|--|-------|--|--|--|
    lease of 15 s    counts all the time
    lease of 6 s                      counts from here: it has its whole duration again

Before it leads, the renewals that other shards' leases show do the same: each is
known to lie between a consistent read and the moment at which the watch shows it.

Time that the leader's machine has missed, its clock stopped with it
(shardsdk.kube.lapses), belongs to the gap that it was in: nothing proves that
anybody could renew meanwhile.

Does: remember the gaps that matter, and say since when time has counted for a
lease of a given duration.  Refuses: to read a clock, and to take a read for a
commit.

A tolerated gap is half of the lease at most, so a shard that renews as Leases
are renewed by default (every 2/15 of the duration, given up at 2/3) has renewed
in time when the gap is over, or has lost its lease by its own clock and is given
a whole duration to come back.  It is never less than the pause between two
renewals of the leader takes with its jitter and a moment for the answer, so
leases shorter than three retry periods are not covered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from sharder.core.shards import Proof

#: The longest and the shortest gap that is tolerated, in retry periods of the leader.
MOST_PERIODS: Final = 2.5
LEAST_PERIODS: Final = 1.5
#: The share of a lease that a gap may take.
GAP_SHARE: Final = 0.5
#: Gaps remembered at most; what is merged beyond that lets less time count, never more.
MAX_GAPS: Final = 64
#: So many gaps in a row that are too long are no outage: renewals are slow.
SLOW_AFTER: Final = 3


@dataclass(frozen=True, slots=True)
class Gap:
    """Time between two renewals: from the sending of the first to the answer of the second."""

    seconds: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Reading:
    """A consistent read: nothing newer than `version` was committed before `sent_at`.

    `missed` is what the clock had been found to have missed by then.
    """

    sent_at: float
    version: int
    missed: float = 0.0


@dataclass(frozen=True, slots=True)
class Renewals:
    """What is known of the leader's renewals, and of commits before it led; times on its monotonic clock.

    `began_at`: answer of the first (`None`: there was none).  `until`: sending
    of the last.  `gaps`: those that matter, each shorter and later than the one
    before.  `recent`: the lengths of the last few, whatever they were.
    """

    began_at: float | None = None
    until: float = 0.0
    gaps: tuple[Gap, ...] = ()
    recent: tuple[float, ...] = ()


def tolerated_gap(duration_seconds: float, retry_seconds: float) -> float:
    """How long a gap may be for time to count on against a lease of this duration."""
    return min(max(GAP_SHARE * duration_seconds, LEAST_PERIODS * retry_seconds), MOST_PERIODS * retry_seconds)


def note_renewal(known: Renewals, sent_at: float, answered_at: float, retry_seconds: float) -> Renewals:
    """What is known after one more confirmed renewal."""
    noted = note_commit(known, sent_at, answered_at, retry_seconds)
    if known.began_at is None:
        return noted
    return replace(noted, recent=(*known.recent, answered_at - known.until)[-SLOW_AFTER:])


def surely_before(readings: Iterable[Reading], version: int) -> Reading | None:
    """The latest of `readings` that was begun before `version` was committed; `None`: none surely was."""
    return max((each for each in readings if each.version < version), key=lambda each: each.sent_at, default=None)


def note_commit(known: Renewals, sent_at: float, answered_at: float, retry_seconds: float) -> Renewals:
    """What is known after a commit between two moments, whoever made it."""
    if known.began_at is None:
        return Renewals(began_at=answered_at, until=sent_at)
    if sent_at < known.until:
        return known
    gap = Gap(answered_at - known.until, answered_at)
    gaps = known.gaps
    if gap.seconds > LEAST_PERIODS * retry_seconds:
        # A shorter one before it says nothing that this one does not say.
        gaps = (*(each for each in gaps if each.seconds > gap.seconds), gap)
        if len(gaps) > MAX_GAPS:
            gaps = (*gaps[:-2], Gap(gaps[-2].seconds, gap.ended_at))
    return replace(known, until=sent_at, gaps=gaps)


def note_lapse(known: Renewals, seconds: float) -> Renewals:
    """What is known once the clock is found to have missed so much: the last renewal is longer ago by that."""
    return replace(known, until=known.until - seconds)


def proof_for(known: Renewals, duration_seconds: float, retry_seconds: float, now: float) -> Proof:
    """The time that counts against a lease of this duration; none before the first renewal."""
    if known.began_at is None:
        return Proof(now, now)
    tolerated = tolerated_gap(duration_seconds, retry_seconds)
    since = max((gap.ended_at for gap in known.gaps if gap.seconds > tolerated), default=known.began_at)
    return Proof(since, now if now - known.until <= tolerated else known.until)


def are_slow(known: Renewals, duration_seconds: float, retry_seconds: float) -> bool:
    """Whether renewals come, but so slowly that a lease of this duration never runs out."""
    return len(known.recent) == SLOW_AFTER and min(known.recent) > tolerated_gap(duration_seconds, retry_seconds)
