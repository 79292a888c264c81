"""Points are those of every other implementation: recorded from Go's hash/fnv."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardsdk.protocol.objects import SlimMeta
from shardsdk.protocol.ranges import HashBy, point_of

POINTS: dict[str, str] = json.loads((Path(__file__).parents[1] / "vectors/points.json").read_text())["points"]


@pytest.mark.parametrize(("text", "point"), POINTS.items())
def test_a_namespace_and_a_uid_lie_where_go_puts_them(text: str, point: str) -> None:
    assert point_of(text) == int(point, 16)
    assert HashBy.NAMESPACE.point(SlimMeta(namespace=text, uid="another")) == int(point, 16)
    assert HashBy.UID.point(SlimMeta(namespace="another", uid=text)) == int(point, 16)
