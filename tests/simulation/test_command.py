"""`make simulate`: what it prints and how it ends."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.timeout(300)
def test_seeds_that_hold_end_it_with_zero_and_their_numbers() -> None:
    done = simulate("--seed", "7", "--runs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["seed 7", "seed 8", "2 seeds from 7 hold"]


@pytest.mark.timeout(300)
def test_a_seed_that_fails_ends_it_with_an_error_that_says_how_to_see_it_again() -> None:
    done = simulate("--seed", "0", "--runs", "16", "--bug", "CHILDREN_LAST")
    assert done.returncode == 1, done.stdout + done.stderr
    failed = re.search(r"^seed (\d+) fails:$", done.stdout, re.MULTILINE)
    assert failed is not None
    assert f"reproduce: make simulate SEED={failed[1]} RUNS=1" in done.stdout
