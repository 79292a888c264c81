"""Leases that nobody may acquire, or that keep everything from their shard: what stays, and what people are told."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from shardsdk.protocol.labels import LEASE_CONTROLLERRING_LABEL, LEASE_RING_LABEL
from shardsdk.protocol.leases import DEFAULT_DURATION_SECONDS, render_micro_time
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    OWNERS,
    RING,
    SHARDS,
    Stage,
    leading,
    lease,
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
        [told] = re.findall(r"counts as held until (.{8}) UTC", stage.message("ShardsAvailable"))
        await stage.until(lambda: stage.label(OWNERS, ghost) == "one", seconds=2400)
        until = datetime.strptime(f"{clock.now():%F} {told}+0000", "%Y-%m-%d %H:%M:%S%z")
        assert until <= clock.now() < until + timedelta(seconds=30)
        assert "counts as held until" not in stage.message("ShardsAvailable")


@in_virtual_time
async def test_a_lease_for_ever_that_no_shard_renews_runs_out_soon_once_its_duration_is_patched(
    clock: VirtualClock,
) -> None:
    stage = two_shards(clock)
    [ghost] = names_on("one", "one", "two", count=2)[1:]
    stage.create(LEASES, lease(clock, "ghost", duration=2**31 - 1, fenced=False), SHARDS)
    stage.create(OWNERS, thing(ghost, shard="ghost"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("ShardsFit") == "False")
        assert f"patch the Lease's spec.leaseDurationSeconds to {DEFAULT_DURATION_SECONDS}" in stage.message(
            "ShardsFit"
        )
        stage.server.patch(LEASES, "ghost", SHARDS, {"spec": {"leaseDurationSeconds": DEFAULT_DURATION_SECONDS}})
        await stage.until(lambda: stage.label(OWNERS, ghost) == "one", seconds=45)


@in_virtual_time
async def test_that_a_lease_is_renewed_under_another_name_is_told_once_that_goes_on(clock: VirtualClock) -> None:
    stage, other = two_shards(clock), "w-1_0b1f5f0e"

    async def renew(seconds: float) -> None:
        for _ in range(int(seconds // 2)):
            stage.server.patch(LEASES, "w-1", SHARDS, {"spec": {"renewTime": render_micro_time(clock.now())}})
            await clock.sleep(2)

    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.create(LEASES, lease(clock, "w-1", holder=other), SHARDS)
        await renew(12)
        assert "renewed by" not in stage.message("ShardsAvailable")
        await renew(20)
        assert f"the Lease {SHARDS}/w-1 is renewed by '{other}'" in stage.message("ShardsAvailable")
        assert "have whoever renews it say w-1 as holderIdentity" in stage.message("ShardsAvailable")
        stage.server.patch(LEASES, "w-1", SHARDS, {"spec": {"holderIdentity": "w-1"}})
        await stage.until(lambda: stage.message("ShardsAvailable") == "3 of 3 shards are available", seconds=10)


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
