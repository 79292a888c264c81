"""Some of the faults of `make chaos`, on one rig with short leases: what their history shows, however long it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.faults import FAULTS, SELECTED
from tests.chaos.play import play
from tests.chaos.rig import rig_of
from tests.chaos.setup import Setup

SEED = 7
#: Leases that a busy machine keeps; one that does not is in the history, and so is why objects moved.
SETUP = Setup(lease_seconds=6, objects=18, children=2, changes_per_second=4.0)


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
