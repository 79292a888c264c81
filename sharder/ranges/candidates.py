"""Which shards of a ring by ranges may be named: those whose Lease says that they know ranges.

A shard that knows labels alone holds its Lease like any other, and would never work on
a range that it is named for: what lies there would be nobody's.  Who knows ranges says in
its Lease which it holds, also when that is none.

Guarantees: who has never said so is named for nothing.  Who is named and says so no
longer keeps what it has for one duration of its Lease, in which a shard that somebody's
hand took that annotation from has written it again; after that others get it.  What it
said last counts as held for as long, also what it is about to give up: it may still
work there (tests/unit/sharder/ranges/test_candidates.py).  Nor does a process inherit what
another of its name has said before it: that speaks for the write that it came with.

Does not guarantee: anything of what was said before this leader came, and is said no longer.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from sharder.core.ranges import holdings
from shardsdk.kube.clock import Clock
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.ranges import NOWHERE, HashRanges


class Candidates:
    """Of one ring, as one leader has read its leases since it came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: By name and process: who comes back after a grace has all of its time to say what it holds.
        self._silent_since: dict[tuple[str, str | None], float] = {}
        #: Who has been silent until then has been so for one duration of its lease, on the clock's `monotonic`.
        self._silent_until: dict[str, float] = {}
        #: What each process has said last that it holds.
        self._said: dict[tuple[str, str | None], HashRanges] = {}
        self._named: Container[str] = ()

    def read(self, leases: Iterable[Lease], named: Container[str]) -> dict[str, HashRanges]:
        """Judge the shards that hold these; `named` are those that have ranges by now.

        Returns what each of them may be working on, as `holdings` does.
        """
        leases = [lease for lease in leases if lease.held_by_shard]
        now, before, said, held = self._clock.monotonic(), self._silent_since, self._said, holdings(leases)
        self._silent_since, self._silent_until, self._said, self._named = {}, {}, {}, named
        for lease in leases:
            name, who = lease.metadata.name, (lease.metadata.name, lease.instance)
            if (says := lease.held_ranges) is not None:
                self._said[who] = self._said.get(who, NOWHERE) | says
                continue
            since = self._silent_since[who] = before.get(who, now)
            until = self._silent_until[name] = since + lease.duration_seconds
            # Whoever takes all annotations away takes the process's name with them: it may be any of that name.
            last = HashRanges.union(
                each for (of, instance), each in said.items() if of == name and lease.instance in (None, instance)
            )
            # What a process said that wrote the lease before it, perhaps before this leader came.
            last |= lease.left_ranges
            if now < until and last:
                self._said[who] = self._said.get(who, NOWHERE) | last
                held[name] |= last
        return held

    @property
    def unfit(self) -> frozenset[str]:
        """Shards that hold their lease and are not to be named, since it says nothing of ranges."""
        return self.silent | frozenset(name for name in self._silent_until if name not in self._named)

    @property
    def silent(self) -> frozenset[str]:
        """Those that have said nothing for so long that they know labels alone: one that has just come is about to."""
        now = self._clock.monotonic()
        return frozenset(name for name, until in self._silent_until.items() if now >= until)

    def due_in(self) -> float | None:
        """In how many seconds one more is silent, if nothing is said meanwhile; `None`: none will be."""
        now = self._clock.monotonic()
        return min((until - now for until in self._silent_until.values() if until > now), default=None)
