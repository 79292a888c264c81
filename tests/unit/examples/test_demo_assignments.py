"""What the demo asks of the API server, by how its ring assigns."""

from __future__ import annotations

import pytest

from examples.demo.assignments import LABELS, RANGES


@pytest.mark.parametrize(
    ("minor", "gates", "told"),
    [
        (36, {"ShardedListAndWatch": True}, "sends each shard its own objects alone"),
        (35, {}, "older than 1.36"),
        (None, {}, "older than 1.36"),
    ],
)
def test_by_ranges_the_api_server_filters_where_it_can(minor: int | None, gates: dict[str, bool], told: str) -> None:
    asked, (line,) = RANGES.gates(minor)
    assert asked == gates
    assert told in line
    assert LABELS.gates(minor) == ({}, ())
