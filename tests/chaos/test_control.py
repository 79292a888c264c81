"""A control on the real thing: a shard without its fence, whose late writes are accepted, and found: noted or not."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.play import play
from tests.chaos.previous import TODAY
from tests.chaos.process_faults import VICTIM, emptied
from tests.chaos.recorder import read_records
from tests.chaos.rig import Rig, rig_of
from tests.chaos.rules import judge
from tests.chaos.setup import Setup

SEED = 7
#: A write takes so long to prepare that some are under way whenever the shard is suspended, on a slow machine as well.
BUSY_SECONDS = 1.0
SETUP = Setup(
    lease_seconds=6, objects=18, children=2, shards=2, sharders=1, changes_per_second=1.0, busy_seconds=BUSY_SECONDS
)
LOOK_SECONDS = 0.1


def under_way(rig: Rig) -> set[str]:
    """The objects of the victim's reconciles that have begun and not ended."""
    said = [each for each in read_records(rig.folder / "records") if each["shard"] == VICTIM]
    ended = {each["key"] for each in said if each["is"] == "end"}
    return {each["uid"] for each in said if each["is"] == "begin" and each["key"] not in ended}


def begun_by_others(rig: Rig, since: float) -> set[str]:
    """The objects of reconciles that any other shard has begun since a moment (monotonic)."""
    said = (each for each in read_records(rig.folder / "records") if each["is"] == "begin" and each["shard"] != VICTIM)
    return {each["uid"] for each in said if each["at"] > since}


async def suspended_until_others_work(rig: Rig, rng: Random) -> None:
    """SIGSTOP amid several reconciles, until other shards have begun with the object of each of them."""
    while True:
        await rig.amid_work(VICTIM)
        async with asyncio.timeout(rig.setup.patience_seconds):
            # Looked at while it runs: on one core with this process, it would get no further between two suspensions.
            while len(under_way(rig)) < 2:
                await asyncio.sleep(LOOK_SECONDS)
        rig.living.discard(VICTIM)
        async with rig.suspended(VICTIM):
            since, objects = time.monotonic(), under_way(rig)
            if len(objects) > 1:
                await emptied(rig)
                async with asyncio.timeout(rig.setup.patience_seconds):
                    while not objects <= begun_by_others(rig, since):
                        await asyncio.sleep(LOOK_SECONDS)
        rig.living.add(VICTIM)
        if len(objects) > 1:
            return


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_late_writes_of_a_shard_without_its_fence_are_accepted_and_found(tmp_path: Path) -> None:
    fault = replace(FAULTS["shard-suspended"], act=suspended_until_others_work)
    async with rig_of(SETUP, tmp_path / "run", SEED) as rig:
        rig.shards_run = replace(TODAY, shard_module="tests.chaos.unfenced_shard")
        await rig.stop_shard(VICTIM)
        await rig.start_shard(VICTIM)
        # Its lease may be the sharder's just now, for whom all is settled meanwhile.
        await rig.working(VICTIM)
        await rig.settle()
        row, history = await play(rig, fault, SEED)
    found = judge(history).violations
    late = [each.what for each in found if each.rule == "late write"]
    assert any(what.startswith(f"{VICTIM}.2/") for what in late), "noted by the shard, and late"
    assert any(f"written by {VICTIM}, not noted" in what for what in late), "late by the audit log alone"
    unrecorded = [each.what for each in found if each.rule == "unrecorded write"]
    assert unrecorded
    assert all(f"written by {VICTIM}" in what for what in unrecorded)
    assert "unknown writer" not in row.violations
    assert not row.safe
