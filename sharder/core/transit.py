"""What a RingAssignment says of ranges that change hands, for the next leader: whose they were and are to be.

A leader that has just come would know neither.  Whoever had a range may be ending work there though it is named for
nothing any more, and if somebody has deleted its Lease nobody would count it (`from`).  And planned anew from what is
named by halves, ranges would be sent elsewhere than the last leader has begun to send them (`to`).

Does not guarantee: that it is said.  Older sharders leave it out, and so do older CustomResourceDefinitions; then a
leader goes by who is named, and by Leases.  Of more than `MAX_RANGES` ranges it is left out too, so that the rest can
be written.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from sharder.core.owners import Owners
from shardsdk.protocol.ranges import (
    MAX_RANGES,
    NOWHERE,
    SPACE,
    AssignedRange,
    HashRanges,
    Named,
    RingAssignmentSpec,
    render_assignment,
    render_bound,
)


@dataclass(frozen=True, slots=True)
class Transit:
    """Of what is nobody's: which shard each range was `taken` from, and which it is `meant` for.

    `homes` are the namespaces of the Leases by which those were named from whom something was taken.
    """

    taken: Mapping[str, HashRanges] = field(default_factory=dict)
    meant: Mapping[str, HashRanges] = field(default_factory=dict)
    homes: Mapping[str, str] = field(default_factory=dict)

    def arrived(self, named: Named) -> Named:
        """`named` once what is nobody's has gone where it is meant for."""
        shards = {**named.shards, **self.meant}
        return Named(named.by, {shard: named.of(shard) | self.meant.get(shard, NOWHERE) for shard in shards})


def read_transit(spec: RingAssignmentSpec) -> Transit:
    """What an assignment says of it that `parse_assignment` reads."""
    taken: dict[str, list[tuple[int, int]]] = {}
    meant: dict[str, list[tuple[int, int]]] = {}
    homes: dict[str, str] = {}
    for each, span in _spans(spec):
        if each.shard:
            continue  # somebody has named it by hand, and left the rest
        if each.source:
            taken.setdefault(each.source, []).append(span)
            homes[each.source] = each.namespace or homes.get(each.source, "")
        if each.target:
            meant.setdefault(each.target, []).append(span)
    return Transit(_joined(taken), _joined(meant), homes)


def next_transit(
    named: Named,
    following: Named,
    aim: Named,
    held: Mapping[str, HashRanges],
    said: Transit,
    homes: Mapping[str, str],
) -> Transit:
    """What to say with `following`, which is written in place of `named` with what it `said`, to become `aim`.

    Whoever does not hold by its lease what was taken from it before has let go.  `homes` says where each was named.
    """
    free = following.nobodys
    taken = {
        shard: ((named.of(shard) - following.of(shard)) | (said.taken.get(shard, NOWHERE) & held.get(shard, NOWHERE)))
        & free
        for shard in {**named.shards, **said.taken}
    }
    taken = {shard: ranges for shard, ranges in taken.items() if ranges}
    meant = {shard: ranges & free for shard, ranges in aim.shards.items() if ranges & free}
    return Transit(taken, meant, {shard: homes.get(shard, "") for shard in taken})


def render_transit(
    named: Named, homes: Mapping[str, str], transit: Transit, most: int = MAX_RANGES
) -> RingAssignmentSpec:
    """`render_assignment`, with what is said of nobody's: as much of it as goes into `most` ranges."""
    spec = render_assignment(named, homes)
    for said in (transit, Transit(transit.taken, homes=transit.homes)):
        split = _split(spec, said)
        if len(split) <= most:
            return RingAssignmentSpec(spec.hash_by, split)
    return spec


def _split(spec: RingAssignmentSpec, said: Transit) -> list[AssignedRange]:
    taken, meant = Owners(said.taken), Owners(said.meant)
    cuts = sorted({*taken.bounds, *meant.bounds})
    ranges: list[AssignedRange] = []
    for each, (start, end) in _spans(spec):
        if each.shard:
            ranges.append(each)
            continue
        before: tuple[str, str] | None = None
        for at in (start, *cuts[bisect_right(cuts, start) : bisect_left(cuts, end)]):
            source, target = taken.at(at), meant.at(at)
            if (source, target) != before:
                home = said.homes.get(source, "")
                ranges.append(AssignedRange(render_bound(at), "", home, source, target))
            before = source, target
    return ranges


def _spans(spec: RingAssignmentSpec) -> Iterator[tuple[AssignedRange, tuple[int, int]]]:
    starts = [int(each.start, 16) for each in spec.ranges]
    return zip(spec.ranges, pairwise([*starts, SPACE]), strict=True)


def _joined(spans: Mapping[str, list[tuple[int, int]]]) -> dict[str, HashRanges]:
    return {shard: HashRanges.of(*theirs) for shard, theirs in spans.items()}
