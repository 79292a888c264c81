"""A control on the real thing: a shard without its fence, whose late writes are accepted, and found."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.play import play
from tests.chaos.previous import TODAY
from tests.chaos.process_faults import VICTIM, emptied
from tests.chaos.rig import Rig, rig_of
from tests.chaos.setup import Setup

SEED = 7
#: A write takes so long to prepare that some are under way whenever the shard is suspended, on a slow machine as well.
BUSY_SECONDS = 1.0
SETUP = Setup(
    lease_seconds=6, objects=18, children=2, shards=2, sharders=1, changes_per_second=1.0, busy_seconds=BUSY_SECONDS
)
LOOK_SECONDS = 0.1


def begun(rig: Rig) -> dict[str, dict[str, str]]:
    """The objects of reconciles that have begun and not ended, by shard and by their key."""
    open_now: dict[str, dict[str, str]] = {}
    for path in (rig.folder / "records").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            said = json.loads(line)
            keys = open_now.setdefault(said["shard"], {})
            if said["is"] == "begin":
                keys[said["key"]] = said["uid"]
            elif said["is"] == "end":
                keys.pop(said["key"])
    return open_now


def begins(rig: Rig, *, but: str) -> list[str]:
    """The object of each reconcile that any other shard has begun so far."""
    lines = (line for path in (rig.folder / "records").glob("*.jsonl") for line in path.read_text().splitlines())
    said = map(json.loads, lines)
    return [each["uid"] for each in said if each["is"] == "begin" and each["shard"] != but]


async def suspended_until_others_work(rig: Rig, rng: Random) -> None:
    """SIGSTOP amid reconciles, until other shards have begun with the object of each of them."""
    while True:
        await rig.amid_work(VICTIM)
        rig.living.discard(VICTIM)
        before = len(begins(rig, but=VICTIM))
        async with rig.suspended(VICTIM):
            if under_way := set(begun(rig)[VICTIM].values()):
                await emptied(rig)
                async with asyncio.timeout(rig.setup.patience_seconds):
                    while not under_way <= set(begins(rig, but=VICTIM)[before:]):
                        await asyncio.sleep(LOOK_SECONDS)
        rig.living.add(VICTIM)
        if under_way:
            return


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_late_writes_of_a_shard_without_its_fence_are_accepted_and_found(tmp_path: Path) -> None:
    fault = replace(FAULTS["shard-suspended"], act=suspended_until_others_work)
    async with rig_of(SETUP, tmp_path / "run", SEED) as rig:
        rig.shards_run = replace(TODAY, shard_module="tests.chaos.unfenced_shard")
        await rig.stop_shard(VICTIM)
        await rig.start_shard(VICTIM)
        await rig.settle()
        row, _ = await play(rig, fault, SEED)
    assert row.violations.get("late write"), row
    assert f"late write: {VICTIM}.2/" in " ".join(row.shown)
    assert not row.safe
