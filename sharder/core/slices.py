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

    names: Sequence[str]
    part: Mapping[str, float]
    starts: Sequence[int]
    #: What lies before each slice, and in all.
    before: Sequence[float]
    runs: list[Run]
    load: dict[str, float]
    count: dict[str, int]

    @classmethod
    def of(
        cls,
        starts: Sequence[int],
        points: Mapping[int, float],
        owners: Mapping[int, str],
        ends: Collection[int],
        sizes: Mapping[str, float],
        *,
        keep: Collection[str] = (),
    ) -> Slices:
        """Slices of these starts; `owners` has whose range starts where, `ends` are where ranges end.

        `keep` are those of whom nothing changes; `sizes` are the others', who share what those do not have.
        """
        before = _before(starts, points)
        runs = list(_owned(starts, owners, ends))
        kept = dict.fromkeys(keep, 0.0)
        for run in runs:
            if run.owner in kept:
                kept[run.owner] += before[run.last] - before[run.first]
        # Where nothing lies in what is to be shared, any measure will do.
        shared, total = before[-1] - sum(kept.values()), sum(sizes.values())
        part = {name: (shared if shared > 0 else 1.0) * size / total for name, size in sizes.items()}
        made = cls(list(sizes), part | kept, starts, before, [], {}, {})
        made._set(runs)
        return made

    def _set(self, pieces: Iterable[Run]) -> None:
        """These runs, joined where they touch and are one owner's."""
        runs: list[Run] = []
        for run in pieces:
            if run.first == run.last:
                continue
            if runs and runs[-1].owner == run.owner:
                runs[-1] = runs[-1]._replace(last=run.last)
            else:
                runs.append(run)
        self.runs = runs
        self.load = dict.fromkeys(self.part, 0.0)
        self.count = dict.fromkeys(self.part, 0)
        for run in runs:
            if run.owner is not None:
                self.load[run.owner] += self.weight(run.first, run.last)
                self.count[run.owner] += 1

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

    def neighbours(self, position: int) -> tuple[str | None, str | None]:
        """Whose runs are left and right of one."""
        left = self.runs[position - 1].owner if position else None
        return left, self.runs[position + 1].owner if position + 1 < len(self.runs) else None

    def widest_unowned(self) -> int | None:
        """Where the run of nobody's is in which most lies."""
        unowned = [position for position, run in enumerate(self.runs) if run.owner is None]
        return max(unowned, key=lambda at: self.weight(*self.runs[at][:2]), default=None)

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

    def surplus(self, run: Run, level: float, *, but: str) -> float:
        """What the owner of a run has above `level` times its part, of this run; nothing but of those that may give."""
        if run.owner is None or run.owner == but or not self.may_give(run):
            return 0.0
        above = self.load[run.owner] - level * self.part[run.owner]
        return max(0.0, min(above, self.weight(run.first, run.last)))

    def may_give(self, run: Run) -> bool:
        """Whether some of a run may be taken from its owner."""
        return run.owner in self.names

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
        pieces: list[Run] = []
        for run in self.runs:
            if run.last <= first or run.first >= last:
                pieces.append(run)
                continue
            pieces.append(Run(run.first, max(run.first, first), run.owner))
            if run.first <= first:
                pieces.append(Run(first, last, name))
            pieces.append(Run(min(run.last, last), run.last, run.owner))
        self._set(pieces)


def _before(starts: Sequence[int], points: Mapping[int, float]) -> list[float]:
    if not points:
        return [*(start / SPACE for start in starts), 1.0]
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
