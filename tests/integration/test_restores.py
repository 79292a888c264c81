"""A real etcd is set back to a backup while a replica's caches watch; the control plane is these tests' own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from localcluster import AdminClient, AdminError, ControlPlane
from sharder.cache.rings import RingCache
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.protocol.labels import LEASE_RING_LABEL
from tests.integration.scripted import Object

LEASES = "coordination.k8s.io/v1/leases"
RINGS = "sharding.timebertt.dev/v1alpha1/clusterrings"
ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120.0


def lease(shard: str) -> Object:
    metadata = {"name": shard, "labels": {LEASE_RING_LABEL: "restored"}}
    return {"metadata": metadata, "spec": {"holderIdentity": shard, "leaseDurationSeconds": 600}}


async def renew(admin: AdminClient, shard: str) -> None:
    """A living shard, whose writes carry the restored store past what watches wait for."""
    for number in itertools.count(2):
        await asyncio.sleep(0.1)
        with contextlib.suppress(AdminError, OSError, TimeoutError):
            await admin.patch(LEASES, shard, {"spec": {"leaseTransitions": number}}, "default")


@asynccontextmanager
async def away(plane: ControlPlane) -> AsyncIterator[Path]:
    """Etcd's data, while nothing runs on it."""
    await plane.apiserver.kill()
    await plane.etcd.stop()
    [folder] = [flag.partition("=")[2] for flag in plane.etcd.argv if flag.startswith("--data-dir=")]
    yield Path(folder)
    await plane.etcd.start()
    await plane.apiserver.start()


@asynccontextmanager
async def knowing(plane: ControlPlane) -> AsyncIterator[RingCache]:
    """A replica's caches."""
    clock = SystemClock()
    async with Client(await load_access(str(plane.kubeconfig()), clock=clock), clock=clock) as api:
        registry = RingCache(api, clock=clock, rng=Random(7), staleness_seconds=4.0)
        running = asyncio.create_task(registry.run())
        try:
            yield registry
            assert not running.done()
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def until_known(registry: RingCache, shards: set[str]) -> None:
    """Wait until the caches show the ring with the leases of exactly these shards."""
    told = asyncio.Event()
    undo = registry.subscribe(lambda ring, what: told.set())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (ring := registry.get("restored")) is None or {name for _, name in ring.leases} != shards:
                told.clear()
                await told.wait()
    finally:
        undo()


async def test_what_only_the_restored_store_holds_is_found_by_caches_that_went_on(tmp_path: Path) -> None:
    async with ControlPlane(controllers=()) as plane, plane.admin() as admin:
        await plane.apply(ROOT / "crds")
        kind = {"apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing"}
        spec = {"resources": [{"resource": "configmaps"}]}
        await admin.create(RINGS, {**kind, "metadata": {"name": "restored"}, "spec": spec})
        for shard in ("alive", "gone"):
            await admin.create(LEASES, lease(shard), "default")
        async with knowing(plane) as registry:
            await until_known(registry, {"alive", "gone"})
            lost: list[str] = []
            registry.subscribe(lambda ring, what: None if registry.get(ring) else lost.append(ring))
            async with away(plane) as data:
                shutil.copytree(data, tmp_path / "backup")
            renewing = asyncio.create_task(renew(admin, "alive"))
            try:
                await admin.delete(LEASES, "gone", "default")
                await until_known(registry, {"alive"})
                async with away(plane) as data:
                    shutil.rmtree(data)
                    shutil.copytree(tmp_path / "backup", data)
                await until_known(registry, {"alive", "gone"})
                assert not lost
            finally:
                renewing.cancel()
