"""In which namespaces the shards of a ring by ranges hold their Leases, and by which of them each may be named.

Two Leases of one name in two namespaces are two shards, and a name alone would name both: the second would begin
wherever the first works.  So the RingAssignment says with each range by whose Lease it was given.

What the assignment does not say, or no longer, since somebody has edited or deleted it, counts as it was said last;
a leader that has just come goes by which of two says in its Lease that it holds something, or is left to be back.

Guarantees (tests/unit/sharder/ranges/test_homes.py, test_homes_lost.py): a name stays bound to one namespace until no
process of that name there may be working any more; a name that is bound to none, and held in two, is named for nothing,
nor is one of which it cannot be told any more whose it was, until nothing can be left of whoever had it.

Does not guarantee: that shards read it; one that does not know of it begins until what its name has is revoked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Set
from typing import Final

from sharder.cache.rings import LeaseKey
from sharder.core.observed import Says, longest_of, says
from sharder.core.owners import Claims
from sharder.core.ranges import homes_for
from shardsdk.kube.clock import Clock
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.ranges import EVERYWHERE, HashRanges, Named

#: Looks are a second apart where something is missed; failures that make it a few more hide no shard that is back and
#: has lost its Lease again.  If each failure counted, one in ten would have what is missed be nobody's for ever.
BLIND_SECONDS: Final = 3.0


class Homes:
    """Of one ring, as its leases and its RingAssignment were read last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Since when Leases are missed by which shards are named, or were where nobody is now, by shard and namespace:
        #: a leader that comes then saw nobody delete them.
        self._missed: dict[tuple[str, str], float] = {}
        #: When leases were read last, and whether they could not be since.
        self._read_at, self._overlooked = clock.monotonic(), False
        #: Since when shards are bound nowhere that are named: whoever worked by that name may hold no Lease any more.
        #: Where that may be: not where others were named by then, who were so only once it had let go.
        self._doubted: dict[str, tuple[float, HashRanges]] = {}
        self._there: dict[str, set[str]] = {}
        #: By which namespace's Lease each shard was named, as was said last; `None`: nothing was read yet.
        self._bound: Mapping[str, str] | None = None
        self._strangers: frozenset[str] = frozenset()
        #: By which namespace's Lease each shard may be named.
        self.of: Mapping[str, str] = {}
        #: Where shards may be working though another of their name holds a Lease, and they hold none.
        self.gone: Mapping[str, HashRanges] = {}

    def miss(self, began: float) -> None:
        """The look that `began` then has failed.

        If it has not read the leases, one that is missed may have been there meanwhile; it is missed anew unless they
        are read within BLIND_SECONDS.
        """
        self._overlooked = self._overlooked or self._read_at < began

    def read(
        self,
        leases: Iterable[Lease],
        named: Mapping[str, HashRanges],
        said: Mapping[str, Collection[str]],
        late: Collection[LeaseKey],
        may_hold: Callable[[str], bool],
        remembered: Container[str],
    ) -> None:
        """Look at these; `said` is by which namespaces each shard is `named`, or was just before (empty: not said).

        `late` are those by which shards held in the cache, and `may_hold(shard)` is whether one may be working whose
        Lease does not say so there.  Of `remembered` it counts what was said last, also while nothing is.
        """
        leases = list(leases)
        self._strangers = frozenset(each.metadata.name for each in leases if says(each) is Says.STRANGER)
        self._there = {}
        for each in leases:
            if each.held_by_shard:
                self._there.setdefault(each.metadata.name, set()).add(each.metadata.namespace)
        first, self._bound = self._bound is None, self._bind(leases, said, remembered)
        bound = self._bound
        away = {shard for shard, home in bound.items() if home not in self._there.get(shard, (home,))}
        now, longest = self._clock.monotonic(), longest_of(leases)
        lasting = self._read_missed(
            {(each.metadata.name, each.metadata.namespace) for each in leases}, named, said, longest
        )
        # Nobody had a name before that is new to a leader who has been there.
        doubted, claims = {shard for shard, homes in said.items() if first or any(homes)}, Claims(named)
        known = self._doubted
        self._doubted = {
            shard: known.get(shard) or (now, claims.without_others(shard, EVERYWHERE))
            for shard in (doubted | known.keys()) - bound.keys()
        }
        suspects = away | (self._doubted.keys() & self._there.keys())
        # Of two that are there each says what it holds; one that is alone, or was given back, may not be the one that
        # worked.  Without any the takeover misses the named.
        names = {each.metadata.name for each in leases}
        unsaid = {shard for shard in self._doubted.keys() & names if len(self._there.get(shard, ())) < 2}
        lasting |= {shard for shard in unsaid if now < self._doubted[shard][0] + longest}
        lasting |= suspects & {shard for home, shard in late if home not in self._there.get(shard, ())}
        gone = lasting | {shard for shard in suspects if may_hold(shard)}
        self.gone = {shard: self._doubted.get(shard, (now, EVERYWHERE))[1] for shard in gone}
        self.of = homes_for(bound, self._there, self.gone)

    def _bind(
        self, leases: Iterable[Lease], said: Mapping[str, Collection[str]], remembered: Container[str]
    ) -> dict[str, str]:
        """Where each shard is named, by what is said now and was last; where these contradict each other, nowhere."""
        before = self._bound if self._bound is not None else _by_what_is_held(leases, said)
        bound: dict[str, str] = {}
        for shard in {**before, **said}:
            last = before.get(shard, "") if shard in remembered else ""
            # A range that does not say it is meant for whoever had the name before.
            homes = {home or last for home in said.get(shard, ("",))} - {""}
            if len(homes) == 1:
                bound[shard] = homes.pop()
        return bound

    def _read_missed(
        self, there: Set[tuple[str, str]], named: Container[str], said: Mapping[str, Collection[str]], longest: float
    ) -> set[str]:
        """Whose Leases are missed for less than `longest`; `there` are the name and namespace of all that there are."""
        bound, now = self.bound, self._clock.monotonic()
        counting = {key for key, at in self._missed.items() if now < at + longest}
        looked_for = {(shard, bound.get(shard, "")) for shard in said} | (counting & bound.items())
        known = {} if self._overlooked and now - self._read_at > BLIND_SECONDS else self._missed
        self._missed = {key: known.get(key, now) for key in looked_for - there}
        self._read_at, self._overlooked = now, False
        missed = {shard for (shard, _), at in self._missed.items() if now < at + longest}
        names = {name for name, _ in there}
        # One of that name elsewhere, given back or not, says nothing of it; without any the takeover misses the named.
        return {shard for shard in missed if (shard in bound if shard in names else shard not in named)}

    @property
    def bound(self) -> Mapping[str, str]:
        """By which namespace's Lease each shard was named, as was said last; of whom nothing was, it is missing."""
        return self._bound or {}

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
        unclear = self.unclear
        return Named(named.by, {shard: each for shard, each in named.shards.items() if shard not in unclear})

    def without_moved(self, wanted: Named, named: Named) -> Named:
        """`wanted` without the shards that are `named`, and are to be so by another namespace than before.

        What they have is nobody's first: whoever it was may be back, and have read that it is named, when that is
        written, and it is told only by what is taken from it.
        """
        homes = {shard: home for shard, home in self.bound.items() if shard in named.shards}
        moved = {shard for shard, home in homes.items() if self.of.get(shard, home) != home}
        return Named(wanted.by, {shard: each for shard, each in wanted.shards.items() if shard not in moved})

    def differ(self, said: Mapping[str, Collection[str]], named: Named) -> bool:
        """Whether those that are `named` are to be named by other namespaces than is `said`."""
        return any(set(said.get(shard, ())) != {self.of.get(shard, "")} for shard in named.shards)


def _by_what_is_held(leases: Iterable[Lease], said: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Of each shard that is bound nowhere: which of its Leases alone says that it holds something.

    Where none does: which alone is left to the next process of its shard, of whom nothing says what it has.
    """
    working: dict[str, set[str]] = {}
    left: dict[str, set[str]] = {}
    for each in leases:
        if each.held_by_shard and (each.held_ranges or each.left_ranges):
            working.setdefault(each.metadata.name, set()).add(each.metadata.namespace)
        elif each.left:
            left.setdefault(each.metadata.name, set()).add(each.metadata.namespace)
    # What is said of a name in two namespaces may be about to begin in that which holds nothing yet.
    homes = left | working
    return {shard: found.pop() for shard, found in homes.items() if len(found) == 1 and not any(said.get(shard, ()))}
