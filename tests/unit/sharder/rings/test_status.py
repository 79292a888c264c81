"""What is written into a ring's status, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from sharder.core.selectors import LabelSelector
from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS
from sharder.replica import Replica
from sharder.rings.deps import WebhookSettings
from sharder.rings.permissions import DENIED_SECONDS
from sharder.rings.status import NOT_WRITTEN, REFUSED_SECONDS, STATUS_SECONDS, due_in
from shardsdk.errors import ConnectionFailed, Forbidden, Invalid, ServerError, ShardingError
from shardsdk.kube.api import Operation
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, Resource
from shardsdk.testing.memory import Object
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, RING, SETTINGS, SHARDS, leading, make_stage, ring


@pytest.mark.parametrize(
    ("written_at", "now", "seconds"),
    [
        (float("-inf"), 0.0, 0.0),
        (10.0, 10.0, STATUS_SECONDS),
        (10.0, 11.0, STATUS_SECONDS - 1.0),
        (10.0, 10.0 + STATUS_SECONDS, 0.0),
        # Not 4e-16 s, which no clock ever sees go by.
        (0.022, 3.0219999999999994, 0.0),
    ],
)
def test_it_is_written_every_few_seconds_and_at_once_when_next_to_nothing_is_left(
    written_at: float, now: float, seconds: float
) -> None:
    assert due_in(written_at, now) == seconds


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("spec", "terms"),
    [
        ({}, [term("tenant", "In", "a")]),
        ({"namespaceSelector": {"matchLabels": {"b": "c"}}}, [term("b", "In", "c")]),
        ({"namespaceSelector": {}}, []),
    ],
)
@in_virtual_time
async def test_it_says_which_namespaces_the_ring_covers(
    clock: VirtualClock, spec: dict[str, Any], terms: list[dict[str, Any]]
) -> None:
    """By the spec or by the sharder's settings, which nobody else can read; in terms, which replace those of before."""
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE, **spec), None)
    async with leading(stage, replace(SETTINGS, default_scope=LabelSelector(match_labels=(("tenant", "a"),)))):
        await stage.until(lambda: stage.condition("Ready") == "True")
        assert stage.server.get(CLUSTERRINGS, RING, None)["status"]["namespaceSelector"] == {"matchExpressions": terms}


@in_virtual_time
async def test_what_an_older_definition_drops_is_not_written_again_and_again(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE), None)

    def drop(verb: str, resource: Resource, old: Object | None, new: Object) -> Object:
        if resource == CLUSTERRINGS:
            new.get("status", {}).pop("namespaceSelector", None)
        return new

    stage.server.admit = drop
    stage.start("one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        await stage.pass_time(10)
        before = stage.patches(CLUSTERRINGS)
        await stage.pass_time(600)
        assert stage.patches(CLUSTERRINGS) == before


@in_virtual_time
async def test_it_counts_no_shard_that_has_left_once_its_lease_is_gone(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "one", "two")

    def counts() -> tuple[int, int]:
        status = stage.server.get(CLUSTERRINGS, RING, None).get("status", {})
        return status.get("shards", 0), status.get("availableShards", 0)

    async with leading(stage):
        await stage.until(lambda: counts() == (2, 2))
        stage.release("two")
        await stage.until(lambda: counts() == (2, 1))
        await stage.until(lambda: stage.server.find(LEASES, "two", SHARDS) is None)
        await stage.until(lambda: counts() == (1, 1), seconds=STATUS_SECONDS + 2)


class Unwritable(MemoryApi):
    """The status of a ring may not be written."""

    attempts = 0
    refuses = True
    answer: ShardingError = Forbidden("patch clusterrings/status", status=403)

    async def send(self, operation: Operation[Any]) -> Any:
        if self.refuses and operation.resource == CLUSTERRINGS and operation.subresource == "status":
            self.attempts += 1
            raise self.answer
        return await super().send(operation)


@in_virtual_time
async def test_one_that_cannot_be_written_is_tried_no_more_often_because_shards_renew_their_leases(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock, api=Unwritable)
    assert isinstance(stage.api, Unwritable)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    async with leading(stage):
        for number in range(20):
            stage.start(f"shard-{number}")
            await stage.pass_time(0.1)
        await stage.pass_time(30)
        stage.api.attempts = 0
        await stage.pass_time(60)
        assert 1 <= stage.api.attempts <= 60 / DENIED_SECONDS + 1


class Invalidating(Unwritable):
    """The API server finds fault with the ring itself, whatever is written into its status."""

    async def send(self, operation: Operation[Any]) -> Any:
        if operation.resource == CLUSTERRINGS and operation.subresource == "status":
            raise Invalid("patch clusterrings/status: metadata.name is too long", status=422)
        return await super().send(operation)


@in_virtual_time
async def test_what_cannot_be_written_since_the_ring_is_refused_is_told_by_an_event(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Invalidating)
    stage.create(CLUSTERRINGS, ring({"group": "Not A Group", "resource": "x"}), None)
    async with leading(stage):
        await stage.until(lambda: bool(stage.events.of("ReconciliationFailed")), seconds=30)
        await stage.until(lambda: bool(stage.events.of(NOT_WRITTEN)), seconds=REFUSED_SECONDS + 2 * DENIED_SECONDS)
        [message] = stage.events.of(NOT_WRITTEN)
        assert "metadata.name is too long" in message
        assert "let the sharder patch" not in message, "no right would help"


class Picky(MemoryApi):
    """The API server finds fault with what a status says of namespaces."""

    async def send(self, operation: Operation[Any]) -> Any:
        body = cast(dict[str, Any], operation.body or {})
        if operation.resource == CLUSTERRINGS and "namespaceSelector" in body.get("status", {}):
            raise Invalid("status.namespaceSelector: a key is none", status=422)
        return await super().send(operation)


@in_virtual_time
async def test_a_status_that_does_not_validate_hides_no_condition(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make_stage(clock, api=Picky)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Ready") == "True")
        assert stage.server.get(CLUSTERRINGS, RING, None)["status"]["observedGeneration"] == 1
    assert "a key is none" in {vars(each).get("error", "")[-13:] for each in caplog.records}, "what is left out is told"


def ready_metric(replica: Replica) -> float:
    return float(replica._metrics.ring_condition.labels(RING, "Ready")._value.get())


@in_virtual_time
async def test_that_it_cannot_be_written_is_told_by_events_a_line_and_the_metric(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make_stage(clock, api=Unwritable)
    assert isinstance(stage.api, Unwritable)
    stage.api.refuses = False
    stage.set_up(ring(ALONE), "one")
    async with leading(stage) as replica:
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.events.taken.clear()
        stage.api.refuses = True
        stage.release("one")
        await stage.pass_time(REFUSED_SECONDS)
        assert not stage.events.taken, "an API server that has just begun refuses what it allows a moment later"
        await stage.until(lambda: bool(stage.events.of(NOT_WRITTEN)), seconds=30)
        await stage.pass_time(600)
        [message] = stage.events.of(NOT_WRITTEN)
        assert "let the sharder patch clusterrings/status" in message
        assert len(stage.events.of("NoShard")) == 1, "what the status would say"
        assert ready_metric(replica) == 0
        lines = [each for each in caplog.records if each.getMessage() == "status of a ring not written"]
        assert [vars(each)["ring"] for each in lines] == [RING]
        stage.api.refuses = False
        await stage.until(lambda: stage.condition("ShardsAvailable") == "False", seconds=60)
        assert len(stage.events.of("NoShard")) == 1, "it was told"
        assert ready_metric(replica) == 1


@in_virtual_time
async def test_one_write_that_fails_is_no_news(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Unwritable)
    assert isinstance(stage.api, Unwritable)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    async with leading(stage):
        await stage.until(lambda: cast(Unwritable, stage.api).attempts == 2)
        stage.api.refuses = False
        await stage.until(lambda: stage.condition("Ready") == "True")
        assert not stage.events.of(NOT_WRITTEN)


@pytest.mark.parametrize("answer", [ConnectionFailed("refused"), ServerError("etcd", status=500)])
@in_virtual_time
async def test_an_outage_is_none_either_however_long_it_is(clock: VirtualClock, answer: ShardingError) -> None:
    stage = make_stage(clock, api=Unwritable)
    assert isinstance(stage.api, Unwritable)
    stage.api.refuses, stage.api.answer = False, answer
    stage.set_up(ring(ALONE), "one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.events.taken.clear()
        stage.api.refuses = True
        stage.release("one")
        await stage.pass_time(600)
        assert not stage.events.taken
        stage.api.refuses = False
        await stage.until(lambda: stage.condition("ShardsAvailable") == "False", seconds=60)


class Undeleting(MemoryApi):
    """No webhook configuration may be deleted."""

    refuses = False

    async def send(self, operation: Operation[Any]) -> Any:
        if self.refuses and operation.resource == WEBHOOK_CONFIGURATIONS and operation.verb == "delete":
            raise Forbidden("delete mutatingwebhookconfigurations: no", status=403)
        return await super().send(operation)


@in_virtual_time
async def test_a_ring_that_cannot_be_used_says_so_although_its_webhook_configuration_cannot_be_deleted(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock, api=Undeleting)
    assert isinstance(stage.api, Undeleting)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    webhook = WebhookSettings({"url": "https://sharder.example"}, {}, lambda: None)
    async with leading(stage, webhook=webhook):
        await stage.until(lambda: stage.condition("Ready") == "True")
        stage.api.refuses = True
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"resources": [{"resource": "Not Valid"}]}})
        await stage.until(lambda: stage.condition("Ready") == "False", seconds=30)
        [message] = stage.events.of("ReconciliationFailed")
        assert "Not Valid" in message
        assert "delete mutatingwebhookconfigurations: no" in message
        stage.api.refuses = False
        await stage.until(lambda: "mutatingwebhookconfigurations" not in stage.message("Ready"), seconds=60)
        assert stage.server.find(WEBHOOK_CONFIGURATIONS, f"clusterring-{RING}") is None
