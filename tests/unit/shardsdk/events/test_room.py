"""Events that find no room: whose they are, and who is told."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from shardsdk.events.limits import EventLimits
from shardsdk.events.recorder import EventRecorder
from shardsdk.queueing.metrics import Metrics
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.shardsdk.events.test_events import NORMAL, POD, RING, WARNING, Cluster, make_recorder, running


@in_virtual_time
async def test_objects_that_fail_all_the_time_leave_room_for_an_event_of_another(clock: VirtualClock) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock, pending=10, burst=1, similar=1, seconds_per_event=30.0)
    async with running(recorder):
        for attempt in range(3):
            for number in range(20):
                failing = replace(POD, name=f"pod-{number}")
                recorder.event(failing, WARNING, "Failed", f"timed out after {attempt} ms")
                await clock.sleep(0.1)
        assert len(recorder._pending) == 10
        recorder.event(RING, NORMAL, "Served", "it is served")
        await clock.sleep(0.1)
        assert ("example", "it is served", 1) in cluster.shown()
        await clock.sleep(60)
    combined = [name for name, message, _ in cluster.shown() if message.startswith("(combined")]
    assert len(combined) == 9, "one has made room, the others are written at their time"


@in_virtual_time
async def test_an_event_that_has_to_wait_itself_displaces_none(clock: VirtualClock) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock, pending=3, burst=1, seconds_per_event=30.0)
    pods = [replace(POD, name=f"pod-{number}") for number in range(4)]
    async with running(recorder):
        for message in ("once", "again"):
            for pod in pods:
                recorder.event(pod, WARNING, "Failed", message)
                await clock.sleep(0.1)
        await clock.sleep(60)
    assert [name for name, message, _ in cluster.shown() if message == "again"] == ["pod-0", "pod-1", "pod-2"]
    assert recorder.dropped == 1


@in_virtual_time
async def test_what_is_dropped_is_counted_and_told_once_a_minute(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    api: Any = Cluster()
    limits = EventLimits(pending=1)
    recorder = EventRecorder(api, "sharder", clock, random.Random(1), limits=limits, on_dropped=metrics.events_dropped)
    for number in range(121):
        recorder.event(replace(POD, name=f"pod-{number}"), WARNING, "Failed", "it failed")
        await clock.sleep(1)
    told = [vars(line) for line in caplog.records if line.msg == "events dropped: too many wait to be written"]
    assert [(line["object"], line["dropped"]) for line in told] == [("pod-1", 1), ("pod-61", 60)]
    assert metrics.registry.get_sample_value("shardsdk_events_dropped_total") == recorder.dropped == 120


@pytest.mark.parametrize("version", ["v1", "events.k8s.io/v1"])
@in_virtual_time
async def test_of_an_event_no_event_tells(clock: VirtualClock, version: str, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock)
    with caplog.at_level("INFO"):
        recorder.event(replace(POD, kind="Event", api_version=version), WARNING, "Failed", "no token")
        recorder.event(replace(POD, kind="Event", api_version="example.com/v1"), WARNING, "Failed", "a concert")
    await recorder.flush()
    assert [message for _, message, _ in cluster.shown()] == ["a concert"]
    assert caplog.text.count("No Event is written about an Event") == 1
    assert recorder.dropped == 0
