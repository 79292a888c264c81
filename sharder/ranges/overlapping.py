"""Ranges that several Leases hold at once, once that has lasted: nobody may, and two shards may work on one object.

A shard that takes a range says so in its Lease before it looks at the others', and lets go where one has it: a moment
of that is no trouble.  Nor is what people edit, if the shard's next renewals put it right.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final, NamedTuple

from sharder.core.conditions import ConditionReason
from sharder.core.owners import overlaps
from sharder.core.rangestatus import describe_overlaps
from shardsdk.kube.clock import Clock
from shardsdk.protocol.ranges import HashRanges

#: For so long the same Leases may say so before people are told: two renewals by a shard, as a rule.
OVERLAP_SECONDS: Final = 10.0


class Overlaps(NamedTuple):
    """How many ranges several shards hold, and what people are to know, as a reason and in words (`None`: nothing)."""

    ranges: int = 0
    told: tuple[ConditionReason, str] | None = None


NONE: Final = Overlaps()


class Overlapping:
    """Of one ring, as one leader's looks at its Leases have found it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Since when the same shards hold something together, or what one holds cannot be read.
        self._since: dict[frozenset[str], float] = {}

    def look(
        self,
        held: Mapping[str, HashRanges],
        named: Mapping[str, HashRanges],
        unreadable: frozenset[str],
        lapsed: Container[str],
    ) -> Overlaps:
        """Judge what shards have `held` just now, who are `named` for what.

        Left out are those whose lease has `lapsed`, or was out of date when it came: nobody works by it, or another
        takes it over.
        """
        rightful = {shard: ranges for shard, ranges in held.items() if shard not in lapsed}
        readable = {shard: ranges for shard, ranges in rightful.items() if shard not in unreadable}
        found, now = overlaps(readable, named), self._clock.monotonic()
        alone = {frozenset((shard,)) for shard in unreadable & rightful.keys()}
        before = self._since
        self._since = {each: before.get(each, now) for each in {frozenset(each.shards) for each in found} | alone}
        lasting = [each for each in found if self._lasts(frozenset(each.shards))]
        cannot = frozenset[str]().union(*(each for each in alone if self._lasts(each)))
        return Overlaps(len(lasting), describe_overlaps(lasting, cannot))

    def _lasts(self, shards: frozenset[str]) -> bool:
        return self._clock.monotonic() - self._since[shards] >= OVERLAP_SECONDS

    def due_in(self) -> float | None:
        """In how many seconds more of them have lasted; `None`: none does."""
        left = (since + OVERLAP_SECONDS - self._clock.monotonic() for since in self._since.values())
        return min((each for each in left if each > 0), default=None)
