"""Nothing is written without need: not by resyncs, not by another leader, not by namesakes and foreign labels."""

from __future__ import annotations

import asyncio

from tests.integration.harness import Sharder, Stage
from tests.integration.world import RINGS, TIMEOUT_SECONDS, WEBHOOKS, Ring
from tests.ports import free_port

CHILDREN = "v1/configmaps"


async def set_up(stage: Stage, **settings: float) -> tuple[Ring, Sharder]:
    ring = await stage.ring()
    await stage.shard(ring, "one")
    await stage.shard(ring, "two")
    sharder = await stage.sharder(start=False, sync_period_seconds=settings.get("sync_period_seconds", 300.0))
    sharder.port = free_port()  # for a successor, too
    await sharder.start()
    await ring.in_force()
    await ring.create_families(5, {"one", "two"})
    await ring.in_place()
    await ring.condition("Settled")
    return ring, sharder


async def resyncs(sharder: Sharder, ring: Ring, count: int) -> None:
    """Wait for so many further resyncs."""
    name = "resync_duration_seconds_count"
    enough = sharder.metric(name, ringName=ring.name) + count
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while sharder.metric(name, ringName=ring.name) < enough:
            await asyncio.sleep(0.05)


async def test_resyncs_rewrite_nothing(stage: Stage) -> None:
    ring, sharder = await set_up(stage, sync_period_seconds=0.2)
    objects = await ring.versions()
    about = [await stage.admin.get(RINGS, ring.name), await stage.admin.get(WEBHOOKS, f"clusterring-{ring.name}")]
    await resyncs(sharder, ring, 5)
    assert await ring.versions() == objects
    assert about == [
        await stage.admin.get(RINGS, ring.name),
        await stage.admin.get(WEBHOOKS, f"clusterring-{ring.name}"),
    ]


async def test_another_leader_rewrites_nothing(stage: Stage) -> None:
    ring, sharder = await set_up(stage)
    objects = await ring.versions()
    webhook = await stage.admin.get(WEBHOOKS, f"clusterring-{ring.name}")
    await sharder.stop()
    successor = await stage.sharder(webhook=True, start=False)
    successor.port = sharder.port
    await successor.start()
    await resyncs(successor, ring, 2)
    await ring.condition("Settled")
    assert await ring.versions() == objects
    assert await stage.admin.get(WEBHOOKS, f"clusterring-{ring.name}") == webhook


async def test_objects_that_move_are_the_only_ones_that_are_written(stage: Stage) -> None:
    """A shard joins: who stays is not touched; who goes is drained, acknowledged and placed, once each."""
    ring, _ = await set_up(stage)
    before = await ring.shards_of()
    versions = await ring.versions()
    async with ring.history() as owners, ring.history(CHILDREN) as children:
        await stage.shard(ring, "three")
        await ring.in_place({"one", "two", "three"})
        await ring.condition("Settled")
    after = await ring.shards_of()
    for name, shard in before.items():
        if after[name] == shard:
            assert owners.of(name) == [shard]
            assert (await ring.versions("v1/secrets"))["v1/secrets", name] == versions["v1/secrets", name]
        else:
            assert owners.of(name) == [shard, f"{shard}*", "-", "three"]
    assert all(len(stops) <= 2 for stops in children.stops.values())


async def test_a_ring_deleted_and_made_again_finds_its_objects_in_place(stage: Stage) -> None:
    ring, _ = await set_up(stage)
    versions = await ring.versions()
    spec = (await stage.admin.get(RINGS, ring.name))["spec"]
    await stage.admin.delete(RINGS, ring.name)
    await stage.admin.eventually(WEBHOOKS, lambda found: ring.name not in str(found))
    body = {"apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing", "metadata": {"name": ring.name}}
    await stage.admin.create(RINGS, {**body, "spec": spec})
    await ring.condition("Settled")
    assert await ring.versions() == versions
    await ring.in_force()


async def test_a_webhook_configuration_changed_or_deleted_by_hand_is_put_back(stage: Stage) -> None:
    ring, _ = await set_up(stage)
    name = f"clusterring-{ring.name}"
    before = await stage.admin.get(WEBHOOKS, name)
    await stage.admin.delete(WEBHOOKS, name)
    made = await stage.admin.eventually(
        WEBHOOKS, lambda found: next((each for each in found if each["metadata"]["name"] == name), None)
    )
    assert made["webhooks"] == before["webhooks"]
    path = "/webhooks/0/failurePolicy"
    await stage.admin.patch(
        WEBHOOKS, name, [{"op": "replace", "path": path, "value": "Fail"}], content_type="application/json-patch+json"
    )
    await stage.admin.eventually(
        WEBHOOKS,
        lambda found: any(
            each["metadata"]["name"] == name and each["webhooks"] == before["webhooks"] for each in found
        ),
    )
