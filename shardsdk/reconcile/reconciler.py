"""Reconciler: feeds a controller from caches and sources, and lets a reconcile begin only when it may.

The story of one object: it appears in the cache (`_on_main`), of a shard's waits
at the barrier until its children are known, comes out of the queue, passes the
guard (`_admit`), is reconciled; a drain label appears, the resource gives it
away; it leaves the cache.

Guarantees, each with its test in tests/unit/shardsdk/reconcile/test_sharded.py: the guard looks at
the freshest cached object in the same turn of the event loop in which the
user's function begins; nothing begins without a lease; an object that goes away
unasked takes its reconcile with it; an object that cannot be read, or a child
that cannot, holds up nobody but itself and its owner (tests/unit/shardsdk/reconcile/test_unfit.py).

Refuses: to know whether its resource is sharded.  `ShardedResource` and
`UnshardedResource` answer what it asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, Generic, TypeVar

from shardsdk.cache.cache import Cache
from shardsdk.cache.identity import ShardIdentity
from shardsdk.cache.objects import Request, metadata_of, owner_of, private_copy, request_of
from shardsdk.events.recorder import EventRecorder
from shardsdk.kube.api import Fence, Unfit
from shardsdk.kube.clock import Clock
from shardsdk.kube.doubts import check_open
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.kube.selectors import Selector
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import GroupResource, ObjectMeta, PartialObject
from shardsdk.protocol.verdict import Verdict
from shardsdk.queueing.controller import Controller, Outcome, Waiting
from shardsdk.queueing.metrics import Metrics
from shardsdk.queueing.predicates import Predicate, always
from shardsdk.queueing.queue import Priority, RateLimit, WorkQueue
from shardsdk.queueing.sources import Feed, RequestSource, Watched
from shardsdk.reconcile.barrier import Barrier
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.expectations import Expectations
from shardsdk.reconcile.mainresource import MainResource
from shardsdk.reconcile.ownapi import OwnApi
from shardsdk.reconcile.unfit import UnfitObjects, as_delta

log: Final = logger_of(__name__)

T = TypeVar("T")
_NOBODY: Final = Request("", "")
#: A cache, who is told of its changes, and what it held before anyone was.
_Listening = tuple[Cache[Any], Callable[[Delta[Any]], None], list[Request]]

#: So many objects of a warm cache are looked at before other tasks get a turn.
REPLAY_TURN: Final = 256


class Reconciler(Generic[T]):
    """A controller for a main resource; `run` it next to its caches (and, of a shard, the resource's drains).

    `reconcile(context)` is called for an object of `resource` when it or one of
    its `children` has changed, when a change of a `watched` object is mapped to
    it, or a source asks for it.  `fence` says whether the lease that the work
    needs is held.  One reconcile may send `max_writes` writes (`None`: any
    number).  `before()` is awaited before its first reconcile, once its caches
    are complete; `unassigned` is the barrier's.
    """

    def __init__(
        self,
        name: str,
        resource: MainResource[T],
        reconcile: Callable[[Context[T]], Awaitable[Outcome | None]],
        fence: Fence,
        *,
        children: Sequence[tuple[Cache[Any], Predicate]] = (),
        watched: Sequence[Watched] = (),
        sources: Sequence[tuple[RequestSource, Predicate]] = (),
        predicate: Predicate = always,
        concurrency: int = 1,
        timeout_seconds: float | None = None,
        rate_limit: RateLimit | None = None,
        max_writes: int | None = None,
        before: Callable[[], Awaitable[object]] | None = None,
        unassigned: Callable[[Cache[Any]], Selector | None] = lambda cache: None,
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
        self._predicate = predicate
        self._recorder = recorder
        self._max_writes = max_writes
        self._before = before
        self._sources = sources
        self._clock = clock
        self._rng = rng
        self._children: dict[GroupResource, Cache[Any]] = {
            cache.resource.group_resource: cache for cache, _ in children
        }
        self._readable = {each.cache.resource.group_resource: each.cache for each in watched} | self._children
        self._readable[self._cache.resource.group_resource] = self._cache
        self._barrier = self._make_barrier(unassigned)
        self._unfit = UnfitObjects(name, self._cache.resource, list(self._children.values()), recorder)
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
            for cache in self._readable.values():
                metrics.observe_cache(cache)
        resource.reconcilers.append(self)
        self._listening = self._listen(children, watched)

    def _make_barrier(self, unassigned: Callable[[Cache[Any]], Selector | None]) -> Barrier:
        return Barrier(
            list(self._children.values()),
            wake=self.queue.add,
            settle=self._resource.api.writes_settled,
            clock=self._clock,
            rng=self._rng,
            hands_over=self._resource.hands_over,
            unassigned=unassigned,
            is_ours=lambda child: self._cache.metadata(owner_of(child, self._cache.resource) or _NOBODY) is not None,
            on_list=self._count_list,
        )

    async def run(self) -> None:
        """Reconcile once all caches are synced, until cancelled or stopped and done."""
        for cache, _, _ in self._listening:
            await cache.wait_synced()
        if self._before is not None:
            await self._before()
        await self._replay()
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(source.run(self._feed(when))) for source, when in self._sources]
            beside.append(group.create_task(self._barrier.run(), name=f"{self.name}/barrier"))
            await self._controller.run()
            for task in beside:
                task.cancel()

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

    @property
    def held_back(self) -> int:
        """How many owners are not reconciled because a child of theirs cannot be read."""
        return len(self._unfit)

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
        main, mine = self._cache.resource, private_copy(thing)
        api = OwnApi(
            self._resource.api, self._identity, main, metadata, frozenset(self._children), notes, self._max_writes
        )
        context = Context(
            request,
            mine,
            metadata,
            main,
            api,
            self._children,
            self._recorder,
            controller=self.name,
            identity=self._identity if isinstance(self._identity, ShardIdentity) else None,
            clock=self._clock,
            readable=self._readable,
            fence=self._fence,
        )
        with self._resource.inflight.hold(request):
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
                self._resource.give_away(request)
                return None
            case Verdict.RECONCILE:
                pass
        check_open(self._fence, f"{request} is not reconciled")
        # Expectations first: one that ran out sends its object to the barrier.
        metadata = metadata_of(thing)
        if self._expectations.pending(request) or not self._barrier.passes(request, metadata.uid):
            return Waiting()
        return Waiting() if self._unfit.holds_back(request, metadata) else thing

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
                if self._resource.hands_over:
                    self._barrier.arrived(request, metadata_of(delta.object).uid, priority)
                self.queue.add(request, priority)
            return
        given_back = delta.old is not None and self._identity.judge(delta.old) is not Verdict.RECONCILE
        if given_back or self._passes(self._predicate, delta):
            self.queue.add(request, priority)

    def _forget(self, request: Request, metadata: ObjectMeta) -> None:
        self._barrier.left(request)
        self._expectations.forget(request)
        self._unfit.forget(request)
        self.queue.forget(request)
        known = self._cache.metadata(request)
        if known is not None and known.uid == metadata.uid:
            return  # it is there, and this shard's; it cannot be read any more
        # What was being deleted has ended; what was not went away unasked, or without finalizers.
        if metadata.deletion_timestamp is None and self.cancel(request):
            log.warning(
                "Reconcile cancelled: the object went away",
                extra={"controller": self.name, "namespace": request.namespace, "object": request.name},
            )

    def _on_child(self, cache: Cache[Any], predicate: Predicate, delta: Delta[Any]) -> None:
        self._barrier.observe(cache, delta)
        self._expectations.observe(cache, delta)
        if not self._passes(predicate, delta):
            return
        priority = Priority.BULK if delta.initial else Priority.FRESH
        for thing in (delta.object, delta.old):
            owner = None if thing is None else owner_of(thing, self._cache.resource)
            if owner is not None:
                self.queue.add(owner, priority)

    def _on_unfit(self, unfit: Unfit, before: Unfit | None) -> None:
        """A main object cannot be read.  It has left the cache; its drain needs no more than its metadata."""
        if not unfit.error or unfit.gone:
            return
        self._unfit.tell(unfit)
        if self._identity.judge(PartialObject(unfit.metadata)) is Verdict.ACKNOWLEDGE:
            self._resource.give_away(request_of(unfit))

    def _on_unfit_child(self, cache: Cache[Any], unfit: Unfit, before: Unfit | None) -> None:
        """A child cannot be read, or can again: its owner is looked at, and its version counts as seen."""
        self._barrier.observe(cache, as_delta(unfit))
        self._expectations.observe(cache, as_delta(unfit))
        for each in (unfit, before):
            owner = None if each is None else owner_of(PartialObject(each.metadata), self._cache.resource)
            if owner is not None:
                self.queue.add(owner)

    def _on_watched(self, watched: Watched, delta: Delta[Any]) -> None:
        if self._passes(watched.predicate, delta):
            for request in watched.requests(delta):
                self.queue.add(request, Priority.BULK if delta.initial else Priority.FRESH)

    def _listen(self, children: Sequence[tuple[Cache[Any], Predicate]], watched: Sequence[Watched]) -> list[_Listening]:
        """Hear of every change from now on, and remember what the caches hold already."""
        told: list[tuple[Cache[Any], Callable[[Delta[Any]], None]]] = [(self._cache, self._on_main)]
        told += [(cache, partial(self._on_child, cache, predicate)) for cache, predicate in children]
        told += [(each.cache, partial(self._on_watched, each)) for each in watched]
        for cache, listener in told:
            cache.listen(listener)
        self._cache.listen_unfit(self._on_unfit)
        for cache, _ in children:
            cache.listen_unfit(partial(self._on_unfit_child, cache))
        return [(cache, listener, cache.requests()) for cache, listener in told]

    async def _replay(self) -> None:
        """Tell of everything that warm caches held before anyone listened, as a list would."""
        for cache, listener, before in self._listening:
            for count, request in enumerate(before, start=1):
                thing = cache.peek(request)
                if thing is not None:
                    listener(Delta(EventKind.ADDED, thing, None, initial=True))
                if count % REPLAY_TURN == 0:
                    await asyncio.sleep(0)
            before.clear()
        for unfit in self._cache.unfit:
            self._on_unfit(unfit, None)

    def _feed(self, predicate: Predicate) -> Feed:
        def add(request: Request, priority: Priority) -> None:
            thing = self._cache.peek(request)
            if thing is not None and self._passes(predicate, Delta(EventKind.GENERIC, thing, thing, initial=False)):
                self.queue.add(request, priority)

        return Feed(add, self._cache.requests, self._clock, self._rng)

    def _passes(self, predicate: Predicate, delta: Delta[Any]) -> bool:
        try:
            return predicate(delta)
        except Exception:
            meta = metadata_of(delta.object)
            where = {"controller": self.name, "namespace": meta.namespace, "object": meta.name}
            log.exception("A predicate raised; the object is reconciled", extra=where)
            return True

    # -- what is written -------------------------------------------------------

    def _note_write(self, owner: Request, resource: GroupResource, written: Request, version: str) -> None:
        cache = self._cache_of(owner, resource, written)
        if cache is not None:
            self._expectations.expect(owner, cache, written, version)

    def _note_deletion(self, owner: Request, resource: GroupResource, deleted: Request) -> Callable[[], None]:
        cache = self._cache_of(owner, resource, deleted)
        thing = None if cache is None else cache.peek(deleted)
        if cache is None or thing is None:
            return lambda: None
        return partial(self._expectations.expect_end, owner, cache, deleted, metadata_of(thing).uid)

    def _cache_of(self, owner: Request, resource: GroupResource, written: Request) -> Cache[Any] | None:
        """Which cache shows what was written for `owner`; `None`: none does."""
        is_owner = written == owner and resource == self._cache.resource.group_resource
        return self._cache if is_owner else self._children.get(resource)

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

    def __init__(self, reconciler: Reconciler[Any], owner: Request, metadata: ObjectMeta) -> None:
        self._reconciler = reconciler
        self._owner = owner
        self._uid = metadata.uid

    def wrote(self, resource: GroupResource, request: Request, version: str) -> None:
        self._reconciler._note_write(self._owner, resource, request, version)

    def deletes(self, resource: GroupResource, request: Request) -> Callable[[], None]:
        return self._reconciler._note_deletion(self._owner, resource, request)

    def doubts(self) -> None:
        self._reconciler._barrier.doubt(self._owner, self._uid)
