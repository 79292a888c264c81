"""Which shards of a ring by ranges may be named: those whose Lease says that they know ranges.

A shard that knows labels alone holds its Lease like any other, and would never work on
a range that it is named for: what lies there would be nobody's.  Who knows ranges says in
its Lease which it holds, also when that is none.

Guarantees: who has never said so is named for nothing.  Who is named and says so no
longer keeps what it has for one duration of its Lease, in which a shard that somebody's
hand took that annotation from has written it again; after that others get it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from sharder.core.ranges import knows_ranges
from shardsdk.kube.clock import Clock
from shardsdk.protocol.leases import Lease


class Candidates:
    """Of one ring, as one leader has read its leases since it came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._silent_since: dict[str, float] = {}
        #: Shards that hold their Lease and say nothing of ranges: they are named for none.
        self.unfit: frozenset[str] = frozenset()

    def read(self, leases: Iterable[Lease], named: Container[str]) -> None:
        """Judge the shards that hold these; `named` are those that have ranges by now."""
        now = self._clock.monotonic()
        silent = {each.metadata.name: each for each in leases if each.held_by_shard and not knows_ranges(each)}
        self._silent_since = {name: self._silent_since.get(name, now) for name in silent}
        self.unfit = frozenset(
            name
            for name, lease in silent.items()
            if name not in named or now - self._silent_since[name] >= lease.duration_seconds
        )
