"""`make simulate`: what it prints, how it ends, and how it goes on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.campaign import go_on

pytestmark = pytest.mark.timeout(900)


def command_of(folder: Path) -> list[str]:
    # One job: each process that plays takes seconds to get ready, which is more than most of these seeds take.
    return [sys.executable, "-m", "tests.simulation", "--jobs", "1", "--folder", str(folder)]


def simulate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command_of(folder), *arguments], capture_output=True, text=True, check=False)


def test_seeds_that_hold_end_it_with_zero_and_their_numbers(tmp_path: Path) -> None:
    done = simulate(tmp_path, "--seed", "7", "--runs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.partition(":")[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert said == ["seed 7", "seed 8", "2 seeds from 7 hold", "reached", "never reached"]


def test_a_run_that_is_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    command = [*command_of(tmp_path), "--seed", "7", "--hours", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("seed 7:")
        running.terminate()
        assert running.stdout.read().endswith("interrupted; the same command goes on from here\n")
        assert running.wait() == 130
    before = go_on(tmp_path, None, 7)
    assert before is not None
    assert before.played >= 1
    done = simulate(tmp_path, "--seed", "7", "--runs", str(before.played + 1))
    assert done.returncode == 0, done.stdout + done.stderr
    going_on, seed, result, *_ = done.stdout.splitlines()
    assert going_on == f"going on: {before.played} seeds from 7 are played"
    assert seed.startswith(f"seed {7 + before.played}:")
    assert result.startswith(f"{before.played + 1} seeds from 7 hold:")
    assert not list(tmp_path.iterdir()), "it is over, so the next run begins anew"


def test_its_processes_end_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.simulation", "--folder", str(tmp_path), "--seed", "7", "--hours", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("seed 7:")
        running.kill()
        running.stdout.read()  # until each process that has this end of it is gone


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
