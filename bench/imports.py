"""What a program waits for before its first line: the import of the names that the front page of docs/sdk needs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

#: Source: docs/sdk/index.md; tests/unit/bench/test_imports.py compares.
NAMES: Final = (
    "Column", "Condition", "Context", "CustomResource", "EventType", "Model", "ObjectMeta", "Operator", "Range",
)  # fmt: skip
FRONT_PAGE: Final = "import the front page's names"
LIBRARIES: Final = "import their libraries alone"
STATEMENTS: Final = {
    "import shardsdk": "import shardsdk",
    FRONT_PAGE: f"from shardsdk import {', '.join(NAMES)}; from shardsdk.admission import Denied, Review",
    # What they cannot do without: the same machine's limit.
    LIBRARIES: "import asyncio, msgspec, prometheus_client",
    "import drive": "from shardsdk.testing import drive",
}
RATIO: Final = "the front page's names / their libraries"
#: What is promised of the front page's names, in seconds, for a machine that has nothing else to do.
PROMISED_SECONDS: Final = 0.35
TIMES: Final = 20

Say = Callable[..., None]


def importing(times: int, say: Say) -> None:
    """Seconds by the clock and of CPU, the fastest of `times`, less those of Python without a statement."""
    print(f"imports, the fastest of {times}", flush=True)
    idle = _fastest("pass", times)
    found = {}
    for name, statement in STATEMENTS.items():
        clock, cpu = _fastest(statement, times)
        found[name] = max(clock - idle[0], 0.0)
        promised = f"; promised: {PROMISED_SECONDS} s at most" if name == FRONT_PAGE else ""
        say(name, found[name], "s", f"[{max(cpu - idle[1], 0.0):.2f} s of CPU{promised}]")
    if found[LIBRARIES]:
        say(RATIO, found[FRONT_PAGE] / found[LIBRARIES], "")


def _fastest(statement: str, times: int) -> tuple[float, float]:
    runs = [_run(statement) for _ in range(times + 1)][1:]  # the first compiles
    return min(clock for clock, _ in runs), min(cpu for _, cpu in runs)


def _run(statement: str) -> tuple[float, float]:
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", statement])
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return time.perf_counter() - begun, used.ru_utime + used.ru_stime
