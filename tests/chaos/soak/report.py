"""What the last long run observed: kept as JSON, printed as a table, and drawn."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from localcluster.installation import ROOT
from tests.chaos.soak.measuring import Judgement, Life
from tests.chaos.soak.soaking import Outcome, as_json, from_json, is_flat
from tests.monitoring.picture import draw

KEPT: Final = Path(__file__).with_name("result.json")
PICTURE: Final = ROOT / "docs" / "soak.svg"
_HEAD: Final = "| process | lived | memory | each hour | open files | each hour | |\n|---|---|---|---|---|---|---|\n"
_MIB: Final = 1 << 20
#: Panels of the picture: title, unit, whose lives, which of a sample's values.
_PANELS: Final = (
    ("Memory of sharders", "bytes", "sharder-", "mib"),
    ("Memory of shards", "bytes", "shard-", "mib"),
    ("Open files of sharders", "", "sharder-", "files"),
    ("Open files of shards", "", "shard-", "files"),
)


def load() -> Outcome | None:
    """What is kept."""
    return from_json(json.loads(KEPT.read_text())) if KEPT.exists() else None


def keep(outcome: Outcome) -> None:
    """Keep what was observed, in place of what was before, and draw it."""
    KEPT.write_text(json.dumps(as_json(outcome)) + "\n")
    PICTURE.write_text(picture(outcome))


def render(outcome: Outcome | None = None) -> str:
    """The table, with what there is to know about the run."""
    outcome = outcome or load()
    if outcome is None:
        return "*Not run.*"
    broken = ", ".join(f"{count} × {rule}" for rule, count in outcome.violations.items()) or "none"
    done = ", ".join(f"{count} × `{name}`" for name, count in outcome.faults.items())
    settled = "all settled" if outcome.settled else "**not settled**"
    facts = (
        f"Lasted {_span(outcome.seconds)} on {outcome.date}, seed {outcome.seed}: {outcome.objects:,} objects with a"
        f" child each, leases of {outcome.lease_seconds} s. Faults: {sum(outcome.faults.values())} ({done})."
        f" Violations: {broken}; {settled} in the end. Moves: {outcome.moves:,}; longest without an owner:"
        f" {outcome.longest:.1f} s; {outcome.reconciles:,} reconciles, {outcome.writes:,} writes."
    )
    rows = [_row(life, judged, outcome.seconds) for life, judged in outcome.judged() if life.samples]
    return f"{facts}\n\n{_HEAD}" + "\n".join(rows)


def _row(life: Life, judged: Judgement | None, seconds: float) -> str:
    first, last = life.samples[0], life.samples[-1]
    lived = f"{_span(first.at)} to {_span(min(last.at, seconds))}"
    start = f"| {life.name} | {lived} |"
    if judged is None:
        return f"{start} {last.mib:.0f} MiB | | {last.files} | | too short to judge |"
    memory, files = judged.memory, judged.files
    told = {None: "not judged", True: "flat", False: "**grows**"}[is_flat(life, judged)]
    grown = f"{memory.mean:.0f} MiB | {memory.per_hour:+.1f} MiB | {files.mean:.0f} | {files.per_hour:+.1f}"
    return f"{start} {grown} | {told} |"


def _span(seconds: float) -> str:
    return f"{seconds / 60:.1f} min"


def picture(outcome: Outcome) -> str:
    """Memory and open files of sharders and shards over time."""
    panels: list[dict[str, Any]] = []
    answers: dict[int, list[tuple[str, Any]]] = {}
    for number, (title, unit, prefix, value) in enumerate(_PANELS):
        place = {"x": number % 2 * 12, "y": number // 2 * 9, "w": 12, "h": 9}
        shown = {"id": number, "type": "timeseries", "title": title, "gridPos": place}
        panels.append({**shown, "fieldConfig": {"defaults": {"unit": unit}}})
        answers[number] = list(_series((each for each in outcome.lives if each.name.startswith(prefix)), value))
    return draw(panels, answers)


def _series(lives: Iterable[Life], value: str) -> Iterable[tuple[str, Any]]:
    """The lives that lasted longest first, since only so many are named."""
    for life in sorted(lives, key=lambda each: -len(each.samples)):
        factor = _MIB if value == "mib" else 1
        yield life.name, {"metric": {}, "values": [(each.at, getattr(each, value) * factor) for each in life.samples]}
