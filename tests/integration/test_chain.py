"""Rings side by side: two on one resource, and one whose main resource the other controls."""

from __future__ import annotations

import asyncio

from tests.integration.harness import Stage
from tests.integration.world import DEPLOYMENTS, LONE_SECRETS, REPLICASETS, Ring


async def settle(*rings: Ring) -> None:
    for ring in rings:
        await ring.in_place()
        await ring.condition("Settled")


async def pods_run(stage: Stage, deployments: int, replicas: int) -> None:
    """Wait until the controller manager has made all replicasets and pods."""
    await stage.admin.eventually("v1/pods", lambda pods: len(pods) == deployments * replicas, stage.namespace)


async def test_a_chain_of_rings_with_children_that_the_controller_manager_makes(stage: Stage) -> None:
    """deployments→replicasets and replicasets→pods: a replicaset is controlled here and main there."""
    upper, lower = await stage.ring(DEPLOYMENTS), await stage.ring(REPLICASETS)
    for ring in (upper, lower):
        await stage.shard(ring, f"{ring.name}-a")
        await stage.shard(ring, f"{ring.name}-b")
    await stage.sharder()
    await upper.in_force(DEPLOYMENTS.main)
    await lower.condition("Ready")
    for _ in range(4):
        await upper.create(DEPLOYMENTS.main)
    await pods_run(stage, 4, 2)
    await settle(upper, lower)

    joined = [await stage.shard(ring, f"{ring.name}-c") for ring in (upper, lower)]
    await settle(upper, lower)
    template = {"spec": {"template": {"metadata": {"annotations": {"rollout": "2"}}}}}
    for name in await upper.shards_of(DEPLOYMENTS.main):
        await upper.patch(name, template, DEPLOYMENTS.main)
    await stage.admin.eventually(REPLICASETS.main, lambda found: len(found) == 8, stage.namespace)
    await joined[0].release()
    await joined[1].crash()
    await lower.in_place({f"{lower.name}-a", f"{lower.name}-b"})
    await settle(upper, lower)
    labels = [set(obj["metadata"]["labels"]) for obj in await upper.objects(REPLICASETS.main)]
    assert all({upper.labels[0], lower.labels[0]} <= each for each in labels)


async def test_two_rings_on_one_resource_move_independently(stage: Stage) -> None:
    here, there = await stage.ring(LONE_SECRETS), await stage.ring(LONE_SECRETS)
    leaves = await stage.shard(here, "here-one")
    await stage.shard(here, "here-two")
    await stage.shard(there, "there-one")
    await stage.sharder()
    await asyncio.gather(here.in_force(), there.in_force())
    # So many that some of them are due to whichever shard joins the other ring.
    await here.create_families(10, {"here-one", "here-two"})
    for ring in (here, there):
        await ring.in_place()
        assert None not in (await ring.shards_of()).values()
    stays = await there.shards_of()
    async with there.history() as history:
        await leaves.release()
        await here.in_place({"here-two"})
    assert {name: stops for name, stops in history.stops.items() if len(stops) > 1} == {}
    await stage.shard(there, "there-two")
    await there.in_place({"there-one", "there-two"})
    assert await there.shards_of() != stays
    assert set((await here.shards_of()).values()) == {"here-two"}


async def test_a_shard_may_belong_to_two_rings_by_two_leases(stage: Stage) -> None:
    """Shards of two rings with one name: the leases lie in different namespaces, the rings don't mind."""
    here, there = await stage.ring(LONE_SECRETS), await stage.ring(LONE_SECRETS)
    await stage.shard(here, "one")
    other = await stage.shard(there, "one", namespace="default")
    await stage.sharder()
    await asyncio.gather(here.in_force(), there.in_force())
    for _ in range(3):
        await here.create()
    await here.in_place({"one"})
    await there.in_place({"one"})
    await other.release()
    await there.condition("ShardsAvailable", "False")
    await here.in_place({"one"})
    await stage.admin.delete("coordination.k8s.io/v1/leases", "one", "default")
