"""Drains: the sharder asks for an object back, the shard gives it as soon as it can.

    drain label seen ──> no new reconcile starts (the guard sees to that)
                    ──> wait until none runs, in any controller of the resource
                    ──> wait until this shard's own writes are answered or dead
                    ──> remove both labels in one patch that holds the
                        resourceVersion: the acknowledgement

Guarantees (tests/unit/shardsdk/reconcile/test_drains.py): an object is given away only when this
shard is done with it.  A patch that meets a newer object changes nothing.

As long as a write may be executed that a dead process of this shard's name had sent, no object
can be given away: so long a drain does not count, and its object is reconciled like any other.
But one that a list shows drained rests at that version: it may be the very version at which the
dead process has acknowledged it.  What is news to a watch after that list, no process before this
one has seen, and an acknowledgement of an older version changes nothing.

An object that does not fit its model is given away like any other: its metadata
is enough for that, and who can read it may be another shard.

Does not hurry a reconcile that runs, unless it is told after how long to cancel it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from shardsdk.cache.cache import Cache
from shardsdk.cache.identity import ShardIdentity, facts_of
from shardsdk.cache.objects import Request, metadata_of, request_of
from shardsdk.errors import Conflict, NotFound, NotServed
from shardsdk.kube.absence import judge_absence
from shardsdk.kube.api import Api, Unfit
from shardsdk.kube.backoff import double
from shardsdk.kube.clock import Clock
from shardsdk.kube.listing import TURN_EVENTS
from shardsdk.kube.pace import AtMostEvery
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import ObjectMeta, PartialObject
from shardsdk.protocol.verdict import Verdict, acknowledgement
from shardsdk.queueing.metrics import ShardMetrics
from shardsdk.queueing.queue import RateLimit, WorkQueue
from shardsdk.queueing.workers import Done, Outcome, RequeueAfter, Waiting, WorkerPool
from shardsdk.reconcile.inflight import InFlight
from shardsdk.reconcile.patience import AT_ONCE_SECONDS, Patience
from shardsdk.reconcile.settling import Settling
from shardsdk.reconcile.state import Drain, DrainEvent, DrainState

log: Final = logger_of(__name__)

#: So many acknowledgements are under way at once; they are small and quick.
CONCURRENT_ACKNOWLEDGEMENTS: Final = 16
#: An acknowledgement that failed comes back by its own count of failures, whatever
#: became of the others: nobody works on its object meanwhile, so trouble that is over
#: must not be paid for a second time, object by object.
RETRY: Final = RateLimit(base_seconds=0.05, max_seconds=10.0, per_second=None)
#: When one is tried again, at most, while the type of its object is not served, and how often that is told.
UNSERVED_SECONDS: Final = 30.0
TELL_SECONDS: Final = 60.0
#: When an acknowledgement that met a newer object is tried again without news of it.
CONFLICT_SECONDS: Final = 1.0
#: How long an object waits whose acknowledgement did not count, at first and at most; doubles.
VOID_SECONDS: Final = (0.05, 10.0)


class Unserved:
    """A type that is not served: for a while, or it is gone for good, and nothing tells of the end of its objects."""

    __slots__ = ("_clock", "_failed_at", "_news", "_since")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = 0.0
        self._failed_at = float("-inf")
        self._news = AtMostEvery(TELL_SECONDS)

    def again_in(self) -> float:
        """It is not; seconds until it is worth another try: as many as that has lasted."""
        now = self._clock.monotonic()
        if now - self._failed_at > 2 * UNSERVED_SECONDS:
            self._since = now
        self._failed_at = now
        return min(max(now - self._since, RETRY.base_seconds), UNSERVED_SECONDS)

    def is_to_be_told(self) -> bool:
        """Whether people should hear of it again; whoever asks tells them."""
        return self._news.passes(self._clock.monotonic())

    def over(self) -> None:
        """It is served."""
        self._failed_at = float("-inf")


class Drains:
    """Acknowledges the drains of one main resource; `run` it next to the cache.

    `cancel(request)` cancels the reconciles of an object that is still busy
    `cancel_after_seconds` after its drain was seen (`None`: never).  Drains count from `owed_until`, on the clock's
    `monotonic`, on (`shardsdk.kube.doubts.owed_until`).
    """

    def __init__(
        self,
        shard: ShardIdentity,
        cache: Cache[Any],
        inflight: InFlight,
        api: Api,
        *,
        clock: Clock,
        owed_until: float = -math.inf,
        cancel: Callable[[Request], object],
        cancel_after_seconds: float | None = None,
        metrics: ShardMetrics | None = None,
    ) -> None:
        self._shard = shard
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
        self._owed_until = owed_until
        #: Whether drains do not count yet; ends for all who ask at one moment, at which they are told again.
        self._early = owed_until > clock.monotonic()
        #: The versions in which lists showed what was drained by then, so long: a dead process may have seen them, too.
        self._found: dict[Request, str] = {}
        self._unserved = Unserved(clock)
        self._states: dict[Request, DrainState] = {}
        #: With what runs, of those that are busy.
        self._patience: dict[Request, Patience] = {}
        self._queue: WorkQueue[Request] = WorkQueue(
            clock, name=f"drains/{cache.resource.group_resource}", rate_limit=RETRY
        )
        self._workers: WorkerPool[Request] = WorkerPool(
            self._queue.name,
            self._acknowledge,
            self._queue,
            clock=clock,
            concurrency=CONCURRENT_ACKNOWLEDGEMENTS,
            asked_max_seconds=RETRY.max_seconds,
        )
        self._settling = Settling(api.writes_settled, clock, shard, cache.resource)
        inflight.listen(self._began)
        cache.listen(self._observe)
        cache.listen_unfit(self._observe_unfit)

    async def run(self) -> None:
        """Acknowledge until cancelled, or until stopped and done."""
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(self._settling.run(), name="settling")]
            if self._early:
                beside.append(group.create_task(self._count(), name="drains/count"))
            await self._workers.run()
            for task in beside:
                task.cancel()

    async def stop(self) -> None:
        """Begin no further acknowledgement."""
        await self._queue.shut_down()

    def judge(self, thing: object) -> Verdict:
        """What is done with an object."""
        verdict = self._shard.judge(thing)
        if not self._early or verdict is not Verdict.ACKNOWLEDGE:
            return verdict
        found = self._found.get(request_of(thing)) == metadata_of(thing).resource_version
        return verdict if found else Verdict.RECONCILE

    def state(self, request: Request) -> DrainState | None:
        """How far the drain of an object is; `None`: there is none."""
        return self._states.get(request)

    def requests(self) -> list[Request]:
        """The objects whose drains were seen and not acknowledged yet."""
        # A list made in one go: metrics are read in another thread.
        return [request for request, state in list(self._states.items()) if state.open]

    @property
    def waiting(self) -> int:
        """How many drains were seen and not acknowledged yet."""
        return len(self.requests())

    @property
    def oldest_seconds(self) -> float:
        """For how long the oldest of them has been waiting; 0 when there is none."""
        now = self._clock.monotonic()
        return now - min((state.since for state in list(self._states.values()) if state.open), default=now)

    async def _count(self) -> None:
        """Have drains count, and all who listen hear of those that are there: they were taken for none."""
        while (left := self._owed_until - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)
        self._early = False
        self._found.clear()
        early = [(request, state) for request, state in self._states.items() if state.drain is Drain.EARLY]
        for count, (request, state) in enumerate(early, start=1):
            if count % TURN_EVENTS == 0:
                await asyncio.sleep(0)
            if self._states.get(request) is not state or state.drain is not Drain.EARLY:
                continue  # news of it came meanwhile
            if (unfit := self._cache.unfit_of(request)) is not None:
                self._observe_unfit(unfit, None)
            self._cache.tell_again(request)

    def _observe(self, delta: Delta[Any]) -> None:
        request, gone = request_of(delta.object), delta.kind is EventKind.DELETED
        if self._early and delta.initial and not gone and self._shard.judge(delta.object) is Verdict.ACKNOWLEDGE:
            self._found[request] = metadata_of(delta.object).resource_version
        self._look_at(request, delta.object, gone=gone)

    def _observe_unfit(self, unfit: Unfit, _: Unfit | None) -> None:
        thing = PartialObject(unfit.metadata)
        self._look_at(request_of(thing), thing, gone=unfit.gone)

    def _look_at(self, request: Request, thing: object, *, gone: bool) -> None:
        if gone or self._shard.judge(thing) is not Verdict.ACKNOWLEDGE:
            if (state := self._states.pop(request, None)) is not None:
                state.heard(DrainEvent.GONE)
        elif self._seen(request, metadata_of(thing).resource_version):
            self._queue.add(request)

    def _seen(self, request: Request, version: str) -> bool:
        """A drain label is shown; whether the object is to be looked at."""
        state = self._states.setdefault(request, DrainState())
        if state.drain is Drain.ACKNOWLEDGED and state.version == version:
            return False  # as it was given away
        if not state.open:
            state.since, state.begun = self._clock.monotonic(), state.begun + 1
        if self._early:
            state.not_before = self._owed_until
        return state.heard(DrainEvent.EARLY if self._early else DrainEvent.SEEN)

    async def _acknowledge(self, request: Request) -> Outcome | None:
        metadata = self._to_give_away(request)
        if metadata is None:
            return None
        state = self._states[request]  # all that is shown so has been seen
        if (pause := state.not_before - self._clock.monotonic()) > AT_ONCE_SECONDS:
            return RequeueAfter(pause)
        if self._inflight.busy(request):
            return self._wait_until_idle(request, state)
        if not state.settled:
            self._settle(request, state)
            return Waiting()
        return await self._give_away(request, metadata, state)

    def _settle(self, request: Request, state: DrainState) -> None:
        """Come back when what was sent for the object can no longer be executed."""
        # Not anew because the object is newer: what others change more often than the slowest write is answered would
        # never be given away.  What this shard sends for it, a reconcile sends; none begins while this drain is shown.
        if state.settling_at != (begun := state.begun):
            state.settling_at = begun
            self._settling.join(lambda: self._settled(request, state, begun))

    def _settled(self, request: Request, state: DrainState, begun: int) -> None:
        state.settled_at = max(state.settled_at, begun)
        self._queue.add(request)

    async def _give_away(self, request: Request, metadata: ObjectMeta, state: DrainState) -> Outcome | None:
        """Write the acknowledgement of an object that nobody works on any more, as the cache shows it."""
        patch = acknowledgement(self._shard.ring, metadata.resource_version)
        resource, namespace = self._cache.resource, request.namespace or None
        try:
            answer = await self._api.patch(resource, request.name, namespace, patch)
        except Conflict:
            if self._metrics:
                self._metrics.acknowledge_conflicts.inc()
            return RequeueAfter(CONFLICT_SECONDS)  # the newer object is about to reach the cache, and brings us back
        except NotServed as error:
            # Where the type is served again, the object is there as it was, and nothing tells of it.
            if self._unserved.is_to_be_told():
                log.warning("Could not acknowledge a drain: %s", error, extra=self._where(request))
            return RequeueAfter(self._unserved.again_in())
        except NotFound as error:
            # Not executed, whatever it means.
            meant = await judge_absence(self._api, resource, request.name, namespace, metadata.uid, error)
            if meant is error:
                return None
            raise meant from error
        except Exception:
            state.begun += 1  # this write itself may still be executed
            raise
        self._unserved.over()
        if self._shard.judge(answer) is Verdict.ACKNOWLEDGE:
            return self._try_again(request)
        self._note_acknowledged(request, metadata)
        return None

    def _try_again(self, request: Request) -> Outcome:
        """The labels are back: whoever admits the write changed more than them, so it is not an acknowledgement.

        Mostly the next one is, because what was changed is there now.
        """
        state = self._states.get(request)
        if state is None:
            return Done()  # the labels are gone again; should they come back, their news bring the object
        pause = double(VOID_SECONDS[0], state.voided, VOID_SECONDS[1])
        state.not_before = self._clock.monotonic() + pause
        state.voided += 1
        state.begun += 1
        state.heard(DrainEvent.VOIDED)
        if state.voided > 1:
            log.warning(
                "The acknowledgement of a drain does not count: an admission webhook changes the object each time",
                extra=self._where(request),
            )
        return RequeueAfter(pause)

    def _to_give_away(self, request: Request) -> ObjectMeta | None:
        """The freshest metadata of an object that is to be acknowledged; `None`: it is not."""
        metadata = self._cache.metadata(request)
        if metadata is None or self._shard.judge(PartialObject(metadata)) is not Verdict.ACKNOWLEDGE:
            return None
        state = self._states.get(request)
        if state is not None and state.drain is Drain.ACKNOWLEDGED and state.version == metadata.resource_version:
            return None  # the cache still shows it as it was given away
        return metadata

    def _wait_until_idle(self, request: Request, state: DrainState) -> Outcome:
        """Come back when no reconcile of the object runs any more, and before that when patience says so."""
        if state.drain is not Drain.BUSY:
            self._inflight.when_idle(request, lambda: self._come_back(request))
            state.heard(DrainEvent.BUSY)
            cancel = partial(self._cancel, request)
            self._patience[request] = Patience(
                self._cancel_after_seconds, cancel, self._shard, self._cache.resource, request
            )
        since = max(state.since, self._owed_until)
        return RequeueAfter(self._patience[request].look(self._clock.monotonic() - since))

    def _began(self, request: Request) -> None:
        """A reconcile begins: what it sends, no wait that has begun waits for."""
        if (state := self._states.get(request)) is not None:
            state.begun += 1

    def _come_back(self, request: Request) -> None:
        self._patience.pop(request, None)
        state = self._states.get(request)
        if state is not None and state.heard(DrainEvent.ENDED):
            self._queue.add(request)

    def _note_acknowledged(self, request: Request, metadata: ObjectMeta) -> None:
        known, state = self._cache.metadata(request), self._states.get(request)
        # What the cache shows newer than that is told already: it is gone, or has come back.
        if state is not None and known is not None and known.resource_version == metadata.resource_version:
            state.version = metadata.resource_version
            state.heard(DrainEvent.ACCEPTED)
        if self._metrics:
            self._metrics.acknowledged.inc()
        log.debug("Drain acknowledged", extra=self._where(request))

    def _where(self, request: Request) -> dict[str, object]:
        return facts_of(self._shard, self._cache.resource, request)
