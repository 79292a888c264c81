"""Departures: what is being deleted leaves the cache while a reconcile of it runs.  Has it ended, or is it another's?

    it leaves, being deleted ──> no reconcile of it runs: nothing to do
                             ──> one runs: ask the API server
                                     ──> it is gone: that reconcile may have ended it, and goes on
                                     ──> another shard's: the reconcile is cancelled

A watch shows what leaves a selection as deleted, in the state in which it was selected last.  So an
object whose last finalizer was taken off, mostly by the very reconcile that runs, looks like one whose
shard label was changed unasked; on the latter another shard may be working already.

Where ranges of hashes are assigned no object leaves its range, and there is nothing to ask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shardsdk.cache.cache import Cache
from shardsdk.cache.identity import ShardIdentity, facts_of
from shardsdk.cache.objects import Request, metadata_of
from shardsdk.kube.api import Api, Unfit
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import ObjectMeta, PartialObject
from shardsdk.protocol.verdict import Verdict
from shardsdk.queueing.queue import RateLimit, WorkQueue
from shardsdk.queueing.workers import WorkerPool
from shardsdk.reconcile.inflight import InFlight

log: Final = logger_of(__name__)

#: So many objects are asked for at once.
CONCURRENT_QUESTIONS: Final = 4
#: A question without an answer is asked again, for as long as the reconcile runs.
RETRY: Final = RateLimit(base_seconds=0.05, max_seconds=10.0)


class Departures:
    """Has the reconciles of one main resource end whose object is another shard's; `run` it next to the cache.

    `cancel(request)` cancels those that run.
    """

    def __init__(
        self,
        shard: ShardIdentity,
        cache: Cache[Any],
        inflight: InFlight,
        api: Api,
        *,
        clock: Clock,
        cancel: Callable[[Request], object],
    ) -> None:
        self._shard = shard
        self._cache = cache
        self._inflight = inflight
        self._api = api
        self._cancel = cancel
        self._queue: WorkQueue[Request] = WorkQueue(
            clock, name=f"departures/{cache.resource.group_resource}", rate_limit=RETRY
        )
        self._workers: WorkerPool[Request] = WorkerPool(
            self._queue.name,
            self._ask,
            self._queue,
            clock=clock,
            concurrency=CONCURRENT_QUESTIONS,
            asked_max_seconds=RETRY.max_seconds,
        )
        cache.listen(self._observe)
        cache.listen_unfit(self._observe_unfit)

    async def run(self) -> None:
        """Ask until cancelled."""
        await self._workers.run()

    def _observe(self, delta: Delta[Any]) -> None:
        if delta.kind is EventKind.DELETED:
            self._left(metadata_of(delta.object))

    def _observe_unfit(self, unfit: Unfit, _: Unfit | None) -> None:
        if unfit.gone:
            self._left(unfit.metadata)

    def _left(self, metadata: ObjectMeta) -> None:
        request = Request(metadata.namespace, metadata.name)
        if metadata.deletion_timestamp is not None and self._inflight.busy(request):
            self._queue.add(request)

    async def _ask(self, request: Request) -> None:
        if not self._inflight.busy(request) or self._is_ours(self._cache.metadata(request)):
            return
        resource = self._cache.resource
        # By a list: that much, whoever has a cache of it may surely do.
        found = await self._api.find(resource, request.name, request.namespace or None)
        # Meanwhile that reconcile may have ended, and the object come back.
        if found is None or found.metadata.uid not in self._inflight.uids(request):
            return
        if self._is_ours(found.metadata) or self._is_ours(self._cache.metadata(request)):
            return
        log.warning(
            "Reconcile cancelled: its object, which is being deleted, is another shard's",
            extra=facts_of(self._shard, resource, request),
        )
        self._cancel(request)

    def _is_ours(self, metadata: ObjectMeta | None) -> bool:
        return metadata is not None and self._shard.judge(PartialObject(metadata)) is not Verdict.IGNORE
