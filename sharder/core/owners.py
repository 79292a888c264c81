"""Whose parts of the space are, of many shards: told without going through all of them for each."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from shardsdk.protocol.ranges import NOWHERE, HashRanges, render_bound


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


class Overlap(NamedTuple):
    """A part of the space that several shards have; whoever is not named for it comes first, since it is to let go."""

    start: int
    end: int
    shards: tuple[str, ...]

    def __str__(self) -> str:
        return f"{render_bound(self.start)}-{render_bound(self.end)}"


def overlaps(held: Mapping[str, HashRanges], named: Mapping[str, HashRanges]) -> list[Overlap]:
    """What more than one shard holds, in order; `named`: for what each of them is named."""
    several = _overlaps(held)
    if not several:
        return []
    begins, ends = defaultdict[int, list[str]](list), defaultdict[int, list[str]](list)
    for shard, ranges in held.items():
        for start, end in ranges & several:
            begins[start].append(shard)
            ends[end].append(shard)
    found, holding, owners = list[Overlap](), set[str](), Owners(named)
    for start, end in pairwise(sorted({*begins, *ends, *owners.bounds})):
        holding.difference_update(ends[start])
        holding.update(begins[start])
        owner = owners.at(start)
        shards = tuple(sorted(holding, key=lambda shard: (shard == owner, shard)))
        if found and (found[-1].end, found[-1].shards) == (start, shards):
            found[-1] = found[-1]._replace(end=end)
        elif shards:
            found.append(Overlap(start, end, shards))
    return found
