"""Drains: the sharder asks for an object back, the shard gives it as soon as it can.

    drain label seen ──> no new reconcile starts (the guard sees to that)
                    ──> wait until none runs, in any controller of the resource
                    ──> wait until this shard's own writes are answered or dead
                    ──> remove both labels in one patch that holds the
                        resourceVersion: the acknowledgement

Guarantees (tests/unit/shardsdk/reconcile/test_drains.py): an object is given away only when this
shard is done with it.  A patch that meets a newer object changes nothing.

An object that does not fit its model is given away like any other: its metadata
is enough for that, and who can read it may be another shard.

Does not hurry a reconcile that runs, unless it is told after how long to cancel it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shardsdk.cache.cache import Cache
from shardsdk.cache.identity import ShardIdentity
from shardsdk.cache.objects import Request, request_of
from shardsdk.errors import Conflict, NotFound
from shardsdk.kube.api import Api, Unfit
from shardsdk.kube.backoff import double
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import ObjectMeta, PartialObject
from shardsdk.protocol.verdict import Verdict, acknowledgement
from shardsdk.queueing.controller import Controller, Outcome, RequeueAfter, Waiting
from shardsdk.queueing.metrics import ShardMetrics
from shardsdk.queueing.queue import RateLimit, WorkQueue
from shardsdk.reconcile.inflight import InFlight

log: Final = logger_of(__name__)

#: So many acknowledgements are under way at once; they are small and quick.
CONCURRENT_ACKNOWLEDGEMENTS: Final = 16
#: An acknowledgement that failed comes back by its own count of failures, whatever
#: became of the others: nobody works on its object meanwhile, so trouble that is over
#: must not be paid for a second time, object by object.
RETRY: Final = RateLimit(base_seconds=0.05, max_seconds=10.0, per_second=None)
#: When an acknowledgement that met a newer object is tried again without news of it.
CONFLICT_SECONDS: Final = 1.0
#: How long an object waits whose acknowledgement did not count, at first and at most; doubles.
VOID_SECONDS: Final = (0.05, 10.0)
#: A moment that is so near is now.
_AT_ONCE_SECONDS: Final = 0.001


class Drains:
    """Acknowledges the drains of one main resource; `run` it next to the cache.

    `cancel(request)` cancels the reconciles of an object that is still busy
    `cancel_after_seconds` after its drain was seen (`None`: never).
    """

    def __init__(
        self,
        identity: ShardIdentity,
        cache: Cache[Any],
        inflight: InFlight,
        api: Api,
        *,
        clock: Clock,
        cancel: Callable[[Request], object] | None = None,
        cancel_after_seconds: float | None = None,
        metrics: ShardMetrics | None = None,
    ) -> None:
        self._identity = identity
        self._cache = cache
        self._inflight = inflight
        self._api = api
        self._clock = clock
        self._cancel = cancel
        self._cancel_after_seconds = cancel_after_seconds
        self._metrics = metrics
        if metrics:
            metrics.waiting_drains.set_function(lambda: self.waiting)
            metrics.oldest_drain_seconds.set_function(lambda: self.oldest_seconds)
        #: Drains seen and not acknowledged, each with the moment it was first seen.
        self._open: dict[Request, float] = {}
        #: Versions that were acknowledged; the cache may still show them for a moment.
        self._acknowledged: dict[Request, str] = {}
        #: Acknowledgements in a row that did not count, and when the next may be made.
        self._void: dict[Request, tuple[int, float]] = {}
        self._waiting: set[Request] = set()
        self._queue: WorkQueue[Request] = WorkQueue(
            clock, name=f"drains/{cache.resource.group_resource}", rate_limit=RETRY
        )
        self._controller: Controller[Request] = Controller(
            self._queue.name, self._acknowledge, self._queue, clock=clock, concurrency=CONCURRENT_ACKNOWLEDGEMENTS
        )
        cache.listen(self._observe)
        cache.listen_unfit(self._observe_unfit)

    async def run(self) -> None:
        """Acknowledge until cancelled, or until stopped and done."""
        await self._controller.run()

    async def stop(self) -> None:
        """Begin no further acknowledgement."""
        await self._queue.shut_down()

    def add(self, request: Request) -> None:
        """Look at an object that may have to be given away."""
        self._queue.add(request)

    @property
    def waiting(self) -> int:
        """How many drains were seen and not acknowledged yet."""
        return len(self._open)

    @property
    def oldest_seconds(self) -> float:
        """For how long the oldest of them has been waiting; 0 when there is none."""
        now = self._clock.monotonic()
        return now - min(list(self._open.values()), default=now)

    def _observe(self, delta: Delta[Any]) -> None:
        self._look_at(request_of(delta.object), delta.object, gone=delta.kind is EventKind.DELETED)

    def _observe_unfit(self, unfit: Unfit, _: Unfit | None) -> None:
        thing = PartialObject(unfit.metadata)
        self._look_at(request_of(thing), thing, gone=unfit.gone)

    def _look_at(self, request: Request, thing: object, *, gone: bool) -> None:
        if gone or self._identity.judge(thing) is not Verdict.ACKNOWLEDGE:
            self._open.pop(request, None)
            self._acknowledged.pop(request, None)
            self._void.pop(request, None)
            return
        self._open.setdefault(request, self._clock.monotonic())
        self._queue.add(request)

    async def _acknowledge(self, request: Request) -> Outcome | None:
        known = self._to_give_away(request)
        if known is None:
            return None
        _, not_before = self._void.get(request, (0, 0.0))
        if (pause := not_before - self._clock.monotonic()) > _AT_ONCE_SECONDS:
            return RequeueAfter(pause)
        if not self._inflight.busy(request):
            await self._api.writes_settled()
        # The world may have changed meanwhile: the drain withdrawn, the object newer, a reconcile begun.
        metadata = self._to_give_away(request)
        if metadata is None or metadata.resource_version != known.resource_version:
            return None  # its news has brought it back to the queue: settle anew, a reconcile may have come between
        if self._inflight.busy(request):
            return self._wait_until_idle(request)
        patch = acknowledgement(self._identity.ring, metadata.resource_version)
        resource, namespace = self._cache.resource, request.namespace or None
        try:
            answer = await self._api.patch(resource, request.name, namespace, patch)
        except Conflict:
            if self._metrics:
                self._metrics.acknowledge_conflicts.inc()
            return RequeueAfter(CONFLICT_SECONDS)  # the newer object is about to reach the cache, and brings us back
        except NotFound:
            return None
        if self._identity.judge(answer) is Verdict.ACKNOWLEDGE:
            return self._try_again(request)
        self._note_acknowledged(request, metadata)
        return None

    def _try_again(self, request: Request) -> Outcome:
        """The labels are back: whoever admits the write changed more than them, so it is not an acknowledgement.

        Mostly the next one is, because what was changed is there now.
        """
        times, _ = self._void.get(request, (0, 0.0))
        pause = double(VOID_SECONDS[0], times, VOID_SECONDS[1])
        self._void[request] = (times + 1, self._clock.monotonic() + pause)
        if times:
            log.warning(
                "The acknowledgement of a drain does not count: an admission webhook changes the object each time",
                extra=self._where(request),
            )
        return RequeueAfter(pause)

    def _to_give_away(self, request: Request) -> ObjectMeta | None:
        """The freshest metadata of an object that is to be acknowledged; `None`: it is not."""
        metadata = self._cache.metadata(request)
        if metadata is None or self._identity.judge(PartialObject(metadata)) is not Verdict.ACKNOWLEDGE:
            return None
        return None if self._acknowledged.get(request) == metadata.resource_version else metadata

    def _wait_until_idle(self, request: Request) -> Outcome:
        """Come back when no reconcile of the object runs any more, and cancel those that run for too long."""
        if request not in self._waiting:
            self._waiting.add(request)
            self._inflight.when_idle(request, lambda: self._come_back(request))
        since = self._open.get(request)
        if self._cancel is None or self._cancel_after_seconds is None or since is None:
            return Waiting()
        remaining = since + self._cancel_after_seconds - self._clock.monotonic()
        if remaining > _AT_ONCE_SECONDS:
            return RequeueAfter(remaining)
        log.warning("Reconcile cancelled: its object is being drained", extra=self._where(request))
        self._cancel(request)
        return Waiting()

    def _come_back(self, request: Request) -> None:
        self._waiting.discard(request)
        self._queue.add(request)

    def _note_acknowledged(self, request: Request, metadata: ObjectMeta) -> None:
        known = self._cache.metadata(request)
        if known is not None and known.resource_version == metadata.resource_version:
            self._acknowledged[request] = metadata.resource_version
        self._open.pop(request, None)
        if self._metrics:
            self._metrics.acknowledged.inc()
        log.debug("Drain acknowledged", extra=self._where(request))

    def _where(self, request: Request) -> dict[str, object]:
        return {
            "ring": self._identity.ring.ring,
            "shard": self._identity.shard,
            "resource": str(self._cache.resource.group_resource),
            "namespace": request.namespace,
            "object": request.name,
        }
