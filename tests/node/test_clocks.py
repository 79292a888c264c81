"""A process with wrong clocks is told wrong times, and waits by them, in whatever way it asks.

Takes Linux and a C compiler, which `make node-deps` installs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from localcluster.installation import ROOT
from tests.chaos.clocks import built, clocks_environment

TOLD = """
import json, time
from tests.chaos.clocks import true_monotonic

began, began_wall = time.monotonic(), time.time()
before, wrong, wall, after = true_monotonic(), time.monotonic(), time.time(), true_monotonic()
print(json.dumps({"before": before, "wrong": wrong, "after": after, "wall": wall, "ran": wall - began_wall}))
"""
WAYS = """
import asyncio, queue, select, sys, threading, time
import uvloop
from tests.chaos.clocks import true_monotonic

seconds = float(sys.argv[1])
ways = {
    "sleep": lambda: time.sleep(seconds),
    "thread": lambda: threading.Event().wait(seconds),
    "asyncio": lambda: asyncio.run(asyncio.sleep(seconds)),
    "uvloop": lambda: uvloop.run(asyncio.sleep(seconds)),
    "poll": lambda: select.poll().poll(seconds * 1000),
    "select": lambda: select.select([], [], [], seconds),
}
for name, wait in ways.items():
    began, wrong = true_monotonic(), time.monotonic()
    wait()
    print(name, true_monotonic() - began, time.monotonic() - wrong)
"""


def said(program: str, *arguments: str, ahead: float = 0.0, rate: float = 1.0) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **clocks_environment(ahead, rate)}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def told(**clock: float) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(TOLD, **clock))
    return found


def test_the_wall_clock_is_wrong_and_the_truth_can_be_told() -> None:
    right, wrong = told(), told(ahead=-3600.0)
    assert right["before"] <= right["wrong"] <= right["after"]
    assert wrong["before"] <= wrong["wrong"] <= wrong["after"], "only the wall clock is an hour behind"
    assert right["wall"] - 3600 <= wrong["wall"] < right["wall"]


def test_whoever_waits_waits_by_the_fast_clock() -> None:
    for line in said(WAYS, "120", rate=120.0).splitlines():
        way, right, wrong = line.split()
        assert float(wrong) >= 119.9, f"{way} ended early"
        assert float(right) < 60, f"{way} waited by the right clock"


def test_whoever_waits_waits_by_the_slow_clock() -> None:
    for line in said(WAYS, "0.2", rate=0.1).splitlines():
        way, right, _ = line.split()
        assert float(right) >= 1.9, f"{way} waited by the right clock"


def test_it_is_built_once(tmp_path: Path) -> None:
    library = built(tmp_path)
    made = library.stat().st_ino
    assert built(tmp_path) == library
    assert library.stat().st_ino == made
    assert list(tmp_path.iterdir()) == [library], "nothing is left of the build"
