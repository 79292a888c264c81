"""`python -m tests.chaos.soak`: a long run, and what it observed into docs/reliability.md and docs/soak.svg."""

from __future__ import annotations

import argparse
import asyncio
import pickle
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos.play import BUILD
from tests.chaos.rig import rig_of
from tests.chaos.soak.report import keep, render
from tests.chaos.soak.soaking import Outcome, setup_for, soak


async def main(seconds: float, every_seconds: float, objects: int, seed: int) -> Outcome:
    """Run; the history of one that breaks rules is kept."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        async with rig_of(setup_for(objects), Path(folder) / "run", seed) as rig:
            sys.stdout.write(f"{objects} objects are made and placed; seed {seed}\n")
            sys.stdout.flush()
            outcome = await soak(rig, seconds, every_seconds, seed)
            if outcome.violations:
                BUILD.mkdir(parents=True, exist_ok=True)
                (BUILD / f"soak-{seed}.pickle").write_bytes(pickle.dumps(await rig.history()))
    return outcome


def run() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="how long faults are done")
    parser.add_argument("--objects", type=int, default=30_000, help="how many objects there are")
    parser.add_argument("--every-seconds", type=float, default=60.0, help="from one fault to the next")
    parser.add_argument("--seed", type=int, help="what chance is made of (default: drawn, and printed)")
    options = parser.parse_args()
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    outcome = asyncio.run(main(options.hours * 3600, options.every_seconds, options.objects, seed))
    keep(outcome)
    sys.stdout.write("\n".join([render(outcome), *outcome.shown]) + "\n")
    return 0 if outcome.held else 1


if __name__ == "__main__":
    sys.exit(run())
