"""CRDs of classes whose defaults or nulls the API server is particular about: taken, and objects come back as sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import msgspec
import pydantic
import pytest
import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from shardsdk import CustomResource, Model
from shardsdk.kinds import Kind, Rule, body_of, crd_of, resource_of
from shardsdk.kube.decoding import codec_of
from tests.integration.served import served

GROUP = "defaults.example.com"


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Limits(Model, rules=[Rule("self.low <= self.high", "low is above high")]):
    low: int = 0
    high: int = 10
    unit: str = ""


class Gate(CustomResource[Limits], group=GROUP, version="v1"):
    """All of its spec has defaults, and its rule is about them."""


class Bounds(Model, rules=[Rule("self.limits.low < 5 && self.all.all(each, each.low <= each.high)", "too low")]):
    limits: Limits = msgspec.field(default_factory=Limits)
    all: list[Limits] = msgspec.field(default_factory=lambda: [Limits(), Limits(1)])
    named: dict[str, Limits] = msgspec.field(default_factory=lambda: {"a": Limits(high=3)})


class Fence(CustomResource[Bounds], group=GROUP, version="v1"):
    """The same, further inside, in lists and in maps."""


@dataclass
class Options:
    mode: Literal["a", "b"] | None = None
    colour: Colour | None = None
    count: int | None = None
    limits: Limits = field(default_factory=Limits)


class Box(CustomResource[Options], group=GROUP, version="v1"):
    """Of a dataclass, which sends null for None."""


class Depth(pydantic.BaseModel):
    mode: Literal["a", "b"] | None = None
    deep: int = 1


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str = ""
    depth: Depth = Depth()


class Bag(CustomResource[Open], group=GROUP, version="v1"):
    """Keeps what it does not know."""


class Measured(pydantic.BaseModel):
    """None is a value of each, and what it is without one is not None."""

    at: int | None = pydantic.Field(alias="measuredAt")
    retries: int | None = 3
    note: str | None = None


class Measures(pydantic.BaseModel):
    first: Measured
    more: list[Measured] = []
    named: dict[str, Measured] = {}
    last: Measured = Measured(measuredAt=None)


class Scales(CustomResource[Measures], group=GROUP, version="v1", plural="scales"):
    """Of pydantic, with None where there has to be something."""


NOTHING = Measured(measuredAt=None, retries=None)
OBJECTS: dict[str, Kind] = {
    "rules on defaults": Gate("a"),
    "rules on values": Gate("b", Limits(3, 4, "cm")),
    "rules on nested defaults": Fence("a"),
    "rules on nested values": Fence("b", Bounds(Limits(1), [], {"b": Limits(high=5)})),
    "a dataclass's defaults": Box("a"),
    "a dataclass's values": Box("b", Options("a", Colour.BLUE, 0, Limits(2))),
    "unknown fields": Bag("a", Open.model_validate({"name": "n", "colour": "red", "more": {"a": [1, {"b": None}]}})),
    "nothing unknown": Bag("b"),
    "null where it has to be": Scales(
        "a", Measures(first=NOTHING, more=[NOTHING, Measured(measuredAt=1)], named={"a": NOTHING})
    ),
    "a value where null may be": Scales("b", Measures(first=Measured(measuredAt=7, note="x"))),
}
KINDS = tuple({type(each): None for each in OBJECTS.values()})


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(control_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """With all of them, served."""
    async with served(control_plane, *map(crd_of, KINDS)):
        yield control_plane


@pytest.mark.parametrize("case", OBJECTS)
async def test_what_is_sent_comes_back(plane: ControlPlane, admin: AdminClient, namespace: str, case: str) -> None:
    sent = OBJECTS[case]
    resource = resource_of(sent)
    made = await admin.create(f"{resource.api_version}/{resource.plural}", body_of(sent), namespace)
    read: Any = codec_of(type(sent)).read(json.dumps(made).encode())
    assert read.spec == sent.spec  # type: ignore[attr-defined]
