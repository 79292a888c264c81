"""What a ring lists as main and a shard does not reconcile: its objects there wait, and the ring says so."""

from __future__ import annotations

import pytest

from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    OWNERS,
    RING,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)
from tests.unit.sharder.rings.edited import FAMILY, OTHERS, SHARDS

BOTH = (OWNERS.group_resource, CHILDREN.group_resource)
RANGES = {"assignment": "Ranges", "hashBy": "Namespace"}


@pytest.mark.parametrize("spec", [{}, RANGES], ids=["labels", "ranges"])
@in_virtual_time
async def test_two_programs_in_one_ring_are_told_until_each_reconciles_what_it_is_given(
    clock: VirtualClock, spec: dict[str, str]
) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE, OTHERS, **spec), None)
    for shard, main in zip(SHARDS, BOTH, strict=True):
        stage.start(shard, mains=[main])
    async with leading(stage):
        await stage.until(lambda: stage.said("ShardsFit").get("reason") == "NotReconciled")
        assert stage.condition("ShardsFit") == "False"
        assert f"as main: {BOTH[0]} on two and {BOTH[1]} on one, so" in stage.message("ShardsFit")
        assert "a ring each" in stage.events.of("NotReconciled")[0]
        for shard in SHARDS:
            stage.release(shard)
            stage.start(shard, mains=BOTH)
        await stage.until(lambda: stage.condition("ShardsFit") == "True")


@in_virtual_time
async def test_nothing_is_told_of_shards_that_say_nothing_or_of_what_is_controlled(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(FAMILY), None)
    stage.start("one", mains=[OWNERS.group_resource])
    stage.start("two")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert stage.condition("ShardsFit") == "True"
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"resources": [ALONE, OTHERS]}})
        await stage.until(lambda: stage.condition("ShardsFit") == "False")
        assert f"{CHILDREN.group_resource} on one, so" in stage.message("ShardsFit")
        stage.release("one")
        await stage.until(lambda: stage.condition("ShardsFit") == "True")


@in_virtual_time
async def test_a_rollout_that_brings_a_main_resource_is_told_once(clock: VirtualClock) -> None:
    """From the edit of the ring until the last shard of the program before has gone."""
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE, OTHERS), None)
    for shard in SHARDS:
        stage.start(shard, mains=BOTH[:1])
        [name] = names_on(shard, *SHARDS, resource=CHILDREN)
        stage.create(CHILDREN, thing(name))
    async with leading(stage):
        await stage.until(lambda: stage.condition("ShardsFit") == "False")
        for shard in SHARDS:
            assert stage.condition("ShardsFit") == "False"
            stage.release(shard)
            await stage.pass_time(5)
            stage.start(shard, mains=BOTH)
            await stage.pass_time(20)
        assert stage.condition("ShardsFit") == "True"
        assert len(stage.events.of("NotReconciled")) == 1
