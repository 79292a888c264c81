"""A RingAssignment whose status cannot be written: ranges are assigned as ever, and that alone is told."""

from __future__ import annotations

import pytest

from sharder.core.lasting import LASTING_SECONDS
from sharder.ranges.report import AGAIN_SECONDS
from shardsdk.errors import Forbidden
from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource
from shardsdk.protocol.ranges import RING_ASSIGNMENTS
from shardsdk.rbac import Right
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import RING, leading
from tests.unit.sharder.ranges.rig import Ring, ranged, sharder

MESSAGE = "status of a RingAssignment not written, will retry"


class Lacking(MemoryApi):
    """Of a sharder that may write no RingAssignment's status."""

    async def allowed(
        self,
        verb: str,
        resource: GroupResource,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
    ) -> bool:
        return (resource, subresource) != (RING_ASSIGNMENTS.group_resource, "status")


def refuse_status(ring: Ring) -> list[float]:
    """From now on; returns when it was tried."""
    tried: list[float] = []

    def refuse(right: Right) -> None:
        if right.resource == RING_ASSIGNMENTS.group_resource and right.subresource == "status":
            tried.append(ring.stage.clock.monotonic())
            raise Forbidden("a policy refuses it", status=403)

    ring.stage.api.on_request = refuse
    return tried


@in_virtual_time
async def test_a_status_that_is_refused_is_told_as_that_and_tried_again_less_and_less_often(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        tried = refuse_status(ring)
        await ring.until_spread("a", "b")
        await ring.stage.until(lambda: assignment.summarize().trouble is not None, seconds=2 * LASTING_SECONDS)
        trouble = str(assignment.summarize().trouble)
        assert trouble.startswith("ranges are assigned, but the status of the RingAssignment cannot be written")
        assert trouble.endswith("a policy refuses it")
        assert 3 <= len(tried) <= 8
        tried.clear()
        await ring.stage.pass_time(10 * AGAIN_SECONDS)
        assert 10 <= len(tried) <= 20
        assert {each.message for each in caplog.records if each.levelname == "WARNING"} == {MESSAGE}
        ring.stage.api.on_request = None
        await ring.stage.until(lambda: bool(ring.status()), seconds=2 * AGAIN_SECONDS)
        await ring.stage.until(lambda: assignment.summarize().trouble is None)


@in_virtual_time
async def test_a_shard_that_takes_nothing_is_found_though_the_status_is_refused(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        refuse_status(ring)
        await ring.until_spread("a", "b")
        ring.start("c").deaf = True
        await ring.stage.until(lambda: bool(assignment.state and assignment.state.idle), seconds=120)
        await ring.until_spread("a", "b")


@in_virtual_time
async def test_the_ring_says_that_the_right_is_missing(clock: VirtualClock) -> None:
    async with ranged(clock, "a", api=Lacking) as ring:
        ring.stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"assignment": "Ranges", "hashBy": "Namespace"}})
        async with leading(ring.stage):
            await ring.until_spread("a")
            await ring.stage.until(lambda: ring.stage.condition("PermissionsGranted") == "False")
            assert "patch ringassignments.sharding.timebertt.dev/status" in ring.stage.message("PermissionsGranted")
