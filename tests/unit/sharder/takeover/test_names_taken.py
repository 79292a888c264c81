"""Leases that nobody may acquire, or that keep everything from their shard: what stays, and what people are told."""

from __future__ import annotations

from shardsdk.protocol.labels import LEASE_CONTROLLERRING_LABEL, LEASE_RING_LABEL
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    OWNERS,
    RING,
    SHARDS,
    Stage,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)


def relabel(stage: Stage, shard: str, labels: dict[str, str | None]) -> None:
    """Change labels of a shard's Lease."""
    stage.server.patch(LEASES, shard, SHARDS, {"metadata": {"labels": labels}})


def two_shards(clock: VirtualClock) -> Stage:
    """A ring with an object on each of its shards."""
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    for shard in ("one", "two"):
        stage.start(shard)
        [name] = names_on(shard, "one", "two")
        stage.create(OWNERS, thing(name, shard=shard))
    return stage


@in_virtual_time
async def test_shards_of_one_name_are_told_by_their_namespaces(clock: VirtualClock) -> None:
    stage = two_shards(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.start("one", namespace="elsewhere")
        await stage.until(lambda: stage.condition("ShardNamesUnique") == "False")
        condition = stage.said("ShardNamesUnique")
        assert condition["reason"] == "Ambiguous"
        assert f"the Leases elsewhere/one, {SHARDS}/one are" in condition["message"]
        assert stage.events.of("Ambiguous") == [condition["message"]]


@in_virtual_time
async def test_that_the_lease_of_a_shard_is_another_rings_by_now_is_told_until_it_is_gone(clock: VirtualClock) -> None:
    stage = two_shards(clock)
    [moves] = names_on("one", "one", "two")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        relabel(stage, "one", {LEASE_RING_LABEL: "other"})
        await stage.until(lambda: stage.condition("ShardNamesUnique") == "False")
        condition = stage.said("ShardNamesUnique")
        assert condition["reason"] == "TakenElsewhere"
        assert "stop or rename shard one of ring other, then delete the Lease" in condition["message"]
        assert stage.events.of("TakenElsewhere") == [condition["message"]]
        await stage.pass_time(600)
        assert stage.label(OWNERS, moves) == "one", "a process of the ring could take the Lease at any time"
        assert len(stage.events.of("TakenElsewhere")) == 1
        stage.crash("one")
        stage.server.delete(LEASES, "one", SHARDS)
        await stage.until(lambda: stage.label(OWNERS, moves) == "two")
        await stage.until(lambda: stage.condition("ShardNamesUnique") == "True")


@in_virtual_time
async def test_what_a_shard_of_another_library_has_moves_once_its_lease_is_deleted(clock: VirtualClock) -> None:
    stage = two_shards(clock)
    [had] = names_on("one", "one", "two")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        relabel(stage, "one", {LEASE_CONTROLLERRING_LABEL: RING})
        await stage.until(lambda: stage.condition("ShardsFit") == "False")
        assert stage.said("ShardsFit")["reason"] == "LibrariesMixed"
        assert len(stage.events.of("LibrariesMixed")) == 1
        new = names_on("one", "one", "two", count=5)[1:]
        for name in new:
            stage.create(OWNERS, thing(name))
        await stage.until(lambda: {stage.label(OWNERS, name) for name in new} == {"two"})
        await stage.pass_time(120)
        assert (stage.holder("one"), stage.label(OWNERS, had)) == ("one", "one"), "nothing is taken while it is held"
        stage.crash("one")
        stage.server.delete(LEASES, "one", SHARDS)
        await stage.until(lambda: stage.label(OWNERS, had) == "two")
        await stage.until(lambda: stage.condition("ShardsFit") == "True")


@in_virtual_time
async def test_a_shard_is_one_again_when_the_label_of_the_other_library_is_deleted(clock: VirtualClock) -> None:
    stage = two_shards(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        relabel(stage, "one", {LEASE_CONTROLLERRING_LABEL: RING})
        await stage.until(lambda: stage.condition("ShardsFit") == "False")
        relabel(stage, "one", {LEASE_CONTROLLERRING_LABEL: None})
        await stage.until(lambda: stage.condition("ShardsFit") == "True")
        assert stage.message("ShardsAvailable") == "2 of 2 shards are available"


@in_virtual_time
async def test_a_shard_of_another_library_that_is_gone_is_taken_over(clock: VirtualClock) -> None:
    stage = two_shards(clock)
    [had] = names_on("one", "one", "two")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        relabel(stage, "one", {LEASE_CONTROLLERRING_LABEL: RING})
        await stage.until(lambda: stage.condition("ShardsFit") == "False")
        stage.crash("one")
        await stage.until(lambda: stage.label(OWNERS, had) == "two")


@in_virtual_time
async def test_a_lease_for_ever_is_no_shards_and_holds_up_nobody_elses_objects(clock: VirtualClock) -> None:
    stage = two_shards(clock)
    ghost, stray = names_on("one", "one", "two", count=3)[1:]
    stage.create(LEASES, {"metadata": {"name": "ghost", "labels": {LEASE_RING_LABEL: RING}}, "spec": {
        "holderIdentity": "ghost", "leaseDurationSeconds": 2**31 - 1}}, SHARDS)  # fmt: skip
    stage.create(OWNERS, thing(ghost, shard="ghost"))
    stage.create(OWNERS, thing(stray, shard="stray"))
    async with leading(stage):
        await stage.until(lambda: stage.label(OWNERS, stray) == "one")
        assert stage.said("ShardsFit")["reason"] == "LeaseTooLong"
        await stage.pass_time(600)
        assert stage.label(OWNERS, ghost) == "ghost", "it says that its shard is at work"
        stage.server.delete(LEASES, "ghost", SHARDS)
        await stage.pass_time(1800)
        assert stage.label(OWNERS, ghost) == "ghost", "who held it may count on it"
        await stage.until(lambda: stage.label(OWNERS, ghost) == "one", seconds=2400)


@in_virtual_time
async def test_that_a_lease_was_another_rings_is_told_no_longer_once_it_is_deleted_though_no_shard_is_left(
    clock: VirtualClock,
) -> None:
    stage = two_shards(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        relabel(stage, "one", {LEASE_RING_LABEL: "other"})
        await stage.until(lambda: stage.condition("ShardNamesUnique") == "False")
        stage.crash("two")
        stage.crash("one")
        await stage.pass_time(120)
        stage.server.delete(LEASES, "one", SHARDS)
        await stage.until(lambda: stage.condition("ShardNamesUnique") == "True", seconds=60)
