"""Everything that a shard runs while it holds its lease: caches, drains, controllers.

    build ──> caches list (consistently, now) ──> controllers reconcile
          ──> asked to stop: take nothing new, wait for what runs, cancel it at
              the limit ──> caches end

Guarantees: caches are made and listed after the lease was acquired, because a
`Workload` is made then; one resource has one cache, whoever looks at it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import Enum
from random import Random
from typing import Any, Final

from shardsdk.errors import ConfigurationError
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import GroupResource
from shardsdk.runtime.cache import Cache
from shardsdk.runtime.context import Context
from shardsdk.runtime.controller import Outcome
from shardsdk.runtime.events import EventRecorder
from shardsdk.runtime.identity import ShardIdentity
from shardsdk.runtime.metrics import Metrics
from shardsdk.runtime.sharded import ShardedReconciler, ShardedResource
from shardsdk.runtime.spec import ControllerSpec, Reconcile, Source
from shardsdk.runtime.threads import Threads

log = logging.getLogger(__name__)

#: How long a reconcile that was cancelled because the time for stopping is over may take to end.
CANCEL_SECONDS: Final = 2.0
#: How long writing the last Events may take; they are hints, and the lease waits.
FLUSH_SECONDS: Final = 1.0


class Ended(Enum):
    """How the work came to an end."""

    STOPPED = "as asked, and nothing runs any more"
    STUCK = "as asked, but something still runs"
    FAILED = "something that must not end has ended"


class Workload:
    """The controllers of `specs` with all that they need; `run` it once."""

    def __init__(
        self,
        specs: Sequence[ControllerSpec[Any]],
        identity: ShardIdentity,
        api: Api,
        fence: Fence,
        *,
        namespace: str | None,
        clock: Clock,
        rng: Random,
        metrics: Metrics,
    ) -> None:
        self._identity = identity
        self._api = api
        self._fence = fence
        self._namespace = namespace
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._recorder = EventRecorder(api, identity.ring.ring, clock, rng)
        self._threads: Threads | None = None
        self._caches: dict[GroupResource, Cache[Any]] = {}
        self._resources: dict[GroupResource, ShardedResource[Any]] = {}
        self._plain_concurrency = sum(spec.concurrency for spec in specs if not _is_async(spec.function))
        self._reconcilers = [self._make_reconciler(spec) for spec in specs]

    async def run(self, stop: asyncio.Event, grace_seconds: float) -> Ended:
        """Work until `stop` is set; then running reconciles have `grace_seconds` to end.

        When it is cancelled, it cancels them and waits until they have ended.
        """
        background: list[asyncio.Task[Any]] = [
            *(asyncio.create_task(cache.run(), name=f"cache/{name}") for name, cache in self._caches.items()),
            *(asyncio.create_task(each.drains.run(), name="drains") for each in self._resources.values()),
            asyncio.create_task(self._recorder.run(), name="events"),
        ]
        working = [asyncio.create_task(each.run(), name=each.name) for each in self._reconcilers]
        stopping = asyncio.create_task(stop.wait())
        ended = Ended.STOPPED
        try:
            done, _ = await asyncio.wait([stopping, *background, *working], return_when=asyncio.FIRST_COMPLETED)
            if stopping not in done:
                ended = Ended.FAILED
                _report(done)
            await self._stop_feeding()
            await asyncio.wait(working, timeout=grace_seconds)
            for task in working:
                task.cancel()
            _, running = await asyncio.wait(working, timeout=CANCEL_SECONDS)
            await self._flush_events()
            return Ended.STUCK if running else ended
        except asyncio.CancelledError:
            await self._stop_feeding()
            for task in working:
                task.cancel()
            await asyncio.wait(working)
            raise
        finally:
            for task in (stopping, *background):
                task.cancel()
            await asyncio.wait([stopping, *background])
            if self._threads:
                self._threads.close()

    def check_synced(self) -> str | None:
        """Which caches are not complete, and why; `None`: all are."""
        pending = [
            f"{name}: {cache.failure or 'first list pending'}"
            for name, cache in self._caches.items()
            if not cache.synced
        ]
        return "; ".join(pending) or None

    @property
    def running(self) -> int:
        """How many reconciles run now."""
        return sum(each.running for each in self._reconcilers)

    async def _stop_feeding(self) -> None:
        for reconciler in self._reconcilers:
            await reconciler.stop()
        for resource in self._resources.values():
            await resource.drains.stop()

    async def _flush_events(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._recorder.flush()

    # -- building -----------------------------------------------------------

    def _make_reconciler(self, spec: ControllerSpec[Any]) -> ShardedReconciler[Any]:
        assert spec.function is not None
        return ShardedReconciler(
            spec.title,
            self._resource(spec),
            self._make_async(spec.function),
            self._fence,
            children=[(self._cache(child), child.predicate) for child in spec.children],
            predicate=spec.main.predicate,
            concurrency=spec.concurrency,
            timeout_seconds=spec.timeout_seconds,
            rate_limit=spec.rate_limit,
            clock=self._clock,
            rng=self._rng,
            metrics=self._metrics,
            recorder=self._recorder,
        )

    def _resource(self, spec: ControllerSpec[Any]) -> ShardedResource[Any]:
        name = spec.main.resource.group_resource
        if name not in self._resources:
            self._resources[name] = ShardedResource(
                self._identity,
                self._cache(spec.main),
                self._api,
                clock=self._clock,
                drain_timeout_seconds=spec.drain_timeout_seconds,
                metrics=self._metrics,
            )
        return self._resources[name]

    def _cache(self, source: Source) -> Cache[Any]:
        name = source.resource.group_resource
        if name not in self._caches:
            self._caches[name] = Cache(
                self._api,
                source.resource,
                clock=self._clock,
                rng=self._rng,
                namespace=self._namespace if source.resource.namespaced else None,
                selector=self._identity.selector(),
                model=source.model,
                metadata_only=source.metadata_only,
            )
        return self._caches[name]

    def _make_async(self, function: Reconcile[Any]) -> Callable[[Context[Any]], Awaitable[Outcome | None]]:
        if _is_async(function):
            return function  # type: ignore[return-value]
        if self._threads is None:
            self._threads = Threads(self._plain_concurrency)
        return self._threads.wrap(function)  # type: ignore[arg-type]


def check_specs(specs: Sequence[ControllerSpec[Any]]) -> None:
    """Raises: ConfigurationError when the controllers cannot run together."""
    titles = [spec.title for spec in specs]
    seen: dict[GroupResource, Source] = {}
    limits: dict[GroupResource, float | None] = {}
    for spec in specs:
        if spec.function is None:
            raise ConfigurationError(f"controller {spec.title!r} has no function: call .reconcile(function)")
        if titles.count(spec.title) > 1:
            raise ConfigurationError(f"two controllers are called {spec.title!r}: name one by .options(name=…)")
        limit = limits.setdefault(spec.main.resource.group_resource, spec.drain_timeout_seconds)
        if limit != spec.drain_timeout_seconds:
            raise ConfigurationError(
                f"controllers of {spec.main.resource.group_resource} differ in drain_timeout_seconds: a drain waits for"
                " all of them, so give them the same"
            )
        for source in (spec.main, *spec.children):
            other = seen.setdefault(source.resource.group_resource, source)
            if (source.resource, source.model, source.metadata_only) != (
                other.resource,
                other.model,
                other.metadata_only,
            ):
                raise ConfigurationError(
                    f"{source.resource.group_resource} is used with two versions or models: one resource has one cache,"
                    " so all controllers must use the same"
                )


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _report(done: set[asyncio.Task[Any]]) -> None:
    for task in done:
        error = None if task.cancelled() else task.exception()
        log.critical("A part of the shard has ended; stopping", extra={"part": task.get_name()}, exc_info=error)
