"""What was observed of each fault: kept next to the list, and printed into docs/reliability.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.chaos.faults import FAULTS
from tests.chaos.play import Row, as_json

KEPT: Final = Path(__file__).with_name("results.json")
_HEAD: Final = "| fault | what is done | violations | moves | longest without an owner | | load | date, seed |\n"


def load() -> dict[str, Row]:
    """What is kept, by fault, in the order of the list."""
    found = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return {name: _row(found[name]) for name in FAULTS if name in found}


def keep(row: Row) -> None:
    """Keep what was observed of one fault, in place of what was before."""
    known = {**load(), row.fault: row}
    KEPT.write_text(json.dumps({name: as_json(known[name]) for name in FAULTS if name in known}, indent=1) + "\n")


def render() -> str:
    """The table."""
    known = load()
    lines = [render_row(name, known.get(name)) for name in FAULTS]
    return _HEAD + "|---|---|---|---|---|---|---|---|\n" + "\n".join(lines)


def render_row(name: str, row: Row | None) -> str:
    """One line of it."""
    fault = FAULTS[name]
    start = f'| <a id="{name}"></a>`{name}` | {fault.what} |'
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
