"""Many seeds, one after the other: what they came to so far, kept in a file so that an interrupted run goes on."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from tests.simulation.marks import no_marks
from tests.simulation.running import Outcome

#: Where a run keeps what it has done, next to plans that broke a rule.
FOLDER: Final = Path("build/simulation")
_STATE: Final = "state.json"
_SOURCES: Final = ("sharder", "shardsdk", "tests/simulation")
_WIDTH: Final = 120


@dataclass(slots=True)
class Campaign:
    """A run of seeds from `first` on; what it came to counts for one state of the code only."""

    code: str
    bug: str | None
    first: int
    ranges: bool = False
    played: int = 0
    #: Wall clock.
    seconds: float = 0.0
    sums: dict[str, int] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=no_marks)
    #: Seeds that broke a rule, by rule.
    broken: dict[str, list[int]] = field(default_factory=dict)

    def add(self, outcome: Outcome, seconds: float) -> None:
        """Count one more outcome, and the time since the last."""
        self.played += 1
        self.seconds += seconds
        stats = outcome.stats
        for name in ("reconciles", "handovers", "takeovers", "commits"):
            self.sums[name] = self.sums.get(name, 0) + getattr(stats, name)
        for name, count in stats.marks.items():
            self.marks[name] = self.marks.get(name, 0) + count
        if outcome.rule is not None:
            self.broken.setdefault(outcome.rule, []).append(outcome.plan.seed)

    def save(self, folder: Path) -> None:
        """Remember how far it is; a run that ends in the middle of this finds what it was before."""
        folder.mkdir(parents=True, exist_ok=True)
        written = folder / f"{_STATE}.new"
        written.write_bytes(msgspec.json.encode(self))
        written.replace(folder / _STATE)

    def told(self) -> str:
        """What it came to."""
        sums = ", ".join(f"{count} {name}" for name, count in self.sums.items() if name != "commits")
        wrong = "; ".join(f"{rule}: seeds {', '.join(map(str, seeds))}" for rule, seeds in self.broken.items())
        pace = self.played / self.seconds if self.seconds else 0.0
        first = f"{self.played} seeds from {self.first} {'fail' if wrong else 'hold'}: {sums}; {pace:.2f} seeds/s"
        reached = ", ".join(f"{name} {count}" for name, count in self.marks.items() if count)
        never = ", ".join(name for name, count in self.marks.items() if not count)
        lines = [first, f"broken: {wrong}"] if wrong else [first]
        return "\n".join([*lines, _wrapped(f"reached: {reached}"), _wrapped(f"never reached: {never or 'nothing'}")])


def forget(folder: Path) -> None:
    """A run is over: the next one begins anew."""
    (folder / _STATE).unlink(missing_ok=True)


def go_on(folder: Path, bug: str | None, first: int | None, *, ranges: bool = False) -> Campaign | None:
    """The run that was interrupted, if it was one of these seeds and the code is what it was."""
    try:
        found = msgspec.json.decode((folder / _STATE).read_bytes(), type=Campaign)
    except (OSError, msgspec.MsgspecError):
        return None
    same = (found.code, found.bug, found.ranges) == (code_now(), bug, ranges) and first in (None, found.first)
    return found if same else None


def code_now() -> str:
    """Names the state of everything that a run executes."""
    digest = blake2b(digest_size=8)
    for folder in _SOURCES:
        for path in sorted(Path(folder).rglob("*.py")):
            digest.update(str(path).encode() + path.read_bytes())
    return digest.hexdigest()


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
