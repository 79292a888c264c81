"""The space of hashes in slices that are not cut any further, and whose each is; what `cutting` works on.

A slice holds one namespace, or is one of many equal parts of the space; neighbours of
one owner make a run, which is one range of that owner.  Mutable, for one use.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from shardsdk.protocol.ranges import SPACE

#: Equal parts where nothing is known of what lies in them: 80 for each of 50 shards.
_EQUAL_SLICES: Final = 4096


def slices_between(points: Collection[int], bounds: Collection[int]) -> list[int]:
    """Where slices start: halfway between two points, but where somebody's range ends between them already."""
    kept = sorted({0, *(bound for bound in bounds if bound < SPACE)})
    starts = set(kept)
    for here, after in pairwise(sorted(points)):
        if bisect_right(kept, here) == bisect_right(kept, after):
            starts.add(here + (after - here + 1) // 2)
    return sorted(starts)


def even_slices(bounds: Collection[int]) -> list[int]:
    """Where slices start: at equal distances, and where somebody's range starts or ends."""
    step = SPACE // _EQUAL_SLICES
    return sorted([*range(0, SPACE, step), *{bound for bound in bounds if bound < SPACE and bound % step}])


class Run(NamedTuple):
    """Slices `first` to before `last`, of one owner; `None` is nobody."""

    first: int
    last: int
    owner: str | None


@dataclass(slots=True)
class Slices:
    """`load` is what each shard has, `part` what it is to have, `count` how many ranges it has.

    `names` are those who may be given something, and be taken something from; the others keep what they have.
    """

    names: Collection[str]
    part: Mapping[str, float]
    starts: Sequence[int]
    #: What lies before each slice, and in all.
    before: Sequence[float]
    runs: list[Run]
    load: dict[str, float]
    count: dict[str, int]
    #: The first slices of all runs, and of each owner's.
    _firsts: list[int]
    _owned: dict[str | None, list[int]]

    @classmethod
    def of(
        cls,
        starts: Sequence[int],
        points: Mapping[int, float],
        owners: Mapping[int, str],
        ends: Collection[int],
        names: Collection[str],
        *,
        keep: Collection[str] = (),
    ) -> Slices:
        """Slices of these starts; `owners` has whose range starts where, `ends` are where ranges end.

        `keep` are those of whom nothing changes; `names` are the others, who share what those do not have.
        """
        before = _before(starts, points)
        runs = list(_owned(starts, owners, ends))
        kept = dict.fromkeys(keep, 0.0)
        for run in runs:
            if run.owner in kept:
                kept[run.owner] += before[run.last] - before[run.first]
        # Where nothing lies in what is to be shared, any measure will do.
        shared = before[-1] - sum(kept.values())
        part = dict.fromkeys(names, (shared if shared > 0 else 1.0) / len(names)) | kept
        # In their order, so that whoever cuts the same makes the same of it.
        made = cls(
            dict.fromkeys(names), part, starts, before, [], dict.fromkeys(part, 0.0), dict.fromkeys(part, 0), [], {}
        )
        made._set(0, 0, runs)
        return made

    def _set(self, here: int, there: int, pieces: Iterable[Run]) -> None:
        """These runs instead of those at `here` to before `there`, joined where they touch and are one owner's."""
        runs = list(_joined(pieces))
        gone: dict[str | None, set[int]] = {}
        for run in self.runs[here:there]:
            gone.setdefault(run.owner, set()).add(run.first)
        come: dict[str | None, list[int]] = {}
        for run in runs:
            come.setdefault(run.owner, []).append(run.first)
        self.runs[here:there] = runs
        self._firsts[here:there] = [run.first for run in runs]
        for owner in {**gone, **come}:
            left = gone.get(owner, ())
            firsts = [first for first in self._owned.get(owner, ()) if first not in left] + come.get(owner, [])
            self._owned[owner] = sorted(firsts)
            if owner is not None:
                # Added up anew, from left to right: what rounding makes of it depends on nothing that was before.
                self.load[owner], self.count[owner] = 0.0, len(firsts)
                for _, run in self.runs_of(owner):
                    self.load[owner] += self.weight(run.first, run.last)

    # -- what there is ---------------------------------------------------------

    def weight(self, first: int, last: int) -> float:
        """What lies in the slices `first` to before `last`."""
        return self.before[last] - self.before[first]

    def ratio(self, name: str) -> float:
        """How many times its part a shard has."""
        return self.load[name] / self.part[name]

    def ratio_of(self, name: str | None) -> float:
        """The same; nobody, and who is given nothing, has all it could."""
        return float("inf") if name is None or name not in self.names else self.ratio(name)

    def runs_of(self, owner: str | None) -> Iterator[tuple[int, Run]]:
        """Where each run of an owner is, from left to right."""
        for first in self._owned.get(owner, ()):
            position = bisect_left(self._firsts, first)
            yield position, self.runs[position]

    def beside(self, owner: str) -> list[tuple[int, Run]]:
        """Where the runs are that touch an owner's, from left to right."""
        at = {near for position, _ in self.runs_of(owner) for near in (position - 1, position + 1)}
        return [(position, self.runs[position]) for position in sorted(at) if 0 <= position < len(self.runs)]

    def neighbours(self, position: int) -> tuple[str | None, str | None]:
        """Whose runs are left and right of one."""
        return self.sides(position)[0], self.sides(position + 1)[1]

    def sides(self, position: int) -> tuple[str | None, str | None]:
        """Whose runs meet where one begins; behind the last nobody's does."""
        left = self.runs[position - 1].owner if position else None
        return left, self.runs[position].owner if position < len(self.runs) else None

    def widest_unowned(self) -> int | None:
        """Where the run of nobody's is in which most lies."""
        widest = max(self.runs_of(None), key=lambda each: self.weight(each[1].first, each[1].last), default=None)
        return None if widest is None else widest[0]

    def water_level(self, receiver: str, need: float) -> float:
        """The share of their parts to which the others come down when together they give `need`."""
        others = sorted((name for name in self.names if name != receiver), key=self.ratio, reverse=True)
        load = part = 0.0
        level = 0.0
        for position, name in enumerate(others):
            load, part = load + self.load[name], part + self.part[name]
            level = (load - need) / part
            if position + 1 == len(others) or level >= self.ratio(others[position + 1]):
                break
        return max(level, 0.0)

    def surplus(self, level: float, *, but: str) -> list[float]:
        """Of each run what its owner has above `level` times its part; nothing but of those that may give."""
        givers = {name for name in self.part if name != but and self.may_give(name)}
        above: dict[str | None, float] = {name: max(0.0, self.load[name] - level * self.part[name]) for name in givers}
        return [min(above.get(run.owner, 0.0), self.before[run.last] - self.before[run.first]) for run in self.runs]

    def may_give(self, owner: str | None) -> bool:
        """Whether something may be taken from whoever it is."""
        return owner in self.names

    def spans(self) -> Iterator[tuple[int, int, str]]:
        """Each run as start, end and owner; what is nobody's is left out."""
        bounds = [*self.starts, SPACE]
        for run in self.runs:
            if run.owner is not None:
                yield bounds[run.first], bounds[run.last], run.owner

    # -- giving ------------------------------------------------------------------

    def edge(self, run: Run, amount: float, *, from_left: bool) -> int:
        """The slice before which a run is cut so that about `amount` lies on one side of it, and not nothing."""
        wanted = self.before[run.first] + amount if from_left else self.before[run.last] - amount
        edge = bisect_left(self.before, wanted, run.first, run.last)
        if edge > run.first and wanted - self.before[edge - 1] < self.before[edge] - wanted:
            edge -= 1
        # Beside empty slices, which a bound of somebody's makes, lies what there would be without them.
        if from_left:
            return max(edge, bisect_right(self.before, self.before[run.first], run.first, run.last))
        return min(edge, max(bisect_left(self.before, self.before[run.last], run.first, run.last) - 1, run.first))

    def end_of(self, run: Run, amount: float, *, from_left: bool) -> tuple[int, int]:
        """The slices at one end of a run in which about `amount` lies, and not nothing."""
        edge = self.edge(run, amount, from_left=from_left)
        return (run.first, edge) if from_left else (edge, run.last)

    def take_end(self, run: Run, amount: float, name: str, *, from_left: bool) -> None:
        """Give about `amount` of a run to `name`, if not more than half too much."""
        first, last = self.end_of(run, amount, from_left=from_left)
        if 0 < self.weight(first, last) <= 1.5 * amount:
            self.give(first, last, name)

    def give(self, first: int, last: int, name: str) -> None:
        """The slices `first` to before `last` are those of `name` from now on."""
        if first >= last:
            return
        here, there = bisect_right(self._firsts, first) - 1, bisect_left(self._firsts, last)
        left, right = self.runs[here], self.runs[there - 1]
        pieces = [Run(left.first, first, left.owner), Run(first, last, name), Run(last, right.last, right.owner)]
        # With those beside them, which may be of the same owner.
        before, after = max(here - 1, 0), there + 1
        self._set(before, after, [*self.runs[before:here], *pieces, *self.runs[there:after]])


def _joined(pieces: Iterable[Run]) -> Iterator[Run]:
    """Without empty ones, and neighbours of one owner as one."""
    before: Run | None = None
    for run in pieces:
        if run.first == run.last:
            continue
        if before is not None and before.owner == run.owner:
            before = before._replace(last=run.last)
            continue
        if before is not None:
            yield before
        before = run
    if before is not None:
        yield before


def _before(starts: Sequence[int], points: Mapping[int, float]) -> list[float]:
    if not points:
        return [*[start / SPACE for start in starts], 1.0]
    inside = [0.0] * len(starts)
    for point, weight in points.items():
        inside[bisect_right(starts, point) - 1] += weight
    return [0.0, *accumulate(inside)]


def _owned(starts: Sequence[int], owners: Mapping[int, str], ends: Collection[int]) -> Iterator[Run]:
    """A run up to each bound of somebody's; neighbours may be one owner's."""
    first, owner = 0, None
    for bound in sorted({*owners, *ends}):
        position = bisect_left(starts, bound)
        if position < len(starts):
            yield Run(first, position, owner)
            first, owner = position, owners.get(bound)
    yield Run(first, len(starts), owner)
