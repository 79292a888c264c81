"""A control on the real thing: a shard without its fence, whose late writes are accepted, and found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.play import play
from tests.chaos.previous import TODAY
from tests.chaos.process_faults import VICTIM
from tests.chaos.rig import rig_of
from tests.chaos.setup import Setup

SEED = 7
#: A write takes so long to prepare that some are under way whenever the shard is suspended, on a slow machine as well.
BUSY_SECONDS = 1.0
SETUP = Setup(
    lease_seconds=6, objects=18, children=2, shards=2, sharders=1, changes_per_second=1.0, busy_seconds=BUSY_SECONDS
)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_late_writes_of_a_shard_without_its_fence_are_accepted_and_found(tmp_path: Path) -> None:
    async with rig_of(SETUP, tmp_path / "run", SEED) as rig:
        rig.shards_run = replace(TODAY, shard_module="tests.chaos.unfenced_shard")
        await rig.stop_shard(VICTIM)
        await rig.start_shard(VICTIM)
        await rig.settle()
        row, _ = await play(rig, FAULTS["shard-suspended"], SEED)
    assert row.violations.get("late write"), row
    assert f"late write: {VICTIM}.2/" in " ".join(row.shown)
    assert not row.safe
