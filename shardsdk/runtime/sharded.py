"""Sharded reconciling: a reconcile runs only while its object is this shard's, and gives it away cleanly.

The story of one object: it appears in the filtered cache (`_on_main`), waits at
the barrier until its children are known, comes out of the queue, passes the
guard (`_admit`), is reconciled; a drain label appears, `Drains` waits until
nothing works on it and gives it away; it leaves the cache.

Guarantees, each with its test in tests/unit/test_sharded.py: the guard looks at
the freshest cached object in the same turn of the event loop in which the
user's function begins; nothing begins without a lease; an object that goes away
unasked takes its reconcile with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, Generic, TypeVar

from shardsdk.core.guard import Verdict
from shardsdk.errors import LeaseLost
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.protocol.objects import GroupResource, ObjectMeta
from shardsdk.runtime.barrier import Barrier
from shardsdk.runtime.cache import Cache
from shardsdk.runtime.context import Context
from shardsdk.runtime.controller import Controller, Outcome, Waiting
from shardsdk.runtime.drains import Drains
from shardsdk.runtime.events import EventRecorder
from shardsdk.runtime.expectations import Expectations
from shardsdk.runtime.identity import ShardIdentity
from shardsdk.runtime.inflight import InFlight
from shardsdk.runtime.metrics import Metrics
from shardsdk.runtime.objects import Request, metadata_of, owner_of, private_copy, request_of
from shardsdk.runtime.ownapi import OwnApi
from shardsdk.runtime.predicates import Predicate, always
from shardsdk.runtime.queue import Priority, RateLimit, WorkQueue

log = logging.getLogger(__name__)

T = TypeVar("T")


class ShardedResource(Generic[T]):
    """A main resource of this shard: its cache, what is being reconciled, its drains.

    All controllers for the resource share it: a drain waits for every one of them.
    """

    def __init__(
        self,
        identity: ShardIdentity,
        cache: Cache[T],
        api: Api,
        *,
        clock: Clock,
        drain_timeout_seconds: float | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.identity = identity
        self.cache = cache
        self.api = api
        self.metrics = metrics.shard(str(cache.resource.group_resource)) if metrics else None
        self.inflight = InFlight(clock)
        self.reconcilers: list[ShardedReconciler[T]] = []
        if self.metrics:
            self.metrics.waiting_owners.set_function(lambda: sum(each.waiting for each in self.reconcilers))
        self.drains = Drains(
            identity,
            cache,
            self.inflight,
            api,
            clock=clock,
            cancel=self.cancel,
            cancel_after_seconds=drain_timeout_seconds,
            metrics=self.metrics,
        )

    def cancel(self, request: Request) -> None:
        """Cancel every reconcile of the object that runs."""
        for reconciler in self.reconcilers:
            reconciler.cancel(request)


class ShardedReconciler(Generic[T]):
    """A controller for a main resource of this shard; `run` it next to its caches and the resource's drains.

    `reconcile(context)` is called for an object of `resource` when it or one
    of its `children` has changed; `fence` says whether this shard holds its lease.
    """

    def __init__(
        self,
        name: str,
        resource: ShardedResource[T],
        reconcile: Callable[[Context[T]], Awaitable[Outcome | None]],
        fence: Fence,
        *,
        children: Sequence[tuple[Cache[Any], Predicate]] = (),
        predicate: Predicate = always,
        concurrency: int = 1,
        timeout_seconds: float | None = None,
        rate_limit: RateLimit | None = None,
        clock: Clock,
        rng: Random,
        metrics: Metrics | None = None,
        recorder: EventRecorder | None = None,
    ) -> None:
        self.name = name
        self.queue: WorkQueue[Request] = WorkQueue(clock, name=name, rate_limit=rate_limit)
        self._resource = resource
        self._cache = resource.cache
        self._identity = resource.identity
        self._reconcile = reconcile
        self._fence = fence
        self._clock = clock
        self._predicate = predicate
        self._recorder = recorder
        self._children: dict[GroupResource, Cache[Any]] = {
            cache.resource.group_resource: cache for cache, _ in children
        }
        self._controlled = frozenset(self._children)
        self._barrier = Barrier(
            list(self._children.values()),
            wake=self.queue.add,
            settle=resource.api.writes_settled,
            clock=clock,
            rng=rng,
            on_list=self._count_list,
        )
        self._expectations = Expectations(
            clock, wake=self.queue.add, wake_after=self.queue.add_after, on_expired=self._on_expired
        )
        self._controller: Controller[Request] = Controller(
            name,
            self,
            self.queue,
            clock=clock,
            concurrency=concurrency,
            timeout_seconds=timeout_seconds,
            metrics=metrics.controller(name, concurrency) if metrics else None,
        )
        if metrics:
            metrics.observe_queue(self.queue)
        resource.reconcilers.append(self)
        self._cache.listen(self._on_main)
        for cache, child_predicate in children:
            self._listen_to_child(cache, child_predicate)

    async def run(self) -> None:
        """Reconcile once all caches are synced, until cancelled or stopped and done."""
        for cache in (self._cache, *self._children.values()):
            await cache.wait_synced()
        barrier = asyncio.create_task(self._barrier.run(), name=f"{self.name}/barrier")
        try:
            await self._controller.run()
        finally:
            barrier.cancel()
            await asyncio.wait([barrier])

    async def stop(self) -> None:
        """Begin no further reconcile; `run` returns when those that run have ended."""
        await self.queue.shut_down()

    @property
    def running(self) -> int:
        """How many reconciles run now."""
        return self._controller.running

    @property
    def waiting(self) -> int:
        """How many owners wait for their children."""
        return self._barrier.waiting

    def cancel(self, request: Request) -> bool:
        """Cancel the reconcile of the object that runs; `False`: none does."""
        return self._controller.cancel(request)

    # -- one reconcile ------------------------------------------------------

    async def __call__(self, request: Request) -> Outcome | None:
        """Reconcile one object, if it is this shard's and its time has come.

        Raises: LeaseLost, and whatever the user's function raises.
        """
        thing = self._admit(request)
        if isinstance(thing, Waiting) or thing is None:
            return thing
        metadata = metadata_of(thing)
        notes = _Notes(self, request, metadata)
        api = OwnApi(self._resource.api, self._identity, self._cache.resource, metadata, self._controlled, notes)
        main, mine = self._cache.resource, private_copy(thing)
        with self._resource.inflight.hold(request):
            context = Context(
                request, mine, metadata, main, api, self._children, self._recorder,
                controller=self.name, identity=self._identity, clock=self._clock,
            )  # fmt: skip
            return await self._reconcile(context)

    def _admit(self, request: Request) -> T | Waiting | None:
        """The guard: the freshest cached object, if it may be reconciled now; `None`: not by us."""
        thing = self._cache.peek(request)
        if thing is None:
            return None
        match self._identity.judge(thing):
            case Verdict.IGNORE:
                if self._resource.metrics:
                    self._resource.metrics.ignored.inc()
                return None
            case Verdict.ACKNOWLEDGE:
                self._resource.drains.add(request)
                return None
            case Verdict.RECONCILE:
                pass
        if self._fence.remaining() <= 0:
            raise LeaseLost(f"{self._fence.name} is not held any more: {request} is not reconciled")
        # Expectations first: one that ran out sends its object to the barrier.
        if self._expectations.pending(request) or not self._barrier.passes(request, metadata_of(thing).uid):
            return Waiting()
        return thing

    # -- what changes ---------------------------------------------------------

    def _on_main(self, delta: Delta[T]) -> None:
        request = request_of(delta.object)
        if delta.kind is EventKind.DELETED:
            self._forget(request, metadata_of(delta.object))
            return
        self._expectations.observe(self._cache, delta)
        if self._identity.judge(delta.object) is not Verdict.RECONCILE:
            # About to leave: should it stay after all, others may have worked on its children.
            self._barrier.left(request)
            return
        priority = Priority.BULK if delta.initial else Priority.FRESH
        if delta.kind is EventKind.ADDED:
            if self._passes(self._predicate, delta):
                self._barrier.arrived(request, metadata_of(delta.object).uid, priority)
                self.queue.add(request, priority)
            return
        given_back = delta.old is not None and self._identity.judge(delta.old) is not Verdict.RECONCILE
        if given_back or self._passes(self._predicate, delta):
            self.queue.add(request, priority)

    def _forget(self, request: Request, metadata: ObjectMeta) -> None:
        self._barrier.left(request)
        self._expectations.forget(request)
        self.queue.forget(request)
        # What was being deleted has ended; what was not went away unasked, or without finalizers.
        if metadata.deletion_timestamp is None and self.cancel(request):
            log.warning(
                "Reconcile cancelled: the object went away",
                extra={"controller": self.name, "namespace": request.namespace, "object": request.name},
            )

    def _listen_to_child(self, cache: Cache[Any], predicate: Predicate) -> None:
        def on_child(delta: Delta[Any]) -> None:
            self._barrier.observe(cache, delta)
            self._expectations.observe(cache, delta)
            if not self._passes(predicate, delta):
                return
            priority = Priority.BULK if delta.initial else Priority.FRESH
            for thing in (delta.object, delta.old):
                owner = None if thing is None else owner_of(thing, self._cache.resource)
                if owner is not None:
                    self.queue.add(owner, priority)

        cache.listen(on_child)

    def _passes(self, predicate: Predicate, delta: Delta[Any]) -> bool:
        try:
            return predicate(delta)
        except Exception:
            log.exception("A predicate raised; the object is reconciled", extra={"controller": self.name})
            return True

    # -- what is written -------------------------------------------------------

    def _note_write(self, owner: Request, resource: GroupResource, written: Request, version: str) -> None:
        is_owner = written == owner and resource == self._cache.resource.group_resource
        cache: Cache[Any] | None = self._cache if is_owner else self._children.get(resource)
        if cache is not None:
            self._expectations.expect(owner, cache, written, version)

    def _count_list(self) -> None:
        if self._resource.metrics:
            self._resource.metrics.child_lists.inc()

    def _on_expired(self, owner: Request) -> None:
        """The cache did not show a write in time: only a list can tell what it has missed."""
        if self._resource.metrics:
            self._resource.metrics.expectations_expired.inc()
        thing = self._cache.peek(owner)
        if thing is not None:
            self._barrier.arrived(owner, metadata_of(thing).uid)


class _Notes:
    """Remembers what one reconcile has written; satisfies `ownapi.Notes`."""

    def __init__(self, reconciler: ShardedReconciler[Any], owner: Request, metadata: ObjectMeta) -> None:
        self._reconciler = reconciler
        self._owner = owner
        self._uid = metadata.uid

    def wrote(self, resource: GroupResource, request: Request, version: str) -> None:
        self._reconciler._note_write(self._owner, resource, request, version)

    def doubts(self) -> None:
        self._reconciler._barrier.doubt(self._owner, self._uid)
