"""`python -m tests.mutants.play NAME --from 0 --runs 25`: simulated runs with one fault planted; prints what it finds.

A process of its own for each fault: planting comes before anything of the
product is imported.  Ends with 1 and one line of JSON when a run fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from tests.mutants import planting
from tests.mutants.fault import Fault
from tests.mutants.faults import FAULTS

if TYPE_CHECKING:
    from tests.simulation.schedule import Plan


def main() -> int:
    """Play until something is found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.play", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--unplanted", action="store_true", help="play the same without the fault")
    options = parser.parse_args()
    fault: Fault | None = FAULTS.get(options.name)
    if fault is not None and not options.unplanted:
        planting.plant(fault)
    from tests.simulation.bugs import Bug
    from tests.simulation.running import plan_of, run_plan

    bug = None if fault is not None else Bug[options.name]
    for seed in range(options.first, options.first + options.runs):
        plan = plan_of(seed, bug) if fault is None else _plan_of(seed, fault)
        outcome = run_plan(plan, None if options.unplanted else bug)
        if outcome.violations:
            sys.stdout.write(json.dumps({"seed": seed, "rule": outcome.violations[0].rule}) + "\n")
            return 1
    return 0


def _plan_of(seed: int, fault: Fault) -> Plan:
    from tests.simulation.ranges.drawing import draw_ranges_plan
    from tests.simulation.schedule import draw_plan

    return (draw_ranges_plan if fault.ranges else draw_plan)(seed, fault.focus or None)


if __name__ == "__main__":
    raise SystemExit(main())
