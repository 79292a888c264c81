"""What stays of a status beside what was returned, and how its fields are called."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from msgspec import field
from pydantic.alias_generators import to_camel

from shardsdk import Condition, Context, CustomResource, Model, Operator
from shardsdk.kinds import Pod, PodCondition, PodStatus, crd_of
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import WebsiteSpec

SINCE = "2020-01-01T00:00:00Z"
THEIRS = {"type": "Theirs", "status": "True", "reason": "A", "message": "", "lastTransitionTime": SINCE}


class Room(Model):
    """An entry."""

    name: str = ""
    beds: int = 0


class HotelStatus(Model):
    """A status with lists."""

    rooms: list[Room] = field(default_factory=list)
    best: dict[str, list[Room]] = field(default_factory=dict)
    conditions: list[Condition] | None = None


class Hotel(CustomResource[WebsiteSpec, HotelStatus], group="example.com", version="v1"):
    """Its status has lists."""


def status_after(kind: type[Any], function: Any, status: dict[str, Any]) -> Any:
    """What has become of a status once `function` has returned one."""
    operator = Operator("hotels")
    operator.reconcile(kind)(function)
    body = {"metadata": {"name": "home"}, "spec": {"html": "", "containers": []}, "status": status}
    return drive(operator, [(kind.resource, body)]).get(kind.resource, "home")["status"]


def test_what_the_class_does_not_know_of_entries_stays() -> None:
    async def function(ctx: Context[Hotel]) -> HotelStatus:
        status = ctx.object.status
        for room in (*status.rooms, *status.best["view"]):
            room.beds = 2
        return status

    rooms = [{"name": "a", "view": "sea"}, {"name": "b", "view": "yard"}]
    status = status_after(Hotel, function, {"rooms": rooms, "best": {"view": rooms[:1]}})
    assert status["rooms"] == [{**room, "beds": 2} for room in rooms]
    assert status["best"] == {"view": [{**rooms[0], "beds": 2}]}


def test_what_the_class_does_not_know_of_the_conditions_of_others_stays() -> None:
    async def function(ctx: Context[Hotel]) -> HotelStatus:
        return HotelStatus(conditions=[ctx.condition("Ready", True, "Open")])

    severe = {**THEIRS, "severity": "high"}
    ours = {**THEIRS, "type": "Ready", "status": "False", "severity": "low"}
    first, second = status_after(Hotel, function, {"conditions": [severe, ours]})["conditions"]
    assert first == severe
    assert (second["reason"], second["status"], second["severity"]) == ("Open", "True", "low")


def test_a_status_that_leaves_conditions_out_speaks_of_none() -> None:
    async def function(ctx: Context[Hotel]) -> HotelStatus:
        return HotelStatus([Room("a", 1)])

    status = status_after(Hotel, function, {"conditions": [THEIRS]})
    assert status["conditions"] == [THEIRS]
    assert status["rooms"] == [{"name": "a", "beds": 1}]


def test_conditions_of_a_kubernetes_class_are_merged_by_type() -> None:
    async def function(ctx: Context[Pod]) -> PodStatus:
        status = ctx.object.status
        status.conditions = [
            PodCondition(type="example.com/ready", status="True"),
            PodCondition(type="Theirs", status="False"),
        ]
        return status

    ready = {"type": "Ready", "status": "True", "lastTransitionTime": SINCE, "unknown": 1}
    there = {"phase": "Running", "conditions": [ready, THEIRS]}
    status = status_after(Pod, function, there)
    assert status["phase"] == "Running"
    assert status["conditions"][0] == ready
    assert [(each["type"], each["status"]) for each in status["conditions"]] == [
        ("Ready", "True"), ("Theirs", "False"), ("example.com/ready", "True")
    ]  # fmt: skip
    assert all(each["lastTransitionTime"] > SINCE for each in status["conditions"][1:])


class Own(Model):
    """A condition, by a class of somebody's own."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Brief(Model):
    """As much of a condition as somebody wants to know."""

    type: str
    status: str = ""


class OwnStatus(Model):
    """A status with such conditions."""

    conditions: list[Own] = field(default_factory=list)


class BriefStatus(Model):
    """A status with such conditions."""

    conditions: list[Brief] = field(default_factory=list)


class DictStatus(Model):
    """A status with conditions of no class."""

    conditions: list[dict[str, Any]] = field(default_factory=list)


class OwnHotel(CustomResource[WebsiteSpec, OwnStatus], group="example.com", version="v1"):
    """Its conditions are of somebody's own class."""


class BriefHotel(CustomResource[WebsiteSpec, BriefStatus], group="example.com", version="v1"):
    """Its conditions are of a class that shows little of them."""


class DictHotel(CustomResource[WebsiteSpec, DictStatus], group="example.com", version="v1"):
    """Its conditions are of no class."""


BAD = {
    "type": "Ready", "status": "False", "reason": "Broken", "message": "the disk is full", "lastTransitionTime": SINCE
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "returned", "left"),
    [
        (OwnHotel, OwnStatus([Own("Ready", "True")]), {"status": "True"}),
        (OwnHotel, OwnStatus([Own("Ready", "Unknown", "Asked")]), {"reason": "Asked"}),
        (BriefHotel, BriefStatus([Brief("Ready", "True")]), {**BAD, "status": "True"}),
        (DictHotel, DictStatus([{"type": "Ready", "status": "True"}]), {"status": "True"}),
    ],
)
def test_a_condition_that_is_not_bad_any_more_keeps_nothing_of_what_its_class_knows(
    kind: type[Any], returned: Any, left: dict[str, Any]
) -> None:
    async def function(ctx: Context[Any]) -> Any:
        return returned

    (condition,) = status_after(kind, function, {"conditions": [BAD]})["conditions"]
    since = condition.pop("lastTransitionTime", None)
    assert condition == {
        name: value for name, value in {**left, "type": "Ready"}.items() if name != "lastTransitionTime"
    }
    assert since != SINCE
    assert (since is None) == (kind is DictHotel)


@pytest.mark.parametrize(
    ("kind", "returned"),
    [
        (OwnHotel, OwnStatus([Own("Ready", "False", "Mending")])),
        (DictHotel, DictStatus([{"type": "Ready", "status": "False", "reason": "Mending"}])),
    ],
)
def test_a_condition_that_is_still_bad_has_become_so_when_it_did(kind: type[Any], returned: Any) -> None:
    async def function(ctx: Context[Any]) -> Any:
        return returned

    (condition,) = status_after(kind, function, {"conditions": [BAD]})["conditions"]
    assert condition == {"type": "Ready", "status": "False", "reason": "Mending", "lastTransitionTime": SINCE}


def test_a_condition_that_was_read_and_changed_has_become_so_now() -> None:
    async def function(ctx: Context[OwnHotel]) -> OwnStatus:
        status = ctx.object.status
        status.conditions[0].status = "True"
        return status

    (condition,) = status_after(OwnHotel, function, {"conditions": [BAD]})["conditions"]
    assert condition["status"] == "True"
    assert condition["lastTransitionTime"] > SINCE


@pytest.mark.parametrize("there", [[], [{"type": "rain", "reason": "north"}], [BAD, BAD]])
def test_what_is_called_conditions_and_has_two_of_a_type_is_written_as_it_is_returned(there: list[Any]) -> None:
    async def function(ctx: Context[OwnHotel]) -> OwnStatus:
        return OwnStatus([Own("rain", reason="north"), Own("rain", reason="south")])

    status = status_after(OwnHotel, function, {"conditions": there})
    assert [(each["type"], each["reason"]) for each in status["conditions"]] == [("rain", "north"), ("rain", "south")]


class Guest(Model):
    """An entry that has no name."""

    passport: str = ""
    nights: int = 0


class GuestStatus(Model):
    """A status with such entries."""

    guests: list[Guest] = field(default_factory=list)
    parties: dict[str, list[Guest]] = field(default_factory=dict)


class Inn(CustomResource[WebsiteSpec, GuestStatus], group="example.com", version="v1"):
    """Its status has such entries."""


def test_what_the_class_does_not_know_of_an_entry_is_not_said_of_another_one_in_its_place() -> None:
    async def function(ctx: Context[Inn]) -> GuestStatus:
        return GuestStatus([Guest("c"), Guest("b")], {"one": [Guest("c"), Guest("b")]})

    guests = [{"passport": "a", "room": 1}, {"passport": "b", "room": 2}]
    status = status_after(Inn, function, {"guests": guests, "parties": {"one": guests}})
    assert status["guests"] == [{"passport": "c"}, {"passport": "b", "room": 2}]
    assert status["parties"]["one"] == status["guests"]


#: A number for each status that is made.
_NUMBERS = itertools.count(100)


class Numbered(Model):
    """A status that is another one each time that it is read."""

    number: int = field(default_factory=lambda: next(_NUMBERS))
    conditions: list[Condition] = field(default_factory=list)


class Ticket(CustomResource[WebsiteSpec, Numbered], group="example.com", version="v1"):
    """Its status is another one each time that it is read."""


def test_a_status_that_nobody_else_has_changed_is_no_conflict_however_it_reads() -> None:
    operator = Operator("tickets")

    @operator.reconcile(Ticket)
    async def function(ctx: Context[Ticket]) -> Numbered | None:
        if ctx.object.status.conditions[0].status == "True":
            return None
        return Numbered(conditions=[ctx.condition("Ready", True, "Sold")])

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(60)

    body = {"metadata": {"name": "home"}, "spec": {"html": ""}, "status": {"conditions": [BAD]}}
    rig = drive(operator, [(Ticket.resource, body)], story)
    assert [each for _, each in rig.outcomes if isinstance(each, Exception)] == []
    assert rig.get(Ticket, "home").status.conditions[0].reason == "Sold"


def test_conditions_of_a_kubernetes_class_that_say_the_same_are_written_once() -> None:
    operator = Operator("pods")

    @operator.reconcile(Pod)
    async def function(ctx: Context[Pod]) -> PodStatus:
        ctx.requeue(after=60)
        status = ctx.object.status
        status.conditions = [PodCondition(type="example.com/ready", status="True")]
        return status

    async def story(rig: Rig) -> None:
        rig.create(Pod.resource, {"metadata": {"name": "home"}, "spec": {"containers": []}})
        await rig.clock.sleep(600)

    assert len(drive(operator, [], story).sent) == 1


@dataclass
class Plain:
    """A status."""

    count: int = 0
    observed_generation: int = 0


class Strict(pydantic.BaseModel):
    """A status."""

    count: int = 0
    observed_generation: int = 0


class Aliased(pydantic.BaseModel):
    """A status."""

    model_config = pydantic.ConfigDict(alias_generator=to_camel, populate_by_name=True)
    count: int = 0
    observed_generation: int = 0


class PlainShop(CustomResource[WebsiteSpec, Plain], group="example.com", version="v1"):
    """Its status is a dataclass."""


class StrictShop(CustomResource[WebsiteSpec, Strict], group="example.com", version="v1"):
    """Its status is one of pydantic's."""


class AliasedShop(CustomResource[WebsiteSpec, Aliased], group="example.com", version="v1"):
    """Its status is one of pydantic's, with names as Kubernetes has them."""


@pytest.mark.parametrize(("kind", "status"), [(PlainShop, Plain), (StrictShop, Strict), (AliasedShop, Aliased)])
def test_the_generation_is_filled_in_under_the_name_that_the_definition_has(kind: type[Any], status: Any) -> None:
    async def function(ctx: Context[Any]) -> Any:
        return status(count=1)

    (version,) = crd_of(kind)["spec"]["versions"]
    defined = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    written = status_after(kind, function, {})
    assert written.keys() == defined.keys()
    assert set(written.values()) == {1}


class Numbers(Model):
    """A status of which no order is told."""

    numbers: set[int] = field(default_factory=set)


class Lottery(CustomResource[WebsiteSpec, Numbers], group="example.com", version="v1"):
    """Its status has a set."""


def test_a_set_that_is_the_same_is_written_once() -> None:
    operator, drawn = Operator("lotteries"), [8, 0, 16, 7, 15]

    @operator.reconcile(Lottery)
    async def function(ctx: Context[Lottery]) -> Numbers:
        ctx.requeue(after=60)
        drawn.append(drawn.pop(0))
        return Numbers(set(drawn))

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(600)

    rig = drive(operator, [Lottery("home", WebsiteSpec(""))], story)
    assert len(rig.sent) == 1
    assert rig.get(Lottery, "home").status.numbers == set(drawn)


class Found(Model):
    """A status of values of any sort."""

    values: dict[str, Any] = field(default_factory=dict)


class Survey(CustomResource[WebsiteSpec, Found], group="example.com", version="v1"):
    """Its status has values of any sort."""


def test_a_number_that_becomes_true_is_written() -> None:
    operator = Operator("surveys")

    @operator.reconcile(Survey)
    async def function(ctx: Context[Survey]) -> Found:
        return Found({"ready": True, "many": [False]})

    known = {"metadata": {"name": "home"}, "spec": {"html": ""}, "status": {"values": {"ready": 1, "many": [0]}}}
    [written] = drive(operator, [(Survey.resource, known)]).sent
    assert json.dumps(written.body["status"]) == '{"values": {"ready": true, "many": [false]}}'  # type: ignore[index,call-overload]
