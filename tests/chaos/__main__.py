"""`python -m tests.chaos`: play faults on rigs of their own, and print what was observed into docs/reliability.md."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import traceback
from typing import Any

from localcluster.components import parse_feature_gates
from tests.chaos.fault import Fault
from tests.chaos.faults import PLAYED
from tests.chaos.play import play_alone
from tests.chaos.results import keep, render_row


async def main(faults: list[Fault], seed: int, jobs: int, setup: dict[str, Any]) -> int:
    """Play these; returns how many did not hold."""
    gate, failed = asyncio.Semaphore(jobs), 0

    async def one(fault: Fault) -> None:
        nonlocal failed
        async with gate:
            try:
                row = await play_alone(fault, seed, **setup)
            except Exception:
                failed += 1
                sys.stderr.write(f"{fault.name} could not be played:\n{traceback.format_exc()}")
                return
            if not setup["feature_gates"]:
                keep(row)
            failed += not row.passed
            sys.stdout.write("\n    ".join([render_row(fault.name, row, row.assignment), *row.shown]) + "\n")
            sys.stdout.flush()

    await asyncio.gather(*map(one, faults))
    return failed


def run() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--assignment", choices=PLAYED, default="Labels", help="how the ring assigns its objects")
    parser.add_argument("--only", action="append", metavar="FAULT", help="play this one (repeatable)")
    parser.add_argument("--seed", type=int, help="what chance is made of (default: drawn, and printed)")
    parser.add_argument("--jobs", type=int, default=1, help="how many rigs there are at a time")
    parser.add_argument("--objects", type=int, help="how many objects each rig begins with")
    parser.add_argument("--lease-seconds", type=int, help="how long leases last")
    parser.add_argument("--feature-gates", default="", metavar="NAME=BOOL,…", help="of API servers; keeps no row")
    options = parser.parse_args()
    faults = PLAYED[options.assignment]
    if unknown := set(options.only or ()) - faults.keys():
        parser.error(
            f"a ring by {options.assignment} is not played {', '.join(sorted(unknown))}; there are {[*faults]}"
        )
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    given = {
        "assignment": options.assignment, "objects": options.objects, "lease_seconds": options.lease_seconds,
        "feature_gates": parse_feature_gates(options.feature_gates),
    }  # fmt: skip
    setup = {name: value for name, value in given.items() if value is not None}
    return min(asyncio.run(main([faults[name] for name in options.only or faults], seed, options.jobs, setup)), 1)


if __name__ == "__main__":
    sys.exit(run())
