"""What is wrong with somebody's input, said so that they can mend it.

Does: carry every problem at once, each with its path and its remedy.  Refuses:
to log or to raise; whoever parses decides what a problem means.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from shardsdk.protocol.labels import LEADER_LABEL, LEADS_SHARDER

#: What PyYAML raises for hostile texts beside its own errors: it leaves a tag that does not fit its value to whatever
#: comes of it, and an alias may stand within what it names.
NOT_YAML_EITHER: Final = (ValueError, RecursionError, AttributeError, LookupError, TypeError)

#: Characters of somebody's value that a message repeats.
MAX_QUOTED: Final = 80
_BOUNDED: Final = reprlib.Repr()
#: Names that a message lists before it only counts them.
MAX_LISTED: Final = 10
#: Shows which sharders lead: there is to be one.
LIST_LEADERS: Final = f"kubectl get leases -A -l {LEADER_LABEL}={LEADS_SHARDER}"


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


def some(names: Iterable[str], most: int = MAX_LISTED) -> str:
    """The first of them, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def reason_of(error: Exception) -> str:
    """What a parser says, on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def quoted(value: object) -> str:
    """`value` as Python writes it, cut where it is long: aliases of YAML expand a line to gigabytes."""
    try:
        text = repr(value[:MAX_QUOTED]) if isinstance(value, str) else _BOUNDED.repr(value)
    except ValueError:  # an integer of more digits than Python converts
        text = "a number of thousands of digits"
    return text if len(text) <= MAX_QUOTED else f"{text[: MAX_QUOTED - 3]}..."
