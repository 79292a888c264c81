"""What the sharder does with the lease of a shard that is gone.

Whoever holds shard Y's lease is the only one who may take objects away from Y, so
this is where two owners would begin.  From facts and `now` follows whether to wait
for a shard's lease, acquire or create it, renew it, give it back or delete it.

RULES is the decision: a list for each way in which a lease can be held, read from
the top; the first rule whose condition holds says what to do, why, and when to
look again.  The order carries meaning: whatever speaks against an act stands above
it.

A lease found in the sharder's name is no hold until this leader has renewed it; a
lease that vanished counts as held until it would have run out (see `observed`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from types import MappingProxyType
from typing import Final

from sharder.core.shards import ORPHANED_AFTER_SECONDS, LeaseFacts, ShardState, State
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
    TRY = "ask by a dry run whether that write would be taken; where none is let through, by the write itself"
    CREATE = "create the lease in our name; fails when the shard was faster"
    RENEW = "write ourselves as the holder again"
    GIVE_BACK = "empty the holder"
    DELETE = "delete the lease"


class Why(Enum):
    """Which rule applies; the value says it in words, for the log."""

    NOTHING_KNOWN_LEFT = "no lease, and no object known to carry the shard's label"
    PRESUMED_HELD = "counts as held until it would have run out"
    BARRED = "given back for lack of progress a moment ago"
    NOBODY_READY = "no other shard is ready to take its objects"
    OBJECTS_LEFT = "its objects are to be moved"
    HELD = "held by its shard"
    ABANDONED = "not renewed in time, but no other shard is ready to take its objects"
    REFUSED = "not renewed in time, but nobody may have been able to write it"
    SPARED = "not renewed in time, but its shard may not have been able to"
    RAN_OUT = "not renewed in time"
    UNKNOWN = "not known yet whether objects carry the shard's label"
    NOTHING_LEFT = "nobody holds it and nothing is left to move"
    ORPHANED = "no object carries the shard's label any more"
    NOBODY_AVAILABLE = "no other shard is left that could take its objects"
    MOVED = "all its objects have moved"
    FOUND_EMPTY = "found in our name with nothing left to move"
    FOUND_UNKNOWN = "found in our name; not known yet whether objects carry the shard's label"
    FOUND = "found in our name, or our hold has run out"
    STALLED = "nothing has moved for too long"
    MOVING = "its objects are still moving"
    OURS = "we hold it"


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
class TakeoverFacts:
    """All that is known about one lease; times in seconds on the monotonic clock.

    `lease` and `state` are `None` where no lease exists.  `presumed_until`:
    until when a lease that nobody seems to hold still counts as held (0: free).
    `spared_until`: until when its shard, which could not renew it either as far as anybody
    knows, is given to come back after a write of ours was refused (0: none was; infinity: it still is); once,
    until it is ready again.
    `hold_until`: end of this leader's own hold, by its last confirmed write (`None`:
    it has none).  `lives_elsewhere`: a shard of this name holds another lease.
    `objects_left`: objects still carry the name (`None`: not known yet).
    `last_move_at`, `progress_at`: when an object last moved under this hold, and
    when anything last went forward (acquiring counts).  `barred_until`: no
    acquiring before that.
    """

    lease: LeaseFacts | None
    state: ShardState | None
    presumed_until: float
    spared_until: float
    hold_until: float | None
    hold_seconds: float
    ready_elsewhere: bool
    available_elsewhere: bool
    lives_elsewhere: bool
    objects_left: bool | None
    last_move_at: float
    progress_at: float
    barred_until: float

    @property
    def work_left(self) -> bool | None:
        """Whether objects are left to take away under this lease (`None`: not known yet).

        What carries the name of a shard that lives under another lease belongs to that one.
        """
        if self.lives_elsewhere and (self.lease is None or not self.lease.held_by_shard):
            return False
        return self.objects_left


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now, why, and when to look again (`None`: when something changes)."""

    act: Act
    why: Why
    look_again_at: float | None = None


class Holder(Enum):
    """Who holds a lease, as this leader sees it; the value says it in words."""

    ABSENT = "there is no lease"
    SHARD = "its shard"
    OTHER = "nobody, or anyone else"
    FOUND = "the sharder, but not by a write of this leader that still counts"
    OURS = "this leader"


@dataclass(frozen=True, slots=True)
class _Case:
    """The facts at one moment, and the moments that follow from them."""

    facts: TakeoverFacts
    holder: Holder
    now: float
    limits: Limits

    @property
    def settled_at(self) -> float:
        """From when on every watch has shown the last move; who was leading before may have made it until now."""
        lease, moved_at = self.facts.lease, self.facts.last_move_at
        if self.holder is Holder.FOUND and lease is not None:
            moved_at = max(moved_at, lease.observed_at)
        return moved_at + self.limits.return_after_seconds

    @property
    def stalled_at(self) -> float:
        """From when on a hold is in vain."""
        return self.facts.progress_at + self.limits.stall_seconds

    @property
    def renew_at(self) -> float:
        """When the hold is to be renewed."""
        assert self.facts.hold_until is not None
        return self.facts.hold_until - self.facts.hold_seconds * (1 - RENEW_AFTER_FRACTION)

    @property
    def next_due(self) -> float:
        """When the next of these comes that concerns a hold."""
        moments = (self.renew_at, self.stalled_at)
        return min(*moments, self.settled_at) if self.facts.work_left is False else min(moments)


@dataclass(frozen=True, slots=True)
class When:
    """The condition of a rule."""

    words: str
    holds: Callable[[_Case], bool]


@dataclass(frozen=True, slots=True)
class Moment:
    """When to look again."""

    words: str
    of: Callable[[_Case], float | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """What is done in a case for which no rule above this one holds."""

    when: When
    act: Act
    why: Why
    look_again: Moment | None = None

    def step(self, case: _Case) -> Step:
        """What to do in this case."""
        return Step(self.act, self.why, self.look_again.of(case) if self.look_again is not None else None)


OTHERWISE: Final = When("otherwise", lambda _: True)
NOTHING_KNOWN_LEFT: Final = When("no object is known to carry the shard's name", lambda case: not case.facts.work_left)
UNKNOWN: Final = When(
    "it is not known yet whether objects carry the shard's name", lambda case: case.facts.work_left is None
)
EMPTY: Final = When("no object carries the shard's name", lambda case: case.facts.work_left is False)
EMPTY_AND_SETTLED: Final = When(
    "no object carries the shard's name, and the last move was some seconds ago",
    lambda case: case.facts.work_left is False and case.now >= case.settled_at,
)
EMPTY_AND_RECENT: Final = When(
    "no object carries the shard's name, and the lease is not `orphaned`",
    lambda case: case.facts.work_left is False and not _is(State.ORPHANED, case),
)
PRESUMED_HELD: Final = When(
    "whoever held it last may still count on it", lambda case: case.now < case.facts.presumed_until
)
BARRED: Final = When(
    "it was given back for lack of progress a moment ago", lambda case: case.now < case.facts.barred_until
)
NOT_OVERDUE: Final = When("the lease is not `uncertain`", lambda case: not _is(State.UNCERTAIN, case))
REFUSED: Final = When(
    "a write of it was refused, or not answered, since its shard renewed it",
    lambda case: case.facts.spared_until == inf,
)
SPARED: Final = When(
    "since one would be taken again, its shard has not had its whole duration to come back",
    lambda case: case.now < case.facts.spared_until,
)
NOBODY_READY: Final = When("no other shard is ready", lambda case: not case.facts.ready_elsewhere)
NOBODY_AVAILABLE: Final = When("no other shard is available", lambda case: not case.facts.available_elsewhere)
STALLED: Final = When("nothing has moved for too long", lambda case: case.now >= case.stalled_at)
RENEWAL_DUE: Final = When("a third of the hold is used up", lambda case: case.now >= case.renew_at)

STATE_CHANGES: Final = Moment("the state may change", lambda case: case.facts.state and case.facts.state.look_again_at)
NOT_PRESUMED: Final = Moment("it would have run out", lambda case: case.facts.presumed_until)
NOT_SPARED: Final = Moment("it has had that", lambda case: case.facts.spared_until)
NOT_BARRED: Final = Moment("it may be acquired again", lambda case: case.facts.barred_until)
SETTLED: Final = Moment("some seconds after the last move", lambda case: case.settled_at)
NEXT_DUE: Final = Moment("the next of these is due", lambda case: case.next_due)

#: What is done, by who holds the lease; read from the top, the first rule that holds decides.
RULES: Final[Mapping[Holder, tuple[Rule, ...]]] = MappingProxyType(
    {
        Holder.ABSENT: (
            Rule(NOTHING_KNOWN_LEFT, Act.WAIT, Why.NOTHING_KNOWN_LEFT),
            Rule(PRESUMED_HELD, Act.WAIT, Why.PRESUMED_HELD, NOT_PRESUMED),
            Rule(BARRED, Act.WAIT, Why.BARRED, NOT_BARRED),
            Rule(NOBODY_READY, Act.WAIT, Why.NOBODY_READY),
            Rule(OTHERWISE, Act.CREATE, Why.OBJECTS_LEFT),
        ),
        Holder.SHARD: (
            Rule(NOT_OVERDUE, Act.WAIT, Why.HELD, STATE_CHANGES),
            Rule(NOBODY_READY, Act.WAIT, Why.ABANDONED),
            Rule(REFUSED, Act.TRY, Why.REFUSED),
            Rule(SPARED, Act.WAIT, Why.SPARED, NOT_SPARED),
            Rule(OTHERWISE, Act.ACQUIRE, Why.RAN_OUT),
        ),
        Holder.OTHER: (
            Rule(UNKNOWN, Act.WAIT, Why.UNKNOWN, STATE_CHANGES),
            Rule(EMPTY_AND_RECENT, Act.WAIT, Why.NOTHING_LEFT, STATE_CHANGES),
            Rule(PRESUMED_HELD, Act.WAIT, Why.PRESUMED_HELD, NOT_PRESUMED),
            Rule(EMPTY, Act.DELETE, Why.ORPHANED),
            Rule(BARRED, Act.WAIT, Why.BARRED, NOT_BARRED),
            Rule(NOBODY_READY, Act.WAIT, Why.NOBODY_READY),
            Rule(OTHERWISE, Act.ACQUIRE, Why.OBJECTS_LEFT),
        ),
        Holder.FOUND: (
            Rule(PRESUMED_HELD, Act.WAIT, Why.PRESUMED_HELD, NOT_PRESUMED),
            Rule(NOBODY_AVAILABLE, Act.GIVE_BACK, Why.NOBODY_AVAILABLE),
            Rule(EMPTY_AND_SETTLED, Act.GIVE_BACK, Why.MOVED),
            Rule(EMPTY, Act.WAIT, Why.FOUND_EMPTY, SETTLED),
            Rule(UNKNOWN, Act.WAIT, Why.FOUND_UNKNOWN),
            Rule(BARRED, Act.WAIT, Why.BARRED, NOT_BARRED),
            Rule(OTHERWISE, Act.RENEW, Why.FOUND),
        ),
        Holder.OURS: (
            Rule(NOBODY_AVAILABLE, Act.GIVE_BACK, Why.NOBODY_AVAILABLE),
            Rule(EMPTY_AND_SETTLED, Act.GIVE_BACK, Why.MOVED),
            Rule(STALLED, Act.GIVE_BACK, Why.STALLED),
            Rule(RENEWAL_DUE, Act.RENEW, Why.MOVING),
            Rule(OTHERWISE, Act.WAIT, Why.OURS, NEXT_DUE),
        ),
    }
)


def decide_takeover(facts: TakeoverFacts, now: float, limits: Limits = DEFAULT_LIMITS) -> Step:
    """The next step for one lease; total."""
    holder = holder_of(facts, now)
    case = _Case(facts, holder, now, limits)
    return next(rule for rule in RULES[holder] if rule.when.holds(case)).step(case)


def holder_of(facts: TakeoverFacts, now: float) -> Holder:
    """Who holds the lease."""
    lease = facts.lease
    if lease is None:
        return Holder.ABSENT
    if lease.holder == SHARDER_HOLDER:
        confirmed = facts.hold_until is not None and now < facts.hold_until
        return Holder.OURS if confirmed else Holder.FOUND
    return Holder.SHARD if lease.held_by_shard else Holder.OTHER


def hold_seconds(lease: LeaseFacts | None, limits: Limits = DEFAULT_LIMITS) -> float:
    """How long the sharder holds the lease it acquires: twice what the shard asked for.

    A released lease says one second, so there is a floor for everything that
    the shard did not hold to its end.
    """
    if lease is None:
        return limits.min_hold_seconds
    if lease.held_by_shard:
        return 2 * lease.duration_seconds
    if lease.holder == SHARDER_HOLDER:
        return max(lease.duration_seconds, 1.0)
    return max(2 * lease.duration_seconds, limits.min_hold_seconds)


def needs_no_look(shown: str | None, state: ShardState, *, held: bool, may_lag: bool, looks_at: float) -> bool:
    """Whether a renewal by its shard may be left to the look that is due already, at `looks_at`.

    `shown`: the state that the lease's label says.  `held`: this leader counts on a hold.
    `may_lag`: the cache may lag behind a write of ours.
    """
    return (
        state.state is State.READY
        and shown == state.state.value
        and not held
        and not may_lag
        and state.look_again_at is not None
        and looks_at <= state.look_again_at
    )


def _is(state: State, case: _Case) -> bool:
    return case.facts.state is not None and case.facts.state.state is state
