"""`python -m tests.simulation`: run seeds, tell the first that fails and how to see it again."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.simulation.bugs import Bug
from tests.simulation.running import run_seeds


def main() -> int:
    """Run the seeds that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: something new)")
    parser.add_argument("--runs", type=int, default=None, help="how many seeds (default: 100, or 1 for a seed)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("--bug", choices=[bug.name for bug in Bug], help="plant this bug into the product")
    parser.add_argument("--verbose", action="store_true", help="tell the whole story of each, log lines included")
    options = parser.parse_args()
    first = time.time_ns() % 1_000_000_000 if options.seed is None else options.seed
    runs = options.runs or (100 if options.seed is None else 1)
    bug = Bug[options.bug] if options.bug else None
    began = time.monotonic()
    reconciles = handovers = takeovers = 0
    for outcome in run_seeds(range(first, first + runs), bug, jobs=options.jobs, verbose=options.verbose):
        stats = outcome.stats
        if options.verbose:
            sys.stdout.write("\n".join(outcome.story) + "\n")
        if outcome.violations:
            sys.stdout.write(outcome.render() + "\n")
            return 1
        reconciles += stats.reconciles
        handovers += stats.handovers
        takeovers += stats.takeovers
        sys.stdout.write(f"seed {outcome.plan.seed}: {outcome.seconds:.0f} s of virtual time, {stats.commits} writes,"
                         f" {stats.takeovers} takeovers, settled after {stats.settled_after:.0f} s\n")  # fmt: skip
        sys.stdout.flush()
    pace = runs / (time.monotonic() - began)
    sys.stdout.write(f"{runs} seeds from {first} hold: {reconciles} reconciles, {handovers} handovers,"
                     f" {takeovers} takeovers; {pace:.2f} seeds/s\n")  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
