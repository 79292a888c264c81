"""Ranges whose shard's Lease is not there: they are not told to be held, however long they count as that."""

from __future__ import annotations

from shardsdk.errors import Forbidden
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import RING, SHARDS, leading
from tests.unit.sharder.ranges.rig import Ring, ranged, sharder
from tests.unit.sharder.takeover.test_refused import Refusing, reasons

DURATION = 15


def lose(ring: Ring, name: str) -> None:
    """A shard crashes, and somebody deletes its Lease."""
    ring.shards[name].crash()
    ring.stage.server.delete(LEASES, name, SHARDS)
    ring.workers.working.pop(name)


@in_virtual_time
async def test_a_ring_is_not_settled_while_a_shard_is_named_whose_lease_is_gone(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        await ring.until_spread("a", "b")
        await ring.stage.until(lambda: assignment.summarize().settled)
        lose(ring, "b")
        await ring.stage.pass_time(2)
        assert not assignment.summarize().settled
        await ring.stage.until(
            lambda: {each["type"]: each for each in ring.status()["conditions"]}["Settled"]["status"] == "False"
        )
        await ring.until_spread("a", seconds=DURATION)
        await ring.stage.until(lambda: assignment.summarize().settled)


@in_virtual_time
async def test_that_nobody_can_take_over_is_said_by_the_next_leader_until_it_has_found_the_same(
    clock: VirtualClock,
) -> None:
    async with ranged(clock, "a", "b", api=Refusing) as ring:
        stage = ring.stage
        assert isinstance(stage.api, Refusing)
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"assignment": "Ranges", "hashBy": "Namespace"}})
        async with leading(stage):
            await ring.until_spread("a", "b")
            await stage.until(lambda: stage.condition("Settled") == "True")
            stage.api.refusal = Forbidden
            lose(ring, "b")
            await stage.until(lambda: stage.condition("ShardsAvailable") == "False")
        seen = reasons(stage)
        async with leading(stage):
            await stage.pass_time(120)
            assert seen == [("False", "NotTakenOver")]
            stage.api.refusal = None
            await ring.until_spread("a")
            await stage.until(lambda: stage.condition("ShardsAvailable") == "True", seconds=10)
