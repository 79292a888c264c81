from __future__ import annotations

from shardsdk.runtime.metrics import Metrics
from shardsdk.runtime.queue import Priority, RateLimit, WorkQueue
from shardsdk.testing.virtual import VirtualClock, in_virtual_time


@in_virtual_time
async def test_a_queue_shows_under_client_go_names(clock: VirtualClock) -> None:
    metrics = Metrics()
    queue: WorkQueue[str] = WorkQueue(clock, name="secrets", rate_limit=RateLimit(per_second=None))
    metrics.observe_queue(queue)
    queue.add("a")
    queue.add("b", Priority.BULK)
    await queue.get()
    queue.add_rate_limited("c")
    await clock.sleep(2)
    value = metrics.registry.get_sample_value
    names = {"name": "secrets", "controller": "secrets"}
    assert value("workqueue_adds_total", names) == 3
    assert value("workqueue_retries_total", names) == 1
    assert value("workqueue_depth", {**names, "priority": "fresh"}) == 1
    assert value("workqueue_depth", {**names, "priority": "bulk"}) == 1
    assert value("workqueue_queue_duration_seconds_count", names) == 1
    assert value("workqueue_unfinished_work_seconds", names) == 2
    assert value("workqueue_longest_running_processor_seconds", names) == 2
    queue.done("a")
    assert value("workqueue_work_duration_seconds_sum", names) == 2


def test_a_controller_shows_under_controller_runtime_names() -> None:
    metrics = Metrics()
    counters = metrics.controller("secrets", max_concurrent=4)
    counters.failed.inc()
    counters.seconds.observe(0.2)
    value = metrics.registry.get_sample_value
    assert value("controller_runtime_reconcile_total", {"controller": "secrets", "result": "error"}) == 1
    assert value("controller_runtime_max_concurrent_reconciles", {"controller": "secrets"}) == 4
    assert value("controller_runtime_reconcile_time_seconds_count", {"controller": "secrets"}) == 1


def test_two_managers_in_one_process_count_apart() -> None:
    first, second = Metrics(), Metrics()
    first.shard("secrets").acknowledged.inc()
    second.shard("secrets")
    labels = {"resource": "secrets"}
    assert second.registry.get_sample_value("shardsdk_acknowledgements_total", labels) == 0


def test_prometheus_can_read_it() -> None:
    metrics = Metrics()
    metrics.add_process_metrics()
    metrics.gauge("shardsdk_lease_remaining_seconds", "Seconds left", lambda: 7.5)
    content_type, body = metrics.render()
    assert content_type.startswith("text/plain")
    assert b"shardsdk_lease_remaining_seconds 7.5" in body
    assert b"process_resident_memory_bytes" in body
