"""A process of a shard: the SDK's own lease, caches, drains and reconcilers, on simulated ground."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from shardsdk.core.timings import LeaseTimings
from shardsdk.errors import LeaseLost
from shardsdk.protocol.labels import RingLabels
from shardsdk.runtime.cache import Cache
from shardsdk.runtime.context import Context
from shardsdk.runtime.identity import ShardIdentity
from shardsdk.runtime.predicates import always
from shardsdk.runtime.sharded import ShardedReconciler, ShardedResource
from shardsdk.runtime.shardlease import ShardLease
from shardsdk.testing.processes import Process, ProcessState
from shardsdk.testing.virtual import SkewedClock
from tests.simulation.simapi import SimApi
from tests.simulation.vocabulary import MAIN_OF, PIECES, SHARDS_NAMESPACE, WORKS, Piece, Work
from tests.simulation.workload import Reconciling

if TYPE_CHECKING:
    from tests.simulation.world import World

CONCURRENCY = 3


class ShardProcess:
    """One incarnation of a shard; `instance` is its pod's UID, which a restarted container keeps."""

    fenced = True

    def __init__(self, world: World, name: str, ring: RingLabels, incarnation: int, instance: str) -> None:
        self.name = name
        self.ring = ring
        self.instance = instance
        self.identity = f"{name}_{incarnation}"
        self.process = Process(self.identity)
        self.link = world.link(self.identity)
        self.rng = Random(f"{world.seed}/{self.identity}")
        self.clock = SkewedClock(
            world.clock, ahead_seconds=self.rng.uniform(-3600, 3600), boot_seconds=self.rng.uniform(0, 1e5)
        )
        self.world = world
        self.grace_seconds = int(world.timings.lease) if self.rng.random() < 0.2 else 0
        self.reconciling = Reconciling(world, name, self.identity, self.clock, self.rng, fenced=True)
        self._stopping = asyncio.Event()
        self.main = self.process.start(self._run())

    @property
    def running(self) -> bool:
        return self.process.state is ProcessState.RUNNING and not self.main.done()

    def kill(self, *, closes_connections: bool = True) -> None:
        """End it between two steps; with its node gone, nobody closes its connections."""
        if closes_connections:
            self.link.die(self.world.now + 0.3)
        self.world.bury()
        self.process.kill()

    async def stop(self) -> None:
        """SIGTERM: finish what runs, release the lease (or leave it for a while), exit."""
        self._stopping.set()
        await asyncio.wait([self.main])

    # -- life ----------------------------------------------------------------

    def connect(self) -> SimApi:
        """The keeper's connection, without fence."""
        return SimApi(self.world.server, self.link, self.clock)

    async def _run(self) -> None:
        timings = self.world.timings
        try:
            async with ShardLease(
                self.connect, self.ring.ring, self.name, SHARDS_NAMESPACE,
                timings=LeaseTimings(timings.lease, timings.renew, timings.retry),
                fenced=True, instance=self.instance, restart_grace_seconds=self.grace_seconds,
                threaded=False, clock=self.clock, rng=self.rng,
            ) as lease:  # fmt: skip
                api = SimApi(self.world.server, self.link, self.clock, fence=lease.fence)
                lease.settle_first(api.writes_settled)
                await self._work(api, lease)
        except LeaseLost:
            self.world.shard_exited(self, lost=True)
        except Exception as error:
            self.world.crashed(self.identity, error)

    async def _work(self, api: SimApi, lease: ShardLease) -> None:
        identity = ShardIdentity(self.ring, self.name)
        caches = self.make_caches(api, identity)
        main, *children = caches
        resource: ShardedResource[Any] = ShardedResource(identity, main, api, clock=self.clock)
        reconciler: ShardedReconciler[Any] = ShardedReconciler(
            "work", resource, self._reconcile, lease.fence, children=[(child, always) for child in children],
            concurrency=CONCURRENCY, clock=self.clock, rng=self.rng,
        )  # fmt: skip
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(cache.run()) for cache in caches]
            running.append(tasks.create_task(resource.drains.run()))
            reconciling = tasks.create_task(reconciler.run())
            await self._stopping.wait()
            await reconciler.stop()
            await asyncio.wait([reconciling])
            await resource.drains.stop()
            for task in (*running, reconciling):
                task.cancel()

    def make_caches(self, api: SimApi, identity: ShardIdentity) -> list[Cache[Any]]:
        """The main object's cache, then its children's."""
        what: list[tuple[Any, Any]] = [(MAIN_OF[self.ring.ring], Work)]
        if self.ring.ring == "family":
            what.append((PIECES, Piece))
        return [
            Cache(api, resource, clock=self.clock, rng=self.rng, selector=identity.selector(), model=model)
            for resource, model in what
        ]

    async def _reconcile(self, context: Context[Work]) -> None:
        main = MAIN_OF[self.ring.ring]
        with self.reconciling.begin(main, context.metadata):
            keys, present = [], []
            if main == WORKS:
                keys = context.object.spec.keys
                present = [piece.spec.key for piece in context.children(PIECES)]
            reference = context.controller_reference()
            await self.reconciling.work(context.api, main, context.metadata, keys, present, reference)
