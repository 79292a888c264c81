"""A machine whose clocks are wrong, as the processes of a run get it.

`SystemClock` is the one place at which this project's programs ask for the time, so it is changed there: the wall
clock is `ahead` by so many seconds, and all clocks and pauses run at `rate` times the right speed.  The event loop's
own time limits keep the right speed, as does the recorder, which has to write down the truth.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Final

from sharder.cli import main as serve
from shardsdk.kube.clock import SystemClock

#: Environment of a sharder: the wall clock's error in seconds, and how fast all clocks run.
AHEAD: Final = "CHAOS_AHEAD"
RATE: Final = "CHAOS_RATE"


def add_options(parser: argparse.ArgumentParser) -> None:
    """`--ahead` and `--rate`."""
    parser.add_argument("--ahead", type=float, default=0.0, help="seconds by which the wall clock is wrong")
    parser.add_argument("--rate", type=float, default=1.0, help="how fast all clocks run")


def set_clocks(ahead: float, rate: float) -> None:
    """Have every `SystemClock` of this process be wrong from now on."""
    right = SystemClock.monotonic
    began, wall = right(SystemClock()), datetime.now(UTC)

    def monotonic(self: SystemClock) -> float:
        return began + (right(self) - began) * rate

    def now(self: SystemClock) -> datetime:
        return wall + timedelta(seconds=monotonic(self) - began + ahead)

    async def sleep(self: SystemClock, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0.0) / rate)

    if ahead or rate != 1.0:
        SystemClock.monotonic = monotonic  # type: ignore[method-assign]
        SystemClock.now = now  # type: ignore[method-assign]
        SystemClock.sleep = sleep  # type: ignore[method-assign]


def main() -> None:
    """Be a sharder on such a machine, as the environment says it (`AHEAD`, `RATE`)."""
    set_clocks(float(os.environ.get(AHEAD, "0")), float(os.environ.get(RATE, "1")))
    sys.exit(serve())


if __name__ == "__main__":
    main()
