"""CRDs from classes on a real API server: what it takes, what it refuses, what it fills in, and what kubectl shows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
import pytest_asyncio

from localcluster import AdminClient, AdminError, ControlPlane
from shardsdk import Condition, CustomResource, Model, ObjectMeta
from shardsdk.kinds import (
    Column,
    Doc,
    Format,
    Kind,
    Length,
    ListType,
    OneOf,
    Pattern,
    Range,
    Rule,
    Scale,
    body_of,
    crd_of,
    resource_of,
)
from tests.integration.served import described, served

GROUP = "kinds.example.com"


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Port(Model, rules=[Rule("self.number < 9000 || self.name != ''", "a high port needs a name")]):
    """Where it listens."""

    number: Annotated[int, Range(1, 65535)]
    name: Annotated[str, Length(high=15)] = ""


class Limits(Model):
    low: int = 1
    high: int = 3


@dataclass
class Box:
    width: int = 2


class WebsiteSpec(Model, rules=[Rule("self.replicas != 4", "four brings bad luck")]):
    """What is to be served."""

    html: Annotated[str, Doc("The page, as HTML."), Length(1, 99)]
    replicas: Annotated[int, Range(1, 5)] = 1
    host: Annotated[str, Pattern("^[a-z.]+$"), Rule("self == oldSelf", "the host stays")] = "localhost"
    mode: Literal["fast", "safe"] = "safe"
    colour: Colour = Colour.RED
    shade: Colour | None = None
    level: Annotated[int, OneOf(1, 2, 3)] = 1
    address: Annotated[str, Format("ipv4")] | None = None
    target: int | str = 80
    since: datetime | None = None
    secret: bytes = b""
    ratio: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.5
    ports: Annotated[list[Port], ListType("map", ("number",)), Length(high=2)] = []
    tags: Annotated[set[Annotated[str, Length(high=9)]], Length(high=5)] = msgspec.field(default_factory=set)
    labels: dict[str, str] = {}
    free: dict[str, Any] = {}
    anything: Any = None
    limits: Limits = msgspec.field(default_factory=Limits)
    box: Box = msgspec.field(default_factory=Box)


class WebsiteStatus(Model):
    ready_replicas: Annotated[int, Column("Ready")] = 0
    replicas: int = 0
    conditions: list[Condition] = []


class Website(
    CustomResource[WebsiteSpec, WebsiteStatus],
    group=GROUP,
    version="v1",
    storage=True,
    short_names=["kweb"],
    categories=["pages"],
    scale=Scale(),
    columns=[
        Column("Host", ".spec.host", priority=1),
        Column("Whole", '.status.conditions[?(@.type=="Whole")].status'),
    ],
):
    """A page and the pods that serve it."""


class OldSpec(Model):
    html: str


class OldWebsite(
    CustomResource[OldSpec], group=GROUP, version="v1beta1", kind="Website", deprecated="use v1", short_names=["kweb"]
):
    """As it was before."""


class Inner(pydantic.BaseModel):
    count: int = pydantic.Field(default=1, ge=0, lt=9)


class DoorSpec(pydantic.BaseModel):
    """Of pydantic."""

    open_since: datetime | None = pydantic.Field(default=None, alias="openSince")
    inner: Inner | None = None
    inners: list[Inner] = []
    target: int | str = 80
    words: set[str] = set()
    free: dict[str, Any] = {}


class Door(CustomResource[DoorSpec], group=GROUP, version="v1", scope="Cluster"):
    """A door."""


WEBSITES, DOORS = f"{GROUP}/v1/websites", f"{GROUP}/v1/doors"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(control_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """With the two kinds, served."""
    async with served(control_plane, crd_of(OldWebsite, Website), crd_of(Door)):
        yield control_plane


async def put(admin: AdminClient, thing: Kind, namespace: str | None = None) -> dict[str, Any]:
    return await put_body(admin, body_of(thing), namespace)


async def put_body(admin: AdminClient, body: dict[str, Any], namespace: str | None = None) -> dict[str, Any]:
    return await admin.create(WEBSITES if body["kind"] == "Website" else DOORS, body, namespace)


async def test_the_api_server_takes_everything_that_a_schema_can_say(plane: ControlPlane) -> None:
    for name in (f"websites.{GROUP}", f"doors.{GROUP}"):
        shown = json.loads(await plane.kubectl("get", "crd", name, "-ojson"))
        conditions = {each["type"]: each["status"] for each in shown["status"]["conditions"]}
        assert conditions["Established"] == "True"
        assert conditions.get("NonStructuralSchema", "False") == "False"


async def test_defaults_apply_and_what_comes_back_reads_as_what_was_sent(
    plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    sent = Website(
        "home", WebsiteSpec("<h1>hi</h1>", since=datetime(2030, 1, 1, tzinfo=UTC), secret=b"\0a", tags={"a"})
    )
    made = await put(admin, sent, namespace)
    spec = made["spec"]
    assert (spec["replicas"], spec["host"], spec["mode"], spec["target"]) == (1, "localhost", "safe", 80)
    assert (spec["limits"], spec["box"]) == ({"low": 1, "high": 3}, {"width": 2})
    read = msgspec.convert(made, Website)
    assert read.spec == sent.spec
    assert read.status == WebsiteStatus()


FORBIDDEN: dict[str, tuple[dict[str, Any], str]] = {
    "no spec": ({"spec": None}, "spec: Required value"),
    "no html": ({"html": None}, "spec.html: Required value"),
    "a number for a string": ({"html": 3}, "spec.html: Invalid value"),
    "too long": ({"html": "a" * 100}, "spec.html: Too long"),
    "too short": ({"html": ""}, "spec.html: Invalid value"),
    "above the range": ({"replicas": 6}, "spec.replicas: Invalid value"),
    "below the range": ({"replicas": 0}, "spec.replicas: Invalid value"),
    "a rule of the class": ({"replicas": 4}, "four brings bad luck"),
    "not the pattern": ({"host": "A"}, "spec.host: Invalid value"),
    "not of the Literal": ({"mode": "slow"}, 'spec.mode: Unsupported value: "slow"'),
    "not of the Enum": ({"colour": "green"}, 'spec.colour: Unsupported value: "green"'),
    "not of the Enum that may be None": ({"shade": "green"}, 'spec.shade: Unsupported value: "green"'),
    "not one of": ({"level": 4}, "spec.level: Unsupported value: 4"),
    "not the format": ({"address": "here"}, "spec.address"),
    "neither int nor string": ({"target": True}, "spec.target"),
    "no time": ({"since": "noon"}, "spec.since"),
    "no base64": ({"secret": "?"}, "spec.secret"),
    "not above": ({"ratio": 0}, "spec.ratio: Invalid value"),
    "not below": ({"ratio": 1}, "spec.ratio: Invalid value"),
    "too many": ({"ports": [{"number": 1}, {"number": 2}, {"number": 3}]}, "spec.ports: Too many"),
    "twice the same key": ({"ports": [{"number": 1}, {"number": 1}]}, "spec.ports[1]: Duplicate value"),
    "out of range within a list": ({"ports": [{"number": 0}]}, "spec.ports[0].number: Invalid value"),
    "a rule of a class in a list": ({"ports": [{"number": 9001}]}, "a high port needs a name"),
    "twice in a set": ({"tags": ["a", "a"]}, "spec.tags[1]: Duplicate value"),
    "a number in a dict of strings": ({"labels": {"a": 1}}, "spec.labels.a: Invalid value"),
}


@pytest.mark.parametrize("case", FORBIDDEN)
async def test_what_is_forbidden_is_refused(plane: ControlPlane, admin: AdminClient, namespace: str, case: str) -> None:
    changes, complaint = FORBIDDEN[case]
    body = body_of(Website("wrong", WebsiteSpec("hi")))
    if changes == {"spec": None}:
        del body["spec"]
    else:
        merged = {**body["spec"], **changes}
        body["spec"] = {name: value for name, value in merged.items() if value is not None}
    with pytest.raises(AdminError) as refused:
        await put_body(admin, body, namespace)
    assert refused.value.status == 422
    assert complaint in str(refused.value)


async def test_a_rule_about_changes_holds(plane: ControlPlane, admin: AdminClient, namespace: str) -> None:
    made = await put(admin, Website("kept", WebsiteSpec("hi", host="a.example")), namespace)
    made["spec"]["host"] = "b.example"
    with pytest.raises(AdminError, match="the host stays"):
        await admin.replace(WEBSITES, made, namespace)


async def test_unknown_fields_are_pruned_but_where_they_are_asked_for(
    plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    body = body_of(Website("free", WebsiteSpec("hi", free={"a": {"b": [1]}}, anything=[1, "a"])))
    body["spec"]["unknown"] = 1
    made = await put_body(admin, body, namespace)
    assert "unknown" not in made["spec"]
    assert made["spec"]["free"] == {"a": {"b": [1]}}
    assert made["spec"]["anything"] == [1, "a"]


async def test_status_and_scale_are_subresources_and_the_columns_show(
    plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    await put(admin, Website(ObjectMeta("shown", namespace), WebsiteSpec("hi"), WebsiteStatus(9)), namespace)
    assert "status" not in await admin.get(WEBSITES, "shown", namespace)
    status = WebsiteStatus(2, 2, [Condition("Whole", "True", last_transition_time="2030-01-01T00:00:00Z")])
    await admin.patch(f"{WEBSITES}", "shown", {"status": msgspec.to_builtins(status)}, namespace, subresource="status")
    lines = (await plane.kubectl("get", "kweb", "shown", "-n", namespace)).splitlines()
    assert lines[0].split() == ["NAME", "READY", "WHOLE", "AGE"]
    assert lines[1].split()[:3] == ["shown", "2", "True"]
    assert "HOST" in await plane.kubectl("get", "pages", "-n", namespace, "-owide")
    await plane.kubectl("scale", "kweb/shown", "--replicas=3", "-n", namespace)
    assert (await admin.get(WEBSITES, "shown", namespace))["spec"]["replicas"] == 3


async def test_kubectl_explains_the_kind_as_its_classes_do(plane: ControlPlane, admin: AdminClient) -> None:
    await described(admin, GROUP, "v1", "Website")
    explained = await plane.kubectl("explain", "website.spec", f"--api-version={GROUP}/v1")
    assert "What is to be served." in explained
    assert "html\t<string> -required-" in explained
    assert "The page, as HTML." in explained
    mode = await plane.kubectl("explain", "website.spec.mode", f"--api-version={GROUP}/v1")
    assert mode.split("ENUM:")[1].split()[:2] == ["fast", "safe"]
    whole = await plane.kubectl("explain", "website", f"--api-version={GROUP}/v1")
    assert "A page and the pods that serve it." in whole


async def test_the_older_version_is_served_and_deprecated(
    plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    await put(admin, Website("both", WebsiteSpec("hi")), namespace)
    old = await admin.get(f"{GROUP}/v1beta1/websites", "both", namespace)
    assert msgspec.convert(old, OldWebsite).spec == OldSpec("hi")
    assert resource_of(OldWebsite).api_version == old["apiVersion"]


async def test_pydantics_models_make_crds_and_come_back(plane: ControlPlane, admin: AdminClient) -> None:
    spec = DoorSpec(inners=[Inner(count=3)], words={"a"}, free={"a": 1}, target="http")
    made = await put(admin, Door("front", spec))
    assert DoorSpec.model_validate(made["spec"]) == spec
    body = body_of(Door("back", spec))
    body["spec"]["inners"] = [{"count": 9}]
    with pytest.raises(AdminError, match=r"spec\.inners\[0\]\.count: Invalid value"):
        await put_body(admin, body)
    await admin.delete(DOORS, "front")
