"""Names of which nobody knows what they hold: they keep no other shard from its ranges for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.leases import render_micro_time
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import RING_ASSIGNMENTS
from shardsdk.testing.memory import Object
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import RING, SHARDS, Stage
from tests.unit.sharder.ranges.rig import ranged, sharder

DURATION = 15


def _spec(clock: VirtualClock) -> Object:
    now = render_micro_time(clock.now())
    return {"holderIdentity": "controller_0b1f", "leaseDurationSeconds": DURATION, "renewTime": now}


@asynccontextmanager
async def stranger(stage: Stage, name: str) -> AsyncIterator[None]:
    """A Lease that carries the ring's label and is held by somebody who is no shard (leader election, say)."""
    stage.server.create(
        LEASES, {"metadata": {"name": name, "labels": {LEASE_RING_LABEL: RING}}, "spec": _spec(stage.clock)}, SHARDS
    )

    async def renew() -> None:
        while True:
            await asyncio.sleep(2)
            stage.server.patch(LEASES, name, SHARDS, {"spec": _spec(stage.clock)})

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        renewing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await renewing


@in_virtual_time
async def test_a_lease_with_the_rings_label_that_is_no_shards_keeps_no_range_from_anybody(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b", "c") as ring, sharder(ring.stage):
        await ring.until_spread("a", "b", "c")
        async with stranger(ring.stage, "controller"):
            await ring.stage.pass_time(5)
            await ring.shards["c"].leave()
            ring.workers.working.pop("c", None)
            await ring.until_spread("a", "b", seconds=2 * DURATION)


@in_virtual_time
async def test_a_new_leader_counts_a_lease_that_somebody_has_taken_as_its_shards_for_a_while(
    clock: VirtualClock,
) -> None:
    """It cannot know what the shard held, nor when its lease was overwritten."""
    async with ranged(clock, "a") as ring, stranger(ring.stage, "controller"), sharder(ring.stage):
        await ring.stage.pass_time(DURATION - 5)
        assert not ring.workers.covered()
        await ring.until_spread("a", seconds=DURATION)


@in_virtual_time
async def test_those_whose_leases_are_there_keep_what_they_hold_though_another_vanished_with_the_assignment(
    clock: VirtualClock,
) -> None:
    async with ranged(clock, "a", "b", "c") as ring, sharder(ring.stage):
        await ring.until_spread("a", "b", "c")
        before = {name: ring.workers.working[name] for name in ("a", "b")}
        ring.shards["c"].crash()
        ring.stage.server.delete(LEASES, "c", SHARDS)
        await ring.stage.pass_time(1)
        ring.stage.server.delete(RING_ASSIGNMENTS, RING, None)
        for _ in range(100):
            await ring.stage.pass_time(0.1)
            assert {name: ring.workers.working[name] for name in ("a", "b")} == before
        ring.workers.working.pop("c", None)
        await ring.until_spread("a", "b", seconds=2 * DURATION)
