"""What processes take while they run: memory and open files, and whether that grows.  Linux's /proc.

A process that is started again is another life of its name: what the one before took went with it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_MIB: Final = float(1 << 20)
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
#: Caches fill and pools of connections grow for so long; what is measured then is not judged.
WARM_UP_SHARE: Final = 1 / 3
#: A life is judged that covers so much of what is left.
JUDGED_SHARE: Final = 0.5
#: And so many seconds at least: a replica that comes to lead opens connections and fills caches, once.
LEAST_SECONDS: Final = 900.0
#: Growth over the time that is judged, as a share of the mean, which is noise; and so many MiB or open files anyway.
NOISE_SHARE: Final = 0.1
NOISE_MIB: Final = 4.0
NOISE_FILES: Final = 8.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One look: seconds since the begin, MiB resident, open files."""

    at: float
    mib: float
    files: int


@dataclass(frozen=True, slots=True)
class Trend:
    """A line through samples: the mean, what is added each hour, and over the time that was looked at."""

    mean: float
    per_hour: float
    growth: float

    def flat(self, noise: float) -> bool:
        """Whether it grows by no more than noise; that it shrinks is well."""
        return self.growth <= max(noise, NOISE_SHARE * self.mean)


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a process fares once it is warm."""

    memory: Trend
    files: Trend

    @property
    def flat(self) -> bool:
        """Whether neither grows."""
        return self.memory.flat(NOISE_MIB) and self.files.flat(NOISE_FILES)


@dataclass
class Life:
    """One process, from a start to an end."""

    name: str
    pid: int
    samples: list[Sample] = field(default_factory=list)

    def judge(self, seconds: float) -> Judgement | None:
        """By what was seen after the warm-up of a run of so many seconds; `None`: it did not live for long enough."""
        begin = WARM_UP_SHARE * seconds
        warm = [each for each in self.samples if each.at >= begin]
        if len(warm) < 3 or warm[-1].at - warm[0].at < max(JUDGED_SHARE * (seconds - begin), LEAST_SECONDS):
            return None
        return Judgement(
            trend([(each.at, each.mib) for each in warm]), trend([(each.at, float(each.files)) for each in warm])
        )


def together(name: str, lives: Iterable[Life]) -> Life:
    """Several processes as one, which has what they have together whenever all of their names were there.

    Replicas that take turns at leading open and close files with that; together they do not.
    """
    lives = list(lives)
    seen: dict[float, list[Sample]] = {}
    for life in lives:
        for each in life.samples:
            seen.setdefault(each.at, []).append(each)
    number = len({life.name for life in lives})
    whole = [(at, each) for at, each in sorted(seen.items()) if len(each) == number]
    return Life(
        name, 0, [Sample(at, sum(one.mib for one in each), sum(one.files for one in each)) for at, each in whole]
    )


class Lives:
    """All processes of a run; `look` at them from time to time."""

    def __init__(self) -> None:
        self.all: list[Life] = []

    def look(self, at: float, pids: Mapping[str, int]) -> None:
        """Sample whoever is there, by name."""
        for name, pid in pids.items():
            found = sample(pid, at)
            if found is not None:
                self._life(name, pid).samples.append(found)

    def _life(self, name: str, pid: int) -> Life:
        for life in reversed(self.all):
            if life.name == name:
                if life.pid == pid:
                    return life
                break
        self.all.append(Life(name, pid))
        return self.all[-1]


def sample(pid: int, at: float) -> Sample | None:
    """What a process takes now; `None`: it is not there."""
    with contextlib.suppress(OSError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        # Nothing is resident of a process that has ended and is not waited for yet.
        if pages:
            return Sample(round(at, 1), round(pages * _PAGE / _MIB, 2), len(os.listdir(f"/proc/{pid}/fd")))
    return None


def trend(points: Iterable[tuple[float, float]]) -> Trend:
    """The line of least squares through (seconds, value); at least two moments."""
    points = list(points)
    middle = sum(at for at, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    slope = sum((at - middle) * (value - mean) for at, value in points) / sum((at - middle) ** 2 for at, _ in points)
    return Trend(mean, slope * 3600.0, slope * (points[-1][0] - points[0][0]))
