"""A ring by ranges as `kubectl sharding` sees it: who is named for a point, whose lease holds it, what lies there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sharder.core.membership import Membership
from sharder.core.owners import overlaps
from sharder.core.ranges import holdings, unreadable
from sharder.core.rangestatus import describe_overlaps
from sharder.kubectl.counting import Covers, Tally, Trouble
from sharder.kubectl.shards import read_shard_status
from sharder.kubectl.status.overview import Condition, RangesView
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import SlimMeta
from shardsdk.protocol.ranges import SPACE, HashBy, HashRanges, Named, render_bound


@dataclass(frozen=True, slots=True)
class Place:
    """A part of the space in which all points are alike: who is `named`, and whose leases hold it (`holders`).

    More than one does only where something is amiss; whoever is not named comes first, since it is waited for.
    """

    start: int
    end: int
    named: str | None
    holders: tuple[str, ...]

    @property
    def holder(self) -> str | None:
        """Whose lease holds it, and has to let go of it if that is not who is named."""
        return self.holders[0] if self.holders else None

    def __str__(self) -> str:
        return f"{render_bound(self.start)}-{render_bound(self.end)}"


@dataclass(frozen=True, slots=True)
class SeenRanges:
    """A ring's RingAssignment, and what the leases hold.

    `named` None: it is not there, not readable, or makes no sense, which `problem` says (empty: it may not be read).
    `held` None: the leases could not be read.  `conditions`: the RingAssignment's own.
    `overlapping`: that several leases hold one part, or that what some hold cannot be read, in words with the remedy.
    """

    by: HashBy
    named: Named | None
    held: Mapping[str, HashRanges] | None
    problem: str = ""
    conditions: tuple[Condition, ...] = ()
    overlapping: str | None = None
    _starts: list[int] = field(default_factory=list)
    _places: list[Place] = field(default_factory=list)

    @classmethod
    def of(
        cls, by: HashBy, named: Named | None, leases: Iterable[Lease] | None, problem: str = "",
        conditions: tuple[Condition, ...] = (), now: datetime | None = None,
    ) -> SeenRanges:  # fmt: skip
        """What was read (`now`; None: in the leases' time), ready to be asked about many points."""
        leases = None if leases is None else list(leases)
        held = None if leases is None else holdings(leases)
        parts = [*(named.shards.values() if named is not None else ()), *(held or {}).values()]
        starts = sorted({0, *(bound for part in parts for span in part for bound in span if bound < SPACE)})
        places = [
            Place(start, end, shard := named.shard_at(start) if named is not None else None,
                  _holders(held or {}, start, shard))
            for start, end in zip(starts, [*starts[1:], SPACE], strict=True)
        ]  # fmt: skip
        # As the sharder does: what a lease says that has run out nobody works by, or it is taken over.
        in_time = {each.metadata.name for each in leases or () if now is None or read_shard_status(each, now).in_time}
        cannot = unreadable(leases or ()) & in_time
        readable = {shard: ranges for shard, ranges in (held or {}).items() if shard in in_time - cannot}
        told = describe_overlaps(overlaps(readable, named.shards if named is not None else {}), cannot)
        return cls(by, named, held, problem, conditions, told[1] if told is not None else None, starts, places)

    def at(self, point: int) -> Place:
        """The part of the space that `point` is in."""
        return self._places[bisect_right(self._starts, point) - 1]

    def view(self) -> RangesView:
        """What `status` says of it."""
        shards = self.named.shards if self.named is not None else {}
        return RangesView(self.by.value, {name: len(ranges) for name, ranges in sorted(shards.items())}, self.moving)

    @property
    def moving(self) -> int | None:
        """Parts of the space that are not held by whoever is named for them; None: not known."""
        if self.named is None or self.held is None:
            return None
        return sum(each.holder != each.named or each.named is None for each in self._places)


def _holders(held: Mapping[str, HashRanges], point: int, named: str | None) -> tuple[str, ...]:
    found = (shard for shard, ranges in held.items() if point in ranges)
    return tuple(sorted(found, key=lambda shard: (shard == named, shard)))


@dataclass(slots=True)
class RangeCensus:
    """Counts the objects of a ring by ranges, by the shard whose lease holds their range.

    An object that nobody holds is on the shard that is named for it if that is not available: it may be working still.
    """

    labels: RingLabels
    membership: Membership | None
    covers: Covers
    ranges: SeenRanges
    overfull: bool = False

    def add(self, tally: Tally, meta: SlimMeta) -> None:
        """Count one object into `tally`."""
        covered = self.covers(meta.namespace)
        if tally.removed or tally.subject.key_of(meta) is None or covered is False:
            return
        if covered is None:
            tally.unjudged += 1
            return
        place = self.ranges.at(self.ranges.by.point(meta))
        if place.holder is not None:
            tally.by_shard[place.holder] += 1
            if place.holder != place.named:
                tally.draining[place.holder] += 1
                tally.note(Trouble.DRAINING, meta)
        elif place.named is not None and self.membership is not None and place.named not in self.membership.available:
            tally.by_shard[place.named] += 1
            tally.note(Trouble.STRANDED, meta)
        else:
            tally.note(Trouble.UNASSIGNED, meta)
