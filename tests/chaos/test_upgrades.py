"""The version before this one and this one beside each other, on one rig: nothing moves but for restarts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from localcluster.installation import ROOT
from tests.chaos.faults import FAULTS
from tests.chaos.play import play
from tests.chaos.previous import COMMIT, TODAY, previous, unpacked
from tests.chaos.rig import rig_of
from tests.chaos.setup import Setup

SEED = 7
SETUP = Setup(objects=18, shards=2, changes_per_second=4.0, previous=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_what_is_guaranteed_holds_while_both_versions_run(tmp_path: Path) -> None:
    async with rig_of(SETUP, tmp_path / "run", SEED) as rig:
        row, history = await play(rig, FAULTS["upgraded-sharders-first"], SEED)
        assert row.shown == ()
        assert row.settled
        assert row.reconciles
        assert row.writes
        # Each shard worked in each of its three lives: as it was, upgraded, and rolled back.
        worked = {each.process for each in history.reconciles}
        assert worked >= {f"shard-{number}.{life}" for number in (1, 2) for life in (1, 2, 3)}


def test_processes_of_the_version_before_import_nothing_of_todays() -> None:
    program = "import sharder.service, shardsdk; print(sharder.__file__); print(shardsdk.__file__)"
    for version, folder in ((previous(), unpacked()), (TODAY, ROOT)):
        said = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=dict(version.environment), capture_output=True, check=True
        ).stdout.decode()
        assert [Path(path).parent.parent for path in said.split()] == [folder, folder]


def test_a_shard_of_the_version_before_does_not_run_with_todays_packages() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.previous_shard", "--ring=a", "--name=b", "--namespace=c", "--process=d",
         "--kubeconfig=none", "--records=."],
        cwd=ROOT, env=dict(TODAY.environment), capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode
    assert b"no attribute 'for_'" in done.stderr


def test_its_files_are_those_of_the_commit(tmp_path: Path) -> None:
    made = unpacked(COMMIT, tmp_path)
    for name in ("shardsdk/protocol/labels.py", "sharder/core/decisions.py"):
        shown = subprocess.run(
            ["git", "-c", f"safe.directory={ROOT}", "show", f"{COMMIT}:{name}"],
            cwd=ROOT, capture_output=True, check=True,
        )  # fmt: skip
        assert (made / name).read_bytes() == shown.stdout
    assert unpacked(COMMIT, tmp_path) == made, "it is built once"
    assert [path.name for path in tmp_path.iterdir()] == [made.name], "nothing is left of the build"


def test_a_history_without_that_commit_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="git fetch --unshallow"):
        unpacked("0" * 40, tmp_path)
    assert not list(tmp_path.iterdir())
