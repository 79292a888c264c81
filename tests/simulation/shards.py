"""A process of a shard: the SDK's own manager with a controller, on simulated ground."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from shardsdk.errors import NotFound
from shardsdk.kube.api import Fence
from shardsdk.kube.selectors import Selector, equals
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.timings import LeaseTimings
from shardsdk.objects.adoption import adopt
from shardsdk.objects.finalizers import finalizing
from shardsdk.process import manager
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.protocol.labels import RingLabels
from shardsdk.queueing.predicates import generation_changed
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.spec import controller_for
from shardsdk.testing.processes import Process, ProcessState
from tests.simulation.simapi import SimApi
from tests.simulation.vocabulary import (
    CLAIMED_BY,
    FAMILY,
    FINALIZER,
    KEY,
    MAIN_OF,
    PIECES,
    POISONED,
    RECONCILED,
    Piece,
    Timings,
    Work,
)
from tests.simulation.workload import Reconciling

if TYPE_CHECKING:
    from tests.simulation.schedule import Plan
    from tests.simulation.world import World

CONCURRENCY = 3
#: How many of their incarnations reconcile by a plain function.
PLAIN_SHARE = 0.2
#: How many have a second controller of the same main resource, and for how long that looks at each object.
SECOND_SHARE = 0.2
#: How long their leases last in runs in which they differ, compared with the longest.
LEASE_SHARES = (1.0, 0.75, 0.5)
SECOND_SECONDS = 1.0


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
        self._rng = rng = Random(f"{world.seed}/{self.identity}")
        self.clock = world.machines.clock_of(self.identity, rng)
        self._world = world
        #: How often its ring had come to cover other namespaces when it started.
        self._covers = world.covering.changes(ring)
        self._reconciling = Reconciling(world, name, self.identity, self.clock, rng, fenced=True)
        timings = timings_of(world.plan, name)
        self._manager = Manager(
            ring.ring, shard=world.names.in_product(name), namespace=world.namespace_of_shard(name),
            timings=LeaseTimings(timings.lease, timings.renew, timings.retry), fenced=True,
            restart_grace_seconds=int(timings.lease) if rng.random() < 0.2 else 0,
            grace_seconds=rng.uniform(0.2, 2.0) * timings.lease,
            health_address="0", metrics_address="0",
        )  # fmt: skip
        spec = controller_for(MAIN_OF[ring.ring], Work)
        if ring is FAMILY:
            spec = spec.owns(PIECES, Piece)
            self._manager.cache(PIECES, indexes={"key": _keys_of})
        spec = spec.options(
            concurrency=CONCURRENCY,
            timeout_seconds=rng.uniform(1.0, 3.0) * timings.lease if rng.random() < 0.2 else None,
            drain_timeout_seconds=rng.uniform(0.3, 2.0) * timings.lease if rng.random() < 0.3 else None,
        )
        self._plain = rng.random() < PLAIN_SHARE
        self._manager.add(spec.reconcile(self._reconcile_plainly if self._plain else self._reconcile))
        self._second = Random(f"{world.seed}/{self.identity}/second")
        if self._second.random() < SECOND_SHARE:
            limit = spec.drain_timeout_seconds
            second = controller_for(MAIN_OF[ring.ring], Work, when=generation_changed)
            second = second.options(name="second", drain_timeout_seconds=limit)
            self._manager.add(second.reconcile(self._look))
        self._lease: ShardLease | None = None
        self.main = self.process.start(self._run())

    @property
    def hold_ends(self) -> bool:
        """Whether its lease is lost, or its hold doubted, and its process has not yet had to end for that."""
        lease = self._lease
        if lease is None or (lease.loss is None and not lease.fence.doubted):
            return False
        return lease.fence.left_to_end() > 0

    @property
    def running(self) -> bool:
        return self.process.state is ProcessState.RUNNING and not self.main.done()

    def kill(self, *, closes_connections: bool = True) -> None:
        """End it between two steps; with its node gone, nobody closes its connections."""
        if closes_connections:
            self.link.die(self._world.now + 0.3)
        self._world.bury()
        self._world.killed.add(self.identity)
        self._world.hindrances.hinder_shard(self.ring, self.name)
        self.process.kill()

    async def stop(self) -> None:
        """SIGTERM: finish what runs, release the lease (or leave it for a while), exit."""
        self._manager.stopping.set()
        await asyncio.wait([self.main])

    # -- life ----------------------------------------------------------------

    async def _run(self) -> None:
        world = manager.World(
            source=lambda: SimApi(self._world.server, self.link, self.clock),
            connect=self._connect,
            # Whoever cannot read its ring takes it for one by labels.
            open=self._open if self._world.plan.ranges else None,
            clock=self.clock,
            rng=self._rng,
            threaded=False,
            serve=False,
            signals=False,
            die=self._die,
            instance=self.instance,
        )
        try:
            code = await self._manager.run_async(world)
        except Exception as error:
            self._world.crashed(self.identity, error)
            return
        match code:
            case ExitCode.OK:
                pass
            case ExitCode.LEASE_LOST | ExitCode.STUCK:
                self._world.shard_exited(self)
            case ExitCode.CONFIGURATION if self._covers != self._world.covering.changes(self.ring):
                self._world.mark("ended because its ring covers others")
                self._world.shard_exited(self)
            case ExitCode.FAILED | ExitCode.CONFIGURATION:
                self._world.crashed(self.identity, RuntimeError(code.name))

    def _open(self, fence: Fence | None) -> SimApi:
        return SimApi(self._world.server, self.link, self.clock, fence=fence)

    def _connect(self, lease: ShardLease) -> SimApi:
        self._lease = lease
        return SimApi(self._world.server, self.link, self.clock, fence=lease.fence)

    def _die(self, code: int, why: str) -> None:
        self._world.note(f"{self.identity} ends at once: {why}")
        self._world.shard_exited(self)

    def _reconcile_plainly(self, context: Context[Work]) -> None:
        """As a plain function would; the loop runs it as a thread, which nobody can cancel."""
        running: Any = self._reconcile(context)
        return running  # type: ignore[no-any-return]

    async def _reconcile(self, context: Context[Work]) -> None:
        main, work = MAIN_OF[self.ring.ring], context.object
        with self._reconciling.begin(main, context.metadata, plain=self._plain):
            present: list[Piece] = context.children(PIECES) if self.ring is FAMILY else []
            try:
                if work.spec.cleans and await finalizing(context, FINALIZER, lambda: self._clean_up(context)):
                    return
                known = await self._claim(context) if work.spec.claims else ()
                keys, reference = work.spec.keys, context.controller_reference()
                if context.metadata.deletion_timestamp is not None:  # of these it may not have been shown all children
                    keys = [piece.spec.key for piece in present]
                await self._reconciling.work(
                    context.api, main, context.metadata, keys, present, reference, known, lambda: context.cancelled
                )
            finally:
                self._reconciling.leave_behind(context.api, present)

    async def _look(self, context: Context[Work]) -> None:
        """What a second controller does: it takes its time as well, and writes nothing."""
        with self._reconciling.begin(MAIN_OF[self.ring.ring], context.metadata):
            await self.clock.sleep(self._second.random() * SECOND_SECONDS * self._world.timings.scale)

    async def _claim(self, context: Context[Work]) -> list[str]:
        """Adopt what waits for this work, once for each of its generations; gives the keys found."""
        note = (context.metadata.annotations or {}).get(RECONCILED, "")
        if note.rpartition("/")[2] == str(context.metadata.generation):
            return []
        selector = Selector(labels=equals(CLAIMED_BY, context.request.name))
        found = [each async for page in context.api.stream(PIECES, context.request.namespace, selector=selector)
                 for each in page]  # fmt: skip
        for orphan in found:
            if orphan.metadata.controller is None:
                await adopt(context, PIECES, orphan.metadata)
        return [each.metadata.label(KEY) or "" for each in found]

    async def _clean_up(self, context: Context[Work]) -> None:
        for piece in context.children(PIECES):
            with suppress(NotFound):
                await context.api.delete(PIECES, piece.metadata.name, piece.metadata.namespace)


def shortest_timings(plan: Plan) -> Timings:
    """Those of the shortest lease that any shard of a run may have."""
    return plan.shard_timings.shortened(min(LEASE_SHARES)) if plan.mixed else plan.shard_timings


def timings_of(plan: Plan, shard: str) -> Timings:
    """Those of a shard's lease, the same for each of its processes."""
    share = Random(f"{plan.seed}/lease/{shard}").choice(LEASE_SHARES) if plan.mixed else 1.0
    return plan.shard_timings if share == 1.0 else plan.shard_timings.shortened(share)


def run_as_thread(pool: object, function: Callable[[], Any]) -> Any:
    """What a virtual loop does instead of starting a thread for a plain function: a task that nobody cancels."""
    return asyncio.ensure_future(function())


def _keys_of(piece: Piece) -> list[str]:
    if POISONED in (piece.metadata.annotations or {}):
        raise ValueError(f"no key can be made of {piece.metadata.name}")
    return [piece.spec.key]
