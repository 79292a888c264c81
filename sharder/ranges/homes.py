"""In which namespaces the shards of a ring by ranges hold their Leases, and by which of them each may be named.

Two Leases of one name in two namespaces are two shards, and a name alone would name both: the second would begin
wherever the first works.  So the RingAssignment says with each range by whose Lease it was given.

Guarantees (tests/unit/sharder/ranges/test_homes.py): a name stays bound to one namespace until no process of that
name there may be working any more; a name that is bound to none, and held in two, is named for nothing.

Does not guarantee: that shards read it; one that does not know of it begins until what its name has is revoked.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from sharder.cache.rings import LeaseKey
from sharder.core.observed import Says, longest_of, says
from sharder.core.ranges import homes_for
from shardsdk.kube.clock import Clock
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.ranges import Named


class Homes:
    """Of one ring, as its leases and its RingAssignment were read last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Since when Leases are missed by which shards are named; a leader that has just come saw nobody delete them.
        self._missed: dict[str, float] = {}
        self._there: dict[str, set[str]] = {}
        self._strangers: frozenset[str] = frozenset()
        #: By which namespace's Lease each shard may be named.
        self.of: Mapping[str, str] = {}
        #: Shards that may be working though another of their name holds a Lease, and they hold none.
        self.gone: frozenset[str] = frozenset()

    def read(
        self,
        leases: Iterable[Lease],
        said: Mapping[str, str],
        late: Container[LeaseKey],
        may_hold: Callable[[str], bool],
    ) -> None:
        """Look at these; `said` is by which namespace each shard is named.

        `late` are those by which shards held in the cache, and `may_hold(shard)` is whether one may be working whose
        Lease does not say so there.
        """
        leases = list(leases)
        self._strangers = frozenset(each.metadata.name for each in leases if says(each) is Says.STRANGER)
        self._there = {}
        for each in leases:
            if each.held_by_shard:
                self._there.setdefault(each.metadata.name, set()).add(each.metadata.namespace)
        away = {shard for shard, home in said.items() if home and home not in self._there.get(shard, (home,))}
        left = {(each.metadata.name, each.metadata.namespace) for each in leases}
        now, longest = self._clock.monotonic(), longest_of(leases)
        self._missed = {shard: self._missed.get(shard, now) for shard in away if (shard, said[shard]) not in left}
        lasting = {shard for shard, since in self._missed.items() if now < since + longest}
        lasting |= {shard for shard in away if (said[shard], shard) in late}
        self.gone = frozenset(lasting | {shard for shard in away if may_hold(shard)})
        self.of = homes_for(said, self._there, self.gone)

    @property
    def namespaces(self) -> set[str]:
        """Where shards hold Leases."""
        return set().union(*self._there.values())

    @property
    def unclear(self) -> frozenset[str]:
        """Shards that nobody may name: which of two of that name it would be for, nobody could tell."""
        return frozenset(self._there.keys() - self.of.keys())

    def rebuilt(self, named: Named) -> Named:
        """`named`, as made from what shards hold, without those whose name may be another's."""
        # Named, a stranger would keep that until its lease is the sharder's, which it may renew for ever.
        left_out = self._strangers | self.unclear
        return Named(named.by, {shard: each for shard, each in named.shards.items() if shard not in left_out})

    def clear(self, named: Named) -> Named:
        """`named` without the shards that nobody may name."""
        return Named(named.by, {shard: each for shard, each in named.shards.items() if shard not in self.unclear})

    def without_moved(self, wanted: Named, said: Mapping[str, str]) -> Named:
        """`wanted` without the shards that are to be named by another namespace than is `said`.

        What they have is nobody's first: whoever it was may be back, and have read that it is named, when that is
        written, and it is told only by what is taken from it.
        """
        moved = {shard for shard, home in said.items() if home and self.of.get(shard, home) != home}
        return Named(wanted.by, {shard: each for shard, each in wanted.shards.items() if shard not in moved})

    def differ(self, said: Mapping[str, str], named: Named) -> bool:
        """Whether those that are `named` are to be named by other namespaces than is `said`."""
        return any(said.get(shard, "") != self.of.get(shard, "") for shard in named.shards)
