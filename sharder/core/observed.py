"""Leases as this replica has observed them: since when each says what it says, and until when it counts as held.

A lease that says that its shard (or the sharder) holds it is held for one duration
from when that was observed.  But leases are also emptied, deleted and overwritten
by hand, and the shard that held one of those may count on it still.  So an
observation carries over how long whoever held the lease before may do so; nothing
is taken away before that has run out.  Where a watch has told nothing for a while, and a
list shows what somebody made of a lease since, its last renewal may have been seen by
nobody: then that time begins when this shows.  So it does where somebody puts an older copy over
one that its shard holds, which says that the shard has left it, or that the sharder has it; a copy
that says the latter of one that was deleted ends nothing either.

REMAINS is that rule: by what was known of the lease, and by what it says now.

The times that are written in a lease come from another machine's clock; nothing here
compares them with ours.  Two in one lease are compared: for whether they are the same, and to know an older copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sharder.core.liveness import History, follow
from sharder.core.shards import LeaseFacts, facts_of
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.leases import MAX_DURATION_SECONDS, Lease, parse_micro_time

#: A lease of which nothing is known counts as held for this long at least.  Source: wire contract.
UNSEEN_SECONDS: Final = 15.0


class Span(NamedTuple):
    """For so many seconds from then on (monotonic) a lease counts as held; none: it is free."""

    since: float
    seconds: float


FREE: Final = Span(0.0, 0.0)


class ObservedLease(msgspec.Struct, frozen=True):
    """A lease, and since when (monotonic) it has been observed to say this.

    `remains`: for how long it counts as held by who had it before.  `history`: how
    its shard held it before.  `placeholder`: no shard is known to have had it, or one
    of that name before it.
    """

    lease: Lease
    observed_at: float
    remains: Span = FREE
    history: History = msgspec.field(default_factory=History)
    placeholder: bool = False

    @property
    def facts(self) -> LeaseFacts:
        """What the lease says, and since when."""
        return facts_of(self.lease, self.observed_at)

    @property
    def held(self) -> Span:
        """For how long it counts as held at most, whoever holds it."""
        facts = self.facts
        own = Span(self.observed_at, facts.duration_seconds)
        match says(self.lease):
            case Says.RIGHTFUL:
                return own
            case Says.STRANGER:
                own = _bounded(own)
                return Span(max(self.remains.since, own.since), max(self.remains.seconds, own.seconds))
            case Says.RELEASED | Says.EMPTIED:
                return self.remains


@dataclass(frozen=True, slots=True)
class VanishedLease:
    """A lease that is not there any more; `held`: for how long it counts as held nevertheless.

    `placeholder`: no shard is known to have had it, the sharder had made it for a name.
    """

    namespace: str
    name: str
    held: Span
    history: History
    placeholder: bool = False


class Known(Enum):
    """What was known of a lease; the value says it in words."""

    RIGHTFUL = "held by its shard or the sharder"
    OTHERWISE = "held by a stranger, or by nobody"
    VANISHED = "deleted"
    NOTHING = "never observed"


class Says(Enum):
    """What a lease says now."""

    RIGHTFUL = "held by its shard or the sharder"
    RELEASED = "released"
    EMPTIED = "emptied"
    STRANGER = "held by a stranger"


class Remains(Enum):
    """For how long a lease counts as held by who had it before."""

    NOT = "no longer"
    AS_BEFORE = "as long as before"
    LONGEST = "the longest lease duration of the ring, from now on"


#: What remains of a hold, by what was known of the lease and what it says now.  A release
#: counts only from who may give the lease away: emptying what somebody took by hand does
#: not end the hold that its shard may still count on.
REMAINS: Final[Mapping[tuple[Known, Says], Remains]] = MappingProxyType(
    {
        (Known.RIGHTFUL, Says.RIGHTFUL): Remains.NOT,
        (Known.RIGHTFUL, Says.RELEASED): Remains.NOT,
        (Known.RIGHTFUL, Says.EMPTIED): Remains.AS_BEFORE,
        (Known.RIGHTFUL, Says.STRANGER): Remains.AS_BEFORE,
        (Known.OTHERWISE, Says.RIGHTFUL): Remains.NOT,
        (Known.OTHERWISE, Says.RELEASED): Remains.AS_BEFORE,
        (Known.OTHERWISE, Says.EMPTIED): Remains.AS_BEFORE,
        (Known.OTHERWISE, Says.STRANGER): Remains.AS_BEFORE,
        (Known.VANISHED, Says.RIGHTFUL): Remains.NOT,
        (Known.VANISHED, Says.RELEASED): Remains.AS_BEFORE,
        (Known.VANISHED, Says.EMPTIED): Remains.AS_BEFORE,
        (Known.VANISHED, Says.STRANGER): Remains.AS_BEFORE,
        (Known.NOTHING, Says.RIGHTFUL): Remains.NOT,
        (Known.NOTHING, Says.RELEASED): Remains.NOT,
        (Known.NOTHING, Says.EMPTIED): Remains.LONGEST,
        (Known.NOTHING, Says.STRANGER): Remains.LONGEST,
    }
)


def observe(
    known: ObservedLease | VanishedLease | None,
    lease: Lease,
    now: float,
    others: Iterable[ObservedLease],
    *,
    out_of_date: bool = False,
) -> ObservedLease:
    """The lease as observed at `now`, after what was `known` of it (`None`: nothing); `others`: the ring's leases.

    `out_of_date`: as of `follow`.
    """
    if isinstance(known, ObservedLease) and _says_the_same(known.lease, lease):
        return replace(known, lease=lease)
    history = known.history if known is not None else History()
    if isinstance(known, ObservedLease):
        history = follow(history, known.lease, known.observed_at, lease, now, out_of_date=out_of_date)
    else:
        history = follow(history, None, now, lease, now, out_of_date=out_of_date)
    placeholder = lease.placeholder and (known is None or known.placeholder)
    return ObservedLease(lease, now, _remains(known, lease, now, others), history, placeholder)


def vanish(known: ObservedLease, last: Lease | None, now: float) -> VanishedLease:
    """What is remembered of a lease that is found deleted at `now`; `last` is it as it was then (`None`: unseen)."""
    meta = known.lease.metadata
    held = _carried_over(known, last, now)
    return VanishedLease(meta.namespace, meta.name, held, known.history, known.placeholder)


def says(lease: Lease) -> Says:
    """What a lease says now."""
    if lease.holder in (lease.metadata.name, SHARDER_HOLDER):
        return Says.RIGHTFUL
    if lease.holder:
        return Says.STRANGER
    return Says.RELEASED if facts_of(lease, 0.0).released else Says.EMPTIED


def longest_duration(leases: Iterable[ObservedLease]) -> float:
    """The longest lease duration among a ring's leases, at least 15 s; no shard that has anything asks for too long."""
    return longest_of(each.lease for each in leases)


def longest_of(leases: Iterable[Lease]) -> float:
    """The same of leases as they were read, of which nobody has seen the history."""
    durations = (each.duration_seconds for each in leases)
    return max([UNSEEN_SECONDS, *(each for each in durations if each <= MAX_DURATION_SECONDS)])


def presumed_seconds(lease: Lease | None, others: Iterable[Lease]) -> float:
    """For how long a lease (`None`: it is gone) counts as held of which nobody knows who had it; `others`: the ring's.

    By its own duration, too: whoever takes a lease away leaves that, as a rule, and of others some may not be read yet.
    """
    own = 0 if lease is None else min(lease.duration_seconds, MAX_DURATION_SECONDS)
    return max(own, longest_of(others))


def held_until(
    observed: ObservedLease | None,
    vanished: Iterable[VanishedLease],
    missing_since: float,
    others: Iterable[ObservedLease],
    proven_since: Callable[[float], float],
) -> float:
    """Until when a lease counts as held by who had it before what it says now (0: it is free).

    `observed` `None`: there is no lease of that name.  `vanished`: those of that name that
    are gone.  `missing_since`: since when one is missed of which nothing is known.
    `proven_since(duration)`: since when time counts against a lease of that duration.
    """
    gone = vanished_until(vanished, proven_since)
    if observed is not None:
        if says(observed.lease) is Says.RIGHTFUL:
            return _end(observed.remains, proven_since)
        # One that we made in another namespace, and gave back, says nothing of the shard's own.
        return max(_end(observed.held, proven_since), gone or 0.0)
    return gone if gone is not None else _end(Span(missing_since, longest_duration(others)), proven_since)


def shard_held_until(
    observed: ObservedLease | None,
    vanished: Iterable[VanishedLease],
    missing_since: float,
    others: Iterable[ObservedLease],
    proven_since: Callable[[float], float],
) -> float:
    """The same for the shard alone: what a stranger goes on renewing is no hold that the shard may count on."""
    if observed is None or says(observed.lease) is not Says.STRANGER:
        return held_until(observed, vanished, missing_since, others, proven_since)
    return max(_end(observed.remains, proven_since), vanished_until(vanished, proven_since) or 0.0)


def vanished_until(vanished: Iterable[VanishedLease], proven_since: Callable[[float], float]) -> float | None:
    """Until when leases count as held that are gone; `None`: there are none."""
    return max((_end(gone.held, proven_since) for gone in vanished), default=None)


def _end(held: Span, proven_since: Callable[[float], float]) -> float:
    # Time that no commit proves lets nothing run out.
    return max(held.since, proven_since(held.seconds)) + held.seconds if held.seconds else 0.0


def _remains(
    known: ObservedLease | VanishedLease | None, lease: Lease, now: float, others: Iterable[ObservedLease]
) -> Span:
    match REMAINS[_what_was(known), says(lease)]:
        case Remains.NOT if isinstance(known, ObservedLease) and _is_set_back(known.lease, lease):
            return _carried_over(known, lease, now)
        case Remains.NOT if isinstance(known, VanishedLease) and lease.holder == SHARDER_HOLDER:
            return _bounded(known.held)  # a copy of when it was taken, say, of one that its shard held
        case Remains.NOT if isinstance(known, ObservedLease) and not lease.held_by_shard and now < sum(known.remains):
            return known.remains  # another copy: whoever takes it by what is so has waited
        case Remains.NOT:
            return FREE
        case Remains.AS_BEFORE:
            if isinstance(known, ObservedLease) and says(known.lease) is Says.STRANGER:
                return known.remains  # what a stranger renews is its own, and not the shard's that had it before
            if isinstance(known, ObservedLease):
                return _carried_over(known, lease, now)
            return _bounded(known.held) if known is not None else FREE
        case Remains.LONGEST:
            return Span(now, presumed_seconds(lease, (each.lease for each in others)))


def _is_set_back(known: Lease, lease: Lease) -> bool:
    """Whether an older copy that says something else was put over a lease that its shard held, by a restore, say.

    Whoever gives a lease away, or takes one, leaves its number of transitions or counts it up; and does so after it was
    acquired.  The number alone does not tell: one that was deleted since the copy was made counts from 0 again.  A
    wall clock behind by more than the lease was held for makes another look like one, which then counts a while longer.
    """
    if not known.held_by_shard or lease.held_by_shard:
        return False  # as with each renewal
    fewer = (lease.spec.lease_transitions or 0) < (known.spec.lease_transitions or 0)
    acquired, renewed = parse_micro_time(known.spec.acquire_time), parse_micro_time(lease.spec.renew_time)
    before = acquired is not None and renewed is not None and renewed < acquired
    return fewer or before


def _carried_over(known: ObservedLease, after: Lease | None, now: float) -> Span:
    """For how long a lease that somebody took away counts as held by who had it, whose last renewal nobody may know.

    Whoever empties or deletes one leaves the time of that renewal in it, by which it is known; a stranger does not.
    """
    held = _bounded(known.held)
    unseen = after is None or after.spec.renew_time != known.lease.spec.renew_time
    return held._replace(since=now) if unseen and says(known.lease) is Says.RIGHTFUL else held


def _bounded(held: Span) -> Span:
    """Nobody who may count on a lease does so for longer than a shard may; whoever did was no shard of the ring."""
    return Span(held.since, min(held.seconds, MAX_DURATION_SECONDS))


def _what_was(known: ObservedLease | VanishedLease | None) -> Known:
    match known:
        case None:
            return Known.NOTHING
        case VanishedLease():
            return Known.VANISHED
        case ObservedLease():
            return Known.RIGHTFUL if says(known.lease) is Says.RIGHTFUL else Known.OTHERWISE


def _says_the_same(one: Lease, other: Lease) -> bool:
    # Labels (the state that we write ourselves) and unrelated annotations renew nothing.
    return (
        one.spec == other.spec
        and one.instance == other.instance
        and one.fenced == other.fenced
        and one.metadata.uid == other.metadata.uid
    )
