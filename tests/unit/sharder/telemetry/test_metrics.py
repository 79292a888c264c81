"""Metrics: names and labels that dashboards read, and series that come and go with rings."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import Metric

from sharder.core.shards import State
from sharder.telemetry import Metrics, Telemetry, measure_loop_lag
from shardsdk.protocol.objects import GroupResource
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

SECRETS = GroupResource("", "secrets")
DEPLOYMENTS = GroupResource("apps", "deployments")
OBJECT = {"ringKind": "clusterring", "ringNamespace": "", "ringName": "example", "group": "apps"}
OBJECT |= {"resource": "deployments"}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Metrics:
    return Metrics.create(registry)


@pytest.mark.parametrize("what", ["assignments", "movements", "drains"])
def test_object_counters_have_the_ecosystems_names_and_labels(
    registry: CollectorRegistry, metrics: Metrics, what: str
) -> None:
    getattr(metrics.resource("example", DEPLOYMENTS), what).inc()
    assert registry.get_sample_value(f"controller_sharding_{what}_total", OBJECT) == 1


def test_the_first_failure_of_a_rings_webhook_is_an_increase(registry: CollectorRegistry, metrics: Metrics) -> None:
    """Prometheus sees none in a series that begins with 1."""
    labels = {"ringName": "r", "outcome": "failed"}
    metrics.webhook_expected("r", ["assigned", "failed"])
    assert registry.get_sample_value("controller_sharding_webhook_requests_total", labels) == 0
    metrics.webhook_answered("r", "failed", 0.001)
    metrics.webhook_expected("r", ["assigned", "failed"])
    assert registry.get_sample_value("controller_sharding_webhook_requests_total", labels) == 1
    metrics.forget_ring("r")
    assert registry.get_sample_value("controller_sharding_webhook_requests_total", labels) is None


def test_ring_calculations_have_the_ecosystems_name_and_labels(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.ring("example").calculations.inc()
    labels = {"kind": "clusterring", "namespace": "", "name": "example"}
    assert registry.get_sample_value("controller_sharding_ring_calculations_total", labels) == 1


def test_everything_that_operators_watch_is_there(registry: CollectorRegistry, metrics: Metrics) -> None:
    ring, resource = metrics.ring("r"), metrics.resource("r", SECRETS)
    ring.assign_latency.observe(0.02)
    ring.resync_duration.observe(1)
    ring.resync_objects.set(300)
    ring.oldest_drain_age.set(7)
    ring.unheld_ranges.set(4)
    ring.overlapping_ranges.set(5)
    ring.takeovers.inc()
    resource.unassigned.set(1)
    resource.stranded.set(2)
    resource.draining.set(3)
    metrics.webhook_answered("r", "assigned", 0.001)
    metrics.api_called("patch", 200, 0.002)
    metrics.certificate_loaded(True)
    metrics.certificate_expires(datetime(2030, 1, 1, tzinfo=UTC))
    metrics.leading("sharder", True)
    per_ring, per_resource = {"ringName": "r"}, {"ringName": "r", "group": "", "resource": "secrets"}
    expected = {
        ("controller_sharding_placement_latency_seconds_count", ("ringName", "r"), ("decision", "assign")): 1,
        ("controller_sharding_resync_duration_seconds_sum", *per_ring.items()): 1,
        ("controller_sharding_resync_objects", *per_ring.items()): 300,
        ("controller_sharding_oldest_drain_age_seconds", *per_ring.items()): 7,
        ("controller_sharding_unheld_ranges", *per_ring.items()): 4,
        ("controller_sharding_overlapping_ranges", *per_ring.items()): 5,
        ("controller_sharding_lease_takeovers_total", *per_ring.items()): 1,
        ("controller_sharding_unassigned_objects", *per_resource.items()): 1,
        ("controller_sharding_stranded_objects", *per_resource.items()): 2,
        ("controller_sharding_draining_objects", *per_resource.items()): 3,
        ("controller_sharding_webhook_requests_total", ("ringName", "r"), ("outcome", "assigned")): 1,
        ("controller_sharding_webhook_duration_seconds_count",): 1,
        ("controller_sharding_api_requests_total", ("verb", "patch"), ("code", "200")): 1,
        ("controller_sharding_api_request_duration_seconds_count", ("verb", "patch")): 1,
        ("controller_sharding_webhook_certificate_loads_total", ("result", "loaded")): 1,
        ("controller_sharding_webhook_certificate_expiry_timestamp_seconds",): 1893456000,
        ("leader_election_master_status", ("name", "sharder")): 1,
    }
    shown = {key: registry.get_sample_value(str(key[0]), dict(key[1:])) for key in expected}  # type: ignore[arg-type]
    assert shown == expected


def test_shards_are_counted_by_state_and_absent_states_say_zero(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.ring("r").set_shards([State.READY, State.READY, State.DEAD])
    counts = {
        state: registry.get_sample_value("controller_sharding_shards", {"ringName": "r", "state": state.value})
        for state in State
    }
    assert counts == {State.READY: 2, State.EXPIRED: 0, State.UNCERTAIN: 0, State.DEAD: 1, State.ORPHANED: 0}


def test_children_are_handed_out_once(metrics: Metrics) -> None:
    assert metrics.ring("r") is metrics.ring("r")
    assert metrics.resource("r", SECRETS) is metrics.resource("r", GroupResource("", "secrets"))


def test_a_deleted_ring_leaves_no_series(registry: CollectorRegistry, metrics: Metrics) -> None:
    for name in ("gone", "stays"):
        metrics.ring(name).calculations.inc()
        metrics.resource(name, SECRETS).assignments.inc()
        metrics.webhook_answered(name, "assigned", 0.1)
    metrics.forget_ring("gone")
    labels = {value for family in registry.collect() for sample in family.samples for value in sample.labels.values()}
    assert "gone" not in labels
    assert "stays" in labels


def test_a_ring_that_comes_back_counts_anew(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.resource("example", DEPLOYMENTS).drains.inc(5)
    metrics.forget_ring("example")
    metrics.resource("example", DEPLOYMENTS).drains.inc()
    assert registry.get_sample_value("controller_sharding_drains_total", OBJECT) == 1


def test_a_replica_that_stops_leading_says_nothing_of_objects_and_shards(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    metrics.leading("sharder", True)
    metrics.ring("r").set_shards([State.READY])
    metrics.ring("r").oldest_drain_age.set(9)
    metrics.resource("r", SECRETS).unassigned.set(4)
    metrics.resource("r", SECRETS).assignments.inc()
    metrics.leading("sharder", False)
    labels = {"ringName": "r", "group": "", "resource": "secrets"}
    assert registry.get_sample_value("leader_election_master_status", {"name": "sharder"}) == 0
    assert registry.get_sample_value("controller_sharding_shards", {"ringName": "r", "state": "ready"}) == 0
    assert registry.get_sample_value("controller_sharding_oldest_drain_age_seconds", {"ringName": "r"}) == 0
    assert registry.get_sample_value("controller_sharding_unassigned_objects", labels) == 0
    assert metrics.resource("r", SECRETS).assignments._value.get() == 1


def test_no_gauge_keeps_what_it_said_while_this_replica_led(metrics: Metrics) -> None:
    gauges = {each.name: getattr(metrics, each.name) for each in fields(Metrics)}
    # The serving certificate is each replica's own.
    gauges = {name: it for name, it in gauges.items() if isinstance(it, Gauge) and name != "certificate_expiry"}

    def says_something() -> set[str]:
        shown = {
            name: [each.value for family in it.collect() for each in family.samples] for name, it in gauges.items()
        }
        return {name for name, values in shown.items() if any(values)}

    metrics.leading("sharder", True)
    metrics.ring_conditions("r", {"Ready": True})
    metrics.crash_detection_suspended("r", True)
    metrics.other_leaders.set(1)
    metrics.ring("r").set_shards([State.READY])
    for children in (metrics.ring("r"), metrics.resource("r", SECRETS)):
        for each in fields(children):
            if isinstance(gauge := getattr(children, each.name), Gauge):
                gauge.set(7)
    assert says_something() == set(gauges)
    metrics.leading("sharder", False)
    assert says_something() == set()


def test_a_rings_conditions_are_shown_by_whoever_leads(registry: CollectorRegistry, metrics: Metrics) -> None:
    def shown(kind: str, ring: str = "r") -> float | None:
        labels = {"ringName": ring, "type": kind}
        return registry.get_sample_value("controller_sharding_ring_condition", labels)

    metrics.ring_conditions("r", {"Ready": True, "Settled": False, "DrainsAcknowledged": None})
    metrics.ring_conditions("gone", {"Ready": False})
    assert (shown("Ready"), shown("Settled"), shown("DrainsAcknowledged")) == (1, 0, None)

    metrics.ring_conditions("r", {"Ready": True, "Settled": None})
    metrics.forget_ring("gone")
    assert (shown("Ready"), shown("Settled"), shown("Ready", "gone")) == (1, None, None)

    metrics.leading("sharder", False)
    assert shown("Ready") is None, "what another leader finds out since is not known here"


async def test_two_processes_in_one_test_share_no_counters() -> None:
    one, other = Telemetry.create(), Telemetry.create()
    one.metrics.api_called("get", 200, 0.1)
    assert b'verb="get"' in (await one.render())[1]
    assert b'verb="get"' not in (await other.render())[1]


async def test_the_page_has_the_process_and_the_version() -> None:
    content_type, page = await Telemetry.create().render()
    assert content_type.startswith("text/plain")
    for name in (b"process_resident_memory_bytes", b"python_gc_", b"controller_sharding_build_info{version="):
        assert name in page


@in_virtual_time
async def test_the_loops_lag_is_what_a_wake_up_came_too_late(clock: VirtualClock) -> None:
    seen: list[float] = []
    task = asyncio.create_task(measure_loop_lag(seen.append, clock))
    await asyncio.sleep(0.5)
    clock.jump(3.5)
    await asyncio.sleep(1.5)
    task.cancel()
    assert seen == [pytest.approx(3.0), pytest.approx(0.0)]


async def test_what_somebody_reads_was_asked_for_just_before() -> None:
    telemetry, ages = Telemetry.create(), iter((1.0, 2.0))
    age = telemetry.metrics.ring("r").oldest_drain_age
    telemetry.metrics.before_scrape.append(lambda: age.set(next(ages)))
    for shown in (b"1.0", b"2.0"):
        _, page = await telemetry.render()
        assert b'controller_sharding_oldest_drain_age_seconds{ringName="r"} ' + shown in page


async def test_the_loop_goes_on_while_a_page_is_rendered_and_pages_take_turns() -> None:
    telemetry, loop = Telemetry.create(), asyncio.get_running_loop()
    begun, asked, turn = asyncio.Queue[threading.Event](), list[int](), threading.Lock()

    class Slow:
        def collect(self) -> Iterable[Metric]:
            assert turn.acquire(blocking=False)
            go_on = threading.Event()
            loop.call_soon_threadsafe(begun.put_nowait, go_on)
            assert go_on.wait(10), "the loop takes no turn"
            turn.release()
            return ()

    telemetry.registry.register(Slow())
    telemetry.metrics.before_scrape.append(lambda: asked.append(threading.get_ident()))
    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(telemetry.render())
        for _ in range(2):
            (await begun.get()).set()
    assert asked == [threading.get_ident()] * 2, "what the loop's own objects say is asked there"
