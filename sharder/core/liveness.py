"""How shards have held their leases lately: who is silent, who is back from a crash, and who has yet to renew.

A shard stays in the ring until its lease has run out, since only then may its
objects be taken away.  What has no owner need not wait for that: it goes past a
shard that has missed its renewals.  And what has an owner need not be drained
for a shard that crashes again and again, nor for a lease that nobody may renew:
a backup that is restored brings back those of shards that are long gone.

Does: judge by what was seen when, on one monotonic clock; that a lease was out of date when it
came is told by whoever saw it.  Refuses: to let any
of this decide who may take objects away.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from sharder.core.shards import LeaseFacts, Proof
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.leases import Lease

#: A shard is silent when it has not renewed for this share of its lease, two renewals of those usual (2/15 of it) ...
SILENT_SHARE: Final = 1 / 3
#: ... and for this many times its last pause, for shards that renew less often.
SILENT_PAUSES: Final = 2.0
#: ... and for so long: a busy machine is late by more than a third of a lease of seconds.
SILENT_SECONDS: Final = 2.0
#: A crash counts so long.  Source: Kubernetes, a crashing container's back-off grows to 5 minutes, and begins anew
#: after 10 minutes without a crash.
CRASH_SECONDS: Final = 600.0
#: A shard that came back has to hold its lease for one duration, twice as long after each further crash, and at most
#: for this many.
MAX_DURATIONS: Final = 8
#: Crashes remembered: as many as make a difference.
MAX_CRASHES: Final = 4


class History(msgspec.Struct, frozen=True):
    """What came before a lease's present content; times on the monotonic clock.

    `held_since`: when its shard was seen to acquire it (minus infinity: nobody saw
    that).  `pause`: between its last two renewals.  `crashed_at`: when a process
    of its shard was found to have ended, and not in order.  `unrenewed`: the lease
    was out of date when its shard was first seen to hold it, and has not been renewed since.
    """

    held_since: float = float("-inf")
    pause: float = 0.0
    crashed_at: tuple[float, ...] = ()
    unrenewed: bool = False

    @property
    def doubts(self) -> tuple[object, ...]:
        """What keeps others from giving their objects away to its shard, while it holds its lease."""
        return self.crashed_at, self.unrenewed


def follow(
    known: History, before: Lease | None, observed_at: float, lease: Lease, now: float, *, out_of_date: bool = False
) -> History:
    """The history once `lease` is observed at `now`, after `before` since `observed_at` (`None`: there was none).

    `out_of_date`: by the times in it, it had run out before it was seen.
    """
    # Left to its next incarnation, it was given back all the same.
    if before is not None and before.held_by_shard and not before.left and _crashed(before, lease):
        known = replace(known, crashed_at=(*known.crashed_at, now)[-MAX_CRASHES:])
    if not lease.held_by_shard:
        return known
    if before is not None and before.held_by_shard and not _begins(before, lease):
        renewed = before.spec.renew_time != lease.spec.renew_time
        return replace(known, pause=now - observed_at, unrenewed=known.unrenewed and not renewed)
    held_since = now if before is not None or known.crashed_at else known.held_since
    return replace(known, held_since=held_since, pause=0.0, unrenewed=out_of_date)


def _crashed(before: Lease, lease: Lease) -> bool:
    """Whether the process that held a lease before has not ended in order, or says itself that it has failed."""
    return lease.ended_in_failure or lease.holder == SHARDER_HOLDER or _goes_on(before, lease)


def _begins(before: Lease, lease: Lease) -> bool:
    """Whether another process of its shard holds a lease than before."""
    return (before.left and not lease.left) or _goes_on(before, lease)


def _goes_on(before: Lease, lease: Lease) -> bool:
    """Whether another process of its shard goes on with a lease that nobody has given back.

    Nor given back and acquired again unseen: that counts as a transition.  Who does not say which process it is
    (client-go) writes the same after a crash, too.
    """
    was, now = before.instance, lease.instance
    if not (was and now and lease.held_by_shard):
        return False
    if before.metadata.uid != lease.metadata.uid:
        return False  # somebody has deleted it, and its shard has made it again
    same = before.spec.acquire_time == lease.spec.acquire_time and was == now
    return not same and before.spec.lease_transitions == lease.spec.lease_transitions


def is_silent(facts: LeaseFacts, history: History, proof: Proof) -> bool:
    """Whether a shard that holds its lease has missed its renewals, in time in which it could have made them."""
    patience = max(SILENT_SHARE * facts.duration_seconds, SILENT_PAUSES * history.pause, SILENT_SECONDS)
    return facts.held_by_shard and proof.until - max(facts.observed_at, proof.since) > patience


def is_unsteady(facts: LeaseFacts, history: History, now: float) -> bool:
    """Whether a shard has crashed lately, and has not held its lease for long enough since it came back."""
    crashes = sum(1 for moment in history.crashed_at if now - moment < CRASH_SECONDS)
    if not crashes or not facts.held_by_shard:
        return False
    durations = min(1 << (crashes - 1), MAX_DURATIONS)
    return now - history.held_since < durations * facts.duration_seconds
