"""A ring by ranges whose pass ends with an error that nobody has thought of."""

from __future__ import annotations

from typing import Any

import pytest

from shardsdk.protocol.ranges import Named
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import RING
from tests.unit.sharder.ranges.rig import by_cells, ranged, sharder


def test_a_bug_in_one_rings_pass_is_told_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    wrong = [True]

    def cut_badly(*args: Any, **more: Any) -> Named:
        if wrong:
            raise ZeroDivisionError("a bug")
        return by_cells(*args, **more)

    @in_virtual_time
    async def goes_on(clock: VirtualClock) -> None:
        async with ranged(clock, "a", "b") as ring, sharder(ring.stage, cut_badly) as assignment:
            await ring.stage.until(lambda: "a bug" in (assignment.summarize().trouble or ""))
            wrong.clear()
            await ring.until_spread("a", "b")
            await ring.stage.until(lambda: assignment.summarize().trouble is None)

    goes_on()
    told = [each for each in caplog.records if each.message == "ranges not assigned, will retry"]
    assert {(each.levelname, each.__dict__["ring"]) for each in told} == {("ERROR", RING)}
    assert all(each.exc_info for each in told)
