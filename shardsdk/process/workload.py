"""Work that begins and ends together: controllers and tasks of one scope, with what only they need.

    build ──> caches are complete ──> controllers reconcile, tasks run
          ──> asked to stop: say so, begin nothing new, wait for what runs, cancel
              it at the limit, give away what rests meanwhile ──> tasks end
          ──> writes under way end ──> caches end

Guarantees: a shard's caches are made and listed after its lease was acquired,
because a `Workload` is made then, with caches of its own; what is warm before
(unsharded caches) catches up before the first reconcile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from shardsdk.cache.cache import Cache
from shardsdk.cache.identity import Identity
from shardsdk.cache.objects import Request, metadata_of
from shardsdk.errors import ConfigurationError, RingChanged, ShardingError
from shardsdk.events.recorder import EventRecorder
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.backoff import Backoff
from shardsdk.kube.clock import Clock
from shardsdk.kube.selectors import Selector
from shardsdk.logs import logger_of
from shardsdk.process.process import ExitCode, exit_code_for
from shardsdk.process.ringcheck import RingCheck
from shardsdk.process.tasks import be_patient, failed_meanwhile, run_task
from shardsdk.process.together import end, see_out
from shardsdk.protocol.objects import GroupResource, ObjectMeta
from shardsdk.protocol.ranges import HashBy
from shardsdk.queueing.functions import is_async
from shardsdk.queueing.metrics import Metrics
from shardsdk.queueing.sources import MapFunc, Watched
from shardsdk.queueing.workers import Outcome
from shardsdk.reconcile.barrier import catch_up
from shardsdk.reconcile.caches import Caches
from shardsdk.reconcile.calls import returned_by
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.controller import Controller
from shardsdk.reconcile.explain import Explanation, Wait
from shardsdk.reconcile.mainresource import MainResource
from shardsdk.reconcile.spec import ControllerSpec, Reconcile, TaskSpec, WatchSpec, Work
from shardsdk.reconcile.threads import Threads

if TYPE_CHECKING:
    from shardsdk.lease.shardlease import ShardLease
    from shardsdk.ranges.holder import RangeHolder

log: Final = logger_of(__name__)

#: How long a reconcile that was cancelled because the time for stopping is over may take to end.
CANCEL_SECONDS: Final = 2.0
#: How long acknowledgements and the Event under way may take to end: the lease outlasts one that is cut off by more.
WRITES_SECONDS: Final = 2.0
#: How many parts that still run are named.
MAX_NAMED: Final = 5


class Workload:
    """Runs `work` with all that it needs; once.

    `caches` hold the objects of `shard` (`None`: all), `shared` whole resources, which
    somebody else runs; they are the same for unsharded work.  `api` is what is written through,
    `fence` what guards it, `component` who Events come from.
    `looked_at` is `RingCheck`'s; `lease` says that the work ends, and of a ring by ranges what is held.
    """

    def __init__(
        self,
        work: Work,
        shard: Identity | None,
        api: Api,
        fence: Fence,
        *,
        caches: Caches,
        shared: Caches | None,
        component: str,
        lease: ShardLease | None = None,
        catches_up: bool = False,
        looked_at: Callable[[], bool] | None = None,
        clock: Clock,
        rng: Random,
        metrics: Metrics,
    ) -> None:
        self._shard = shard
        self._api = api
        self._fence = fence
        self._caches = caches
        self._shared = shared
        self._catches_up = catches_up
        self._looked_at = looked_at
        sources = [source for spec in work.specs for source in spec.resources] if catches_up else []
        self._warm = list(dict.fromkeys(caches.of(source) for source in sources))
        self._caught_up = asyncio.Event()
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._recorder = EventRecorder(api, component, clock, rng, on_dropped=metrics.events_dropped)
        self._threads: Threads | None = None
        self._resources: dict[GroupResource, MainResource[Any]] = {}
        self._tasks = work.tasks
        #: Of these, those with a grace that have not returned, by `id`: a function of the user's need have no hash.
        self._lasting = {id(task) for task in work.tasks if task.grace_seconds}
        self._plain_concurrency = sum(spec.concurrency for spec in work.specs if not is_async(spec.function))
        self._ring_check = self._make_ring_check(work.specs)
        self._controllers = [self._make_controller(spec) for spec in work.specs]
        self._lease = lease
        self._holder = None if lease is None else self._make_holder(lease)
        #: Of what was to stop, what still ran when `run` returned; empty: nothing.
        self.left: str = ""

    async def run(self, stop: asyncio.Event, grace_seconds: float) -> ExitCode:
        """Work until `stop` is set; then running reconciles have `grace_seconds` to end.

        When it is cancelled, it cancels them and waits until they have ended.
        """
        writing: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._recorder.run(), name="events"),
            *(asyncio.create_task(resource.run(), name="drains") for resource in self._resources.values()),
        ]
        background = list(writing)
        if self._ring_check is not None:
            background.append(asyncio.create_task(self._ring_check.run(), name="ring check"))
        if self._holder is not None:
            background.append(asyncio.create_task(self._holder.run(), name="ranges"))
        if self._catches_up:
            background.append(asyncio.create_task(self._catch_up(), name="catching up"))
        if self._caches is not self._shared:
            background.append(asyncio.create_task(self._caches.run(), name="caches"))
        working = [asyncio.create_task(each.run(), name=each.name) for each in self._controllers]
        tasks = [asyncio.create_task(self._run_task(task, stop), name=task.name) for task in self._tasks]
        stopping = asyncio.create_task(stop.wait())
        ended, failed = ExitCode.OK, False
        try:
            everything = [stopping, *background, *working, *tasks]
            done, _ = await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            if not stop.is_set():
                ended, failed = _judge(done)
                self._lasting.clear()  # they are cancelled at once
            await self._stop_feeding()
            self._tell_leaving(failed=failed)
            told_at = self._clock.monotonic() if stop.is_set() else None
            reconciling = await end(working, grace_seconds, CANCEL_SECONDS)
            if told_at is not None:
                await be_patient(tasks, self._tasks, told_at, self._clock)
            running = await end(tasks[::-1], 0.0, CANCEL_SECONDS)  # the last that was given first
            judged = done if told_at is None else set()
            if failed_meanwhile({*tasks} - judged):
                ended = max(ended, ExitCode.FAILED)
            await self._stop_writing()
            await end(writing, WRITES_SECONDS, CANCEL_SECONDS)
            await self._recorder.flush_in_passing()
            # Both now, and not as each was waited for: meanwhile it may have ended.
            stuck = any(not task.done() for task in (*reconciling, *running))
            self.left = self._describe_left([task.get_name() for task in running if not task.done()])
            return ExitCode.STUCK if stuck else ended
        except asyncio.CancelledError:
            await self._stop_feeding()
            await self._stop_writing()
            for task in (stopping, *working, *tasks):
                task.cancel()
            await see_out([stopping, *working, *tasks])
            raise
        finally:
            for task in (stopping, *background):
                task.cancel()
            interrupted = await see_out([stopping, *background])
            if self._threads:
                self._threads.close()
            if interrupted is not None:
                await see_out([*working, *tasks])  # nobody is told any more that one is stuck
                raise interrupted

    async def _be_ready(self) -> None:
        """Return when the first reconcile may begin."""
        if self._catches_up:
            await self._caught_up.wait()
        if self._ring_check is not None:
            await self._ring_check.looked.wait()

    async def _catch_up(self) -> None:
        """Have warm caches show what whoever held the lease before has done, once for all controllers."""
        for cache in self._warm:
            await cache.wait_synced()
        backoff = Backoff(self._rng)
        while not self._caught_up.is_set():
            try:
                await catch_up(self._warm)
                self._caught_up.set()
            except ShardingError as error:
                log.warning("Objects could not be listed; the controller waits", extra={"error": str(error)})
                await self._clock.sleep(backoff.next())
        await asyncio.Event().wait()

    async def _run_task(self, task: TaskSpec, stop: asyncio.Event) -> None:
        """A task that has returned is done; one that raised ends the process."""
        await run_task(task, self._api)
        self._lasting.discard(id(task))
        await stop.wait()

    def check_synced(self, *, unread: bool) -> str | None:
        """What `Caches.check_synced` says of its own."""
        return self._caches.check_synced(unread=unread)

    def _describe_left(self, tasks: Sequence[str]) -> str:
        left = [
            f"the reconcile of {request} by {each.name}"
            for each in self._controllers
            for request in each.not_at_rest()[: each.running]  # those that are worked on come first
        ] + [f"task {name}" for name in tasks]
        more = [f"{len(left) - MAX_NAMED} more"] if len(left) > MAX_NAMED else []
        return ", ".join(left[:MAX_NAMED] + more)

    def explain(self, request: Request) -> list[Explanation]:
        """What an object waits for, in each controller: first those that have it."""
        found = [each.explain(request) for each in self._controllers]
        found = [each for each in found if each.wait is not Wait.CACHE] or found
        where = "" if self._holder is None else self._describe_place(self._holder, request)
        return [replace(each, text=f"{each.text} ({where})") if where else each for each in found]

    def _describe_place(self, holder: RangeHolder, request: Request) -> str:
        """Where an object lies, and whose that is; empty: of an object that is not known here its uid is not."""
        known = (resource.cache.metadata(request) for resource in self._resources.values())
        metadata = next(filter(None, known), None)
        if metadata is None and holder.by is HashBy.UID:
            return ""
        return holder.describe(holder.by.point(metadata or ObjectMeta(namespace=request.namespace)))

    def not_at_rest(self, limit: int) -> tuple[list[Explanation], int]:
        """Objects that wait for more than their next event, and how many there are."""
        waiting = [(each, request) for each in self._controllers for request in each.not_at_rest()]
        return [each.explain(request) for each, request in waiting[:limit]], len(waiting)

    async def _stop_feeding(self) -> None:
        for controller in self._controllers:
            await controller.stop()

    async def _stop_writing(self) -> None:
        self._recorder.stop()
        for resource in self._resources.values():
            await resource.stop()

    def _tell_leaving(self, *, failed: bool) -> None:
        """Have the sharder hear of it, unless the lease is about to be given up anyway, because nothing runs."""
        if self._lease is not None and failed:
            self._lease.tell_failed()
        if self._lease is not None and (self._lasting or any(each.running for each in self._controllers)):
            self._lease.tell_leaving()

    # -- building -----------------------------------------------------------

    def _make_controller(self, spec: ControllerSpec[Any]) -> Controller[Any]:
        return Controller(
            spec.title,
            self._resource(spec),
            self._make_call(spec),
            self._fence,
            children=[(self._caches.of(child), child.predicate) for child in spec.children],
            watched=[
                Watched(self._shared.of(watch.source), self._mapping(spec, watch), watch.source.predicate)
                for watch in spec.watched
                if self._shared is not None
            ],
            sources=spec.sources,
            predicate=spec.main.predicate,
            concurrency=spec.concurrency,
            timeout_seconds=spec.timeout_seconds,
            rate_limit=spec.rate_limit,
            max_writes=spec.max_writes,
            before=self._be_ready,
            field_owner=spec.field_owner,
            unassigned=partial(self._select_unassigned, spec.main.resource.group_resource),
            clock=self._clock,
            rng=self._rng,
            metrics=self._metrics,
            recorder=self._recorder,
        )

    def _mapping(self, spec: ControllerSpec[Any], watch: WatchSpec) -> MapFunc:
        """Which main objects a watched one matters to: as the spec says, or as an index of the main objects does."""
        if not watch.index:
            return watch.mapping
        cache, main = self._caches.of(spec.main), spec.main.resource
        anywhere = not (watch.source.resource.namespaced and main.namespaced)

        def look_up(thing: Any) -> list[Request]:
            metadata = metadata_of(thing)
            found = cache.requests_by_index(watch.index, metadata.name)
            return [request for request in found if anywhere or request.namespace == metadata.namespace]

        return look_up

    def _make_holder(self, lease: ShardLease) -> RangeHolder | None:
        """Of a ring by ranges: who takes and gives them.  The first list of every cache begins with the first range."""
        identity = self._shard
        if identity is None or identity.hash_by is None:
            return None
        # Most rings assign by labels.
        from shardsdk.ranges.holder import RangeHolder
        from shardsdk.ranges.identity import RangeIdentity
        from shardsdk.reconcile.ending import work_ended

        if not isinstance(identity, RangeIdentity):
            return None
        by, resources = identity.hash_by, self._resources
        identity.held = holder = RangeHolder(
            self._api,
            lease,
            by,
            ended=lambda ranges: work_ended(ranges, by, resources.values(), self._api, self._clock),
            on_change=lambda _: self._caches.show(holder.working | holder.ending),
            namespaces=lambda: (each.namespace for main in resources.values() for each in main.cache.requests()),
            clock=self._clock,
            rng=self._rng,
        )
        self._metrics.gauge(
            "shardsdk_watches_filtered_by_server",
            "Of a ring by ranges: 1 while the API server sends this shard its own ranges alone, 0 if it ignores"
            " shardSelector; not a number before anything was asked for",
            self._caches.filtered,
        )
        return holder

    def _make_ring_check(self, specs: Sequence[ControllerSpec[Any]]) -> RingCheck | None:
        if self._shard is None:
            return None
        owned: dict[GroupResource, frozenset[GroupResource]] = {}
        for spec in specs:
            # Where ranges are assigned nobody moves children: they lie where their owners do.
            for child in spec.children if self._shard.hash_by is None else ():
                name = child.resource.group_resource
                owned[name] = owned.get(name, frozenset()) | {spec.main.resource.group_resource}
        return RingCheck(
            self._api,
            self._shard.ring.ring,
            frozenset(spec.main.resource.group_resource for spec in specs),
            owned,
            shard=self._shard.shard, by_each=True, hash_by=self._shard.hash_by, covered=self._shard.covered,
            watched=self._caches.namespaces_of_all(spec.main.resource for spec in specs),
            clock=self._clock, metrics=self._metrics, looked_at=self._looked_at,
        )  # fmt: skip

    def _select_unassigned(self, main: GroupResource, cache: Cache[Any]) -> Selector | None:
        """Children that the sharder is about to label, because the ring lists them; of others nobody knows that.

        While their type was not served owners went without them, so that what other shards have is looked at as well.
        """
        name = cache.resource.group_resource
        if self._ring_check is None or self._shard is None or not self._ring_check.lists(main, name):
            return None
        return self._shard.unassigned(self._caches.settings_of(name).selector, or_others=cache.absences > 0)

    def _resource(self, spec: ControllerSpec[Any]) -> MainResource[Any]:
        name = spec.main.resource.group_resource
        if name not in self._resources:
            self._resources[name] = MainResource(
                self._caches.of(spec.main),
                self._api,
                self._shard,
                self._fence,
                clock=self._clock,
                drain_timeout_seconds=spec.drain_timeout_seconds,
                metrics=self._metrics,
            )
        return self._resources[name]

    def _make_call(self, spec: ControllerSpec[Any]) -> Callable[[Context[Any]], Awaitable[Outcome | None]]:
        """The function that is called for each object, with what is done around it."""
        assert spec.function is not None
        around, called = spec.around, self._make_async(spec.function)
        if around is None:
            return lambda context: returned_by(context, called(context))
        return lambda context: around(context, lambda each: returned_by(context, self._make_async(each)(context)))

    def _make_async(self, function: Reconcile[Any]) -> Callable[[Context[Any]], Awaitable[Outcome | None]]:
        if is_async(function):
            return function  # type: ignore[return-value]
        if self._threads is None:
            self._threads = Threads(self._plain_concurrency)
        return self._threads.wrap(function)  # type: ignore[arg-type]


def _judge(done: set[asyncio.Task[Any]]) -> tuple[ExitCode, bool]:
    """How work ended that was not asked to, of which these parts have, and whether that is a failure; logs it."""
    errors = {task: None if task.cancelled() else task.exception() for task in done}
    for error in errors.values():
        if isinstance(error, ConfigurationError):
            exit_code_for(error)  # a sentence with what to do; where it was raised helps nobody
            return ExitCode.CONFIGURATION, not isinstance(error, RingChanged)
    for task, error in errors.items():
        log.critical("A part of the manager has ended; stopping", extra={"part": task.get_name()}, exc_info=error)
    return ExitCode.FAILED, True
