"""While a ring is edited from main to controlled and back, no piece is two shards'."""

from __future__ import annotations

from typing import Any

import pytest

from sharder.core.ringspec import LetGo
from sharder.rings.removed_resources import RemovedResources
from tests.simulation.roles import run


@pytest.mark.parametrize("seed", range(6))
def test_no_piece_is_two_shards_while_the_ring_is_edited_to_and_fro(seed: int) -> None:
    roles = run(seed)
    assert roles.wrong == []
    assert roles.worked > 100


def test_who_takes_the_rings_word_at_once_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    record = RemovedResources.record

    async def believing(self: Any, status: Any, resolved: Any, clean: Any) -> Any:
        parts = ((each.resource, each.main.resource) for each in resolved.subjects())
        joined = {LetGo(resource.group_resource, main.group_resource) for resource, main in parts}
        return await record(self, status, resolved, clean | joined)

    monkeypatch.setattr(RemovedResources, "record", believing)
    assert any("on which" in each for each in run(0).wrong)
