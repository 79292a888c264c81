"""Metrics of queues, controllers and shards, under the names that client-go and controller-runtime use.

Existing dashboards for Go controllers show Python ones as they are; what has no
counterpart there starts with `shardsdk_`.

Does: count into a registry that it is given, or one of its own, and show beside it
what the program counts itself, in prometheus_client's default registry.  Refuses:
to count there by itself, because two managers in one process (a test, a
simulation) must not share counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shardsdk.cache.cache import Cache
from shardsdk.errors import ConfigurationError
from shardsdk.logs import logger_of
from shardsdk.queueing.queue import Priority, WorkQueue

log: Final = logger_of(__name__)

#: Seconds from 10 ns to 1,000 s, a bucket for each power of ten.
#: Source: client-go workqueue metrics, prometheus.ExponentialBuckets(10e-9, 10, 12).
_QUEUE_BUCKETS: Final = tuple(1e-8 * 10.0**step for step in range(12))
#: Source: controller-runtime, ReconcileTime.
_RECONCILE_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
)


class Metrics:
    """Everything that the runtime counts, in one registry: `registry`, or one of its own.

    What the program itself counts in prometheus_client's default registry is shown beside it.

    Raises: ConfigurationError for a registry that has metrics of these names, as those of another `Metrics`; where
    PROMETHEUS_MULTIPROC_DIR names no directory that can be written to.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry: CollectorRegistry = registry if registry is not None else CollectorRegistry()
        try:
            self._register()
        except ValueError as error:
            raise ConfigurationError(
                f"the registry has metrics of the SDK's names: {error}; rename those, or leave out Metrics(registry)"
                " (also where another manager counts there, or has): the default registry's are shown at /metrics"
                " without it"
            ) from error
        except OSError as error:
            raise ConfigurationError(
                f"prometheus_client cannot write to the directory that PROMETHEUS_MULTIPROC_DIR names: {error};"
                " make that directory, or unset the variable"
            ) from error
        self._shown: Final = _Shown(self.registry)

    def _register(self) -> None:
        """Raises: ValueError for a name that is taken."""
        self._queues = _Queues(self.registry)
        self._reconciles = _Reconciles(self.registry)
        self._shards = _Shards(self.registry)
        self._of_caches = _OfCaches(self.registry)
        self._missing = Gauge(
            "shardsdk_resources_not_in_ring",
            "Resources this shard works on that its ring does not list: objects of them do not move with their owners",
            registry=self.registry,
        )
        self._unwatched = Gauge(
            "shardsdk_ring_covers_unwatched_namespaces",
            "1 while this shard's ring covers namespaces that it does not watch: nobody works on objects there",
            registry=self.registry,
        )
        self._other_form = Gauge(
            "shardsdk_other_form_awaited",
            "1 while this operator works on nothing and waits for its other form, elected or sharded, to end",
            registry=self.registry,
        )
        self._events_dropped = Counter(
            "shardsdk_events_dropped",
            "Kubernetes Events that found no room or could not be written",
            registry=self.registry,
        )
        self._calls = Counter(
            "rest_client_requests", "Requests to the API server", ("method", "code"), registry=self.registry
        )
        self._call_seconds = Histogram(
            "rest_client_request_duration_seconds",
            "Seconds until the API server answers",
            ("method",),
            registry=self.registry,
        )

    def observe_queue(self, queue: WorkQueue[Any]) -> None:
        """Count what happens in `queue` under its name."""
        queue.observe(self._queues.watch(queue))

    def controller(self, name: str, max_concurrent: int) -> ControllerMetrics:
        """Counters of the controller `name`."""
        return self._reconciles.of(name, max_concurrent)

    def shard(self, resource: str) -> ShardMetrics:
        """Counters of the shard's dealings with the main resource `resource`."""
        return self._shards.of(resource)

    def observe_cache(self, cache: Cache[Any]) -> None:
        """Count what `cache` cannot show."""
        self._of_caches.watch(cache)

    def missing_in_ring(self, read: Callable[[], float]) -> None:
        """How many resources this shard works on that its ring does not list."""
        self._missing.set_function(read)

    def unwatched_in_ring(self, read: Callable[[], float]) -> None:
        """Whether the ring covers namespaces that this shard does not watch: 1, else 0."""
        self._unwatched.set_function(read)

    def other_form(self, awaited: Callable[[], float]) -> None:
        """Whether the operator's other form is waited for: 1, else 0."""
        self._other_form.set_function(awaited)

    def events_dropped(self, count: int) -> None:
        """Count Events that were lost; what `EventRecorder` takes as `on_dropped`."""
        self._events_dropped.inc(count)

    def count_call(self, verb: str, code: int, seconds: float) -> None:
        """Count a request to the API server (`code` 0: no answer); what `Client` takes as `on_call`."""
        self._calls.labels(verb, str(code)).inc()
        self._call_seconds.labels(verb).observe(seconds)

    def gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is scraped.  Raises: ConfigurationError for a name that is taken."""
        self._gauge(name, documentation).set_function(read)

    def lease(self, remaining: Callable[[], float]) -> None:
        """For how long a shard may write; once for each `Metrics`.  Raises: ConfigurationError."""
        self.gauge(
            "shardsdk_lease_remaining_seconds",
            "Seconds for which writes are allowed",
            lambda: max(remaining(), 0.0),
        )

    def leader(self, name: str, leads: Callable[[], float]) -> None:
        """Whether this process leads the election `name`, under client-go's name; once for each `Metrics`.

        Raises: ConfigurationError.
        """
        gauge = self._gauge("leader_election_master_status", "1 while this process leads", "name")
        gauge.labels(name).set_function(leads)

    def _gauge(self, name: str, documentation: str, *labels: str) -> Gauge:
        try:
            return Gauge(name, documentation, labels, registry=self.registry)
        except ValueError as error:
            raise ConfigurationError(
                f"the metric {name} cannot be added: {error}; if another manager counts here, or has, give each Manager"
                " its own Metrics"
            ) from error

    def render(self) -> tuple[str, bytes]:
        """Content type and text that Prometheus reads: all of this, and the default registry.

        That one has memory, CPU and garbage collection of the process as well, unless the program takes them out.
        """
        return CONTENT_TYPE_LATEST, generate_latest(self._shown)


@dataclass(frozen=True, slots=True)
class ControllerMetrics:
    """Counters of one controller, with their labels looked up once."""

    succeeded: Counter
    requeued: Counter
    requeued_after: Counter
    failed: Counter
    errors: Counter
    terminal_errors: Counter
    timeouts: Counter
    seconds: Histogram
    active: Gauge


@dataclass(frozen=True, slots=True)
class ShardMetrics:
    """Counters of a shard for one main resource."""

    acknowledged: Counter
    acknowledge_conflicts: Counter
    ignored: Counter
    waiting_drains: Gauge
    oldest_drain_seconds: Gauge
    waiting_owners: Gauge
    held_back_owners: Gauge
    child_lists: Counter
    expectations_expired: Counter


@dataclass(frozen=True, slots=True)
class _QueueCounters:
    """What one queue tells; satisfies `QueueObserver`."""

    adds: Counter
    retries: Counter
    queue_seconds: Histogram
    work_seconds: Histogram

    def added(self, priority: Priority) -> None:
        self.adds.inc()

    def started(self, queue_seconds: float) -> None:
        self.queue_seconds.observe(queue_seconds)

    def finished(self, work_seconds: float) -> None:
        self.work_seconds.observe(work_seconds)

    def retried(self) -> None:
        self.retries.inc()


class _Shown(Collector):
    """What a scrape shows: the metrics of `own`, then what the default registry has under other names.

    Two of one name no scraper reads; a library may have made the other, so that it is no reason not to run.
    """

    def __init__(self, own: CollectorRegistry) -> None:
        self._own = own
        #: Names that were told of.
        self._told: set[str] = set()

    def collect(self) -> Iterator[Metric]:
        taken: set[str] = set()
        for family in self._own.collect():
            taken.add(_stem(family))
            yield family
        for family in REGISTRY.collect() if self._own is not REGISTRY else ():
            if _stem(family) not in taken:
                yield family
            elif family.name not in self._told:
                self._told.add(family.name)
                log.warning(
                    "A metric of the default registry is not shown, for its name is one of the SDK's: rename it",
                    extra={"metric": family.name},
                )


def _stem(family: Metric) -> str:
    """A counter `a` is shown as `a_total`, which another sort of metric can be called."""
    return family.name.removesuffix("_total")


class _Queues:
    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("name", "controller")
        self._adds = Counter("workqueue_adds", "Items added to the queue", labels, registry=registry)
        self._retries = Counter("workqueue_retries", "Items added through the rate limit", labels, registry=registry)
        self._queue_seconds = Histogram(
            "workqueue_queue_duration_seconds",
            "Seconds an item waits before it is worked on",
            labels,
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        )
        self._work_seconds = Histogram(
            "workqueue_work_duration_seconds",
            "Seconds of work on an item",
            labels,
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        )
        self._watched: list[WorkQueue[Any]] = []
        registry.register(self)

    def watch(self, queue: WorkQueue[Any]) -> _QueueCounters:
        self._watched.append(queue)
        names = (queue.name, queue.name)
        return _QueueCounters(
            self._adds.labels(*names),
            self._retries.labels(*names),
            self._queue_seconds.labels(*names),
            self._work_seconds.labels(*names),
        )

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """What prometheus_client calls at a scrape."""
        labels = ("name", "controller")
        depth = GaugeMetricFamily("workqueue_depth", "Items that wait", labels=(*labels, "priority"))
        unfinished = GaugeMetricFamily(
            "workqueue_unfinished_work_seconds", "Seconds of work on items that are not done, summed", labels=labels
        )
        longest = GaugeMetricFamily(
            "workqueue_longest_running_processor_seconds", "Seconds since the oldest work began", labels=labels
        )
        for queue in self._watched:
            names = (queue.name, queue.name)
            for priority in Priority:
                depth.add_metric((*names, priority.name.lower()), queue.depth(priority))
            unfinished.add_metric(names, queue.unfinished_seconds())
            longest.add_metric(names, queue.longest_running_seconds())
        yield from (depth, unfinished, longest)


class _Reconciles:
    def __init__(self, registry: CollectorRegistry) -> None:
        prefix, labels = "controller_runtime_", ("controller",)

        def counter(name: str, documentation: str) -> Counter:
            return Counter(prefix + name, documentation, labels, registry=registry)

        self._total = Counter(prefix + "reconcile", "Reconciles by result", ("controller", "result"), registry=registry)
        self._errors = counter("reconcile_errors", "Reconciles that raised")
        self._terminal = counter("terminal_reconcile_errors", "Reconciles that raised TerminalError")
        self._timeouts = counter("reconcile_timeouts", "Reconciles that were cancelled at their time limit")
        self._seconds = Histogram(
            prefix + "reconcile_time_seconds",
            "Seconds a reconcile takes",
            labels,
            buckets=_RECONCILE_BUCKETS,
            registry=registry,
        )
        self._active = Gauge(prefix + "active_workers", "Reconciles that run", labels, registry=registry)
        self._max = Gauge(
            prefix + "max_concurrent_reconciles", "Reconciles that may run at once", labels, registry=registry
        )

    def of(self, name: str, max_concurrent: int) -> ControllerMetrics:
        self._max.labels(name).set(max_concurrent)
        return ControllerMetrics(
            succeeded=self._total.labels(name, "success"),
            requeued=self._total.labels(name, "requeue"),
            requeued_after=self._total.labels(name, "requeue_after"),
            failed=self._total.labels(name, "error"),
            errors=self._errors.labels(name),
            terminal_errors=self._terminal.labels(name),
            timeouts=self._timeouts.labels(name),
            seconds=self._seconds.labels(name),
            active=self._active.labels(name),
        )


class _OfCaches:
    """What caches cannot show, by resource, over all that were told and have not ended."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, documentation: str) -> Gauge:
            return Gauge(f"shardsdk_{name}", documentation, ("resource",), registry=registry)

        why = "Objects left out because they do not fit their type, or an index or a transform raises"
        self._unfit = gauge("unfit_objects", why)
        self._unread = gauge("unread_seconds", "Seconds for which each list and watch of a resource has been refused")
        self._caches: dict[str, list[Cache[Any]]] = {}

    def watch(self, cache: Cache[Any]) -> None:
        name = str(cache.resource.group_resource)
        caches = self._caches.setdefault(name, [])
        if cache not in caches:
            caches.append(cache)
            cache.at_end(lambda: caches.remove(cache))
        self._unfit.labels(name).set_function(lambda: sum(len(each.unfit) for each in caches))
        self._unread.labels(name).set_function(lambda: max((each.unread_seconds for each in caches), default=0.0))


class _Shards:
    def __init__(self, registry: CollectorRegistry) -> None:
        prefix, labels = "shardsdk_", ("resource",)

        def counter(name: str, documentation: str) -> Counter:
            return Counter(prefix + name, documentation, labels, registry=registry)

        def gauge(name: str, documentation: str) -> Gauge:
            return Gauge(prefix + name, documentation, labels, registry=registry)

        self._metrics: dict[str, Any] = {
            "acknowledged": counter("acknowledgements", "Drains acknowledged: both labels removed"),
            "acknowledge_conflicts": counter(
                "acknowledge_conflicts", "Acknowledgements refused because the object had changed"
            ),
            "ignored": counter("ignored", "Reconciles left out because the object is not this shard's any more"),
            "waiting_drains": gauge("drains_waiting", "Drains not acknowledged yet; most wait for a running reconcile"),
            "oldest_drain_seconds": gauge("oldest_drain_seconds", "Seconds since the oldest of them was seen"),
            "waiting_owners": gauge("owners_waiting", "Owners that wait for a list of their children"),
            "held_back_owners": gauge(
                "owners_held_back", "Owners not reconciled because a child of theirs cannot be read"
            ),
            "child_lists": counter("child_lists", "Lists of children made for owners that arrived"),
            "expectations_expired": counter("expectations_expired", "Writes that the cache had not seen in time"),
        }

    def of(self, resource: str) -> ShardMetrics:
        return ShardMetrics(**{name: each.labels(resource) for name, each in self._metrics.items()})
