"""Text for terminals and pipes: colours, tables, spans of time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TextIO

from shardsdk.logs import one_line as one_line

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_BAR: Final = " ▏▎▍▌▋▊▉█"
_SGR: Final = re.compile(r"\x1b\[[0-9;]*m")
#: What a painter writes, and nothing else; with parentheses, so that `split` keeps it.
_PAINTED: Final = re.compile(r"(\x1b\[(?:[0-9]{1,2})m)")


class Tone(Enum):
    """What a piece of text means; the value is its SGR code."""

    PLAIN = ""
    GOOD = "32"
    WARN = "33"
    BAD = "31"
    STRONG = "1"
    FAINT = "2"
    NAME = "36"


@dataclass(frozen=True, slots=True)
class Cell:
    """A piece of text with its meaning; `right`: aligned to the right, as numbers are."""

    text: str
    tone: Tone = Tone.PLAIN
    right: bool = False


def number(count: int | None, tone: Tone = Tone.PLAIN) -> Cell:
    """A count; None shows as `?`, zero is never alarming."""
    if count is None:
        return Cell("?", Tone.FAINT, right=True)
    return Cell(str(count), tone if count else Tone.FAINT, right=True)


@dataclass(frozen=True, slots=True)
class Painter:
    """Paints, or does not."""

    colours: bool

    def paint(self, text: str, tone: Tone) -> str:
        """`text` in its tone; what is in it could steer the terminal no more."""
        text = one_line(text)
        if not self.colours or tone is Tone.PLAIN or not text:
            return text
        return f"\x1b[{tone.value}m{text}\x1b[0m"

    def table(self, head: Sequence[str], rows: Iterable[Sequence[Cell]], *, indent: str = "") -> list[str]:
        """Columns as wide as they have to be; nothing is cut."""
        body = [[replace(cell, text=one_line(cell.text)) for cell in row] for row in rows]
        head = [one_line(title) for title in head]
        widths = [max([len(title), *(len(row[at].text) for row in body)]) for at, title in enumerate(head)]
        right = [any(row[at].right for row in body) for at in range(len(head))]
        titles = [Cell(title, Tone.FAINT, right=right[at]) for at, title in enumerate(head)]
        return [indent + self._line(row, widths) for row in [titles, *body]]

    def _line(self, row: Sequence[Cell], widths: Sequence[int]) -> str:
        parts = []
        for at, cell in enumerate(row):
            pad = " " * (widths[at] - len(cell.text))
            painted = self.paint(cell.text, cell.tone)
            last = at == len(row) - 1
            parts.append(pad + painted if cell.right else painted + ("" if last else pad))
        return "   ".join(parts).rstrip()


def for_terminal(line: str, painter: Painter) -> str:
    """`line` with nothing that steers a terminal but the painter's own colours."""
    if not painter.colours:
        return one_line(line)
    return "".join(part if _PAINTED.fullmatch(part) else one_line(part) for part in _PAINTED.split(line))


def wants_colours(choice: str, stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether to paint: `always`, `never`, or `auto`: on terminals, unless NO_COLOR is set or TERM is dumb.

    Source: https://no-color.org: any value but the empty one counts.
    """
    if choice != "auto":
        return choice == "always"
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def span(seconds: float | None) -> str:
    """A span of time as kubectl shows ages: `7s`, `3m5s`, `2h10m`, `4d`."""
    if seconds is None:
        return "?"
    whole = int(seconds)
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return f"{whole // _MINUTE}m{whole % _MINUTE}s" if whole % _MINUTE else f"{whole // _MINUTE}m"
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 2 * _DAY:
        minutes = whole % _HOUR // _MINUTE
        return f"{whole // _HOUR}h{minutes}m" if whole < 8 * _HOUR and minutes else f"{whole // _HOUR}h"
    return f"{whole // _DAY}d"


def bar(share: float, width: int) -> str:
    """A bar of up to `width` characters for a share of 0 to 1."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + _BAR[rest]).rstrip()


def rows_of(line: str, columns: int) -> int:
    """How many rows of a terminal a line takes, which wraps what is too long."""
    return max(-(-len(_SGR.sub("", line)) // max(columns, 1)), 1)


def plural(count: int, one: str) -> str:
    """`1 object`, `2 objects`."""
    return f"{count} {one if count == 1 else one + 's'}"
