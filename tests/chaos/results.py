"""What was observed of each fault: kept next to the list, and printed into docs/reliability.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.chaos.faults import NOT_BY_RANGES, PLAYED
from tests.chaos.play import Row, as_json

#: Of rings of each `assignment`.
KEPT: Final = {
    "Labels": Path(__file__).with_name("results.json"),
    "Ranges": Path(__file__).with_name("results-ranges.json"),
}
_ANCHORS: Final = {"Labels": "", "Ranges": "ranges-"}
_HEAD: Final = "| fault | what is done | violations | moves | longest without an owner | | load | date, seed |\n"


def load(assignment: str = "Labels") -> dict[str, Row]:
    """What is kept of rings that assign so, by fault, in the order of the list."""
    path = KEPT[assignment]
    found = json.loads(path.read_text()) if path.exists() else {}
    return {name: _row(found[name]) for name in PLAYED[assignment] if name in found}


def keep(row: Row) -> None:
    """Keep what was observed of one fault, in place of what was before."""
    known = {**load(row.assignment), row.fault: row}
    rows = {name: as_json(known[name]) for name in PLAYED[row.assignment] if name in known}
    KEPT[row.assignment].write_text(json.dumps(rows, indent=1) + "\n")


def render(assignment: str = "Labels") -> str:
    """The table."""
    known = load(assignment)
    lines = [render_row(name, known.get(name), assignment) for name in PLAYED[assignment]]
    return _HEAD + "|---|---|---|---|---|---|---|---|\n" + "\n".join(lines)


def render_not_by_ranges() -> str:
    """Which faults a ring by ranges is spared, and why."""
    return "\n".join(f"- `{name}`: {why}" for name, why in NOT_BY_RANGES.items())


def render_row(name: str, row: Row | None, assignment: str = "Labels") -> str:
    """One line of it."""
    fault = PLAYED[assignment][name]
    start = f'| <a id="{_ANCHORS[assignment]}{name}"></a>`{name}` | {fault.what} |'
    if row is None:
        return f"{start} *not run* | | | | | |"
    broken = ", ".join(f"{count} × {rule}" for rule, count in row.violations.items()) or "none"
    moves = f"{row.moves} of {row.objects} objects"
    if row.beyond:
        moves += f", **{row.beyond} without need**"
    longest = f"{row.longest:.1f} s (≤ {row.allowed:.0f})"
    load = f"{row.load:.1f}" if row.load else ""
    return f"{start} {broken} | {moves} | {longest} | {_conclusion(row)} | {load} | {row.date}, {row.seed} |"


def _conclusion(row: Row) -> str:
    if row.passed:
        return "holds"
    if row.safe:
        return "safe, **late**"
    return "**does not hold**" if row.settled else "**did not settle**"


def _row(kept: Mapping[str, Any]) -> Row:
    return Row(**{**kept, "shown": tuple(kept["shown"])})
