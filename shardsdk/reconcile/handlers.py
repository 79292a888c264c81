"""Event handlers of one controller: what its caches tell becomes requests, and what is known of objects.

A change is noted in barrier and expectations, and the objects that it is about
are added to the queue; whether they may be reconciled is asked when they come out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request, metadata_of, owner_of, request_of
from shardsdk.kube.api import Unfit
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import ObjectMeta, PartialObject
from shardsdk.protocol.verdict import Verdict
from shardsdk.queueing.predicates import Predicate
from shardsdk.queueing.queue import Priority, WorkQueue
from shardsdk.queueing.sources import Watched
from shardsdk.reconcile.barrier import Barrier
from shardsdk.reconcile.expectations import Expectations
from shardsdk.reconcile.mainresource import MainResource
from shardsdk.reconcile.rounds import Rounds
from shardsdk.reconcile.state import ObjectStates
from shardsdk.reconcile.unfit import UnfitObjects, as_delta

log: Final = logger_of(__name__)

T = TypeVar("T")
#: So many objects of a warm cache are looked at before other tasks get a turn.
REPLAY_TURN: Final = 256
#: A cache, who is told of its changes, and what it held before anyone was.
_Listening = tuple[Cache[Any], Callable[[Delta[Any]], None], list[Request]]


def find_owner(thing: object, mains: Cache[Any]) -> Request | None:
    """The object of `mains` that controls `thing`, also if it has no namespace and was said to have one."""
    owner = owner_of(thing, mains.resource)
    if owner is None or not owner.namespace or mains.metadata(owner) is not None:
        return owner
    anywhere = Request("", owner.name)
    return owner if mains.metadata(anywhere) is None else anywhere


class Handlers(Generic[T]):
    """Listens to the caches of the controller called `name`; `cancel` ends a reconcile whose object is gone."""

    def __init__(
        self,
        name: str,
        resource: MainResource[T],
        queue: WorkQueue[Request],
        states: ObjectStates,
        barrier: Barrier,
        expectations: Expectations,
        unfit: UnfitObjects,
        rounds: Rounds,
        *,
        predicate: Predicate,
        cancel: Callable[[Request], bool],
    ) -> None:
        self._name = name
        self._resource = resource
        self._cache = resource.cache
        self._queue = queue
        self._states = states
        self._barrier = barrier
        self._expectations = expectations
        self._unfit = unfit
        self._rounds = rounds
        self._predicate = predicate
        self._cancel = cancel
        self._listening: list[_Listening] = []

    def listen(self, children: Sequence[tuple[Cache[Any], Predicate]], watched: Sequence[Watched]) -> None:
        """Hear of every change from now on, and remember what the caches hold already."""
        told: list[tuple[Cache[Any], Callable[[Delta[Any]], None]]] = [(self._cache, self._on_main)]
        told += [(cache, partial(self._on_child, cache, predicate)) for cache, predicate in children]
        told += [(each.cache, partial(self._on_watched, each)) for each in watched]
        for cache, listener in told:
            cache.listen(listener)
        self._cache.listen_unfit(self._on_unfit)
        for cache, _ in children:
            cache.listen_unfit(partial(self._on_unfit_child, cache))
        self._listening = [(cache, listener, cache.requests()) for cache, listener in told]

    async def wait_synced(self) -> None:
        """Return when all caches that are listened to are complete."""
        for cache, _, _ in self._listening:
            await cache.wait_synced()

    async def replay(self) -> None:
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

    def ask(self, predicate: Predicate, request: Request, priority: Priority) -> None:
        """A source asks for an object: it is added if the cache has it and `predicate` passes."""
        thing = self._cache.peek(request)
        if thing is not None and self._passes(predicate, Delta(EventKind.GENERIC, thing, thing, initial=False)):
            self._rounds.heard(request)
            self._queue.add(request, priority)

    # -- what changes ---------------------------------------------------------

    def _on_main(self, delta: Delta[T]) -> None:
        request = request_of(delta.object)
        if delta.kind is EventKind.DELETED:
            self._forget(request, metadata_of(delta.object))
            return
        self._expectations.observe(self._cache, delta)
        if self._resource.judge(delta.object) is not Verdict.RECONCILE:
            # About to leave: should it stay after all, others may have worked on its children.
            self._barrier.left(request)
            return
        priority = Priority.BULK if delta.initial else Priority.FRESH
        given_back = delta.old is not None and self._resource.judge(delta.old) is not Verdict.RECONCILE
        if not (given_back or self._is_worth_a_reconcile(delta)):
            return
        # One that is given back may have been away unseen, since its children were listed last.
        if (given_back or delta.kind is EventKind.ADDED) and self._resource.shard is not None:
            self._barrier.arrived(request, metadata_of(delta.object).uid, priority)
        self._rounds.heard(request, self._cache.resource, delta)
        self._queue.add(request, priority)

    def _is_worth_a_reconcile(self, delta: Delta[T]) -> bool:
        """Whether the predicate says so of a change, or would say so of the arrival of what begins to be deleted.

        A deletion is easily forgotten in a filter on changes, and the object would stay for ever.  But a predicate
        may also tell whose an object is, and who says no to its arrival has no part in its end.
        """
        if self._passes(self._predicate, delta):
            return True
        arrival = Delta(EventKind.ADDED, delta.object, None, initial=delta.initial)
        return _begins_to_end(delta) and self._passes(self._predicate, arrival)

    def _forget(self, request: Request, metadata: ObjectMeta) -> None:
        self._barrier.left(request)
        self._expectations.forget(request)
        self._states.note_error(request, "")
        self._unfit.forget(request)
        self._queue.forget(request)
        known = self._cache.metadata(request)
        if known is not None and known.uid == metadata.uid:
            return  # it is there, and this shard's; it cannot be read any more
        self._end(metadata)

    def _end(self, metadata: ObjectMeta) -> None:
        """End the reconcile of an object that has left, and was so then."""
        request = Request(metadata.namespace, metadata.name)
        # What was not being deleted went away unasked, or without finalizers; of what was, the resource finds out.
        if metadata.deletion_timestamp is None and self._cancel(request):
            log.warning(
                "Reconcile cancelled: the object went away",
                extra={"controller": self._name, "namespace": request.namespace, "object": request.name},
            )

    def _on_child(self, cache: Cache[Any], predicate: Predicate, delta: Delta[Any]) -> None:
        self._barrier.observe(cache, delta)
        self._expectations.observe(cache, delta)
        if not self._passes(predicate, delta):
            return
        priority = Priority.BULK if delta.initial else Priority.FRESH
        for thing in (delta.object, delta.old):
            owner = None if thing is None else find_owner(thing, self._cache)
            if owner is not None:
                self._rounds.heard(owner, cache.resource, delta)
                self._queue.add(owner, priority)

    def _on_unfit(self, unfit: Unfit, before: Unfit | None) -> None:
        """A main object cannot be read, and has left the cache; or one that could not be read has gone."""
        if before is not None and (unfit.gone or unfit.metadata.uid != before.metadata.uid):
            self._end(unfit.metadata if unfit.gone else before.metadata)
        if unfit.error and not unfit.gone:
            self._unfit.tell(unfit)

    def _on_unfit_child(self, cache: Cache[Any], unfit: Unfit, before: Unfit | None) -> None:
        """A child cannot be read, or can again: its owner is looked at, and its version counts as seen."""
        self._barrier.observe(cache, as_delta(unfit))
        self._expectations.observe(cache, as_delta(unfit))
        for each in (unfit, before):
            owner = None if each is None else find_owner(PartialObject(each.metadata), self._cache)
            if owner is not None:
                self._rounds.heard(owner)
                self._queue.add(owner)

    def _on_watched(self, watched: Watched, delta: Delta[Any]) -> None:
        if self._passes(watched.predicate, delta):
            for request in watched.requests(delta):
                self._rounds.heard(request, watched.cache.resource, delta)
                self._queue.add(request, Priority.BULK if delta.initial else Priority.FRESH)

    def _passes(self, predicate: Predicate, delta: Delta[Any]) -> bool:
        try:
            return predicate(delta)
        except (Exception, asyncio.CancelledError):
            meta = metadata_of(delta.object)
            where = {"controller": self._name, "namespace": meta.namespace, "object": meta.name}
            log.exception("A predicate raised; the object is reconciled", extra=where)
            return True


def _begins_to_end(delta: Delta[Any]) -> bool:
    """Whether the object is being deleted and was not before: whose finalizer is on it has to hear of that."""
    meta = metadata_of(delta.object)
    ends = meta.deletion_timestamp is not None and bool(meta.finalizers)
    return ends and delta.old is not None and metadata_of(delta.old).deletion_timestamp is None
