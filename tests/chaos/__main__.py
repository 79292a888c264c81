"""`python -m tests.chaos`: play faults on rigs of their own, and print what was observed into docs/reliability.md."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import traceback

from tests.chaos.fault import Fault
from tests.chaos.faults import FAULTS
from tests.chaos.play import play_alone
from tests.chaos.results import keep, render_row


async def main(names: list[str], seed: int, jobs: int, setup: dict[str, int]) -> int:
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
            keep(row)
            failed += not row.passed
            sys.stdout.write("\n    ".join([render_row(fault.name, row), *row.shown]) + "\n")
            sys.stdout.flush()

    await asyncio.gather(*(one(FAULTS[name]) for name in names))
    return failed


def run() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--only", action="append", choices=FAULTS, metavar="FAULT", help="play this one (repeatable)")
    parser.add_argument("--seed", type=int, help="what chance is made of (default: drawn, and printed)")
    parser.add_argument("--jobs", type=int, default=1, help="how many rigs there are at a time")
    parser.add_argument("--objects", type=int, help="how many objects each rig begins with")
    parser.add_argument("--lease-seconds", type=int, help="how long leases last")
    options = parser.parse_args()
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    given = {"objects": options.objects, "lease_seconds": options.lease_seconds}
    setup = {name: value for name, value in given.items() if value is not None}
    return min(asyncio.run(main(options.only or list(FAULTS), seed, options.jobs, setup)), 1)


if __name__ == "__main__":
    sys.exit(run())
