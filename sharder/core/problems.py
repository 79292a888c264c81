"""What is wrong with somebody's input, said so that they can mend it.

Does: carry every problem at once, each with its path and its remedy.  Refuses:
to log or to raise; whoever parses decides what a problem means.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong at `path` (as in `spec.resources[0].group`), and what to do about it."""

    path: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}; {self.remedy}"


def render_problems(problems: Iterable[Problem]) -> str:
    """All problems as one line."""
    return " | ".join(str(problem) for problem in problems)
