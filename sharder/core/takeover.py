"""What the sharder does with the lease of a shard that is gone.

Does: decide, from facts and `now`, whether to wait for a shard's lease, acquire
or create it, renew it, give it back or delete it.  Whoever holds shard Y's lease
is the only one who may take objects away from Y, so this is where two owners
would begin.

Refuses: to read a clock, to write, to guess.  A lease found in the sharder's
name is no hold until this leader has renewed it; a lease that vanished counts
as held until it would have run out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from sharder.core.shards import ORPHANED_AFTER_SECONDS, LeaseFacts, Standing, State
from shardsdk.protocol.labels import SHARDER_HOLDER

#: A released lease is acquired for at least this long.  Source: wire contract.
MIN_HOLD_SECONDS: Final = 15.0
#: How long a hold without progress lasts before it is given back.
STALL_SECONDS: Final = 60.0
#: Pause before a lease that was given back for lack of progress is acquired again.
RETRY_AFTER_STALL_SECONDS: Final = 60.0
#: From the last move to giving the lease back: foreign shards' watches may lag.
RETURN_AFTER_SECONDS: Final = 3.0
#: A hold is renewed when this part of it is used up.
RENEW_AFTER_FRACTION: Final = 1 / 3


class Act(Enum):
    """What to do with the lease."""

    WAIT = "nothing to do now"
    ACQUIRE = "write ourselves as the holder, conditional on the version we saw"
    CREATE = "create the lease in our name; fails when the shard was faster"
    RENEW = "write ourselves as the holder again"
    GIVE_BACK = "empty the holder"
    DELETE = "delete the lease"


@dataclass(frozen=True, slots=True)
class Limits:
    """The durations above, so that tests can live faster."""

    min_hold_seconds: float = MIN_HOLD_SECONDS
    stall_seconds: float = STALL_SECONDS
    retry_after_stall_seconds: float = RETRY_AFTER_STALL_SECONDS
    return_after_seconds: float = RETURN_AFTER_SECONDS
    orphaned_after_seconds: float = ORPHANED_AFTER_SECONDS


DEFAULT_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Custody:
    """All that is known about one lease; times in seconds on the monotonic clock.

    `facts` and `standing` are `None` where no lease exists.  `presumed_until`:
    until when a lease that nobody seems to hold still counts as held (0: free).
    `hold_until`: end of this leader's own confirmed hold (`None`: it has none).
    `work_left`: objects still carry the shard's label (`None`: not known yet).
    `last_move_at`, `progress_at`: when an object last moved under this hold, and
    when anything last went forward (acquiring counts).  `barred_until`: no
    acquiring before that.
    """

    facts: LeaseFacts | None
    standing: Standing | None
    presumed_until: float
    hold_until: float | None
    hold_seconds: float
    ready_elsewhere: bool
    available_elsewhere: bool
    work_left: bool | None
    last_move_at: float
    progress_at: float
    barred_until: float


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now, why, and when to look again (`None`: when something changes)."""

    act: Act
    reason: str
    look_again_at: float | None = None


def decide_custody(custody: Custody, now: float, limits: Limits = DEFAULT_LIMITS) -> Step:
    """Decide the next step for one lease."""
    facts, standing = custody.facts, custody.standing
    if facts is None or standing is None:
        return _absent(custody, now)
    if facts.holder == SHARDER_HOLDER:
        return _ours(custody, facts, now, limits)
    if facts.holder == facts.name:
        return _held_by_shard(custody, standing)
    return _free(custody, standing, now)


def hold_seconds(facts: LeaseFacts | None, limits: Limits = DEFAULT_LIMITS) -> float:
    """How long the sharder holds the lease it acquires: twice what the shard asked for.

    A released lease says one second, so there is a floor for everything that
    the shard did not hold to its end.
    """
    if facts is None:
        return limits.min_hold_seconds
    if facts.holder == facts.name:
        return 2 * facts.duration_seconds
    if facts.holder == SHARDER_HOLDER:
        return max(facts.duration_seconds, 1.0)
    return max(2 * facts.duration_seconds, limits.min_hold_seconds)


def _absent(custody: Custody, now: float) -> Step:
    if not custody.work_left:
        return Step(Act.WAIT, "no lease, and no object known to carry the shard's label")
    return _take(custody, now, Act.CREATE)


def _held_by_shard(custody: Custody, standing: Standing) -> Step:
    if standing.state is not State.UNCERTAIN:
        return Step(Act.WAIT, "held by its shard", standing.look_again_at)
    if not custody.ready_elsewhere:
        return Step(Act.WAIT, "not renewed in time, but no other shard is ready to take its objects")
    return Step(Act.ACQUIRE, "not renewed in time")


def _free(custody: Custody, standing: Standing, now: float) -> Step:
    if custody.work_left is None:
        return Step(Act.WAIT, "not known yet whether objects carry the shard's label", standing.look_again_at)
    if custody.work_left:
        return _take(custody, now, Act.ACQUIRE)
    if standing.state is not State.ORPHANED:
        return Step(Act.WAIT, "nobody holds it and nothing is left to move", standing.look_again_at)
    if now < custody.presumed_until:
        return Step(Act.WAIT, "counts as held until it would have run out", custody.presumed_until)
    return Step(Act.DELETE, "no object carries the shard's label any more")


def _take(custody: Custody, now: float, act: Act) -> Step:
    if now < custody.presumed_until:
        return Step(Act.WAIT, "counts as held until it would have run out", custody.presumed_until)
    if now < custody.barred_until:
        return Step(Act.WAIT, "given back for lack of progress a moment ago", custody.barred_until)
    if not custody.ready_elsewhere:
        return Step(Act.WAIT, "no other shard is ready to take its objects")
    return Step(act, "its objects are to be moved")


def _ours(custody: Custody, facts: LeaseFacts, now: float, limits: Limits) -> Step:
    if not custody.available_elsewhere:
        return Step(Act.GIVE_BACK, "no other shard is left that could take its objects")
    confirmed = custody.hold_until is not None and now < custody.hold_until
    settled_at = (custody.last_move_at if confirmed else max(custody.last_move_at, facts.seen_at)) + (
        limits.return_after_seconds
    )
    if custody.work_left is False and now >= settled_at:
        return Step(Act.GIVE_BACK, "all its objects have moved")
    stalled_at = custody.progress_at + limits.stall_seconds
    if confirmed and now >= stalled_at:
        return Step(Act.GIVE_BACK, "nothing has moved for too long")
    if not confirmed:
        if custody.work_left is False:
            return Step(Act.WAIT, "found in our name with nothing left to move", settled_at)
        if custody.work_left is None:
            return Step(Act.WAIT, "found in our name; not known yet whether objects carry the shard's label")
        if now < custody.barred_until:
            return Step(Act.WAIT, "given back for lack of progress a moment ago", custody.barred_until)
        return Step(Act.RENEW, "found in our name, or our hold has run out")
    assert custody.hold_until is not None
    renew_at = custody.hold_until - custody.hold_seconds * (1 - RENEW_AFTER_FRACTION)
    if now >= renew_at:
        return Step(Act.RENEW, "its objects are still moving")
    look = min(renew_at, stalled_at, settled_at) if custody.work_left is False else min(renew_at, stalled_at)
    return Step(Act.WAIT, "we hold it", look)
