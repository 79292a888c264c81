"""What becomes of objects while their ring cannot be used: they stay as they are."""

from __future__ import annotations

from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, OWNERS, RING, leading, make_stage, ring, thing


@in_virtual_time
async def test_nothing_is_placed_by_a_ring_that_was_edited_and_cannot_be_used_until_it_can_be(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "one")
    stage.create(OWNERS, thing("before"))
    async with leading(stage):
        await stage.until(lambda: stage.label(OWNERS, "before") == "one")
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"resources": [{"resource": "Not Valid"}]}})
        await stage.until(lambda: stage.condition("Ready") == "False")
        stage.create(OWNERS, thing("meanwhile"))
        stage.release("one")
        stage.start("two")
        await stage.pass_time(120)
        assert (stage.label(OWNERS, "before"), stage.label(OWNERS, "meanwhile")) == ("one", None)
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"resources": [ALONE]}})
        await stage.until(lambda: {stage.label(OWNERS, each) for each in ("before", "meanwhile")} == {"two"})
