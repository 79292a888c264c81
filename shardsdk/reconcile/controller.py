"""Controller: has objects reconciled as its caches and sources say, each when it may be and not before.

The story of one object: it appears in the cache (shardsdk/reconcile/handlers.py), of a shard's waits at the barrier
until its children are known, comes out of the queue, passes the guard (`_admit`, which asks `explain.GATE`), is
reconciled; a drain label appears, the resource gives it away; it leaves the cache.

Guarantees, each with its test in tests/unit/shardsdk/reconcile/test_sharded.py: the guard looks at the freshest cached
object in the same turn of the event loop in which the user's function begins; nothing begins without a lease; an object
that goes away unasked takes its reconcile with it; an object that cannot be read, or a child that cannot, holds up
nobody but itself and its owner (tests/unit/shardsdk/reconcile/test_unfit.py).

Of leases and drains it knows what its resource says (shardsdk/reconcile/mainresource.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, Generic, TypeVar

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request, metadata_of, private_copy, request_of
from shardsdk.errors import TerminalError
from shardsdk.events.recorder import EventRecorder
from shardsdk.kube.api import Fence
from shardsdk.kube.clock import Clock
from shardsdk.kube.doubts import check_open, end_in_doubt
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.kube.selectors import Selector
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import GroupResource, ObjectMeta
from shardsdk.protocol.verdict import Verdict
from shardsdk.queueing.metrics import Metrics
from shardsdk.queueing.predicates import Predicate, always
from shardsdk.queueing.queue import RateLimit, WorkQueue
from shardsdk.queueing.raised import describe, meant_by
from shardsdk.queueing.sources import Feed, RequestSource, Trigger, Watched
from shardsdk.queueing.workers import Done, Outcome, Waiting, WorkerPool, is_soon
from shardsdk.reconcile.applied import Applied
from shardsdk.reconcile.barrier import Barrier
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.expectations import Expectations
from shardsdk.reconcile.explain import Admission, Explanation, Facts, Wait, explain, held_by
from shardsdk.reconcile.handlers import Handlers, find_owner
from shardsdk.reconcile.mainresource import MainResource
from shardsdk.reconcile.ownapi import OwnApi
from shardsdk.reconcile.rounds import Rounds
from shardsdk.reconcile.state import Children, ObjectStates
from shardsdk.reconcile.unfit import UnfitObjects
from shardsdk.reconcile.writes import OwnWrites

log: Final = logger_of(__name__)

T = TypeVar("T")
_NOBODY: Final = Request("", "")


class Controller(Generic[T]):
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
        field_owner: str = "",
        clock: Clock,
        rng: Random,
        metrics: Metrics | None = None,
        recorder: EventRecorder | None = None,
    ) -> None:
        self.name = name
        self.queue: WorkQueue[Request] = WorkQueue(clock, name=name, rate_limit=rate_limit)
        self._resource = resource
        self._cache = resource.cache
        self._reconcile = reconcile
        self._fence = fence
        self._recorder = recorder
        self._max_writes = max_writes
        self._before = before
        self._field_owner = field_owner
        self._stopped = asyncio.Event()
        self._sources = sources
        for source, _ in sources:
            if isinstance(source, Trigger):
                source.expect()
        self._clock = clock
        self._rng = rng
        self._children: dict[GroupResource, Cache[Any]] = {
            cache.resource.group_resource: cache for cache, _ in children
        }
        self._readable = {each.cache.resource.group_resource: each.cache for each in watched} | self._children
        self._readable[self._cache.resource.group_resource] = self._cache
        self._states = ObjectStates(Children.KNOWN if resource.shard is None else Children.UNKNOWN)
        self._barrier = self._make_barrier(unassigned)
        self._unfit = UnfitObjects(name, self._cache.resource, list(self._children.values()), recorder)
        self._expectations = self._make_expectations()
        self._applied = Applied()
        self._rounds = Rounds(name, clock)
        self._cache.listen(self._on_change)
        self._workers: WorkerPool[Request] = WorkerPool(
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
        resource.add(self)
        self._handlers = self._make_handlers(predicate)
        self._handlers.listen(children, watched)

    def _make_expectations(self) -> Expectations:
        queue, expired, states = self.queue, self._on_expired, self._states
        return Expectations(
            self._clock, wake=queue.add, wake_at=queue.add_at, cancel=queue.cancel, on_expired=expired, states=states
        )

    def _make_handlers(self, predicate: Predicate) -> Handlers[T]:
        return Handlers(
            self.name,
            self._resource,
            self.queue,
            self._states,
            self._barrier,
            self._expectations,
            self._unfit,
            self._rounds,
            predicate=predicate,
            cancel=self.cancel,
        )

    def _make_barrier(self, unassigned: Callable[[Cache[Any]], Selector | None]) -> Barrier:
        return Barrier(
            list(self._children.values()),
            wake=self.queue.add,
            settle=self._resource.api.writes_settled,
            clock=self._clock,
            rng=self._rng,
            hands_over=self._resource.shard is not None,
            unassigned=unassigned,
            main=self._cache.resource,
            is_ours=lambda child: self._cache.metadata(find_owner(child, self._cache) or _NOBODY) is not None,
            on_list=self._count_list,
            states=self._states,
        )

    async def run(self) -> None:
        """Reconcile once all caches are synced, until cancelled or stopped and done."""
        beginning = asyncio.create_task(self._begin(), name=f"{self.name}/begin")
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait([beginning, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not beginning.done():
                return  # a cache that never syncs holds up nobody who stops
            beginning.result()
        finally:
            beginning.cancel()
            stopped.cancel()
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(source.run(self._feed(when))) for source, when in self._sources]
            beside.append(group.create_task(self._barrier.run(), name=f"{self.name}/barrier"))
            end, again = self._workers.cancel_in_doubt, self._workers.go_on
            beside.append(group.create_task(end_in_doubt(self._fence, self._clock, end, again)))
            await self._workers.run()
            for task in beside:
                task.cancel()

    async def _begin(self) -> None:
        await self._handlers.wait_synced()
        if self._before is not None:
            await self._before()
        await self._handlers.replay()

    async def stop(self) -> None:
        """Begin no further reconcile; `run` returns when those that run have ended."""
        self._stopped.set()
        await self.queue.shut_down()

    @property
    def running(self) -> int:
        """How many reconciles run now."""
        return self._workers.running

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
        return self._workers.cancel(request)

    # -- one reconcile ------------------------------------------------------

    async def __call__(self, request: Request) -> Outcome | None:
        """Reconcile one object, if it is this shard's and its time has come.

        Raises: LeaseLost, and whatever the user's function raises.
        """
        thing = self._admit(request)
        if thing is None:
            self._states.note_error(request, "")
        if thing is None or isinstance(thing, Waiting):
            return thing
        self._rounds.begins(request)
        metadata = metadata_of(thing)
        notes = OwnWrites(self._cache, self._children, self._expectations, self._barrier, request, metadata.uid)
        main, mine = self._cache.resource, private_copy(thing)
        api = OwnApi(
            self._resource.api, self._resource.shard, main, metadata, frozenset(self._children), notes, self._max_writes
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
            identity=self._resource.shard,
            clock=self._clock,
            readable=self._readable,
            fence=self._fence,
            applied=self._applied,
            field_owner=self._field_owner,
            told=partial(self._workers.is_told_to_end, request),
            judge=self._resource.judge,
        )
        try:
            with self._resource.inflight.hold(request, metadata.uid):
                try:
                    try:
                        outcome = await self._reconcile(context)
                    finally:
                        context.cancel()  # for what it has left in threads, before others may have the object
                        await api.end()
                finally:
                    if context.applied is not None:
                        self._forget_applied(request, metadata.uid)
        except BaseException as error:
            self._rounds.ended(request, ())
            meant = meant_by(error)
            waits_for = meant.waits_for if isinstance(meant, TerminalError) else TerminalError.waits_for
            self._note_error(request, metadata.uid, Waiting(describe(error), waits_for))
            raise
        self._note_error(request, metadata.uid, outcome if isinstance(outcome, Waiting) else Waiting())
        if context.applied is not None:
            context.applied.keep_named()
        outcome = context.requeued if outcome is None or isinstance(outcome, Done) else outcome
        self._rounds.ended(request, () if is_soon(outcome) else notes.versions)
        return outcome

    def _note_error(self, request: Request, uid: str, ended: Waiting) -> None:
        # Of an object that went meanwhile nobody would ever take it back.
        thing = self._cache.peek(request)
        there = thing is not None and metadata_of(thing).uid == uid
        self._states.note_error(request, ended.error if there else "", ended.waits_for)

    def _admit(self, request: Request) -> T | Waiting | None:
        """The guard: the freshest cached object, if it may be reconciled now; `None`: not by us.

        Raises: LeaseLost, FenceDoubted.
        """
        thing = self._cache.peek(request)
        held = held_by(self._admission(request, thing))
        # One that ran out sends its object to the barrier.
        if held is Wait.WRITES and self._expectations.expire(request):
            held = held_by(self._admission(request, thing))
        if held is None and thing is not None:
            self._unfit.forget(request)
            return thing
        return Waiting() if thing is not None and self._put_off(request, metadata_of(thing), held) else None

    def _put_off(self, request: Request, metadata: ObjectMeta, held: Wait | None) -> bool:
        """Have an object that may not be reconciled woken when it may; `False`: it is not to be reconciled here."""
        match held:
            case Wait.ANOTHERS:
                if self._resource.metrics:
                    self._resource.metrics.ignored.inc()
                return False
            case Wait.DRAIN:
                return False
            case Wait.LEASE:
                check_open(self._fence, f"{request} is not reconciled")
                self.queue.add(request)  # it was renewed between the two questions
            case Wait.WRITES:
                self._expectations.postpone(request)
            case Wait.CHILDREN:
                self._barrier.postpone(request, metadata.uid)
            case _:
                self._unfit.hold_back(request, metadata)
        return True

    def _admission(self, request: Request, thing: T | None) -> Admission:
        """What `GATE` asks about an object, as it is this moment."""
        if thing is None:
            return Admission(None, fits=self._cache.unfit_of(request) is None)
        verdict, metadata = self._resource.judge(thing), metadata_of(thing)
        return Admission(
            verdict,
            self._fence.remaining() > 0,
            not self._expectations.pending(request),
            self._barrier.passes(request, metadata.uid),
            not self._unfit.of(metadata),
        )

    # -- what it waits for -----------------------------------------------------

    def explain(self, request: Request) -> Explanation:
        """What an object waits for, since when, and what will wake it; nothing changes by asking."""
        thing, drains = self._cache.peek(request), self._resource.drains
        unfit, itself = [] if thing is None else self._unfit.of(metadata_of(thing)), self._cache.unfit_of(request)
        return explain(
            Facts(
                self.name,
                self._cache.resource.group_resource,
                request,
                self._clock.monotonic(),
                self._admission(request, thing),
                self.queue.where(request),
                self._states.get(request),
                None if drains is None else drains.state(request),
                self._resource.inflight.count(request),
                tuple(f"{cache.resource.kind} {request_of(each)}: {each.error}" for cache, each in unfit),
                {group: cache.resource.kind for group, cache in self._readable.items()},
                "" if itself is None else itself.error,
            )
        )

    def not_at_rest(self) -> list[Request]:
        """The objects that wait for more than their next event, those being worked on first."""
        drains = self._resource.drains
        drained = [] if drains is None else drains.requests()
        unfit = map(request_of, self._cache.unfit)
        return list(dict.fromkeys([*self.queue.items(), *self._states.waiting(), *drained, *unfit]))

    # -- inside ----------------------------------------------------------------

    def _feed(self, predicate: Predicate) -> Feed:
        return Feed(partial(self._handlers.ask, predicate), self._cache.requests, self._clock, self._rng)

    def _on_change(self, delta: Delta[T]) -> None:
        """Whoever has the object next may apply something else: already its drain ends what is remembered.

        That it has left, and is back, no event need tell.
        """
        if delta.kind is EventKind.DELETED or self._resource.judge(delta.object) is not Verdict.RECONCILE:
            self._applied.forget(metadata_of(delta.object).uid)

    def _forget_applied(self, request: Request, uid: str) -> None:
        """A reconcile ends, and still holds the object: what it has noted since the drain ends as well."""
        thing = self._cache.peek(request)
        if thing is None or self._resource.judge(thing) is not Verdict.RECONCILE:
            self._applied.forget(uid)

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
