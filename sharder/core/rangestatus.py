"""What people are told of a ring by ranges: which ranges are on their way and since when, and who has how much.

Does: render the status of a RingAssignment, each condition with its remedy; true is always good.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

from sharder.core.conditions import ConditionReason, Stamped, render_time, stamp
from sharder.core.cutting import UNEVEN
from sharder.core.owners import Overlap, Owners
from sharder.core.problems import some
from shardsdk.protocol.ranges import (
    HELD_RANGES_ANNOTATION,
    NOWHERE,
    SPACE,
    HashRanges,
    Named,
    point_of,
    render_bound,
)

#: Ranges that a status lists before it only counts them.  The CRD has the same bound.
MAX_LISTED: Final = 64
#: A shard that alone has so much of its part by one namespace is why nothing can be evened out.
_WHOLE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Moving:
    """A range that is not held by the shard that shall have it, `target`; `holder` holds it still, if anybody does."""

    start: int
    end: int
    holder: str | None
    target: str | None
    since: datetime

    def __str__(self) -> str:
        went = f" from {self.holder}" if self.holder is not None else ""
        goes = f" to {self.target}" if self.target is not None else ""
        return f"{render_bound(self.start)}-{render_bound(self.end)}{went}{goes}"


def in_transit(
    waits: HashRanges, aim: Named, held: Mapping[str, HashRanges], before: Iterable[Moving], now: datetime
) -> tuple[Moving, ...]:
    """What of `waits` is whose and shall be whose, longest first; `before` says since when that is so."""
    parts = [waits, *aim.shards.values(), *held.values()]
    bounds = sorted({0, SPACE, *(bound for part in parts for span in part for bound in span)})
    targets, holding = Owners(aim.shards), set[str]()
    begins, ends = defaultdict[int, list[str]](list), defaultdict[int, list[str]](list)
    for shard, ranges in held.items():
        for start, end in ranges:
            begins[start].append(shard)
            ends[end].append(shard)
    found: list[tuple[int, int, str | None, str | None]] = []
    for start, end in pairwise(bounds):
        holding.difference_update(ends[start])
        holding.update(begins[start])
        if start not in waits:
            continue
        target = targets.at(start) or None
        holder = min((shard for shard in holding if shard != target), default=None)
        if found and found[-1][1:] == (start, holder, target):
            found[-1] = found[-1][0], end, holder, target
        else:
            found.append((start, end, holder, target))
    known = sorted(before, key=lambda each: each.start)
    since = ((span, min((each.since for each in _meeting(known, span[0], span[1])), default=now)) for span in found)
    return tuple(sorted((Moving(*span, at) for span, at in since), key=lambda each: (each.since, each.start)))


def _meeting(known: Sequence[Moving], start: int, end: int) -> Sequence[Moving]:
    """Those of `known`, which are in order and do not overlap, that have some part from `start` to `end`."""
    first = bisect_right(known, start, key=lambda each: each.end)
    return known[first : bisect_left(known, end, key=lambda each: each.start)]


@dataclass(frozen=True, slots=True)
class Loads:
    """How much each shard is named for, and (`largest`) which single namespace has most; of nothing known: empty."""

    shards: Mapping[str, float]
    largest: tuple[str, float] | None = None
    namespaces: int = 0

    @property
    def total(self) -> float:
        """All of it."""
        return sum(self.shards.values())

    @property
    def fullest(self) -> tuple[str, float]:
        """The shard that has most, and how many times its part that is; nobody has more than 0 of nothing."""
        if not self.total:
            return "", 0.0
        name = max(sorted(self.shards), key=lambda each: self.shards[each])
        return name, self.shards[name] * len(self.shards) / self.total


def loads_by_width(named: Named, shards: Collection[str]) -> Loads:
    """Where objects lie evenly: by their uid."""
    return Loads({shard: named.of(shard).width / SPACE for shard in shards})


def loads_by_namespace(named: Named, shards: Collection[str], weights: Mapping[str, float]) -> Loads:
    """Where each namespace lies at one point with all that is in it."""
    loads, owners = dict.fromkeys(shards, 0.0), Owners(named.shards)
    for namespace, weight in weights.items():
        shard = owners.at(point_of(namespace))
        if shard in loads:
            loads[shard] += weight
    largest = max(weights.items(), key=lambda each: (each[1], each[0]), default=None)
    return Loads(loads, largest, len(weights))


def describe_moving(moving: tuple[Moving, ...], loads: Loads) -> str | None:
    """In a sentence, for the ring's status; `None`: nothing is on its way."""
    if not moving:
        return None
    if _lacks_shards(moving, loads):
        return "no shard is there to have any range; start a shard"
    count = "1 range changes hands" if len(moving) == 1 else f"{len(moving)} ranges change hands"
    return f"{count}, the longest: {moving[0]}"


def describe_unfit(silent: Collection[str], idle: Collection[str]) -> tuple[ConditionReason, str] | None:
    """Why shards are named for nothing that hold their Lease, as a reason and in words; `None`: none is so."""
    nothing = (
        f"the Lease of {some(sorted(idle))} has not said in time that its shard holds anything of what it was named"
        " for, so that others get that, if any works; its log says why: it may lack rights on RingAssignments and"
        " Leases (`shardsdk rbac --assignment Ranges` prints them), be older than others (its held-ranges then has no"
        " `@`), or hang; restart it once that is mended"
    )
    if silent:
        words = (
            f"the ring assigns by ranges, and the Lease of {some(sorted(silent))} does not say that its shard knows"
            " them (it lacks the annotation alpha.sharding.timebertt.dev/held-ranges, or has one of which the part"
            " behind `@` is not the Lease's renewTime: of another write), so that it gets nothing to work on; stop the"
            " shards that know labels alone, or run them in a ring with spec.assignment Labels; a shard that knows"
            " ranges has to write the annotation anew with each renewal"
        )
        return ConditionReason.LABELS_ONLY, f"{words}; and {nothing}" if idle else words
    return (ConditionReason.NOTHING_TAKEN, nothing) if idle else None


def describe_overlaps(found: Sequence[Overlap], unreadable: Collection[str]) -> tuple[ConditionReason, str] | None:
    """That several Leases hold one range, or that what some hold cannot be read, as a reason and in words.

    `None`: neither.  `found` is without those that are `unreadable`, which count as holding everything.
    """
    cannot = (
        f"the Lease of {some(sorted(unreadable))} has an annotation {HELD_RANGES_ANNOTATION} that cannot be read, so"
        " that it counts as holding every range: others get none that comes free, and both may work on what they have;"
        " have its shard write it as the wire contract says, or stop that: what it has moves without it"
    )
    if not found:
        return (ConditionReason.RANGES_UNREADABLE, cannot) if unreadable else None
    first, more = found[0], f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    shards = some(first.shards)
    words = (
        f"the Leases of {shards} all hold the range {first}{more}, so that they may work on the same objects at once;"
        f" look into the logs of {shards}; stop {first.shards[0]}, and what it has moves without it"
    )
    return ConditionReason.RANGES_OVERLAP, f"{words}; and {cannot}" if unreadable else words


def render_range_status(
    generation: int,
    named: Named,
    moving: tuple[Moving, ...],
    loads: Loads,
    homes: Collection[str],
    previous: Mapping[str, Any],
    now: datetime,
    left: Container[str] = (),
) -> dict[str, Any]:
    """The whole status of a RingAssignment; equal to `previous` when nothing changed.

    `homes` are the namespaces in which shards hold their Leases; who has `left` its own to the next
    process of its name works on nothing.
    """
    total = loads.total or 1.0
    return {
        "observedGeneration": generation,
        "shards": len(named.shards),
        "ranges": sum(len(ranges) for ranges in named.shards.values()),
        "rangesInTransit": len(moving),
        "shares": [
            {
                "shard": shard,
                "ranges": len(named.shards.get(shard, NOWHERE)),
                "share": f"{loads.shards.get(shard, 0.0) / total:.1%}",
            }
            for shard in sorted({*named.shards, *loads.shards})
        ],
        "inTransit": [_render_moving(each) for each in moving[:MAX_LISTED]],
        "conditions": stamp((_settled(moving, loads, left), _even(loads), _together(homes)), previous, generation, now),
    }


def _render_moving(each: Moving) -> dict[str, str]:
    made = {"start": render_bound(each.start), "end": render_bound(each.end)}
    made |= {"from": each.holder} if each.holder is not None else {}
    made |= {"to": each.target} if each.target is not None else {}
    return {**made, "since": render_time(each.since)}


def _lacks_shards(moving: tuple[Moving, ...], loads: Loads) -> bool:
    """Whether nothing can change hands, for want of somebody who has it or shall have it."""
    return not loads.shards and all(each.holder is None for each in moving)


def _settled(moving: tuple[Moving, ...], loads: Loads, left: Container[str]) -> Stamped:
    words = describe_moving(moving, loads)
    if words is None:
        return Stamped("Settled", True, ConditionReason.IN_PLACE, "every range is held by the shard that shall have it")
    if _lacks_shards(moving, loads):
        return Stamped("Settled", False, ConditionReason.NO_SHARD, words)
    holder, target, remedy = moving[0].holder, moving[0].target, ""
    if holder in left:
        remedy = (
            f"; {holder} ended with a restart grace: that waits for its next process, or until its Lease has run out"
        )
    elif holder is not None:
        remedy = f"; if it lasts, look into the log of {holder}, or stop it: what it has then moves without it"
    elif target is not None:
        remedy = f"; if it lasts, look into the log of {target}, or stop it: it is named there, and does not begin"
    return Stamped("Settled", False, ConditionReason.MOVING, words + remedy)


def _even(loads: Loads) -> Stamped:
    name, ratio = loads.fullest
    if len(loads.shards) < 2 or not ratio:
        return Stamped(
            "Even", True, ConditionReason.NOTHING_TO_SHARE, "there is one shard at most, or nothing to share"
        )
    fullest = f"the fullest shard, {name}, has {ratio:.2f} times its part"
    if ratio <= UNEVEN:
        return Stamped("Even", True, ConditionReason.EVEN, fullest)
    if loads.namespaces and loads.namespaces < 2 * len(loads.shards):
        few = f"{fullest}: {loads.namespaces} namespaces are shared by {len(loads.shards)} shards, and none is split"
        return Stamped(
            "Even", False, ConditionReason.FEW_NAMESPACES, f"{few}; run fewer shards, or use a ring with hashBy UID"
        )
    if loads.largest is not None and loads.largest[1] * len(loads.shards) / loads.total > _WHOLE:
        part = loads.largest[1] * len(loads.shards) / loads.total
        large = f"{fullest}: namespace {loads.largest[0]} alone has {part:.2f} times a shard's part, and none is split"
        return Stamped(
            "Even", False, ConditionReason.LARGE_NAMESPACE, f"{large}; divide it, or use a ring with hashBy UID"
        )
    return Stamped(
        "Even", False, ConditionReason.UNEVEN, f"{fullest}; the sharder evens it out with the next ranges that move"
    )


def _together(homes: Collection[str]) -> Stamped:
    if len(homes) < 2:
        return Stamped("Together", True, ConditionReason.ONE_NAMESPACE, "all shards have their Leases in one namespace")
    apart = (
        f"shards have their Leases in several namespaces: {', '.join(sorted(homes))}, and those of the SDK look at the"
        " Leases in their own alone, so two of them could work on one range if somebody edits this object;"
        " run all in one"
    )
    return Stamped("Together", False, ConditionReason.MANY_NAMESPACES, apart)
