"""`make mutants`: plant each fault of the list, look for it, and print what found it into docs/mutants.md.

What was tried is kept after each, so that an interrupted run goes on where it
was: without options only those are tried that have no result yet.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from tests.mutants.faults import FAULTS
from tests.mutants.planting import ENVIRONMENT, source_of
from tests.mutants.results import MOST_SEEDS, keep, load, names

#: A fault may make a test wait for ever, or a schedule spin.
TEST_SECONDS = 300
PLAY_SECONDS = 3600
#: Seeds that one process plays; what it holds on to goes with it.
SEEDS_AT_A_TIME = 25
#: pytest's own code for "tests were run and some failed".
_FAILED = 1


class Untried(Exception):
    """What should look for a fault did not even run."""


def main() -> int:
    """Try faults.  Ends with 1 when one that was tried is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=names(), metavar="NAME", help="just these, whatever is known")
    parser.add_argument("--again", action="store_true", help="all of them, whatever is known")
    parser.add_argument("--seeds", type=int, default=MOST_SEEDS, help="how many schedules at most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many faults at once")
    options = parser.parse_args()
    for fault in FAULTS.values():
        source_of(fault)  # refuses, before anything runs, what cannot be planted
    results = load()
    wanted = options.only or [name for name in names() if options.again or name not in results]
    missed = []
    with ThreadPoolExecutor(options.jobs) as pool:
        trying = {pool.submit(try_fault, name, options.seeds): name for name in wanted}
        for done in as_completed(trying):
            name = trying[done]
            try:
                results[name] = result = done.result()
            except Untried as error:
                sys.stdout.write(f"{name}: {error}\n")
                missed.append(name)
                continue
            keep(results)
            sys.stdout.write(f"{name}: {result['by'] or 'NOT FOUND'}\n")
            sys.stdout.flush()
            if not result["by"]:
                missed.append(name)
    keep(results)
    return 1 if missed else 0


def try_fault(name: str, seeds: int) -> dict[str, str | int]:
    """What finds a fault: a test that is meant for it, or else simulated schedules."""
    fault = FAULTS.get(name)
    if fault is not None and fault.tests:
        test = _find_by_tests(name, fault.tests)
        if test:
            return {"by": test}
    return _find_by_schedules(name, seeds)


def _find_by_tests(name: str, tests: tuple[str, ...]) -> str:
    """The first test that fails with the fault planted and passes without; empty: none fails.

    A fault that keeps tests from being collected is not found by one.
    """
    done = _run(name, tests)
    if done is None:
        if (sane := _run("", tests)) is None or sane.returncode:
            raise Untried("its tests do not end, and do not pass without the fault, either")
        return f"{tests[0]} (does not end)"
    failed = re.search(r"^FAILED (\S+?)(?:\[.*)?(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode not in (0, _FAILED) or (done.returncode == _FAILED and failed is None):
        raise Untried(f"{name}: pytest ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    if failed is None:
        return ""
    if (sane := _run("", (failed[1],))) is None or sane.returncode:
        raise Untried(f"{failed[1]} does not pass without the fault, either")
    return failed[1]


def _run(planted: str, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str] | None:
    """How tests end with a fault planted (empty: none); `None`: not in time."""
    options = ["-p", "tests.mutants.planting", "-p", "no:randomly", "-p", "no:cacheprovider"]
    options += ["-x", "-q", "--no-header", "--tb=no", "-rf"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environment = {key: value for key, value in os.environ.items() if key != ENVIRONMENT}
    if planted:
        environment[ENVIRONMENT] = planted
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TEST_SECONDS, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return None


def _find_by_schedules(name: str, seeds: int) -> dict[str, str | int]:
    for first in range(0, seeds, SEEDS_AT_A_TIME):
        told = _play(name, first, min(SEEDS_AT_A_TIME, seeds - first))
        if told is None:
            continue
        if _play(name, told["seed"], 1, "--unplanted") is not None:
            raise Untried(f"seed {told['seed']} fails without the fault, too")
        return {"by": told["rule"], "seeds": told["seed"] + 1}
    return {"by": "", "seeds": seeds}


def _play(name: str, first: int, runs: int, *more: str) -> dict[str, Any] | None:
    """What the first schedule that fails has shown; `None`: none fails."""
    command = [sys.executable, "-m", "tests.mutants.play", name, "--from", str(first), "--runs", str(runs), *more]
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PLAY_SECONDS, check=False, env=environment)
    if done.returncode == 1 and done.stdout.startswith("{"):
        told: dict[str, Any] = json.loads(done.stdout)
        return told
    if done.returncode:
        raise Untried(f"playing ended with {done.returncode}\n{done.stderr[-2000:]}")
    return None


if __name__ == "__main__":
    raise SystemExit(main())
