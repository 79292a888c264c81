"""A RingAssignment goes with its ring: one that a backup brought back without its owner gets it again."""

from __future__ import annotations

from typing import Any

import pytest

from sharder.ranges.store import AGAIN_SECONDS
from shardsdk.errors import Forbidden
from shardsdk.protocol.labels import RING_KIND
from shardsdk.protocol.objects import CLUSTERRINGS, Resource
from shardsdk.protocol.ranges import RING_ASSIGNMENTS
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import RING
from tests.unit.sharder.ranges.rig import Ring, ranged, sharder

ANOTHERS = {"apiVersion": "v1", "kind": "Namespace", "name": "n", "uid": "another"}
FORMER = {"apiVersion": CLUSTERRINGS.api_version, "kind": RING_KIND, "name": RING, "uid": "of a ring before"}


class Guarded(MemoryApi):
    """While it `refuses`, nobody changes owners who may not delete the object, as one admission plugin has it."""

    refuses = False

    async def patch(
        self, resource: Resource, name: str, namespace: str | None, body: Any, *rest: Any, **say: Any
    ) -> Any:
        if self.refuses and "ownerReferences" in body.get("metadata", {}):
            raise Forbidden("cannot set an ownerRef on a resource you can't delete", status=403)
        return await super().patch(resource, name, namespace, body, *rest, **say)


def owners(ring: Ring) -> list[dict[str, Any]]:
    found = ring.stage.server.find(RING_ASSIGNMENTS, RING)
    assert found is not None
    return list(found["metadata"].get("ownerReferences") or ())


def set_owners(ring: Ring, *references: dict[str, Any]) -> None:
    ring.stage.server.patch(RING_ASSIGNMENTS, RING, None, {"metadata": {"ownerReferences": list(references)}})


@pytest.mark.parametrize("restored", [(), (FORMER,), (ANOTHERS,)], ids=["none", "of a ring before", "another's"])
def test_one_that_is_not_its_rings_becomes_so_and_nothing_moves(restored: tuple[dict[str, Any], ...]) -> None:
    @in_virtual_time
    async def scene(clock: VirtualClock) -> None:
        async with ranged(clock, "a", "b") as ring, sharder(ring.stage):
            await ring.until_spread("a", "b")
            [ours], named = owners(ring), ring.named()
            set_owners(ring, *restored)
            kept = [each for each in restored if each is ANOTHERS]
            await ring.stage.until(lambda: owners(ring) == [*kept, ours], seconds=2)
            await ring.stage.pass_time(5)
            writes = ring.writes()
            await ring.stage.pass_time(60)
            assert ring.writes() == writes
            assert ring.named() == named

    scene()


@in_virtual_time
async def test_where_it_may_not_be_written_ranges_are_assigned_all_the_same_and_it_is_told(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with ranged(clock, "a", api=Guarded) as ring, sharder(ring.stage):
        assert isinstance(ring.stage.api, Guarded)
        await ring.until_spread("a")
        [ours] = owners(ring)
        ring.stage.api.refuses = True
        set_owners(ring)
        await ring.stage.pass_time(2)
        ring.start("b")
        await ring.until_spread("a", "b", seconds=5)
        [told] = [each for each in caplog.records if each.name == "sharder.ranges.store"]
        assert f"kubectl delete ringassignment {RING}" in vars(told)["remedy"]
        await ring.stage.pass_time(2 * AGAIN_SECONDS)
        assert len([each for each in caplog.records if each.name == "sharder.ranges.store"]) == 3, "nobody wakes it"
        ring.stage.api.refuses = False
        await ring.stage.until(lambda: owners(ring) == [ours], seconds=AGAIN_SECONDS)


@in_virtual_time
async def test_who_takes_its_owner_off_each_time_is_not_answered_each_time(clock: VirtualClock) -> None:
    async with ranged(clock, "a") as ring, sharder(ring.stage):
        await ring.until_spread("a")
        for _ in range(10):
            set_owners(ring)
            await ring.stage.pass_time(3)
        assert ring.writes() < 10
