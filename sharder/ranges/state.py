"""What a look at a ring by ranges has found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sharder.ranges.overlapping import NONE, Overlaps
from shardsdk.protocol.ranges import NOWHERE, HashRanges, Named


@dataclass(frozen=True, slots=True)
class State:
    """What was found at the last look: `named` by the version that is in force, `aim` what it is to become.

    `held`: what shards may be working on; of those that are `missing`, whose Lease is not theirs, nobody knows.
    `silent`: shards that know labels alone; `idle`: those that take nothing of what they are named for.
    `overlaps`: what several hold.  `unwritten`: what it was to become when that was written last, where `aim` is not
    known to be; `sent`: what it says if that is written after all.
    """

    named: Named
    aim: Named
    held: Mapping[str, HashRanges]
    missing: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    overlaps: Overlaps = NONE
    unwritten: Named | None = None
    sent: Named | None = None

    def begun(self, named: Named) -> Named:
        """What it is to become as far as anything of that has been written, where it says `named` by now.

        What is on its way is nobody's; planned anew from there, it might be sent elsewhere halfway.
        """
        return self.aim if self.unwritten is None or named == self.sent else self.unwritten

    @property
    def waits_for(self) -> HashRanges:
        """What is on its way: nobody's, to be another's, or not taken by the shard that is named for it."""
        parts = [self.named.nobodys]
        for shard, ranges in self.named.shards.items():
            held = NOWHERE if shard in self.missing else self.held.get(shard, NOWHERE)
            parts += [ranges - self.aim.of(shard), ranges - held]
        return HashRanges.union(parts)
