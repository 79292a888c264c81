"""How far a shard is with each part of the space, and how that changes: a literal table.

    named ──> written into the lease ──> looked at, live ──> worked on
    not named any more ──> what runs ends ──> taken off the lease
    the look finds somebody else there ──> taken off the lease ──> a pause ──> again

`TRANSITIONS` speaks of one point; `Parts` takes its steps for ranges of points at once,
and says what follows: what the lease is to hold, what is worked on, whether a look is due.

A point is worked on only after a write of the lease that holds it was confirmed, and
after a look that *began* after that has read the RingAssignment and then the Leases of
the ring's other shards, found it named for this shard and held by no other.  It stays on
the lease until nothing works on it.  So of two shards that both want a point at least
one sees the other, whatever anybody writes into the assignment meanwhile.

Which write of the lease was confirmed is told by the number of what it held: one of an
older number says nothing, since a newer one may be on its way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from shardsdk.protocol.leases import Lease
from shardsdk.protocol.ranges import EVERYWHERE, HELD_RANGES_ANNOTATION, NOWHERE, HashRanges, Named

#: How long a shard waits after a look that was refused, at first and at most; doubles with
#: each in a row, and half of it is chance: two that have met do not meet again for ever.
PAUSE_SECONDS: Final = (0.1, 5.0)


class Part(Enum):
    """How far a shard is with a point."""

    OTHERS = "it is no business of this shard's"
    FLAGGING = "the shard is named; its lease has yet to say that it holds it"
    FLAGGED = "the lease says so; a look has to confirm it"
    LOOKING = "a look that began after that is under way"
    WORKING = "its objects are this shard's"
    ENDING = "nothing begins there any more; what runs and what was written is waited for"
    LEAVING = "nothing works on it; the lease has yet to say so"
    WAITING = "the look was refused: it is off the lease, and flagged anew after a pause"


class Heard(Enum):
    """What happens to a point."""

    NAMED = "the assignment names this shard"
    UNNAMED = "the assignment names another shard, or nobody"
    UNKNOWN = "the assignment is gone, or cannot be read"
    WRITTEN = "the newest write of the lease was confirmed, and holds it"
    CLEARED = "the newest write of the lease was confirmed, and does not hold it"
    LOOKED = "a look begins"
    CONFIRMED = "the look has found this shard named, and nobody else who holds it"
    REFUSED = "the look has found otherwise, or has failed"
    ENDED = "what ran there has ended, and all writes are settled"
    RETRIED = "the pause is over"
    LOST = "the lease is lost"


@dataclass(frozen=True, slots=True)
class Step:
    """What an event leads to, and why."""

    to: Part
    why: str


_STAYS: Final = "nothing changes"
_OVER: Final = "who has no lease has nothing"
_NOT_TWICE: Final = "what was being given up is given up first, and then begun with anew"

#: Every state with every event that it may meet.
TRANSITIONS: Final[Mapping[tuple[Part, Heard], Step]] = {
    (Part.OTHERS, Heard.NAMED): Step(Part.FLAGGING, "others have to see it before this shard looks for them"),
    (Part.OTHERS, Heard.UNNAMED): Step(Part.OTHERS, _STAYS),
    (Part.OTHERS, Heard.UNKNOWN): Step(Part.OTHERS, "nothing new is taken"),
    (Part.OTHERS, Heard.WRITTEN): Step(Part.OTHERS, "the next write takes it off"),
    (Part.OTHERS, Heard.CLEARED): Step(Part.OTHERS, _STAYS),
    (Part.OTHERS, Heard.LOOKED): Step(Part.OTHERS, _STAYS),
    (Part.OTHERS, Heard.CONFIRMED): Step(Part.OTHERS, "it is not wanted any more"),
    (Part.OTHERS, Heard.REFUSED): Step(Part.OTHERS, _STAYS),
    (Part.OTHERS, Heard.ENDED): Step(Part.OTHERS, _STAYS),
    (Part.OTHERS, Heard.RETRIED): Step(Part.OTHERS, _STAYS),
    (Part.OTHERS, Heard.LOST): Step(Part.OTHERS, _OVER),
    (Part.FLAGGING, Heard.NAMED): Step(Part.FLAGGING, _STAYS),
    (Part.FLAGGING, Heard.UNNAMED): Step(Part.LEAVING, "the write that holds it may be under way"),
    (Part.FLAGGING, Heard.UNKNOWN): Step(Part.LEAVING, "nothing new is taken"),
    (Part.FLAGGING, Heard.WRITTEN): Step(Part.FLAGGED, "whoever looks from now on sees it"),
    (Part.FLAGGING, Heard.CLEARED): Step(Part.FLAGGING, _STAYS),
    (Part.FLAGGING, Heard.LOOKED): Step(Part.FLAGGING, "a look that begins now proves nothing of it"),
    (Part.FLAGGING, Heard.CONFIRMED): Step(Part.FLAGGING, "that look began too early"),
    (Part.FLAGGING, Heard.REFUSED): Step(Part.FLAGGING, "that look began too early"),
    (Part.FLAGGING, Heard.ENDED): Step(Part.FLAGGING, _STAYS),
    (Part.FLAGGING, Heard.RETRIED): Step(Part.FLAGGING, _STAYS),
    (Part.FLAGGING, Heard.LOST): Step(Part.OTHERS, _OVER),
    (Part.FLAGGED, Heard.NAMED): Step(Part.FLAGGED, _STAYS),
    (Part.FLAGGED, Heard.UNNAMED): Step(Part.LEAVING, "somebody else may be named by now"),
    (Part.FLAGGED, Heard.UNKNOWN): Step(Part.LEAVING, "nothing new is taken"),
    (Part.FLAGGED, Heard.WRITTEN): Step(Part.FLAGGED, _STAYS),
    (Part.FLAGGED, Heard.CLEARED): Step(Part.FLAGGING, "nobody sees it any more"),
    (Part.FLAGGED, Heard.LOOKED): Step(Part.LOOKING, "others have been able to see it since before"),
    (Part.FLAGGED, Heard.CONFIRMED): Step(Part.FLAGGED, "that look began too early"),
    (Part.FLAGGED, Heard.REFUSED): Step(Part.FLAGGED, "that look began too early"),
    (Part.FLAGGED, Heard.ENDED): Step(Part.FLAGGED, _STAYS),
    (Part.FLAGGED, Heard.RETRIED): Step(Part.FLAGGED, _STAYS),
    (Part.FLAGGED, Heard.LOST): Step(Part.OTHERS, _OVER),
    (Part.LOOKING, Heard.NAMED): Step(Part.LOOKING, _STAYS),
    (Part.LOOKING, Heard.UNNAMED): Step(Part.LEAVING, "whatever the look finds is old"),
    (Part.LOOKING, Heard.UNKNOWN): Step(Part.LEAVING, "nothing new is taken"),
    (Part.LOOKING, Heard.WRITTEN): Step(Part.LOOKING, _STAYS),
    (Part.LOOKING, Heard.CLEARED): Step(Part.FLAGGING, "nobody sees it any more, so that the look proves nothing"),
    (Part.LOOKING, Heard.LOOKED): Step(Part.LOOKING, _STAYS),
    (Part.LOOKING, Heard.CONFIRMED): Step(Part.WORKING, "whoever wants it from now on sees that it is held"),
    (Part.LOOKING, Heard.REFUSED): Step(Part.WAITING, "whoever else wants it must not see it held for ever"),
    (Part.LOOKING, Heard.ENDED): Step(Part.LOOKING, _STAYS),
    (Part.LOOKING, Heard.RETRIED): Step(Part.LOOKING, _STAYS),
    (Part.LOOKING, Heard.LOST): Step(Part.OTHERS, _OVER),
    (Part.WORKING, Heard.NAMED): Step(Part.WORKING, _STAYS),
    (Part.WORKING, Heard.UNNAMED): Step(Part.ENDING, "another shard is to have it"),
    (Part.WORKING, Heard.UNKNOWN): Step(Part.WORKING, "nobody is known to be named for it instead"),
    (Part.WORKING, Heard.WRITTEN): Step(Part.WORKING, _STAYS),
    (Part.WORKING, Heard.CLEARED): Step(Part.ENDING, "nobody sees it any more"),
    (Part.WORKING, Heard.LOOKED): Step(Part.WORKING, _STAYS),
    (Part.WORKING, Heard.CONFIRMED): Step(Part.WORKING, _STAYS),
    (Part.WORKING, Heard.REFUSED): Step(Part.WORKING, "the look was for other parts"),
    (Part.WORKING, Heard.ENDED): Step(Part.WORKING, _STAYS),
    (Part.WORKING, Heard.RETRIED): Step(Part.WORKING, _STAYS),
    (Part.WORKING, Heard.LOST): Step(Part.OTHERS, _OVER),
    (Part.ENDING, Heard.NAMED): Step(Part.ENDING, _NOT_TWICE),
    (Part.ENDING, Heard.UNNAMED): Step(Part.ENDING, _STAYS),
    (Part.ENDING, Heard.UNKNOWN): Step(Part.ENDING, _NOT_TWICE),
    (Part.ENDING, Heard.WRITTEN): Step(Part.ENDING, _STAYS),
    (Part.ENDING, Heard.CLEARED): Step(Part.ENDING, "it is ending already"),
    (Part.ENDING, Heard.LOOKED): Step(Part.ENDING, _STAYS),
    (Part.ENDING, Heard.CONFIRMED): Step(Part.ENDING, "the look was for other parts"),
    (Part.ENDING, Heard.REFUSED): Step(Part.ENDING, "the look was for other parts"),
    (Part.ENDING, Heard.ENDED): Step(Part.LEAVING, "another shard may have it"),
    (Part.ENDING, Heard.RETRIED): Step(Part.ENDING, _STAYS),
    (Part.ENDING, Heard.LOST): Step(Part.OTHERS, _OVER),
    (Part.LEAVING, Heard.NAMED): Step(Part.LEAVING, _NOT_TWICE),
    (Part.LEAVING, Heard.UNNAMED): Step(Part.LEAVING, _STAYS),
    (Part.LEAVING, Heard.UNKNOWN): Step(Part.LEAVING, _STAYS),
    (Part.LEAVING, Heard.WRITTEN): Step(Part.LEAVING, _STAYS),
    (Part.LEAVING, Heard.CLEARED): Step(Part.OTHERS, "it is given up"),
    (Part.LEAVING, Heard.LOOKED): Step(Part.LEAVING, _STAYS),
    (Part.LEAVING, Heard.CONFIRMED): Step(Part.LEAVING, "whatever the look has found is old"),
    (Part.LEAVING, Heard.REFUSED): Step(Part.LEAVING, "it is given up already"),
    (Part.LEAVING, Heard.ENDED): Step(Part.LEAVING, _STAYS),
    (Part.LEAVING, Heard.RETRIED): Step(Part.LEAVING, _STAYS),
    (Part.LEAVING, Heard.LOST): Step(Part.OTHERS, _OVER),
    (Part.WAITING, Heard.NAMED): Step(Part.WAITING, "the pause goes on"),
    (Part.WAITING, Heard.UNNAMED): Step(Part.OTHERS, "the look was right"),
    (Part.WAITING, Heard.UNKNOWN): Step(Part.OTHERS, "nothing new is taken"),
    (Part.WAITING, Heard.WRITTEN): Step(Part.WAITING, _STAYS),
    (Part.WAITING, Heard.CLEARED): Step(Part.WAITING, "whoever else wants it may have it meanwhile"),
    (Part.WAITING, Heard.LOOKED): Step(Part.WAITING, _STAYS),
    (Part.WAITING, Heard.CONFIRMED): Step(Part.WAITING, "the look was for other parts"),
    (Part.WAITING, Heard.REFUSED): Step(Part.WAITING, "the look was for other parts"),
    (Part.WAITING, Heard.ENDED): Step(Part.WAITING, _STAYS),
    (Part.WAITING, Heard.RETRIED): Step(Part.FLAGGING, "whoever was in the way may have gone"),
    (Part.WAITING, Heard.LOST): Step(Part.OTHERS, _OVER),
}  # fmt: skip

#: What the lease says that the shard holds.
HELD: Final = frozenset({Part.FLAGGING, Part.FLAGGED, Part.LOOKING, Part.WORKING, Part.ENDING})


@dataclass(frozen=True, slots=True)
class Changes:
    """What an event asks for.

    `gained` is to be listed and worked on from now on; in `revoked` nothing may begin any
    more, and `Parts.ended` is told when what runs has ended; `dropped` is worked on no
    longer, so its objects may be forgotten.
    """

    gained: HashRanges = NOWHERE
    revoked: HashRanges = NOWHERE
    dropped: HashRanges = NOWHERE


class Parts:
    """A shard's side of its ring's RingAssignment, from the moment it holds its lease.

    `owed` is where the process whose lease it goes on with may have been at work: what that had sent may still be
    executed, so the lease goes on saying it until `paid`.  So long nobody else may have it, and what this shard works
    on there it goes on working on, whoever is named.

    Each method is an event.  After each: write `held` into the lease, under `number`,
    when that has changed; begin a look when `look_due`, `retry` after `pause` when
    `waiting` is not empty.
    """

    def __init__(self, owed: HashRanges = NOWHERE) -> None:
        self._parts: dict[Part, HashRanges] = {Part.OTHERS: EVERYWHERE}
        self._owed = owed
        #: What the assignment said when it was last seen; `None`: it could not be read.
        self._named: HashRanges | None = None
        #: Of what the lease is to hold: one more whenever that changes.
        self.number: int = 1
        self._looking = False
        self._refusals = 0

    def of(self, part: Part) -> HashRanges:
        """Which points are so far."""
        return self._parts.get(part, NOWHERE)

    @property
    def held(self) -> HashRanges:
        """What the lease is to say."""
        return self._owed | self._own

    @property
    def _own(self) -> HashRanges:
        return HashRanges.union(self.of(part) for part in HELD)

    @property
    def working(self) -> HashRanges:
        """Where a reconcile may begin."""
        return self.of(Part.WORKING)

    @property
    def waiting(self) -> HashRanges:
        """What is flagged anew after a pause."""
        return self.of(Part.WAITING)

    @property
    def look_due(self) -> bool:
        """Whether a look is to begin; there is one at a time."""
        return not self._looking and bool(self.of(Part.FLAGGED))

    def pause(self, chance: float) -> float:
        """Seconds until what was refused is tried again; `chance` is drawn from [0, 1)."""
        first, longest = PAUSE_SECONDS
        doubled = min(first * 2.0 ** min(max(self._refusals - 1, 0), 16), longest)
        return doubled * (1 + chance) / 2

    # -- events ------------------------------------------------------------------

    def assigned(self, named: HashRanges | None) -> Changes:
        """The RingAssignment was seen, and names this shard for these; `None`: it is gone, or makes no sense."""
        self._named = named
        return self._hear({})

    def written(self, number: int) -> Changes:
        """A write of the lease was confirmed that held what `number` was for."""
        if number != self.number:
            return Changes()
        held = self.held
        return self._hear({Heard.WRITTEN: held, Heard.CLEARED: held.complement})

    def look(self) -> HashRanges:
        """A look begins; what it is to find free."""
        assert not self._looking, "one look at a time: an older one proves less"
        self._looking = True
        self._hear({Heard.LOOKED: EVERYWHERE})
        return self.of(Part.LOOKING)

    def looked(self, free: HashRanges) -> Changes:
        """The look has ended: `free` is named for this shard, and held by no other (nothing: it has failed)."""
        self._looking = False
        asked = self.of(Part.LOOKING)
        self._refusals = self._refusals + 1 if asked - free else 0
        return self._hear({Heard.CONFIRMED: free, Heard.REFUSED: asked - free})

    def ended(self, ranges: HashRanges) -> Changes:
        """What ran in these when they were revoked has ended, and all writes of this shard are settled."""
        return self._hear({Heard.ENDED: ranges})

    def retry(self) -> Changes:
        """The pause is over."""
        return self._hear({Heard.RETRIED: EVERYWHERE})

    def paid(self) -> Changes:
        """What the process before this one had sent cannot be executed any more."""
        held, self._owed = self.held, NOWHERE
        changes = self._hear({})
        self.number += self.held != held
        return changes

    def lost(self) -> Changes:
        """The lease is lost: nothing may begin, nothing is written any more."""
        self._named = None
        return self._hear({Heard.LOST: EVERYWHERE})

    # -- inside ------------------------------------------------------------------

    def _hear(self, events: Mapping[Heard, HashRanges]) -> Changes:
        """Take the steps of `events`, and then of what the assignment says, which holds until it says otherwise."""
        own, working, ending = self._own, self.working, self.of(Part.ENDING)
        for event, where in events.items():
            self._step(event, where)
        if self._named is None:
            self._step(Heard.UNKNOWN, EVERYWHERE)
        else:
            self._step(Heard.NAMED, self._named)
            self._step(Heard.UNNAMED, self._named.complement - (self.working & self._owed))
        # What is owed anyway has to be confirmed anew: a look that is to prove something begins after it was flagged.
        self.number += self._own != own
        return Changes(
            gained=self.working - working,
            revoked=self.of(Part.ENDING) - ending,
            dropped=(ending | working) - self.of(Part.ENDING) - self.working,
        )

    def _step(self, event: Heard, where: HashRanges) -> None:
        after: dict[Part, HashRanges] = {}
        for part, ranges in self._parts.items():
            to = TRANSITIONS[part, event].to
            after[part] = after.get(part, NOWHERE) | (ranges - where)
            after[to] = after.get(to, NOWHERE) | (ranges & where)
        self._parts = {part: ranges for part, ranges in after.items() if ranges}


def free_for(shard: str, named: Named | None, leases: Iterable[Lease], left: HashRanges = NOWHERE) -> HashRanges:
    """What a look has found: the ranges of `shard` in which no other shard that holds its lease may be working.

    `named` is what the RingAssignment said (`None`: it could not be read), and `leases` are
    those of the ring, read *after* that; both live, of the API server.  In `left` processes may
    be working whose leases another of their name renews (`LeftRanges`).
    """
    if named is None:
        return NOWHERE
    others = (each for each in leases if each.held_by_shard and each.metadata.name != shard)
    return named.of(shard) - left - HashRanges.union(each.held_ranges or NOWHERE for each in others)


class LeftRanges:
    """What leases still say of processes that renew them no longer, as one shard has read it at its looks.

    A process of the same name that knows nothing of ranges, as any in Go, leaves the annotation where
    it finds it.  Whoever wrote it renewed before that, so for one duration from then on it may be at
    work; it is counted from when a look has seen it first.
    """

    def __init__(self) -> None:
        #: By lease and annotation, which is that of one write: until when its author may be at work.
        self._until: dict[tuple[str, str, str], float] = {}

    def read(self, leases: Iterable[Lease], now: float) -> HashRanges:
        """Where somebody may be at work by these; `now` is of a clock that never goes back, in seconds."""
        before, self._until, lasting = self._until, {}, NOWHERE
        for lease in leases:
            if lease.held_by_shard and lease.left_ranges:
                meta = lease.metadata
                said = meta.namespace, meta.name, (meta.annotations or {})[HELD_RANGES_ANNOTATION]
                until = self._until[said] = before.get(said, now + lease.duration_seconds)
                lasting |= lease.left_ranges if now < until else NOWHERE
        return lasting
