"""A main resource without namespaces: reconciled, its children found, drained, given away."""

from __future__ import annotations

from shardsdk.process.process import ExitCode
from shardsdk.protocol.objects import Resource
from shardsdk.reconcile.spec import controller_for
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING
from tests.unsharded_rig import Cluster, Ctx, shard_of_ring

TENANTS = Resource("example.com", "v1", "tenants", "Tenant", namespaced=False)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)


@in_virtual_time
async def test_a_cluster_scoped_object_is_reconciled_with_its_children_and_given_away(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    replica = cluster.replica()
    seen: list[tuple[str, list[str]]] = []

    async def make(context: Ctx) -> None:
        assert context.request.namespace == ""
        children = [*context.children(CONFIGMAPS), *context.children(ROLES)]
        seen.append((str(context.request), [child.metadata.name for child in children]))
        if not children:
            metadata = {"name": "settings", "ownerReferences": [context.controller_reference()]}
            await context.api.create(CONFIGMAPS, {"metadata": metadata}, "tenant-a")
            role = {"name": "tenant-role", "ownerReferences": [context.controller_reference()]}
            await context.api.create(ROLES, {"metadata": role})
            await context.api.patch(TENANTS, context.request.name, None, {"spec": {"ready": True}})

    cluster.server.create(TENANTS, {"metadata": {"name": "a", "labels": {RING.shard: "shard-1"}}})
    cluster.server.create(TENANTS, {"metadata": {"name": "b", "labels": {RING.shard: "shard-2"}}})
    # A cluster-scoped resource has no namespaces to choose from.
    manager = shard_of_ring(watch_namespace="tenant-a")
    process = replica.start(manager.add(controller_for(TENANTS).owns(CONFIGMAPS).owns(ROLES).reconcile(make)))
    await clock.sleep(5)
    assert seen == [("a", []), ("a", ["settings", "tenant-role"])]
    for resource in (CONFIGMAPS, ROLES):
        (made,) = cluster.server.select(resource)
        assert made["metadata"]["labels"] == {RING.shard: "shard-1"}

    cluster.server.delete(CONFIGMAPS, "settings", "tenant-a")
    await clock.sleep(5)
    assert seen[-1] == ("a", ["tenant-role"]), "a namespaced child wakes its cluster-scoped owner"

    cluster.server.patch(TENANTS, "a", None, {"metadata": {"labels": {RING.drain: "true"}}})
    await clock.sleep(5)
    assert cluster.server.get(TENANTS, "a", None)["metadata"].get("labels") in (None, {})
    manager.stopping.set()
    assert await process is ExitCode.OK
