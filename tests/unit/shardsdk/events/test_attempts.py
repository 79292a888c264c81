"""Attempts that fail: who waits for the next, and what a stop leaves no time for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from shardsdk.errors import ConnectionFailed, ServerError
from shardsdk.protocol.objects import Resource
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.shardsdk.events.test_events import (
    NORMAL,
    POD,
    RING,
    WARNING,
    Cluster,
    make_recorder,
    running,
)


class SlowNamespace(Cluster):
    """Where a webhook, say, lets creates fail in namespaces that begin with `namespace`, after ten seconds each."""

    def __init__(self, clock: VirtualClock, namespace: str) -> None:
        super().__init__()
        self.clock = clock
        self.namespace: str | None = namespace

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str | None = None) -> None:
        if self.namespace and namespace and namespace.startswith(self.namespace):
            self.requests += 1
            await self.clock.sleep(10)
            raise ServerError("failed calling webhook: context deadline exceeded", status=500)
        await super().create(resource, body, namespace)


@pytest.mark.parametrize("namespaces", [1, 6])
@in_virtual_time
async def test_events_of_other_namespaces_wait_for_one_attempt_at_the_most(
    clock: VirtualClock, namespaces: int
) -> None:
    cluster = SlowNamespace(clock, "team")
    recorder = make_recorder(cluster, clock)
    async with running(recorder):
        for number in range(10):
            where = f"team-{number % namespaces}"
            recorder.event(replace(POD, namespace=where, name=f"pod-{number}"), WARNING, "Bad", "it is bad")
        await clock.sleep(10 * namespaces)  # in which it learns where they fail
        for number in range(10):
            await clock.sleep(20)
            recorder.event(RING, WARNING, "Bad", f"bad {number}")
            await clock.sleep(10.1)
            assert len(cluster.shown()) == number + 1
        cluster.namespace = None  # it is well again
        await clock.sleep(60)
    assert len(cluster.shown()) + recorder.dropped == 10 + 10
    assert recorder.dropped == 0 or namespaces > 1, "each has its attempts"


@in_virtual_time
async def test_they_find_room_where_those_of_one_that_fails_wait(clock: VirtualClock) -> None:
    cluster = SlowNamespace(clock, "team")
    recorder = make_recorder(cluster, clock, pending=5)
    async with running(recorder):
        for number in range(1000):
            recorder.event(replace(POD, name=f"pod-{number}"), WARNING, "Bad", "it is bad")
            await clock.sleep(0.1)
            if number % 200 == 199:
                recorder.event(RING, WARNING, "Bad", f"bad {number}")
        await clock.sleep(10)
    assert len(cluster.shown()) == 5


@in_virtual_time
async def test_one_event_that_always_fails_costs_attempts_as_others_do_and_holds_up_its_namespace_for_pauses_only(
    clock: VirtualClock,
) -> None:
    cluster = SlowNamespace(clock, "team")
    recorder = make_recorder(cluster, clock, attempts=3, burst=1)
    async with running(recorder):
        recorder.event(POD, WARNING, "Bad", "it is bad")
        await clock.sleep(600)
        assert (cluster.requests, recorder.dropped) == (3, 1)
        cluster.namespace = None
        recorder.event(replace(POD, name="other"), WARNING, "Bad", "it is bad")
        await clock.sleep(1)
    assert cluster.shown() == [("other", "it is bad", 1)]


@in_virtual_time
async def test_what_a_stop_leaves_no_time_for_is_counted_and_told(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = SlowNamespace(clock, "team")
    recorder = make_recorder(cluster, clock)
    recorder.event(POD, NORMAL, "Released", "lease")
    async with running(recorder):
        await clock.sleep(1)  # it is being written when the process is stopped
        recorder.event(POD, NORMAL, "Released", "lease")
    for number in range(3):
        recorder.event(replace(POD, name=f"pod-{number}"), NORMAL, "Reason", "message")
    await recorder.flush_in_passing()
    assert cluster.shown() == []
    assert recorder.dropped == 2 + 3
    assert "events dropped: no time was left for them dropped=5" in caplog.text


@in_virtual_time
async def test_an_event_that_occurs_again_while_it_is_tried_again_shows_how_often_it_has(clock: VirtualClock) -> None:
    cluster = Cluster()
    cluster.failures, cluster.lose_answers = [ConnectionFailed("timed out")], True
    recorder = make_recorder(cluster, clock)
    async with running(recorder):
        recorder.event(RING, WARNING, "Forbidden", "no")
        await clock.sleep(0.1)
        recorder.event(RING, WARNING, "Forbidden", "no")
        await clock.sleep(10)
    assert cluster.shown() == [("example", "no", 2)]


@in_virtual_time
async def test_at_a_stop_those_of_a_namespace_where_they_fail_come_last(clock: VirtualClock) -> None:
    cluster = SlowNamespace(clock, "team")
    recorder = make_recorder(cluster, clock)
    async with running(recorder):
        for number in range(3):
            recorder.event(replace(POD, name=f"pod-{number}"), WARNING, "Bad", "it is bad")
        await clock.sleep(11)
    for number in range(5):
        recorder.event(RING, NORMAL, "Released", f"goodbye {number}")
    await recorder.flush_in_passing()
    assert len(cluster.shown()) == 5
    assert recorder.dropped == 3
