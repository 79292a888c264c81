"""Whose parts of the space are, of many shards: told without going through all of them for each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from shardsdk.protocol.ranges import NOWHERE, HashRanges


class Owners:
    """Whose each point is, of ranges that do not overlap."""

    def __init__(self, shards: Mapping[str, HashRanges]) -> None:
        self._spans = sorted((*span, shard) for shard, ranges in shards.items() for span in ranges)
        self._starts = [start for start, _, _ in self._spans]
        self.bounds: set[int] = {bound for start, end, _ in self._spans for bound in (start, end)}

    def at(self, point: int) -> str:
        """The shard, or empty."""
        position = bisect_right(self._starts, point) - 1
        return self._spans[position][2] if position >= 0 and point < self._spans[position][1] else ""


class Claims:
    """What shards have, several of them the same perhaps."""

    def __init__(self, shards: Mapping[str, HashRanges]) -> None:
        self._shards = shards
        self._any = HashRanges.union(shards.values())
        self._several = _overlaps(shards)

    def without_others(self, shard: str, ranges: HashRanges) -> HashRanges:
        """Of `ranges` what no shard has but this one."""
        alone = self._shards.get(shard, NOWHERE) - self._several
        return ranges - ((ranges & self._any) - alone)


def _overlaps(shards: Mapping[str, HashRanges]) -> HashRanges:
    """What more than one has."""
    twice: list[tuple[int, int]] = []
    reach = 0
    for start, end in sorted(span for ranges in shards.values() for span in ranges):
        twice.append((start, min(end, reach)))  # empty, and left out, unless one that begins before goes on
        reach = max(reach, end)
    return HashRanges.of(*twice)
