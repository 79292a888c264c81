"""Marks: what should happen sometimes is counted by names that are declared."""

from __future__ import annotations

import pytest

from shardsdk.testing.virtual import VirtualClock
from tests.simulation.marks import DECLARED
from tests.simulation.schedule import draw_plan
from tests.simulation.world import World


def test_a_mark_that_nobody_declared_is_refused() -> None:
    world = World(draw_plan(1), VirtualClock())
    with pytest.raises(KeyError):
        world.mark("decision GUESS")


def test_each_declared_mark_has_one_name_and_is_counted_from_zero() -> None:
    world = World(draw_plan(1), VirtualClock())
    assert len(set(DECLARED)) == len(DECLARED)
    world.mark(DECLARED[0])
    assert [count for name, count in world.stats.marks.items()] == [1] + [0] * (len(DECLARED) - 1)
