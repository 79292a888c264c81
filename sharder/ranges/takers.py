"""Which shards of a ring by ranges are given anything, and what is kept for one that has missed renewals or is leaving.

Guarantees (tests/unit/sharder/ranges/test_liveness.py): one that is silent keeps what it is named for, and is
to have what others still end work in: one that is back by then has missed nothing.  What is free goes past it,
and it is given its part once it is back; the same goes for one that has yet to renew a lease that was out of date.
One that has come back from a crash with nothing is given nothing before it has held its lease for a while; one that
has something counts as any, since who comes needs a share of it.
One that is about to leave gives away all that it has, if anybody else may be given it; else it keeps that.

Does not guarantee that the next leader knows who has missed its part: that evens out with the next ranges that
move.
"""

from __future__ import annotations

from collections.abc import Mapping

from sharder.core.membership import Membership
from sharder.core.owners import Claims
from shardsdk.protocol.ranges import HashRanges, Named


class Takers:
    """Of one ring, as one leader has found them since it came."""

    def __init__(self) -> None:
        #: Who is given something, and gives some: nobody else, while one of these is there.
        self.now: frozenset[str] = frozenset()
        #: Who has less than it was to have, since that was free while it was silent.
        self.short: frozenset[str] = frozenset()

    def look(
        self,
        there: frozenset[str],
        membership: Membership,
        named: Named,
        aim: Named,
        held: Mapping[str, HashRanges],
    ) -> dict[str, HashRanges]:
        """Judge those who are `there`; `aim` is what `named` was to become, `held` what shards may be working on.

        Returns what those keep who are silent, and those who leave while there is nobody else.
        """
        staying = there - membership.leaving or there
        away = membership.silent | membership.unrenewed
        lively = staying - away or staying
        unsteady = {shard for shard in membership.unsteady | membership.unrenewed if not named.of(shard)}
        self.now = lively - unsteady or lively
        claims, waits, keep = Claims(held), named.nobodys, dict[str, HashRanges]()
        for shard in staying - lively:
            coming = aim.of(shard) & waits
            free = claims.without_others(shard, coming)
            if free:
                self.short |= {shard}
            keep[shard] = named.of(shard) | (coming - free)
        if self.now <= away | unsteady:
            keep |= {shard: named.of(shard) for shard in there - staying}
        self.short &= there
        return {shard: ranges for shard, ranges in keep.items() if ranges}

    def fed(self) -> None:
        """Those that are there again have been given their part, if anybody has too much."""
        self.short -= self.now
