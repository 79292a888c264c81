"""Conditions: the transition time moves with the status only, and nobody else's condition is lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pydantic
import pytest
from kubernetes.aio.client import V1DeploymentCondition

from shardsdk.cache.objects import Request
from shardsdk.errors import Conflict
from shardsdk.kinds import (
    Condition,
    ConditionStatus,
    CustomResource,
    Deployment,
    DeploymentCondition,
    DeploymentSpec,
    DeploymentStatus,
    LabelSelector,
    Model,
    PodTemplateSpec,
)
from shardsdk.kinds.conditions import merge_conditions
from shardsdk.objects.conditions import find_condition, set_conditions
from shardsdk.protocol.objects import ObjectMeta, PartialObject, Resource
from shardsdk.reconcile.context import Context
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import RING, Rig

#: Of a kind with a status.
SITES = Resource("example.com", "v1", "sites", "Site")


class Status(msgspec.Struct):
    conditions: list[Condition] | None = None


class Thing(msgspec.Struct):
    metadata: ObjectMeta
    status: Status | None = None


def site(rig: Rig) -> None:
    rig.server.create(SITES, {"metadata": {"name": "a", "namespace": "default", "labels": {RING.shard: "shard-1"}}})


def conditions(rig: Rig) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rig.server.get(SITES, "a", "default")["status"]["conditions"]
    return found


def ready(status: str = "True", message: str = "it is") -> Condition:
    return Condition("Ready", status, "Because", message)


@in_virtual_time
async def test_the_transition_time_moves_only_with_the_status(clock: VirtualClock) -> None:
    rig = Rig(clock)
    site(rig)
    wanted = [ready(), ready(message="it still is"), ready("False"), ready("False")]
    told: list[bool] = []

    async def reconcile(context: Context[PartialObject]) -> None:
        told.append(await set_conditions(context, wanted[0]))

    times, messages = [], []
    async with rig.shard(reconcile, of=SITES) as shard:
        for _ in range(4):
            await asyncio.sleep(60)
            [found] = conditions(rig)
            times.append(found["lastTransitionTime"])
            messages.append(found["message"])
            del wanted[0]
            if wanted:
                shard.queue.add(Request("default", "a"))
    assert times[0] == times[1] == "2030-01-01T00:00:00Z"
    assert times[2] == times[3] > times[1]
    assert messages == ["it is", "it still is", "it is", "it is"]
    assert told.count(True) == 3


def test_a_condition_that_was_written_without_a_time_gets_one_and_keeps_it() -> None:
    there = [{"type": "Ready", "status": "True", "reason": "Because", "message": "it is"}]
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    (made,) = merge_conditions(there, [ready()], generation=1, now=noon)
    assert made["lastTransitionTime"] == "2030-01-01T12:00:00Z"
    assert merge_conditions([made], [ready()], generation=1, now=noon + timedelta(hours=1)) == [made]


@in_virtual_time
async def test_the_observed_generation_is_that_of_the_object_as_it_was_read(clock: VirtualClock) -> None:
    rig = Rig(clock)
    site(rig)
    rig.server.patch(SITES, "a", "default", {"spec": {"size": 2}})

    async def reconcile(context: Context[PartialObject]) -> None:
        await set_conditions(context, ready(), Condition("Old", "False", "Older", observed_generation=1))

    async with rig.shard(reconcile, of=SITES):
        await asyncio.sleep(1)
    assert {each["type"]: each["observedGeneration"] for each in conditions(rig)} == {"Ready": 2, "Old": 1}


@in_virtual_time
async def test_others_conditions_and_fields_stay(clock: VirtualClock) -> None:
    rig = Rig(clock)
    site(rig)
    other = {"type": "Other", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z", "odd": 1}
    rig.server.patch(SITES, "a", "default", {"status": {"conditions": [other], "size": 3}}, subresource="status")

    async def reconcile(context: Context[PartialObject]) -> None:
        await set_conditions(context, ready())

    async with rig.shard(reconcile, of=SITES):
        await asyncio.sleep(1)
    first, second = conditions(rig)
    assert first == other
    assert second["type"] == "Ready"
    assert rig.server.get(SITES, "a", "default")["status"]["size"] == 3


@in_virtual_time
async def test_a_condition_that_someone_else_sets_meanwhile_stays(clock: VirtualClock) -> None:
    rig = Rig(clock)
    site(rig)
    conflicts: list[Conflict] = []

    async def reconcile(context: Context[PartialObject]) -> None:
        if not conflicts:
            others = [{"type": "Other", "status": "True"}]
            rig.server.patch(SITES, "a", "default", {"status": {"conditions": others}}, subresource="status")
        try:
            await set_conditions(context, ready())
        except Conflict as error:
            conflicts.append(error)
            raise

    async with rig.shard(reconcile, of=SITES):
        await asyncio.sleep(10)
    assert len(conflicts) == 1
    assert [each["type"] for each in conditions(rig)] == ["Other", "Ready"]


@in_virtual_time
async def test_two_writes_of_one_reconcile_build_on_each_other(clock: VirtualClock) -> None:
    rig = Rig(clock)
    site(rig)

    async def reconcile(context: Context[PartialObject]) -> None:
        await set_conditions(context, Condition("First", ConditionStatus.TRUE, "Done"))
        await set_conditions(context, Condition("Second", ConditionStatus.UNKNOWN, "Waiting"))

    async with rig.shard(reconcile, of=SITES):
        await asyncio.sleep(1)
    assert [(each["type"], each["status"]) for each in conditions(rig)] == [("First", "True"), ("Second", "Unknown")]


def test_conditions_are_found_in_dicts_and_models_alike() -> None:
    written = {"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Because"}]}}
    for thing in (written, msgspec.convert(written, Thing)):
        found = find_condition(thing, "Ready")
        assert found is not None
        assert (found.status, found.reason) == (ConditionStatus.TRUE, "Because")
        assert find_condition(thing, "Other") is None
    assert find_condition(Thing(ObjectMeta()), "Ready") is None
    minimal = DeploymentSpec(selector=LabelSelector(), template=PodTemplateSpec())
    status = DeploymentStatus(conditions=[DeploymentCondition(type="Available", status="True", message="it runs")])
    available = find_condition(Deployment("a", spec=minimal, status=status), "Available")
    assert available == Condition("Available", "True", message="it runs")
    assert find_condition(PartialObject(ObjectMeta()), "Ready") is None


@dataclass
class PlainCondition:
    type: str
    status: str
    last_transition_time: datetime | None = None


class ParsedCondition(pydantic.BaseModel):
    type: str
    status: str
    last_transition_time: datetime | None = pydantic.Field(None, alias="lastTransitionTime")


class StructCondition(msgspec.Struct):
    type: str
    status: str
    lastTransitionTime: datetime | None = None  # noqa: N815


class RenamedCondition(msgspec.Struct):
    type: str
    status: str
    since: datetime | None = msgspec.field(default=None, name="lastTransitionTime")


@dataclass
class WireCondition:
    type: str
    status: str
    lastTransitionTime: datetime | None = None  # noqa: N815


class ParsedWireCondition(pydantic.BaseModel):
    type: str
    status: str
    lastTransitionTime: datetime | None = None  # noqa: N815


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (PlainCondition, "last_transition_time"),
        (WireCondition, "lastTransitionTime"),
        (StructCondition, "lastTransitionTime"),
        (RenamedCondition, "since"),
        (ParsedCondition, "lastTransitionTime"),
        (ParsedWireCondition, "lastTransitionTime"),
        (V1DeploymentCondition, "lastTransitionTime"),
        (SimpleNamespace, "last_transition_time"),
    ],
)
def test_conditions_are_found_whatever_their_class_is_made_with(model: Any, name: str) -> None:
    time = datetime(2030, 1, 1, tzinfo=UTC)
    thing = SimpleNamespace(status=SimpleNamespace(conditions=[model(type="Ready", status="True", **{name: time})]))
    assert find_condition(thing, "Ready") == Condition("Ready", "True", last_transition_time="2030-01-01T00:00:00Z")


class SiteStatus(Model):
    count: int = 0
    conditions: list[Condition] = []


class Site(CustomResource[None, SiteStatus], group="example.com", version="v1"):
    """Has conditions that its class shows whole."""


@pytest.mark.parametrize("change", ["replaced", "set beforehand"])
@in_virtual_time
async def test_what_the_reconcile_does_to_its_own_copy_is_not_taken_for_what_is_there(
    clock: VirtualClock, change: str
) -> None:
    rig = Rig(clock)
    site(rig)
    other = {"type": "Other", "status": "True"}
    rig.server.patch(SITES, "a", "default", {"status": {"conditions": [other]}}, subresource="status")
    wanted = Condition("Ready", "True", "Because", "it is", "2030-01-01T00:00:00Z", 1)
    told: list[bool] = []

    async def reconcile(context: Context[Any]) -> None:
        if change == "replaced":
            context.object.status = SiteStatus(count=3)
        else:
            context.object.status.conditions.append(wanted)
        told.append(await set_conditions(context, wanted))

    async with rig.shard(reconcile, of=SITES, models={SITES: Site}):
        await asyncio.sleep(1)
    assert told[0]
    assert [each["type"] for each in conditions(rig)] == ["Other", "Ready"]
