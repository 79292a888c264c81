"""The runtime's metrics have the names that dashboards of Go controllers know."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, values

from shardsdk.errors import ConfigurationError
from shardsdk.lease.leadership import Election
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.queueing.metrics import Metrics
from shardsdk.queueing.queue import RateLimit, WorkQueue
from shardsdk.queueing.workers import Outcome, Requeue, RequeueAfter, WorkerPool
from shardsdk.reconcile.spec import controller_for
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import RING, SECRETS
from tests.unsharded_rig import ELECTION, Cluster, Ctx, shard_of_ring

#: Source: client-go/util/workqueue/metrics.go, with controller-runtime's labels.
QUEUE_METRICS = {
    "workqueue_depth": "gauge",
    "workqueue_adds": "counter",
    "workqueue_queue_duration_seconds": "histogram",
    "workqueue_work_duration_seconds": "histogram",
    "workqueue_unfinished_work_seconds": "gauge",
    "workqueue_longest_running_processor_seconds": "gauge",
    "workqueue_retries": "counter",
}
#: Source: controller-runtime/pkg/internal/controller/metrics, pkg/leaderelection, client-go/tools/metrics.
OTHER_METRICS = {
    "controller_runtime_reconcile": "counter",
    "controller_runtime_reconcile_errors": "counter",
    "controller_runtime_terminal_reconcile_errors": "counter",
    "controller_runtime_reconcile_timeouts": "counter",
    "controller_runtime_reconcile_time_seconds": "histogram",
    "controller_runtime_max_concurrent_reconciles": "gauge",
    "controller_runtime_active_workers": "gauge",
    "leader_election_master_status": "gauge",
    "rest_client_requests": "counter",
}


@in_virtual_time
async def test_the_names_are_those_of_client_go_and_controller_runtime(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    replica = cluster.replica()
    manager = Manager(election=ELECTION).add(controller_for(SECRETS).reconcile(replica.note))
    process = replica.start(manager)
    await clock.sleep(5)
    kinds = {family.name: family.type for family in manager.metrics.registry.collect()}
    wanted = QUEUE_METRICS | OTHER_METRICS
    assert {name: kinds.get(name) for name in wanted} == wanted
    text = manager.metrics.render()[1].decode()
    assert 'workqueue_adds_total{controller="secrets",name="secrets"} 1.0' in text
    assert 'workqueue_depth{controller="secrets",name="secrets",priority="fresh"} 0.0' in text
    assert 'controller_runtime_reconcile_total{controller="secrets",result="success"} 1.0' in text
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_a_plain_requeue_is_rate_limited_and_no_error(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    replica, at = cluster.replica(), list[float]()
    outcomes: list[Outcome | None] = [Requeue(), Requeue(), Requeue(), None, RequeueAfter(60), None]

    async def again(context: Ctx) -> Outcome | None:
        at.append(clock.monotonic())
        return outcomes[len(at) - 1] if len(at) <= len(outcomes) else None

    manager = Manager().add(controller_for(SECRETS).reconcile(again))
    process = replica.start(manager)
    await clock.sleep(5)
    pauses = [round(after - before, 3) for before, after in pairwise(at)]
    assert pauses == [0.005, 0.01, 0.02]
    sample = manager.metrics.registry.get_sample_value
    queue = {"name": "secrets", "controller": "secrets"}
    assert sample("workqueue_retries_total", queue) == 3
    assert sample("controller_runtime_reconcile_errors_total", {"controller": "secrets"}) == 0
    assert sample("controller_runtime_reconcile_total", {"controller": "secrets", "result": "requeue"}) == 3
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_a_reconcile_that_is_stuck_in_a_drain_shows_until_it_is_cancelled(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("work", shard="shard-1")
    replica, ended = cluster.replica(), list[float]()

    async def stuck(context: Ctx) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(clock.monotonic())

    manager = shard_of_ring().add(controller_for(SECRETS).options(drain_timeout_seconds=300).reconcile(stuck))
    process = replica.start(manager)
    await clock.sleep(10)
    sample = manager.metrics.registry.get_sample_value
    queue, resource = {"name": "secrets", "controller": "secrets"}, {"resource": "secrets"}
    drained_at = clock.monotonic()
    cluster.server.patch(SECRETS, "work", "default", {"metadata": {"labels": {RING.drain: "true"}}})
    await clock.sleep(100)
    assert round(sample("shardsdk_oldest_drain_seconds", resource) or 0) == 100
    assert sample("shardsdk_drains_waiting", resource) == 1
    assert (sample("workqueue_longest_running_processor_seconds", queue) or 0) > 100
    assert (sample("workqueue_unfinished_work_seconds", queue) or 0) > 100
    await clock.sleep(201)
    assert [round(at - drained_at) for at in ended] == [300]
    assert sample("shardsdk_drains_waiting", resource) == 0
    assert sample("shardsdk_oldest_drain_seconds", resource) == 0
    assert sample("workqueue_longest_running_processor_seconds", queue) == 0
    assert cluster.server.get(SECRETS, "work", "default")["metadata"].get("labels") in (None, {})
    manager.stopping.set()
    assert await process is ExitCode.OK


@pytest.fixture
def default_registry() -> Iterator[CollectorRegistry]:
    """prometheus_client's own, emptied of what a test has registered."""
    before = set(REGISTRY._collector_to_names)
    yield REGISTRY
    for collector in set(REGISTRY._collector_to_names) - before:
        REGISTRY.unregister(collector)


def test_what_a_program_counts_itself_is_shown_by_each_manager(default_registry: CollectorRegistry) -> None:
    one, other = Manager(), Manager()
    Counter("shelves_moved", "Shelves moved").inc(3)
    for manager in (one, other):
        lines = manager.metrics.render()[1].decode().splitlines()
        assert "shelves_moved_total 3.0" in lines
        assert "# TYPE process_resident_memory_bytes gauge" in lines
        types = [line for line in lines if line.startswith("# TYPE ")]
        assert len(types) == len(set(types))


def test_the_default_registry_may_be_that_of_a_manager(default_registry: CollectorRegistry) -> None:
    Counter("shelves_moved", "Shelves moved").inc()
    text = Metrics(default_registry).render()[1].decode()
    assert text.count("# TYPE shelves_moved_total ") == text.count("# TYPE workqueue_adds_total ") == 1
    with pytest.raises(ConfigurationError, match=r"has metrics of the SDK's names: .*workqueue_adds.*; rename those"):
        Metrics(default_registry)


def test_a_directory_for_several_processes_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "absent"))
    chosen = cast("Any", values).MultiProcessValue()  # at the first import, mostly
    monkeypatch.setattr(values, "ValueClass", chosen)
    with pytest.raises(ConfigurationError, match=r"PROMETHEUS_MULTIPROC_DIR names: .*absent.*; make that directory"):
        Metrics()


def test_a_metric_of_a_programs_that_has_a_name_of_ours_is_told_once_and_not_shown(
    default_registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    Counter("workqueue_adds", "Shelves put into a queue").inc(3)
    Gauge("rest_client_requests_total", "Requests").set(3)
    for _ in range(2):
        lines = metrics.render()[1].decode().splitlines()
        assert len([line for line in lines if line.startswith("# TYPE workqueue_adds_total ")]) == 1
        assert [line for line in lines if line.startswith("# TYPE rest_client_requests_total ")] == [
            "# TYPE rest_client_requests_total counter"
        ]
    told = [each.__dict__["metric"] for each in caplog.records if "is not shown" in each.msg]
    assert told == ["workqueue_adds", "rest_client_requests_total"]


@pytest.mark.parametrize("election", [None, ELECTION])
@in_virtual_time
async def test_metrics_of_two_managers_are_refused(
    clock: VirtualClock, election: Election | None, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    metrics.gauge("shardsdk_lease_remaining_seconds", "Another manager's", lambda: 0.0)
    metrics.leader("another", lambda: 0.0)
    manager = shard_of_ring(metrics=metrics) if election is None else Manager(election=election, metrics=metrics)
    manager.add(controller_for(SECRETS).reconcile(noop))
    assert await manager.run_async(Cluster(clock).replica().world()) is ExitCode.CONFIGURATION
    assert "give each Manager its own Metrics" in caplog.text


async def noop(context: Ctx) -> None: ...


@in_virtual_time
async def test_a_reconcile_that_is_cancelled_at_its_time_limit_counts_as_an_error_and_by_itself(
    clock: VirtualClock,
) -> None:
    async def stuck(item: str) -> None:
        await asyncio.Event().wait()

    metrics = Metrics()
    queue: WorkQueue[str] = WorkQueue(clock, rate_limit=RateLimit(base_seconds=100, per_second=None))
    workers = WorkerPool(
        "stuck", stuck, queue, clock=clock, concurrency=1, timeout_seconds=20, metrics=metrics.controller("stuck", 1)
    )
    running = asyncio.create_task(workers.run())
    queue.add("a")
    await clock.sleep(25)
    running.cancel()
    await asyncio.wait((running,))

    def count(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"controller_runtime_{name}_total", {"controller": "stuck", **labels})

    assert count("reconcile_timeouts") == count("reconcile_errors") == count("reconcile", result="error") == 1
