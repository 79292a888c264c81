"""A shard that only follows the wire contract, as a Go shard does: client-go's election, no fence, no instance.

It lets others make its children's labels (webhook or placement), and it does
not know of barriers and expectations; what it does twice, it does twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from shardsdk.errors import AlreadyExists, Conflict, NotFound, ShardingError
from shardsdk.kube.reflector import Delta, EventKind, Reflector
from shardsdk.kube.selectors import Selector, equals
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import LEASE_RING_LABEL, RingLabels
from shardsdk.protocol.leases import render_micro_time
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.verdict import Verdict, judge
from shardsdk.queueing.queue import WorkQueue
from shardsdk.testing.processes import Process, ProcessState
from shardsdk.testing.virtual import SkewedClock
from tests.simulation.simapi import SimApi
from tests.simulation.vocabulary import FINALIZER, MAIN_OF, PIECES, WORKS, Piece, Work
from tests.simulation.workload import Reconciling

if TYPE_CHECKING:
    from tests.simulation.world import World

WORKERS = 3
#: For so long it trusts that a child which it made is there.
MEMORY_SECONDS = 8.0


class ForeignShard:
    """One incarnation of a Go shard."""

    fenced = False
    #: It has no hold that its process may know to end.
    hold_ends = False

    def __init__(self, world: World, name: str, ring: RingLabels, incarnation: int) -> None:
        self.name = name
        self.ring = ring
        self.identity = f"{name}_{incarnation}"
        self._namespace = world.namespace_of_shard(name)
        self.process = Process(self.identity)
        self.link = world.link(self.identity)
        rng = Random(f"{world.seed}/{self.identity}")
        self._clock = SkewedClock(world.clock, ahead_seconds=rng.uniform(-3600, 3600))
        self._rng = rng
        self._api = SimApi(world.server, self.link, self._clock)
        self._world = world
        self._lease: dict[str, Any] | None = None
        self._observed: tuple[Any, float] = (None, 0.0)
        self.leading = False
        self._running: dict[Key, int] = {}
        #: Keys of children made a moment ago, which the cache may not show yet, by owner.
        self._made: dict[str, dict[str, float]] = {}
        self._queue: WorkQueue[Key] = WorkQueue(self._clock, name=self.identity)
        selector = Selector(labels=equals(ring.shard, name))
        self._main: Reflector[Work] = Reflector(
            self._api, MAIN_OF[ring.ring], selector=selector, model=Work, handler=self._on_main,
            name=f"{name}/main", clock=self._clock, rng=rng,
        )  # fmt: skip
        self._pieces: Reflector[Piece] = Reflector(
            self._api, PIECES, selector=selector, model=Piece, handler=self._on_piece,
            name=f"{name}/pieces", clock=self._clock, rng=rng,
        )  # fmt: skip
        self._work = Reconciling(world, name, self.identity, self._clock, rng, fenced=False)
        self._stopping = asyncio.Event()
        self.main = self.process.start(self._run())

    @property
    def running(self) -> bool:
        return self.process.state is ProcessState.RUNNING and not self.main.done()

    def kill(self) -> None:
        """End it between two steps."""
        self.link.die(self._world.now + 0.3)
        self._world.bury()
        self._world.killed.add(self.identity)
        self._world.hindrances.hinder_shard(self.ring, self.name)
        self.process.kill()

    async def stop(self) -> None:
        """SIGTERM: finish what runs, release the lease, exit."""
        self._stopping.set()
        await asyncio.wait([self.main])

    # -- life ----------------------------------------------------------------

    async def _run(self) -> None:
        timings = self._world.plan.shard_timings
        while not await self._try_to_hold():
            await self._clock.sleep(timings.retry * (1 + 0.2 * self._rng.random()))
            if self._stopping.is_set():
                return
        tasks = [asyncio.ensure_future(part) for part in (self._main.run(), self._pieces.run())]
        await self._main.synced.wait()
        await self._pieces.synced.wait()
        tasks += [asyncio.ensure_future(self._worker()) for _ in range(WORKERS)]
        renewed_at = self._clock.monotonic()
        while not self._stopping.is_set():
            await self._clock.sleep(timings.retry)
            try:
                async with asyncio.timeout(renewed_at + timings.renew - self._clock.monotonic()):
                    if await self._try_to_hold():
                        renewed_at = self._clock.monotonic()
            except TimeoutError:
                pass
            if self._clock.monotonic() >= renewed_at + timings.renew:
                self._world.shard_exited(self)
                return
        await self._leave(tasks)

    async def _leave(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        await self._queue.shut_down()
        while self._running:
            await self._clock.sleep(0.1)
        with suppress(ShardingError):
            await self._write({"holderIdentity": "", "leaseDurationSeconds": 1})
        for task in tasks:
            task.cancel()

    async def _try_to_hold(self) -> bool:
        """As tryAcquireOrRenew of client-go's leader election."""
        try:
            async with asyncio.timeout(self._world.plan.shard_timings.renew / 2):
                return await self._hold()
        except (ShardingError, TimeoutError):
            return False

    async def _hold(self) -> bool:
        duration = int(self._world.plan.shard_timings.lease)
        spec: dict[str, Any] = {"holderIdentity": self.name, "leaseDurationSeconds": duration}
        try:
            self._lease = await self._api.get(LEASES, self.name, self._namespace, model=dict)
        except NotFound:
            now = render_micro_time(self._clock.now())
            metadata = {"name": self.name, "labels": {LEASE_RING_LABEL: self.ring.ring}}
            body = {"metadata": metadata, "spec": {**spec, "acquireTime": now, "renewTime": now, "leaseTransitions": 0}}
            self._lease = await self._api.create(LEASES, body, self._namespace, model=dict)
            return True
        assert self._lease is not None
        found = self._lease["spec"]
        if self._observed[0] != found:
            self._observed = (found, self._clock.monotonic())
        held = found.get("holderIdentity") not in ("", None, self.name)
        runs_out_at = self._observed[1] + (found.get("leaseDurationSeconds") or duration)
        if held and self._clock.monotonic() < runs_out_at:
            return False
        await self._write(spec)
        return True

    async def _write(self, changes: dict[str, Any]) -> None:
        assert self._lease is not None
        spec = {**self._lease["spec"], **changes, "renewTime": render_micro_time(self._clock.now())}
        labels = {**(self._lease["metadata"].get("labels") or {}), LEASE_RING_LABEL: self.ring.ring}
        body = {**self._lease, "metadata": {**self._lease["metadata"], "labels": labels}, "spec": spec}
        self._lease = await self._api.update(LEASES, body, model=dict)

    # -- work ----------------------------------------------------------------

    def _on_main(self, delta: Delta[Work]) -> None:
        if delta.kind is not EventKind.DELETED:
            self._queue.add(Key(delta.object.metadata.namespace, delta.object.metadata.name))

    def _on_piece(self, delta: Delta[Piece]) -> None:
        # As controller-runtime's EnqueueRequestForOwner, for those who lose a child, or see one that was not there.
        if delta.kind is EventKind.ADDED and (owner := delta.object.metadata.controller) is not None:
            self._queue.add(Key(delta.object.metadata.namespace, owner.name))
        before = delta.object if delta.kind is EventKind.DELETED else delta.old
        lost = before.metadata.controller if before is not None else None
        if lost is not None and (delta.kind is EventKind.DELETED or lost != delta.object.metadata.controller):
            self._queue.add(Key(delta.object.metadata.namespace, lost.name))

    async def _worker(self) -> None:
        while (key := await self._queue.get()) is not None:
            self._running[key] = 1
            try:
                await self._reconcile(key)
                self._queue.forget(key)
            except (ShardingError, TimeoutError):
                self._queue.add_rate_limited(key)
            finally:
                del self._running[key]
                self._queue.done(key)

    async def _reconcile(self, key: Key) -> None:
        work = self._main.store.get(*key)
        if work is None:
            return
        meta, resource = work.metadata, MAIN_OF[self.ring.ring]
        match judge(meta.labels, self.ring, self.name):
            case Verdict.ACKNOWLEDGE:
                labels = {self.ring.shard: None, self.ring.drain: None}
                patch = {"metadata": {"resourceVersion": meta.resource_version, "labels": labels}}
                with suppress(NotFound):
                    await self._api.patch(resource, meta.name, meta.namespace, patch)
            case Verdict.RECONCILE:
                await self._work_on(work)
            case Verdict.IGNORE:
                pass

    async def _work_on(self, work: Work) -> None:
        meta, resource = work.metadata, MAIN_OF[self.ring.ring]
        recent = self._clock.monotonic() - MEMORY_SECONDS
        made = {key: at for key, at in self._made.get(meta.uid, {}).items() if at > recent}
        present = [piece for piece in self._pieces.store if _owned_by(piece, meta.uid)]
        reference = {"apiVersion": resource.api_version, "kind": resource.kind, "name": meta.name,
                     "uid": meta.uid, "controller": True}  # fmt: skip
        keys = work.spec.keys if resource == WORKS else []
        with self._work.begin(resource, meta):
            try:
                if meta.deletion_timestamp is not None:
                    await self._clean_up(work, present)
                    return
                now = self._clock.monotonic()
                work_done = self._work.work(self._api, resource, meta, keys, present, reference, made)
                made |= dict.fromkeys(await work_done, now)
            except (AlreadyExists, Conflict, NotFound):
                self._queue.add_after(Key(meta.namespace, meta.name), 0.2)
        self._made[meta.uid] = made
        if made:
            self._queue.add_after(Key(meta.namespace, meta.name), MEMORY_SECONDS)

    async def _clean_up(self, work: Work, present: Sequence[Piece]) -> None:
        meta = work.metadata
        for piece in present:
            with suppress(NotFound):
                await self._api.delete(PIECES, piece.metadata.name, piece.metadata.namespace)
        kept = [name for name in meta.finalizers or () if name != FINALIZER]
        patch = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": kept}}
        await self._api.patch(MAIN_OF[self.ring.ring], meta.name, meta.namespace, patch)


def _owned_by(piece: Piece, uid: str) -> bool:
    controller = piece.metadata.controller
    return controller is not None and controller.uid == uid
