"""`make simulate`: what it prints, how it ends, and how it goes on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.campaign import Campaign, code_now

pytestmark = pytest.mark.timeout(900)


def simulate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", "--folder", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_seeds_that_hold_end_it_with_zero_and_their_numbers(tmp_path: Path) -> None:
    done = simulate(tmp_path, "--seed", "7", "--runs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.partition(":")[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert said == ["seed 7", "seed 8", "2 seeds from 7 hold", "reached", "never reached"]


def test_a_run_that_was_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    Campaign(code_now(), None, first=7, played=2, sums={"reconciles": 1_000_000}).save(tmp_path)
    done = simulate(tmp_path, "--seed", "7", "--runs", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    going_on, ninth, result, *_ = done.stdout.splitlines()
    assert going_on == "going on: 2 seeds from 7 are played"
    assert ninth.startswith("seed 9:")
    assert result.startswith("3 seeds from 7 hold: 1000")
    assert not list(tmp_path.iterdir()), "it is over, so the next run begins anew"


def test_a_seed_that_fails_ends_it_with_an_error_and_a_short_plan_that_fails_in_the_same_way(tmp_path: Path) -> None:
    done = simulate(tmp_path, "--seed", "0", "--runs", "16", "--bug", "CHILDREN_LAST", "--shrink", "6")
    assert done.returncode == 1, done.stdout + done.stderr
    failed = re.search(r"^seed (\d+) fails:\n *[\d.]+  ([^:]+):", done.stdout, re.MULTILINE)
    assert failed is not None
    assert f"reproduce: make simulate SEED={failed[1]} RUNS=1" in done.stdout
    shrunk = re.search(r"^shrunk from (\d+) actions to (\d+):$", done.stdout, re.MULTILINE)
    assert shrunk is not None
    assert int(shrunk[2]) < int(shrunk[1])
    (plan,) = tmp_path.iterdir()
    assert f"make simulate PLAN={plan} BUG=CHILDREN_LAST" in done.stdout
    again = simulate(tmp_path, "--plan", str(plan), "--bug", "CHILDREN_LAST")
    assert again.returncode == 1
    assert f"  {failed[2]}: " in again.stdout
