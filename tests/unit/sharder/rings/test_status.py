"""What is written into a ring's status, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from sharder.core.selectors import LabelSelector
from sharder.rings.permissions import DENIED_SECONDS
from sharder.rings.status import STATUS_SECONDS, due_in
from shardsdk.errors import Forbidden, Invalid
from shardsdk.kube.api import Operation
from shardsdk.protocol.objects import CLUSTERRINGS, Resource
from shardsdk.testing.memory import Object
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, RING, SETTINGS, leading, make_stage, ring


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


class Unwritable(MemoryApi):
    """The status of a ring may not be written."""

    attempts = 0

    async def send(self, operation: Operation[Any]) -> Any:
        if operation.resource == CLUSTERRINGS and operation.subresource == "status":
            self.attempts += 1
            raise Forbidden("patch clusterrings/status", status=403)
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


class Picky(MemoryApi):
    """The API server finds fault with what a status says of namespaces."""

    async def send(self, operation: Operation[Any]) -> Any:
        body = cast(dict[str, Any], operation.body or {})
        if operation.resource == CLUSTERRINGS and "namespaceSelector" in body.get("status", {}):
            raise Invalid("status.namespaceSelector: a key is none", status=422)
        return await super().send(operation)


@in_virtual_time
async def test_a_status_that_does_not_validate_hides_no_condition(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Picky)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Ready") == "True")
        assert stage.server.get(CLUSTERRINGS, RING, None)["status"]["observedGeneration"] == 1
