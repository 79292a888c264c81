"""Some of the faults of `make chaos`, on one rig with short leases: what their history shows, however long it takes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.chaos.faults import FAULTS, PLAYED, SELECTED
from tests.chaos.play import play
from tests.chaos.previous import TODAY
from tests.chaos.recorder import read_records
from tests.chaos.rig import Rig, rig_of
from tests.chaos.setup import Setup

SEED = 7
#: Leases that a busy machine keeps; one that does not is in the history, and so is why objects moved.
SETUP = Setup(lease_seconds=6, objects=18, children=2, changes_per_second=4.0)
LOOK_SECONDS = 0.1
CONTROL = "shard-2"


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_what_is_guaranteed_holds_while_processes_and_the_api_server_fail(tmp_path: Path) -> None:
    async with rig_of(SETUP, tmp_path / "run", SEED) as rig:
        for name in SELECTED:
            row, history = await play(rig, FAULTS[name], SEED)
            assert row.shown == (), name
            assert row.settled, name
            assert row.reconciles, f"{name}: nobody worked meanwhile"
            assert row.writes, f"{name}: nobody wrote meanwhile"
            assert any(each.how in ("suspended", "killed", "ended") for each in history.downs), name


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_so_it_does_by_ranges_and_a_shard_that_ignores_its_ranges_is_found(tmp_path: Path) -> None:
    fault = PLAYED["Ranges"]["shard-suspended"]
    async with rig_of(replace(SETUP, assignment="Ranges", shards=2, sharders=1), tmp_path / "run", SEED) as rig:
        row, _ = await play(rig, fault, SEED)
        assert row.shown == ()
        assert row.settled
        assert row.moves >= row.objects // 2, "all that the victim had went to the other one"
        assert row.reconciles
        assert row.writes

        rig.shards_run = replace(TODAY, shard_module="tests.chaos.foreign_shard")
        row, _ = await play(rig, replace(fault, act=a_shard_starts_anew_and_works_on_everything), SEED)
        assert {"foreign reconcile", "foreign write", "two at once"} <= row.violations.keys(), row.shown


async def a_shard_starts_anew_and_works_on_everything(rig: Rig, rng: Random) -> None:
    """Until each object has been worked on by that start of it."""
    await rig.stop_shard(CONTROL)
    await rig.start_shard(CONTROL)
    async with asyncio.timeout(rig.setup.patience_seconds):
        while True:
            said = [each for each in read_records(rig.folder / "records") if each["is"] == "begin"]
            if len({each["uid"] for each in said if each["process"] == f"{CONTROL}.2"}) >= rig.setup.objects:
                return
            await asyncio.sleep(LOOK_SECONDS)
