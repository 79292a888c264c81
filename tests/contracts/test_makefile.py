"""The one door: every target explains itself, and each recipe is a line or two."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

MAKEFILE = Path("Makefile").read_text()
#: Recipe lines, a continued one counted once.
RECIPES = {
    name: recipe.replace("\\\n", "").splitlines()
    for name, recipe in re.findall(r"^([a-z0-9-]+):.*\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE)
}


@pytest.mark.parametrize("target", RECIPES)
def test_recipe_is_a_line_or_two(target: str) -> None:
    assert len(RECIPES[target]) <= 2


def test_help_lists_every_target() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    listed = re.findall(r"^  make (\S+)", run_make("help"), re.MULTILINE)

    assert sorted(listed) == sorted(phony[1].split()) == sorted(RECIPES)


#: Runs in the place of make: notes what was asked for, says so, and fails or hangs where it is to.
_NOTES = """#!/bin/sh
echo "$1" >>made; echo "summary of $1"
case "$1" in
  "$FAILING") [ -z "$HANGING" ] || while ! [ -s hangs ]; do sleep 0.01; done; exit 3;;
  "$HANGING") echo $$ >hangs; exec sleep 600;;
esac
"""


def run_ci(folder: Path, failing: str = "", hanging: str = "") -> subprocess.CompletedProcess[str]:
    """Run what continuous integration does, with a make that fails and hangs at these targets."""
    (folder / ".ci").mkdir()
    shutil.copy(".ci/run", folder / ".ci")
    (folder / "make").write_text(_NOTES)
    (folder / "make").chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "FAILING": failing, "HANGING": hanging}
    command = [folder / ".ci/run"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("failing", ["", "node-deps", "controlplane", "helm", "test", "e2e-node", "monitoring"])
def test_continuous_integration_runs_every_test_there_is_and_fails_with_any(tmp_path: Path, failing: str) -> None:
    ended = run_ci(tmp_path, failing)

    targets = (tmp_path / "made").read_text().split()
    everything = ["node-deps", "controlplane", "helm", "test", "e2e-node", "monitoring"]
    assert set(targets) <= RECIPES.keys()
    assert ended.returncode == (3 if failing else 0)
    assert ended.stdout.splitlines()[-1] == f"summary of {failing or 'monitoring'}"
    if not failing:
        assert sorted(targets) == sorted(everything)
        assert targets[:3] == everything[:3], "nothing begins before what it takes is there"


def test_what_continuous_integration_runs_beside_ends_with_it(tmp_path: Path) -> None:
    ended = run_ci(tmp_path, failing="test", hanging="e2e-node")

    assert ended.returncode == 3
    hung = Path("/proc", (tmp_path / "hangs").read_text().strip(), "cmdline")
    while hung.exists() and hung.read_text():  # a zombie has none
        time.sleep(0.01)


def test_settings_reach_the_commands() -> None:
    assert "examples.demo --keep" in run_make("--dry-run", "--always-make", "demo", "KEEP=1")
    assert "examples.demo  --lease-seconds 8" in run_make("--dry-run", "--always-make", "demo", "LEASE_SECONDS=8")
    assert "--assignment 'Ranges'" in run_make("--dry-run", "--always-make", "demo", "ASSIGNMENT=Ranges")
    assert "tests.simulation --seed 7 --runs 3" in run_make("--dry-run", "simulate", "SEED=7", "RUNS=3")
    assert "localcluster acquire --node" in run_make("--dry-run", "controlplane", "NODE=1")
    assert "--randomly-seed=7 " in run_make("--dry-run", "test", "ORDER=7")
    assert "--randomly-seed" not in run_make("--dry-run", "test", "ORDER=random")
    assert "--target sharder --tag controller-sharding:" in run_make("--dry-run", "image").replace("\\\n  ", "")
    assert "--timestamp" not in run_make("--dry-run", "image"), "docker has no such option"
    assert "--timestamp 7 " in run_make(
        "--dry-run", "image", "BUILDER=/usr/bin/podman --log-level=debug", "SOURCE_DATE_EPOCH=7"
    )
    assert "--tag controller-sharding-examples:" in run_make("--dry-run", "image", "TARGET=examples")
    assert "-n auto --max-worker-restart 0 --dist loadfile --no-loadscope-reorder -k lease" in run_make(
        "--dry-run", "test", "ARGS=-k lease"
    )
    assert "-n 1 --max" in run_make("--dry-run", "test", "WORKERS=1")
    assert "-n 3 --max" in run_make("--dry-run", "e2e-node")
    assert "-n 0 --max" in run_make("--dry-run", "e2e-node", "IMAGE=somewhere/sharder:1"), "somebody's cluster is one"


def test_a_worker_that_crashes_ends_the_run(tmp_path: Path) -> None:
    """Of a worker that is replaced, xdist hands on the files that it had finished, and waits for them for ever."""
    option = re.search(r"^DISTRIBUTION := (.+)$", MAKEFILE, re.MULTILINE)
    assert option is not None
    for number in range(9):
        abort = "if number == 3: os.abort()" if number == 4 else "time.sleep(0.02)"
        text = f"def test_it(number):\n    {abort}\n"
        header = "import os, time, pytest\n@pytest.mark.parametrize('number', range(6))\n"
        (tmp_path / f"test_{number}.py").write_text(header + text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")

    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-n", "2", *option[1].split()]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)

    assert ran.returncode == 1, ran.stdout
    assert "test_4.py::test_it[3]' - worker" in ran.stdout or "test_4.py::test_it[3] - worker" in ran.stdout


def test_what_is_compiled_is_kept(tmp_path: Path) -> None:
    """Whatever the image says that this runs in: each of some thousand processes would compile all that it imports."""
    shown = tmp_path / "shown.mk"
    shown.write_text(f"include {Path('Makefile').absolute()}\nshown:\n\t@env\n")
    done = make("--file", str(shown), "shown", PYTHONDONTWRITEBYTECODE="1")

    assert "PATH=" in done.stdout
    assert "PYTHONDONTWRITEBYTECODE" not in done.stdout


def test_set_up_on_an_incomplete_python_says_what_it_lacks(tmp_path: Path) -> None:
    for path in (".ci", "Makefile", "requirements-dev.txt", "pyproject.toml"):
        copy = shutil.copytree if Path(path).is_dir() else shutil.copy
        copy(path, tmp_path / path)
    (tmp_path / "ensurepip.py").write_text("raise ImportError('No module named ensurepip', name='ensurepip')")

    done = make("setup", f"PYTHON=env PYTHONPATH=. {sys.executable}", folder=tmp_path)

    assert done.returncode != 0
    assert "lacks the standard module ensurepip" in done.stderr
    assert "apt-get install python3-venv" in done.stderr
    assert not (tmp_path / ".venv").exists()


def run_make(*arguments: str) -> str:
    done = make(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def make(*arguments: str, folder: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    # Not as a part of the make that may run these tests: its settings would come along.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment |= variables
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
