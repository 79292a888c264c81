"""Every metric of the sharder, made in one place.

Names are those that the ecosystem's dashboards read.  Label children are handed
out once and remembered; a deleted ring's series go.  No label value comes from a
request's path: a ring that does not exist counts under an empty name.

Words: `RingMetrics` and `ResourceMetrics` are the children of one ring and of
one of its resources.  After `forget_ring` the old ones lead nowhere: ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from sharder.core.shards import State
from shardsdk.protocol.objects import GroupResource
from shardsdk.version import VERSION

#: Labels of the ecosystem's counters.  Source: kubernetes-controller-sharding v0.8.
_OBJECT: Final = ("ringKind", "ringNamespace", "ringName", "group", "resource")
_RING: Final = ("ringName",)
_RESOURCE: Final = ("ringName", "group", "resource")

#: From a patch that is answered at once to an outage that lasted.
_PLACEMENT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
#: The API server waits 5 s for a webhook; the sharder's own share should stay under a few ms.
_WEBHOOK_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_API_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_RESYNC_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600)
_LAG_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


@dataclass(frozen=True, slots=True)
class ResourceMetrics:
    """What is counted of one resource of one ring.

    `assignments`: labels given by the webhook; `movements`: labels given by the
    placement loop; `drains`: objects asked back from their shard.  The others
    say how many objects there are of a kind at the moment.
    """

    assignments: Counter
    movements: Counter
    drains: Counter
    unassigned: Gauge
    stranded: Gauge
    draining: Gauge


@dataclass(frozen=True, slots=True)
class RingMetrics:
    """What is measured of one ring; latencies and durations in seconds.

    `assign_latency`, `move_latency`: from when the leader knew that an object
    needs a shard until the label was written.  `resync_objects`: how many
    objects the last resync looked at.
    """

    calculations: Counter
    assign_latency: Histogram
    move_latency: Histogram
    resync_duration: Histogram
    resync_objects: Gauge
    oldest_drain_age: Gauge
    takeovers: Counter
    ranges_in_transit: Gauge
    unheld_ranges: Gauge
    overlapping_ranges: Gauge
    fullest_shard: Gauge
    shards: Mapping[State, Gauge]

    def set_shards(self, states: Iterable[State]) -> None:
        """Say the state of each shard."""
        counts = dict.fromkeys(State, 0)
        for state in states:
            counts[state] += 1
        for state, count in counts.items():
            self.shards[state].set(count)


@dataclass(frozen=True, slots=True)
class Metrics:
    """All metric families of one process, and the children handed out so far."""

    assignments: Counter
    movements: Counter
    drains: Counter
    ring_calculations: Counter
    placement_latency: Histogram
    unassigned: Gauge
    stranded: Gauge
    draining: Gauge
    oldest_drain_age: Gauge
    ranges_in_transit: Gauge
    unheld_ranges: Gauge
    overlapping_ranges: Gauge
    fullest_shard: Gauge
    resync_duration: Histogram
    resync_objects: Gauge
    shards: Gauge
    ring_condition: Gauge
    lease_takeovers: Counter
    detection_suspended: Gauge
    webhook_requests: Counter
    webhook_duration: Histogram
    certificate_expiry: Gauge
    certificate_loads: Counter
    api_requests: Counter
    api_duration: Histogram
    events_dropped: Counter
    loop_lag: Histogram
    leader: Gauge
    other_leaders: Gauge
    #: Called by `prepare_scrape`, before metrics are read; for gauges that need not be right while nobody looks.
    before_scrape: list[Callable[[], None]] = field(default_factory=list)
    _rings: dict[str, RingMetrics] = field(default_factory=dict)
    _resources: dict[tuple[str, GroupResource], ResourceMetrics] = field(default_factory=dict)
    _webhook: dict[tuple[str, str], Counter] = field(default_factory=dict)
    #: What `ring_condition` says of each ring.
    _conditions: dict[str, dict[str, bool | None]] = field(default_factory=dict)
    _api: dict[tuple[str, str], tuple[Counter, Histogram]] = field(default_factory=dict)

    @classmethod
    def create(cls, registry: CollectorRegistry) -> Metrics:
        """Make every family in `registry`."""

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"controller_sharding_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"controller_sharding_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"controller_sharding_{name}_seconds", text, labels, registry=registry, buckets=buckets)

        gauge("build_info", "Always 1; the label says which version runs.", "version").labels(VERSION).set(1)
        return cls(
            assignments=counter("assignments_total", "Shard labels given by the webhook.", *_OBJECT),
            movements=counter("movements_total", "Shard labels given by the placement loop.", *_OBJECT),
            drains=counter("drains_total", "Drain labels given by the placement loop.", *_OBJECT),
            ring_calculations=counter(
                "ring_calculations_total", "Hash rings built after a change of membership.", "kind", "namespace", "name"
            ),
            placement_latency=seconds(
                "placement_latency", "From knowing that an object needs a shard until its label was written.",
                _PLACEMENT_BUCKETS, "ringName", "decision",
            ),
            unassigned=gauge("unassigned_objects", "Objects without a shard.", *_RESOURCE),
            stranded=gauge("stranded_objects", "Objects whose shard is not available.", *_RESOURCE),
            draining=gauge("draining_objects", "Objects asked back, not yet acknowledged.", *_RESOURCE),
            oldest_drain_age=gauge("oldest_drain_age_seconds", "Age of the oldest unacknowledged drain.", *_RING),
            ranges_in_transit=gauge(
                "ranges_in_transit", "Ranges of hashes on their way from one shard to another.", *_RING
            ),
            unheld_ranges=gauge("unheld_ranges", "Ranges of hashes that no shard holds.", *_RING),
            overlapping_ranges=gauge(
                "overlapping_ranges", "Ranges of hashes that the Leases of several shards hold at once.", *_RING
            ),
            fullest_shard=gauge(
                "fullest_shard_ratio", "How many times its part the fullest shard of a ring by ranges has.", *_RING
            ),
            resync_duration=seconds("resync_duration", "Duration of a full resync of a ring.", _RESYNC_BUCKETS, *_RING),
            resync_objects=gauge("resync_objects", "Objects that the last full resync looked at.", *_RING),
            shards=gauge("shards", "Shards of a ring by state.", "ringName", "state"),
            ring_condition=gauge(
                "ring_condition", "1 where a condition of a ring holds, 0 where not; none while unknown.",
                *_RING, "type",
            ),
            lease_takeovers=counter("lease_takeovers_total", "Leases of shards that the sharder acquired.", *_RING),
            detection_suspended=gauge(
                "crash_detection_suspended",
                "1 while no crashed shard of the ring is noticed: the leader renews too slowly, or cannot read leases.",
                *_RING,
            ),
            webhook_requests=counter("webhook_requests_total", "Admission requests by outcome.", "ringName", "outcome"),
            webhook_duration=seconds("webhook_duration", "Time to answer an admission request.", _WEBHOOK_BUCKETS),
            certificate_expiry=gauge(
                "webhook_certificate_expiry_timestamp_seconds", "When the serving certificate expires (Unix time)."
            ),
            certificate_loads=counter(
                "webhook_certificate_loads_total", "Serving certificates read, by result.", "result"
            ),
            api_requests=counter("api_requests_total", "Requests to the API server.", "verb", "code"),
            api_duration=seconds("api_request_duration", "Time until a request was answered.", _API_BUCKETS, "verb"),
            events_dropped=counter(
                "events_dropped_total", "Kubernetes Events that found no room or could not be written."
            ),
            loop_lag=seconds("event_loop_lag", "How late the event loop woke a waiting task.", _LAG_BUCKETS),
            leader=Gauge(
                "leader_election_master_status", "1 on the leading replica, else 0.", ["name"], registry=registry
            ),
            other_leaders=gauge("other_leaders", "Leaders of other sharders in the cluster; there is to be none."),
        )  # fmt: skip

    def prepare_scrape(self) -> None:
        """Have every gauge say what is true now; called in the event loop, whose objects it asks."""
        for hook in tuple(self.before_scrape):
            hook()

    def ring(self, name: str) -> RingMetrics:
        """The children of the ring called `name`."""
        known = self._rings.get(name)
        if known is None:
            known = self._rings[name] = RingMetrics(
                calculations=self.ring_calculations.labels("clusterring", "", name),
                assign_latency=self.placement_latency.labels(name, "assign"),
                move_latency=self.placement_latency.labels(name, "move"),
                resync_duration=self.resync_duration.labels(name),
                resync_objects=self.resync_objects.labels(name),
                oldest_drain_age=self.oldest_drain_age.labels(name),
                takeovers=self.lease_takeovers.labels(name),
                ranges_in_transit=self.ranges_in_transit.labels(name),
                unheld_ranges=self.unheld_ranges.labels(name),
                overlapping_ranges=self.overlapping_ranges.labels(name),
                fullest_shard=self.fullest_shard.labels(name),
                shards={state: self.shards.labels(name, state.value) for state in State},
            )
        return known

    def resource(self, ring: str, resource: GroupResource) -> ResourceMetrics:
        """The children of one resource of the ring called `ring`."""
        known = self._resources.get((ring, resource))
        if known is None:
            counted = ("clusterring", "", ring, resource.group, resource.resource)
            present = (ring, resource.group, resource.resource)
            known = self._resources[ring, resource] = ResourceMetrics(
                assignments=self.assignments.labels(*counted),
                movements=self.movements.labels(*counted),
                drains=self.drains.labels(*counted),
                unassigned=self.unassigned.labels(*present),
                stranded=self.stranded.labels(*present),
                draining=self.draining.labels(*present),
            )
        return known

    def resources_of(self, ring: str) -> set[GroupResource]:
        """The resources of a ring that have children."""
        return {resource for name, resource in self._resources if name == ring}

    def ring_conditions(self, name: str, conditions: Mapping[str, bool | None]) -> None:
        """Say which conditions of a ring hold (`None`: not known)."""
        before = self._conditions.get(name, {})
        self._conditions[name] = dict(conditions)
        for kind, holds in conditions.items():
            if kind in before and before[kind] is holds:
                continue
            if holds is None:
                self.ring_condition.remove_by_labels({"ringName": name, "type": kind})
            else:
                self.ring_condition.labels(name, kind).set(holds)

    def crash_detection_suspended(self, ring: str, suspended: bool) -> None:
        """Say whether crashed shards of the ring go unnoticed."""
        self.detection_suspended.labels(ring).set(1 if suspended else 0)

    def webhook_expected(self, ring: str, outcomes: Iterable[str]) -> None:
        """Begin every count of a ring's requests with 0: a rate does not see the increase that makes a series."""
        for outcome in outcomes:
            self._answers(ring, outcome)

    def webhook_answered(self, ring: str, outcome: str, seconds: float) -> None:
        """Count an admission request; `ring` is empty when no such ring is known here."""
        self._answers(ring, outcome).inc()
        self.webhook_duration.observe(seconds)

    def _answers(self, ring: str, outcome: str) -> Counter:
        child = self._webhook.get((ring, outcome))
        if child is None:
            child = self._webhook[ring, outcome] = self.webhook_requests.labels(ring, outcome)
        return child

    def certificate_loaded(self, good: bool) -> None:
        """Count a serving certificate that was read, or one that could not be used."""
        self.certificate_loads.labels("loaded" if good else "refused").inc()

    def certificate_expires(self, moment: datetime) -> None:
        """Say until when the serving certificate is valid."""
        self.certificate_expiry.set(moment.timestamp())

    def api_called(self, verb: str, code: str | int, seconds: float) -> None:
        """Count a request to the API server; fits the client's `on_call`."""
        key = (verb, str(code))
        children = self._api.get(key)
        if children is None:
            children = self._api[key] = (self.api_requests.labels(*key), self.api_duration.labels(verb))
        children[0].inc()
        children[1].observe(seconds)

    def leading(self, lease: str, leads: bool) -> None:
        """Say whether this replica leads; one that does not has nothing to say about objects and shards."""
        self.leader.labels(lease).set(1 if leads else 0)
        if leads:
            return
        self.other_leaders.set(0)
        self.ring_condition.clear()
        self._conditions.clear()
        self.detection_suspended.clear()
        for ring in self._rings.values():
            ring.resync_objects.set(0)
            ring.oldest_drain_age.set(0)
            ring.ranges_in_transit.set(0)
            ring.unheld_ranges.set(0)
            ring.overlapping_ranges.set(0)
            ring.fullest_shard.set(0)
            ring.set_shards(())
        for resource in self._resources.values():
            resource.unassigned.set(0)
            resource.stranded.set(0)
            resource.draining.set(0)

    def forget_ring(self, name: str) -> None:
        """Drop the series of a deleted ring; whoever holds its children must ask anew."""
        self._rings.pop(name, None)
        self._conditions.pop(name, None)
        for cache in (self._resources, self._webhook):
            for key in [key for key in cache if key[0] == name]:
                del cache[key]  # type: ignore[arg-type]
        for family in (getattr(self, each.name) for each in fields(self)):
            if isinstance(family, MetricWrapperBase) and "ringName" in family._labelnames:
                family.remove_by_labels({"ringName": name})
        self.ring_calculations.remove_by_labels({"name": name})
