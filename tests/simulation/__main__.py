"""`python -m tests.simulation`: run seeds, print the first that fails and how to see it again."""

from __future__ import annotations

import argparse
import time

from tests.simulation.running import run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--runs", type=int, default=100, help="how many seeds")
    parser.add_argument("--verbose", action="store_true", help="tell the whole story, log lines included")
    options = parser.parse_args()
    began = time.monotonic()
    for seed in range(options.seed, options.seed + options.runs):
        t=time.monotonic()
        outcome = run_seed(seed, verbose=options.verbose)
        print(seed, f"{time.monotonic()-t:.2f}s virtual {outcome.seconds:.0f}", outcome.stats)
        if options.verbose:
            print("\n".join(outcome.story))
        if outcome.violations:
            print(outcome.render())
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
