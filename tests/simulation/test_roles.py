"""While a ring is edited from main to controlled and back, no piece is two shards'."""

from __future__ import annotations

from typing import Any

import pytest

from sharder.core import mains
from sharder.core.ringspec import LetGo
from sharder.rings.removed_resources import RemovedResources
from tests.simulation.roles import play_rolled_out, run


@pytest.mark.parametrize("seed", range(6))
def test_no_piece_is_two_shards_while_the_ring_is_edited_to_and_fro(seed: int) -> None:
    roles = run(seed)
    assert roles.wrong == []
    assert roles.worked > 100


@pytest.mark.parametrize("seed", range(6))
def test_no_piece_is_two_shards_while_a_program_that_has_them_as_main_is_replaced(seed: int) -> None:
    roles = run(seed, play_rolled_out)
    assert roles.wrong == []
    assert roles.worked > 100


def test_who_heeds_no_shard_that_has_them_as_main_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mains.Mains, "shards", lambda said, resource, now: ())
    assert any("on which" in each for seed in range(3) for each in run(seed, play_rolled_out).wrong)


def test_who_expects_nobody_back_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mains, "AWAY_SECONDS", 0.0)
    assert any("is taken" in each for seed in range(3) for each in run(seed, play_rolled_out).wrong)


def test_who_takes_the_rings_word_at_once_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    record = RemovedResources.record

    async def believing(self: Any, status: Any, resolved: Any, clean: Any) -> Any:
        parts = ((each.resource, each.main.resource) for each in resolved.subjects())
        joined = {LetGo(resource.group_resource, main.group_resource) for resource, main in parts}
        return await record(self, status, resolved, clean | joined)

    monkeypatch.setattr(RemovedResources, "record", believing)
    assert any("on which" in each for each in run(0).wrong)
