"""Which shards of a ring by ranges may be named: those whose Lease says that they know ranges, and that take some.

A shard that knows labels alone holds its Lease like any other, and would never work on
a range that it is named for: what lies there would be nobody's.  Who knows ranges says in
its Lease which it holds, also when that is none.

Guarantees: who has never said so is named for nothing.  Who is named and says so no
longer keeps what it has for one duration of its Lease, in which a shard that somebody's
hand took that annotation from has written it again; after that others get it.  What it
said last counts as held for as long, also what it is about to give up: it may still
work there (tests/unit/sharder/ranges/test_candidates.py).  Nor does a process inherit what
another of its name has said before it: that speaks for the write that it came with.

A shard that may not read the RingAssignment, whose looks fail, or that hangs while its lease
is renewed, says that it holds nothing, whatever it is named for: what is free for it would be
nobody's for ever.  So others get that after a while, and it is named for nothing more until it
holds something, or another process has its lease; one that lost its lease and has it again is
the same.  Time in which the sharder could not look either is not counted.  Once one of them holds something, all others
are tried again; they are named where all are so, and most often for one and the same reason.

Does not guarantee: anything of what was said before this leader came, and is said no longer;
that a shard whose lease says at each look that it holds something takes the rest (the status
and a metric tell of that).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final

from sharder.core.owners import Claims
from sharder.core.ranges import holdings
from shardsdk.kube.clock import Clock
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.ranges import NOWHERE, HashRanges

#: For so long, and for so many durations of its lease, a shard may hold nothing of what is free for it.  To say that
#: it holds some takes a read and a write: it does so before it looks at others, and long before it lists objects.  One
#: that holds something keeps its turn for ever, however long the rest takes.
IDLE_SECONDS: Final = 60.0
IDLE_DURATIONS: Final = 2

#: What tells a process that has a lease from the one before it.
Process = tuple[str | None, str | None]


def process_of(lease: Lease) -> Process:
    """The process that has a lease; of authors that do not say which they are, since when."""
    return lease.instance, None if lease.instance is not None else lease.spec.acquire_time


class Candidates:
    """Of one ring, as one leader has read its leases since it came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: By name and process: who comes back after a grace has all of its time to say what it holds.
        self._silent_since: dict[tuple[str, str | None], float] = {}
        #: Who has been silent until then has been so for one duration of its lease, on the clock's `monotonic`.
        self._silent_until: dict[str, float] = {}
        #: Of those, names of which a process is at work: what the next one says, after a restart grace, nobody knows.
        self._at_work: set[str] = set()
        #: What each process has said last that it holds.
        self._said: dict[tuple[str, str | None], HashRanges] = {}
        self._named: Container[str] = ()
        #: Whose process says that it holds nothing, and until when it may.
        self._idle_until: dict[str, tuple[Process, float]] = {}
        #: Who was judged so and has lost its lease meanwhile: the same process may be back.
        self._idle_away: dict[str, tuple[Process, float]] = {}
        self._read_at, self._missed = clock.monotonic(), False

    def miss(self) -> None:
        """A look has failed: what cannot be read by the sharder may be out of the shards' reach, too."""
        self._missed = True

    def read(
        self, leases: Iterable[Lease], named: Mapping[str, HashRanges], homes: Mapping[str, str]
    ) -> dict[str, HashRanges]:
        """Judge the shards that hold these; `named` are those that have ranges by now, by Leases in which of `homes`.

        Returns what each of them may be working on, as `holdings` does.
        """
        leases = list(leases)
        away = {lease.metadata.name for lease in leases if not lease.held_by_shard}
        leases = [lease for lease in leases if lease.held_by_shard]
        now, before, said, held = self._clock.monotonic(), self._silent_since, self._said, holdings(leases)
        self._silent_since, self._silent_until, self._said, self._named, self._at_work = {}, {}, {}, named, set()
        for lease in leases:
            name, who = lease.metadata.name, (lease.metadata.name, lease.instance)
            if (says := lease.held_ranges) is not None:
                self._said[who] = self._said.get(who, NOWHERE) | says
                continue
            since = self._silent_since[who] = before.get(who, now)
            until = self._silent_until[name] = since + lease.duration_seconds
            if not lease.left:
                self._at_work.add(name)
            # Whoever takes all annotations away takes the process's name with them: it may be any of that name.
            last = HashRanges.union(
                each for (of, instance), each in said.items() if of == name and lease.instance in (None, instance)
            )
            # What a process said that wrote the lease before it, perhaps before this leader came.
            last |= lease.left_ranges
            if now < until and last:
                self._said[who] = self._said.get(who, NOWHERE) | last
                held[name] |= last
        bound = [each for each in leases if homes.get(each.metadata.name) == each.metadata.namespace]
        self._read_idle(bound, named, held, away)
        return held

    def _read_idle(
        self,
        leases: Iterable[Lease],
        named: Mapping[str, HashRanges],
        held: Mapping[str, HashRanges],
        away: Container[str],
    ) -> None:
        now, before = self._clock.monotonic(), self._idle_away | self._idle_until
        if self._missed:
            late = now - self._read_at
            before = {
                name: (who, until + late if until > self._read_at else until) for name, (who, until) in before.items()
            }
        self._read_at, self._missed = now, False
        idle = {name for name, (_, until) in before.items() if now >= until}
        if any(lease.held_ranges for lease in leases if lease.metadata.name in idle):
            before = {}
        self._idle_until = {}
        self._idle_away = {name: each for name, each in before.items() if name in idle and name in away}
        claims = Claims(held)
        for lease in leases:
            if lease.held_ranges != NOWHERE:
                continue  # who says nothing is `silent`
            name, who = lease.metadata.name, process_of(lease)
            known, until = before.get(name, (None, 0.0))
            if known == who and now >= until:
                self._idle_until[name] = who, until  # also while it is named for nothing: else it would be again
            elif claims.without_others(name, named.get(name, NOWHERE)):
                patience = max(IDLE_SECONDS, float(IDLE_DURATIONS * lease.duration_seconds))
                self._idle_until[name] = who, until if known == who else now + patience

    @property
    def unfit(self) -> frozenset[str]:
        """Shards that hold their lease and are not to be named: it says nothing of ranges, or they take none."""
        return self._overdue | self.idle | frozenset(name for name in self._silent_until if name not in self._named)

    @property
    def idle(self) -> frozenset[str]:
        """Those that have been named for what nobody holds, and held nothing for too long."""
        now = self._clock.monotonic()
        return frozenset(name for name, (_, until) in self._idle_until.items() if now >= until)

    @property
    def silent(self) -> frozenset[str]:
        """Those that have said nothing for so long that they know labels alone: one that has just come is about to."""
        return self._overdue & self._at_work

    @property
    def _overdue(self) -> frozenset[str]:
        now = self._clock.monotonic()
        return frozenset(name for name, until in self._silent_until.items() if now >= until)

    def due_in(self) -> float | None:
        """In how many seconds one more is silent or idle, if nothing is said meanwhile; `None`: none will be."""
        now = self._clock.monotonic()
        untils = [*self._silent_until.values(), *(until for _, until in self._idle_until.values())]
        return min((until - now for until in untils if until > now), default=None)
