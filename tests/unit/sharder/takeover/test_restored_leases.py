"""Leases of shards that are long gone are restored beside a settled ring: nothing moves for them, and the ring says so.

Nobody renews them, so they run out as any; a shard that is there, and whose clock is behind, renews its own.
"""

from __future__ import annotations

import pytest

from sharder.core.liveness import SILENT_SHARE
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.leases import render_micro_time
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.virtual import SkewedClock, VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    OWNERS,
    SHARDS,
    Stage,
    leading,
    lease,
    make_replica,
    names_on,
    running,
    thing,
)
from tests.unit.sharder.takeover.test_silence import SHARDS_OF_RING, settled_ring

GONE = ("old-a", "old-b", "old-c")
DAY_SECONDS = 86_400.0


def restore(stage: Stage, *, duration: int = 15) -> None:
    then = SkewedClock(stage.clock, ahead_seconds=-DAY_SECONDS)
    for shard in GONE:
        stage.create(LEASES, lease(then, shard, duration=duration), SHARDS)


def labels(stage: Stage) -> dict[str, str | None]:
    return {
        name: stage.label(OWNERS, name)
        for shard in SHARDS_OF_RING
        for name in names_on(shard, *SHARDS_OF_RING, count=10)
    }


@pytest.mark.parametrize("duration", [15, 60])
def test_restored_leases_of_dead_shards_move_nothing_and_get_nothing_new_once_they_are_silent(duration: int) -> None:
    @in_virtual_time
    async def scene(clock: VirtualClock) -> None:
        stage, story = settled_ring(clock)
        async with leading(stage):
            await stage.until_settled()
            before = labels(stage)
            restore(stage, duration=duration)
            await stage.until(lambda: "old-a, old-b, old-c" in stage.message("ShardsAvailable"), seconds=5)
            await clock.sleep(SILENT_SHARE * duration + 1)  # they are looked at once a second
            fresh = [name for shard in GONE for name in names_on(shard, *SHARDS_OF_RING, *GONE, count=5)]
            fresh = [name for name in fresh if name not in before]
            for name in fresh:
                stage.create(OWNERS, thing(name))
            await stage.until(lambda: all(stage.label(OWNERS, name) for name in fresh), seconds=2)
            await stage.until(lambda: not any(stage.holder(shard) for shard in GONE), seconds=2 * duration + 15)
            await stage.until_settled()
            assert labels(stage) == before
            assert story.drains == 0
            assert all(label in SHARDS_OF_RING for each in story.of.values() for label in each if label != "nobody")
            assert "old-a" not in stage.message("ShardsAvailable")

    scene()


@pytest.mark.parametrize("holder", ["", SHARDER_HOLDER])
@pytest.mark.parametrize("transitions", [4, 0], ids=["as it was", "deleted since"])
def test_a_copy_of_when_its_shard_had_left_put_over_a_living_shards_lease_takes_nothing_from_it(
    holder: str, transitions: int
) -> None:
    @in_virtual_time
    async def scene(clock: VirtualClock) -> None:
        stage, story = settled_ring(clock)
        stage.server.patch(LEASES, "one", SHARDS, {"spec": {"leaseTransitions": transitions}})
        async with leading(stage):
            await stage.until_settled()
            before = labels(stage)
            stage.crash("one")  # it works on until it is to renew its lease, and finds somebody else's
            then = render_micro_time(SkewedClock(clock, ahead_seconds=-DAY_SECONDS).now())
            said = {"holderIdentity": holder, "leaseDurationSeconds": 15 if holder else 1}
            spec = {"leaseTransitions": 3, "renewTime": then} | said
            stage.server.patch(LEASES, "one", SHARDS, {"spec": spec})
            await clock.sleep(14)
            assert labels(stage) == before
            assert story.drains == 0
            await stage.until(lambda: "one" not in labels(stage).values(), seconds=10)

    scene()


@in_virtual_time
async def test_a_leader_that_comes_after_a_restore_drains_nothing_toward_who_is_not_there(clock: VirtualClock) -> None:
    stage, story = settled_ring(clock)
    restore(stage)
    before = labels(stage)
    async with leading(stage):
        await stage.pass_time(60)
        assert labels(stage) == before
        assert story.drains == 0


@in_virtual_time
async def test_a_shard_whose_clock_is_far_behind_is_given_its_part_once_it_has_renewed(clock: VirtualClock) -> None:
    stage, _ = settled_ring(clock)
    async with leading(stage):
        await stage.until_settled()
        behind = SkewedClock(clock, ahead_seconds=-DAY_SECONDS)
        stage.create(LEASES, lease(behind, "four"), SHARDS)
        moves = [name for name in names_on("four", *SHARDS_OF_RING, "four", count=40) if name in labels(stage)]
        await stage.pass_time(2)
        assert not any(stage.draining(OWNERS, name) or stage.label(OWNERS, name) == "four" for name in moves)
        renewed = lease(behind, "four")
        stage.server.patch(LEASES, "four", SHARDS, {"metadata": renewed["metadata"], "spec": renewed["spec"]})
        await stage.until(lambda: all(stage.label(OWNERS, name) == "four" for name in moves), seconds=2)


@in_virtual_time
async def test_a_leader_whose_clock_is_far_ahead_places_what_is_new_where_it_stays(clock: VirtualClock) -> None:
    stage, story = settled_ring(clock)
    for shard in SHARDS_OF_RING:  # they renew one after the other: first one is known to be there, then two
        stage.crash(shard)
        stage.start(shard)
        await clock.sleep(0.7)
    replica = make_replica(stage, clock=SkewedClock(clock, ahead_seconds=120))
    async with running(stage, replica.run()):
        await stage.until(lambda: replica.elector.is_leader)
        fresh = [name for shard in SHARDS_OF_RING for name in names_on(shard, *SHARDS_OF_RING, count=30)[10:]]
        for at in range(20):
            for name in fresh[at::20]:
                stage.create(OWNERS, thing(name))
            await clock.sleep(0.2)
        await stage.until_settled()
        await stage.pass_time(30)
        assert story.drains == 0
        assert {name for name in fresh if len(set(story.of[name]) - {"nobody"}) > 1} == set()


@in_virtual_time
async def test_a_shard_that_comes_waits_for_no_renewal(clock: VirtualClock) -> None:
    stage, _ = settled_ring(clock)
    async with leading(stage):
        await stage.until_settled()
        moves = [name for name in names_on("four", *SHARDS_OF_RING, "four", count=40) if name in labels(stage)]
        stage.create(LEASES, lease(SkewedClock(clock, ahead_seconds=-14), "four"), SHARDS)
        await stage.until(lambda: all(stage.label(OWNERS, name) == "four" for name in moves), seconds=1)
