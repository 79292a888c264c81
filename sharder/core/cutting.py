"""Where the space of hashes is cut: which shard is to be named for which ranges.

A pure function of what is named now, the shards there are, and what lies where.
What moves is what has to: ranges without a shard go to those with room for them,
beside their own if possible; a shard that has come takes from the fullest, where two
of them meet, so that one range of its own takes from both; others stay as they are.

Guarantees (tests/properties/test_cutting.py)
- The whole space is somebody's, and only of shards that there are.
- Nothing moves while the same shards share the same things, unless one has more than
  `UNEVEN` times its part; what was cut stays as it was cut when it is asked again.
- A shard has at most `MOST_RANGES` ranges, which is what an API server filters cheaply,
  and no more than 1.10 times its part, as far as single namespaces allow.  In a ring of
  more than `MAX_RANGES` / 16 shards it gets fewer (`most_ranges`).  It gets more only of
  what lies between ranges of shards that keep theirs, and would be nobody's otherwise.

Namespaces are never split, and the cuts lie between those that exist: names that differ
at their end have hashes close together, so equal widths would share nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby, pairwise
from typing import Final, Protocol

from sharder.core.slices import Slices, even_slices, slices_between
from shardsdk.protocol.ranges import MAX_RANGES, HashRanges, Named

#: Of one shard.  Source: measured on Kubernetes 1.36.3; one match takes 1.1 µs with 1 range, 1.4 with 8, 4.6 with 64.
MOST_RANGES: Final = 8
#: With the same shards as before nothing moves until one has so many times its part.
UNEVEN: Final = 1.25
#: When something moves anyway: whoever has more gives the rest away...
_FULL: Final = 1.085
#: ... until it has so much...
_TRIMMED: Final = 1.07
#: ... and nobody is given more than this.
_LEVEL: Final = 1.05
_ANY: Final = float("inf")
#: Parts to which what nobody has may fill shards, one after the other where there is no room left, and how many times
#: the ranges that a shard may have it may get of what is not beside others of its own.
_LEVELS: Final = ((1.06, 0.0), (_LEVEL, 1.0), (1.08, 1.0), (_ANY, 1.0), (_ANY, _ANY))
#: A shard that has come is given its part, unless what nobody had was so much of it.
_HUNGRY: Final = 0.5
#: Ranges of one that has come; what is left is for what others leave to it later.
_FIRST_RANGES: Final = 6
#: A newcomer's neighbours give it so much more than others, rather than that it gets many ranges.
_GENEROUS: Final = 0.9
#: What is less of a shard's part is not worth a range.
_SLIVER: Final = 0.02
#: ... and what is less none that is not beside others of its own.
_PIECE: Final = 0.05
#: What a range more counts when somebody to give to is looked for, as a share of its part: one that is not beside
#: others of its own, and each that it has already.
_APART: Final = 0.1
_EACH: Final = 0.01


def most_ranges(shards: int) -> int:
    """How many ranges each of so many shards gets at most; of a large ring they have to go into one RingAssignment.

    Also while they change hands, as many bounds again as before.
    """
    return max(1, min(MOST_RANGES, MAX_RANGES // (2 * shards)))


class Cut(Protocol):
    """Where ranges are to be cut; `cut` is the one that the sharder uses."""

    def __call__(
        self,
        named: Named,
        shards: Collection[str],
        points: Mapping[int, float],
        /,
        *,
        keep: Collection[str],
        short: Collection[str],
    ) -> Named:
        """Who is to be named for what."""
        ...


def cut(
    named: Named,
    shards: Iterable[str],
    points: Mapping[int, float],
    *,
    keep: Collection[str] = (),
    short: Collection[str] = (),
) -> Named:
    """Who is to be named for what.

    `points` is what lies where, hash -> weight (above 0); of nothing the space itself is shared.  Those that
    `keep` what they have are neither given anything nor taken anything from; the shards share the rest in equal
    parts, which is not evened out meanwhile unless something moves anyway.  Those that are `short` of their part,
    since it went to others while they were silent, get it like one that has come.  Without shards all stays as it is.

    Raises: ValueError for a weight that is not above 0, or too large to be added up.
    """
    names = sorted(set(shards))
    if not names:
        return named
    keepers = set(keep) - set(names)
    for weight in points.values():
        if not 0 < weight < float("inf"):
            raise ValueError(f"a weight is {weight}, not above 0")
    slices = _slices(named, points, names, keepers)
    come = [name for name in names if not slices.count[name]]
    begun = bool(named.nobodys) or not set(named.shards) <= {*names, *keepers}
    _settle(slices)
    _feed(slices, [name for name in names if name in come or name in short])
    # One for which there is nothing is no reason for others to give each other anything.
    begun = begun or any(slices.count[name] for name in come)
    if begun or not keepers:
        _even(slices, _FULL if begun else UNEVEN)
    spans: dict[str, list[tuple[int, int]]] = {}
    for start, end, owner in slices.spans():
        spans.setdefault(owner, []).append((start, end))
    return Named(named.by, {name: HashRanges.of(*theirs) for name, theirs in spans.items()})


def _slices(named: Named, points: Mapping[int, float], names: Collection[str], keepers: Collection[str]) -> Slices:
    who = {*names, *keepers}
    owners = {start: shard for shard, ranges in named.shards.items() for start, _ in ranges if shard in who}
    ends = {end for ranges in named.shards.values() for _, end in ranges}
    bounds = {start for ranges in named.shards.values() for start, _ in ranges} | ends
    starts = slices_between(points, bounds) if points else even_slices(bounds)
    return Slices.of(starts, points, owners, ends, names, keep=keepers)


def _settle(slices: Slices) -> None:
    """Give away what nobody has."""
    most = most_ranges(len(slices.names))
    for level, times in _LEVELS:
        while (position := slices.widest_unowned()) is not None:
            if not _give_away(slices, position, level, times * most):
                break


def _give_away(slices: Slices, position: int, level: float, most: float) -> bool:
    """A part of what lies at `position`, or all of it, beside others or to one of less than `most` ranges.

    Returns whether anybody has taken some.
    """
    run = slices.runs[position]
    left, right = slices.neighbours(position)
    best: tuple[float, str] | None = None
    for name in slices.names:
        room = level * slices.part[name] - slices.load[name]
        beside = name in (left, right)
        least = _SLIVER if beside else _PIECE
        if room < least * slices.part[name] or not (beside or slices.count[name] < most):
            continue
        score = slices.ratio(name) + (0.0 if beside else _APART + _EACH * slices.count[name])
        best = min(best, (score, name)) if best is not None else (score, name)
    if best is None:
        return False
    name = best[1]
    weight = slices.weight(run.first, run.last)
    room = level * slices.part[name] - slices.load[name]
    if weight <= room + _SLIVER * slices.part[name]:
        slices.give(run.first, run.last, name)
        return True
    from_left = name == left or (name != right and (left is None or slices.ratio_of(left) >= slices.ratio_of(right)))
    edge = slices.edge(run, room, from_left=from_left)
    if from_left:
        slices.give(run.first, edge, name)
    else:
        slices.give(edge, run.last, name)
    return True


def _feed(slices: Slices, come: Iterable[str]) -> None:
    """Give those that have come their part, from the fullest."""
    for name in come:
        if slices.ratio(name) < _HUNGRY:
            _take_where_two_meet(slices, name)
            _take_from_neighbours(slices, name)
            _take_one_by_one(slices, name)


def _take_where_two_meet(slices: Slices, name: str) -> None:
    least = _SLIVER * slices.part[name]
    while (need := slices.part[name] - slices.load[name]) > least:
        surplus = slices.surplus(slices.water_level(name, need), but=name)
        full = slices.count[name] >= min(_FIRST_RANGES, most_ranges(len(slices.names)))
        best, found = least, None
        for position, (left, right) in enumerate(pairwise((0.0, *surplus, 0.0))):
            if left + right > best and not (full and name not in slices.sides(position)):
                best, found = left + right, position
        if found is None:
            return
        # Looked up before anything is taken from the first, which moves those behind it.
        meet = [(at, slices.runs[at], surplus[at]) for at in (found - 1, found) if 0 <= at < len(surplus)]
        taken = slices.load[name]
        for at, run, amount in meet:
            if amount > 0:
                slices.take_end(run, amount, name, from_left=at == found)
        if slices.load[name] <= taken:
            return


def _take_from_neighbours(slices: Slices, name: str) -> None:
    """Widen what it has, until it has its part or its neighbours have too little."""
    while (need := slices.part[name] - slices.load[name]) > _SLIVER * slices.part[name]:
        beside = [
            (slices.ratio_of(run.owner), position, run, from_left)
            for position, run in slices.beside(name)
            for from_left, near in zip((True, False), slices.neighbours(position), strict=True)
            if near == name and slices.may_give(run.owner) and slices.ratio_of(run.owner) > _GENEROUS + _SLIVER
        ]
        taken = slices.load[name]
        for ratio, _, run, from_left in sorted(beside, reverse=True, key=lambda each: each[:2]):
            assert run.owner is not None
            amount = min(need, (ratio - _GENEROUS) * slices.part[run.owner])
            slices.take_end(run, amount, name, from_left=from_left)
            if slices.load[name] > taken:
                break
        else:
            return


def _take_one_by_one(slices: Slices, name: str) -> None:
    """The lightest of the fullest, where all have more than their part, and nobody a whole namespace too many."""
    most = min(_FIRST_RANGES, most_ranges(len(slices.names)))
    while slices.ratio(name) < _HUNGRY and slices.count[name] < most:
        for ratio, weight, owner, first, last in _lightest_ends(slices, name):
            # Whoever gives has something left, and is not better off than who takes was.
            if 0 < weight < slices.load[owner] and (slices.load[name] + weight) / slices.part[name] < ratio:
                slices.give(first, last, name)
                break
        else:
            return


def _lightest_ends(slices: Slices, name: str) -> Iterator[tuple[float, float, str, int, int]]:
    """What the others could give of each run: of those with the highest ratio first, the lightest first."""
    givers = sorted((each for each in slices.names if each != name), key=slices.ratio, reverse=True)
    for ratio, owners in groupby(givers, key=slices.ratio):
        ends = [
            (slices.weight(first, last), near != name, position, owner, first, last)
            for owner in owners
            for position, run in slices.runs_of(owner)
            for from_left, near in zip((True, False), slices.neighbours(position), strict=True)
            for first, last in [slices.end_of(run, 0.0, from_left=from_left)]
        ]
        for weight, _, _, owner, first, last in sorted(ends):
            yield ratio, weight, owner, first, last


def _even(slices: Slices, begin_at: float) -> None:
    """Have those that have too much give it away, the fullest first, if one of more than `begin_at` can."""
    full = begin_at
    #: Who could give nothing to anybody, and who has something else than then: nobody else is worth another try.
    stuck: dict[str, set[str]] = {}
    while True:
        over = [name for name in slices.names if slices.ratio(name) > full and stuck.get(name) != set()]
        for donor in sorted(over, key=lambda name: (slices.ratio(name), name), reverse=True):
            receiver = _give_some(slices, donor, stuck.get(donor, slices.names))
            if receiver is not None:
                break
            stuck[donor] = set()
        else:
            return
        full = _FULL
        stuck = {name: others | {donor, receiver} for name, others in stuck.items() if name not in (donor, receiver)}


def _give_some(slices: Slices, donor: str, others: Collection[str]) -> str | None:
    """To which of `others` that has room, beside it if possible; `None`: nobody would be better off."""
    surplus = slices.load[donor] - _TRIMMED * slices.part[donor]
    options: list[tuple[float, str, int, bool]] = []
    most = most_ranges(len(slices.names))
    for position, _ in slices.runs_of(donor):
        near = slices.neighbours(position)
        for name in others:
            room = _LEVEL * slices.part[name] - slices.load[name]
            if name == donor or room <= 0 or not (name in near or slices.count[name] < most):
                continue
            apart = 0.0 if name in near else _APART + _EACH * slices.count[name]
            options.append((slices.ratio(name) + apart, name, position, near[1] != name))
    for _, name, position, from_left in sorted(options):
        run, before = slices.runs[position], slices.ratio(donor)
        amount = min(surplus, _LEVEL * slices.part[name] - slices.load[name])
        first, last = slices.end_of(run, amount, from_left=from_left)
        weight = slices.weight(first, last)
        if weight > 0 and (slices.load[name] + weight) / slices.part[name] < before:
            slices.give(first, last, name)
            return name
    return None
