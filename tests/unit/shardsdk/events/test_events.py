"""Kubernetes Events: written in passing, counted together, bounded."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from shardsdk.errors import AlreadyExists, ConnectionFailed, FenceClosed, Forbidden, NotFound, ShardingError
from shardsdk.events.limits import EventLimits
from shardsdk.events.recorder import EventRecorder, EventType, Regarding
from shardsdk.protocol.objects import CLUSTERRINGS, ObjectMeta, Resource
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

RING = Regarding("sharding.timebertt.dev/v1alpha1", "ClusterRing", "example", uid="ring-uid")
POD = Regarding("v1", "Pod", "shard-0", namespace="team", uid="pod-uid")
WARNING, NORMAL = EventType.WARNING, EventType.NORMAL


class Cluster:
    """The Events of a cluster; `failures` are raised by the next requests, one each.

    With `lose_answers` a failing create has taken effect all the same.
    """

    def __init__(self) -> None:
        self.events: dict[tuple[str, str], dict[str, Any]] = {}
        self.failures: list[Exception] = []
        self.lose_answers = False
        self.requests = 0

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str | None = None) -> None:
        self.requests += 1
        assert (resource.plural, namespace) == ("events", body["metadata"]["namespace"])
        key = (str(namespace), body["metadata"]["name"])
        exists = key in self.events
        if not exists and (not self.failures or self.lose_answers):
            self.events[key] = dict(body)
        await self._answer()
        if exists:
            raise AlreadyExists("there is such an event", status=409)

    async def patch(self, resource: Resource, name: str, namespace: str | None, body: Mapping[str, Any]) -> None:
        self.requests += 1
        await self._answer()
        if (str(namespace), name) not in self.events:
            raise NotFound("no such event", status=404)
        self.events[str(namespace), name] |= body

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)

    def shown(self) -> list[tuple[str, str, int]]:
        """Object, message and count of every Event, as describe would list them."""
        return [(e["involvedObject"]["name"], e["message"], e["count"]) for e in self.events.values()]


def make_recorder(cluster: Cluster, clock: VirtualClock, **limits: Any) -> EventRecorder:
    api: Any = cluster
    return EventRecorder(api, "sharder", clock, random.Random(1), limits=replace(EventLimits(), **limits))


class running:  # noqa: N801 - reads as a verb: `async with running(recorder)`
    """Runs a recorder in the background."""

    def __init__(self, recorder: EventRecorder) -> None:
        self.recorder = recorder

    async def __aenter__(self) -> None:
        self.task = asyncio.create_task(self.recorder.run())

    async def __aexit__(self, *exc: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@in_virtual_time
async def test_an_event_about_a_cluster_scoped_object_goes_to_the_default_namespace(clock: VirtualClock) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock)
    async with running(recorder):
        recorder.event(RING, WARNING, "ResourceNotServed", "nobody serves foos.example.com")
        await clock.sleep(1)
    (((namespace, name), event),) = cluster.events.items()
    assert namespace == "default"
    assert name.startswith("example.")
    assert event["involvedObject"] == {
        "apiVersion": "sharding.timebertt.dev/v1alpha1",
        "kind": "ClusterRing",
        "name": "example",
        "uid": "ring-uid",
    }
    assert event["source"] == {"component": "sharder"}
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "ResourceNotServed", 1)
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2030-01-01T00:00:00Z"


@in_virtual_time
async def test_an_event_about_a_namespaced_object_goes_to_its_namespace(clock: VirtualClock) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock)
    recorder.event(POD, NORMAL, "LeaseAcquired", "shard-0 is in the ring")
    await recorder.flush()
    (((namespace, _), event),) = cluster.events.items()
    assert namespace == event["involvedObject"]["namespace"] == "team"


@in_virtual_time
async def test_a_repeat_raises_the_count_of_the_event_that_is_there(clock: VirtualClock) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock)
    async with running(recorder):
        for _ in range(3):
            recorder.event(RING, WARNING, "Forbidden", "may not patch secrets")
            await clock.sleep(10)
    (event,) = cluster.events.values()
    assert event["count"] == 3
    assert (event["firstTimestamp"], event["lastTimestamp"]) == ("2030-01-01T00:00:00Z", "2030-01-01T00:00:20Z")


@in_virtual_time
async def test_repeats_that_wait_together_are_written_together(clock: VirtualClock) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock)
    for _ in range(1000):
        recorder.event(RING, WARNING, "Forbidden", "may not patch secrets")
    await recorder.flush()
    assert cluster.shown() == [("example", "may not patch secrets", 1000)]
    assert cluster.requests == 1


@in_virtual_time
async def test_a_repeat_of_an_event_that_the_cluster_forgot_makes_a_new_one(clock: VirtualClock) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock)
    async with running(recorder):
        recorder.event(RING, WARNING, "Forbidden", "no")
        await clock.sleep(1)
        cluster.events.clear()
        recorder.event(RING, WARNING, "Forbidden", "no")
        await clock.sleep(1)
    assert cluster.shown() == [("example", "no", 1)]


@in_virtual_time
async def test_a_repeat_long_after_is_a_new_event(clock: VirtualClock) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock)
    async with running(recorder):
        recorder.event(RING, WARNING, "Forbidden", "no")
        await clock.sleep(4000)
        recorder.event(RING, WARNING, "Forbidden", "no")
        await clock.sleep(1)
    assert cluster.shown() == [("example", "no", 1)] * 2


@in_virtual_time
async def test_one_noisy_object_is_slowed_down_loses_no_count_and_holds_up_nobody(clock: VirtualClock) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock, burst=3, seconds_per_event=30.0)
    async with running(recorder):
        for _ in range(100):
            recorder.event(RING, WARNING, "Forbidden", "no")
            await clock.sleep(0.1)
        recorder.event(POD, NORMAL, "LeaseAcquired", "yes")
        await clock.sleep(0.1)
        assert ("shard-0", "yes", 1) in cluster.shown()
        assert cluster.requests == 3 + 1
        await clock.sleep(60)
    assert ("example", "no", 100) in cluster.shown()
    assert recorder.dropped == 0


@in_virtual_time
async def test_what_does_not_fit_is_dropped_and_counted(clock: VirtualClock) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock, pending=10, pending_per_object=4)
    for number in range(6):
        recorder.event(RING, WARNING, "Reason", f"message {number}")
    for number in range(20):
        recorder.event(replace(POD, name=f"pod-{number}"), NORMAL, "Reason", "message")
    await recorder.flush()
    assert len(cluster.events) == 10
    assert sum(name == "example" for name, _, _ in cluster.shown()) == 4
    assert recorder.dropped == 2 + 14


@in_virtual_time
async def test_an_unreachable_api_server_is_tried_again(clock: VirtualClock) -> None:
    cluster = Cluster()
    cluster.failures = [ConnectionFailed("refused"), ConnectionFailed("refused")]
    recorder = make_recorder(cluster, clock)
    async with running(recorder):
        recorder.event(RING, WARNING, "Forbidden", "no")
        await clock.sleep(10)
    assert cluster.shown() == [("example", "no", 1)]


@in_virtual_time
async def test_an_event_whose_answer_was_lost_is_not_written_twice(clock: VirtualClock) -> None:
    cluster = Cluster()
    cluster.failures, cluster.lose_answers = [ConnectionFailed("timed out")], True
    recorder = make_recorder(cluster, clock)
    async with running(recorder):
        recorder.event(RING, WARNING, "Forbidden", "no")
        await clock.sleep(10)
        recorder.event(RING, WARNING, "Forbidden", "no")
        await clock.sleep(10)
    assert cluster.shown() == [("example", "no", 2)]


@pytest.mark.parametrize("error", [Forbidden("no rule", status=403), FenceClosed("not leading any more")])
def test_what_cannot_be_written_is_dropped_at_once(error: ShardingError) -> None:
    @in_virtual_time
    async def scenario(clock: VirtualClock) -> None:
        cluster = Cluster()
        cluster.failures = [error]
        recorder = make_recorder(cluster, clock)
        recorder.event(RING, WARNING, "Lost", "no")
        recorder.event(POD, NORMAL, "Next", "yes")
        async with running(recorder):
            await clock.sleep(0.1)
        assert cluster.shown() == [("shard-0", "yes", 1)]
        assert recorder.dropped == 1

    scenario()


@in_virtual_time
async def test_an_api_server_that_stays_away_costs_a_bounded_number_of_attempts(clock: VirtualClock) -> None:
    cluster = Cluster()
    cluster.failures = [ConnectionFailed("refused")] * 1000
    recorder = make_recorder(cluster, clock, attempts=4)
    async with running(recorder):
        recorder.event(RING, WARNING, "Forbidden", "no")
        await clock.sleep(600)
    assert cluster.requests == 4
    assert recorder.dropped == 1


@in_virtual_time
async def test_what_is_left_at_a_stop_can_be_flushed(clock: VirtualClock) -> None:
    cluster = Cluster()
    cluster.failures = [ConnectionFailed("refused")]
    recorder = make_recorder(cluster, clock)
    async with running(recorder):
        recorder.event(RING, NORMAL, "Stopped", "leading")
        await clock.sleep(0.2)
    recorder.event(POD, NORMAL, "Released", "lease")
    await recorder.flush()
    assert sorted(cluster.shown()) == [("example", "leading", 1), ("shard-0", "lease", 1)]
    assert recorder.dropped == 0


@in_virtual_time
async def test_names_and_messages_that_the_api_server_would_refuse_are_made_to_fit(clock: VirtualClock) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock)
    for name in ("system:node:X_y", ":::", "a" * 253):
        recorder.event(replace(RING, name=name), NORMAL, "R" * 500, "m" * 5000)
    await recorder.flush()
    names = [name for _, name in cluster.events]
    assert names[0].startswith("system-node-x-y.")
    assert names[1].startswith("sharder.")
    assert all(len(name) <= 253 for name in names)
    assert all(len(e["message"]) == 1024 and len(e["reason"]) == 128 for e in cluster.events.values())


@in_virtual_time
async def test_remembered_events_and_objects_are_bounded(clock: VirtualClock) -> None:
    recorder = make_recorder(Cluster(), clock, remembered=5, pending=1000)
    async with running(recorder):
        for number in range(50):
            recorder.event(replace(POD, name=f"pod-{number}"), NORMAL, "Reason", "message")
        await clock.sleep(1)
    assert (len(recorder._written), len(recorder._buckets), len(recorder._pending)) == (5, 5, 0)


def test_a_regarded_object_is_made_from_its_metadata() -> None:
    metadata = ObjectMeta(name="example", uid="ring-uid")
    assert Regarding.of(CLUSTERRINGS, metadata) == RING


@in_virtual_time
async def test_messages_that_differ_are_combined_once_there_are_many(clock: VirtualClock) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock, similar=3)
    async with running(recorder):
        for number in range(10):
            recorder.event(POD, WARNING, "FailedCreate", f"child {number} could not be made")
            await clock.sleep(1)
        recorder.event(POD, WARNING, "Other", "another reason is not combined with these")
        recorder.event(POD, WARNING, "FailedCreate", "child 0 could not be made")
        await clock.sleep(1)
    assert cluster.shown() == [
        ("shard-0", "child 0 could not be made", 2),
        ("shard-0", "child 1 could not be made", 1),
        ("shard-0", "child 2 could not be made", 1),
        ("shard-0", "(combined from similar events): child 9 could not be made", 7),
        ("shard-0", "another reason is not combined with these", 1),
    ]


@in_virtual_time
async def test_after_a_quiet_while_messages_are_shown_by_themselves_again(clock: VirtualClock) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock, similar=1, similar_within_seconds=600)
    async with running(recorder):
        for number in range(3):
            recorder.event(POD, WARNING, "FailedCreate", f"child {number}")
        await clock.sleep(601)
        recorder.event(POD, WARNING, "FailedCreate", "child 3")
        await clock.sleep(1)
    assert [message for _, message, _ in cluster.shown()] == [
        "child 0",
        "(combined from similar events): child 2",
        "child 3",
    ]


@in_virtual_time
async def test_combined_events_find_room_where_others_wait(clock: VirtualClock) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock, similar=2, pending_per_object=2)
    for number in range(5):
        recorder.event(POD, WARNING, "FailedCreate", f"child {number}")
    await recorder.flush()
    assert len(cluster.shown()) == 3
    assert recorder.dropped == 0


@in_virtual_time
async def test_words_that_are_no_text_are_shown_and_hold_up_nobody(clock: VirtualClock) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock)
    async with running(recorder):
        recorder.event(POD, WARNING, "BackupFailed", f"cannot back up {os.fsdecode(b'caf%c.txt' % 0xE9)}")
        recorder.event(POD, NORMAL, "Restored", "all is well")
        await clock.sleep(1)
    messages = [message for _, message, _ in cluster.shown()]
    assert messages == [r"cannot back up caf\udce9.txt", "all is well"]
    assert all(message.encode() for message in messages)


@in_virtual_time
async def test_a_type_may_be_a_plain_word_and_one_that_is_none_costs_the_event_alone(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock)
    word: Any = "Warning"
    none: Any = "Alarm"
    async with running(recorder):
        recorder.event(POD, none, "Failed", "it failed")
        recorder.event(POD, word, "Failed", "it failed")
        recorder.event(POD, WARNING, "Failed", "it failed")
        await clock.sleep(1)
    assert [(event["type"], event["count"]) for event in cluster.events.values()] == [("Warning", 2)]
    assert recorder.dropped == 1
    assert "'Alarm' is no type of an Event: use EventType.NORMAL or WARNING" in caplog.text


@in_virtual_time
async def test_an_event_that_cannot_be_written_for_whatever_reason_is_dropped_alone(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    recorder = make_recorder(cluster, clock)
    async with running(recorder):
        recorder.event(POD, WARNING, "Failed", "it failed")
        await clock.sleep(1)
        cluster.failures = [ValueError("cannot be encoded")]
        recorder.event(POD, WARNING, "Failed", "it failed")
        recorder.event(RING, NORMAL, "Served", "it is served")
        await clock.sleep(1)
    assert cluster.shown() == [("shard-0", "it failed", 1), ("example", "it is served", 1)]
    assert recorder.dropped == 1
    told = 'kind=Pod namespace=team object=shard-0 reason=Failed error="ValueError: cannot be encoded"'
    assert f"event not written {told}" in caplog.text
