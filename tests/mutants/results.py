"""What became of each planted fault: kept next to the list, and printed into docs/mutants.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.mutants.faults import FAULTS
from tests.simulation.bugs import Bug

#: By name of the fault: what found it (empty: nothing did) and, of simulated runs, how many it took.
Results = dict[str, dict[str, str | int]]

KEPT: Final = Path(__file__).with_name("results.json")
PAGE: Final = Path(__file__).parents[2] / "docs" / "mutants.md"

_HEAD: Final = """# Planted faults

<!-- Printed by `make mutants`. -->

How good are the tests? Each row is a fault that `make mutants` plants into a copy of the code in memory: one rule of
the protocol, broken in one place. Then it runs tests, or simulated clusters with random schedules, until one fails
that passes without the fault. `make mutants ARGS='--only NAME'` tries one again with up to {most} schedules,
`ARGS=--again` all of them. Where a row says *not found*, neither the tests that are meant for it nor so many schedules
noticed.

{found} of {all} are found: {by_test} by a unit or property test, {by_seed} by simulated schedules.

| fault | the rule that it breaks | where | found by |
|---|---|---|---|
"""


def names() -> list[str]:
    """Every planted fault, in the order of the list."""
    return [*FAULTS, *(bug.name for bug in Bug)]


def load() -> Results:
    """What is kept."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def keep(results: Results) -> None:
    """Keep results, and print them."""
    known = {name: results[name] for name in names() if name in results}
    KEPT.write_text(json.dumps(known, indent=1) + "\n")
    PAGE.write_text(render(known))


def render(results: Mapping[str, Mapping[str, str | int]]) -> str:
    """The page."""
    found = [name for name in names() if results.get(name, {}).get("by")]
    by_seed = [name for name in found if "seeds" in results[name]]
    head = _HEAD.format(
        most=MOST_SEEDS, found=len(found), all=len(names()), by_test=len(found) - len(by_seed), by_seed=len(by_seed)
    )
    return head + "".join(_row(name, results.get(name)) for name in names())


def _row(name: str, result: Mapping[str, str | int] | None) -> str:
    fault = FAULTS.get(name)
    rule = fault.rule if fault is not None else f"*then* {Bug[name].value}"
    where = f"`{fault.module}`" if fault is not None else "`tests.simulation.bugs`"
    if result is None:
        by = "not tried yet"
    elif not result["by"]:
        by = f"**not found** (by its tests, and in {result.get('seeds', 0)} schedules)"
    elif "seeds" in result:
        by = f"schedules: {result['by']} (in {result['seeds']} of them)"
    else:
        by = f"`{result['by']}`"
    return f"| {name} | {rule} | {where} | {by} |\n"


#: So many schedules are played before a fault counts as not found.
MOST_SEEDS: Final = 200
