"""etcd is restored from a backup under a running sharder: what it knew of leases is compared with what is there."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, NAMESPACES
from shardsdk.testing.memory import Change, MemoryServer
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    LABELS,
    OWNERS,
    SHARDS,
    Stage,
    leading,
    lease,
    make_stage,
    ring,
    thing,
)


@dataclass
class Backup:
    """What an API server's storage held; put back, its versions go back too, and open watches are told nothing."""

    objects: dict[Any, Any]
    version: int

    @classmethod
    def of(cls, server: MemoryServer) -> Backup:
        return cls(copy.deepcopy(server.objects), server.version)

    def put_back(self, server: MemoryServer) -> None:
        server.objects = copy.deepcopy(self.objects)
        server.version = self.version
        server.log[:] = [change for change in server.log if change.version <= self.version]


def make_noise(stage: Stage, until_version: int) -> None:
    """Other writes carry the store's version past the positions of watches, before anyone looks."""
    while stage.server.version < until_version:
        stage.create(NAMESPACES, {"metadata": {"generateName": "noise-"}}, None)


def leases_listed(stage: Stage) -> int:
    return sum(1 for plural in stage.api.lists if plural == LEASES.plural)


async def restored_lease(stage: Stage, namespace: str = SHARDS, *, duration: int = 15) -> Backup:
    """A backup in which shard `three` has a lease, which exists no more and is unknown to the leader."""
    stage.create(LEASES, lease(stage.clock, "three", duration=duration), namespace)
    stage.create(OWNERS, thing("restored", shard="three"))
    backup = Backup.of(stage.server)
    stage.server.delete(LEASES, "three", namespace)
    stage.server.delete(OWNERS, "restored", "default")
    return backup


def restore(stage: Stage, backup: Backup) -> None:
    """The living shards' leases and the leader's survive as they are, as when they write again at once."""
    restore_until(stage, backup, stage.server.version + 1)


def restore_until(stage: Stage, backup: Backup, version: int) -> None:
    """The same, and other writes take the store to this version."""
    kept = {
        resource: {key: one for key, one in things.items() if key.name in ("one", "two", "sharder")}
        for resource, things in stage.server.objects.items()
        if resource == LEASES.group_resource
    }
    backup.put_back(stage.server)
    stage.server.objects[LEASES.group_resource].update(kept[LEASES.group_resource])
    make_noise(stage, version)


@in_virtual_time
async def test_a_lease_that_only_a_restored_store_knows_of_is_found_and_its_objects_move(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    backup = await restored_lease(stage)
    stage.start("one")
    stage.start("two")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        listed = leases_listed(stage)
        restore(stage, backup)
        # The leader's own watch of objects begins anew whenever the membership changes.
        stage.start("four")
        assert stage.label(OWNERS, "restored") == "three"
        # Twice what a lease of which nothing is known counts as held, for the lease's and the cache's sake.
        await stage.until(lambda: stage.label(OWNERS, "restored") != "three", seconds=40)
        creations = [each for each in stage.api.writes if each == ("create", LEASES.plural, "three")]
        assert len(creations) <= 2
        assert listed < leases_listed(stage)


@in_virtual_time
async def test_a_living_shard_that_only_the_restored_store_knows_of_keeps_its_objects(clock: VirtualClock) -> None:
    """Its lease is in another namespace than the ring's others, so that creating one there would succeed."""
    stage = make_stage(clock)
    stage.create(NAMESPACES, {"metadata": {"name": "elsewhere"}}, None)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    backup = await restored_lease(stage, "elsewhere", duration=120)
    stage.start("one")
    stage.start("two")
    taken: list[Change] = []

    def look(change: Change) -> None:
        labels = change.new["metadata"].get("labels", {}) if change.new is not None else {}
        if change.resource == OWNERS.group_resource and labels.get(LABELS.shard) != "three":
            taken.append(change)

    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        restore(stage, backup)
        stage.server.listeners.append(look)
        stage.start("four")
        for _ in range(6):
            # A long lease, renewed seldom: its watch tells of it much later than it can be taken for gone.
            await stage.pass_time(20)
            stage.server.patch(LEASES, "three", "elsewhere", {"spec": lease(clock, "three", duration=120)["spec"]})
    assert not taken
    assert stage.holder("three") is None, "no lease was made where the shard does not live"


@in_virtual_time
async def test_a_lease_that_was_renewed_in_a_version_that_was_given_before_is_not_taken_over(
    clock: VirtualClock,
) -> None:
    """Nothing but what the lease says tells the two apart: a write on condition of that version would go through."""
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "one")
    stage.create(LEASES, lease(clock, "three"), SHARDS)

    def renew() -> int:
        renewed = lease(clock, "three")
        body = {"metadata": {"annotations": renewed["metadata"]["annotations"]}, "spec": renewed["spec"]}
        return int(stage.server.patch(LEASES, "three", SHARDS, body)["metadata"]["resourceVersion"])

    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        backup = Backup.of(stage.server)
        await stage.pass_time(1)
        seen, at = renew(), clock.monotonic()
        await stage.pass_time(10)
        position = stage.server.version
        restore_until(stage, backup, seen - 1)
        assert renew() == seen
        make_noise(stage, position + 1)
        # As the leader saw it, it has run out for some seconds.
        await stage.pass_time(at + 20 - clock.monotonic())
        assert stage.holder("three") == "three"
        await stage.until(lambda: stage.holder("three") != "three", seconds=40)
        assert clock.monotonic() >= at + 10 + 15
