"""What objects can be decoded to is decided when a controller is declared, not by what goes wrong later."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from shardsdk import Cache, ConfigurationError, Context, ObjectMeta, Resource, controller_for
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.decoding import codec_of
from shardsdk.testing import drive

SITES = Resource("example.com", "v1", "sites", "Site")
SECRETS = Resource("", "v1", "secrets", "Secret")


class Spec(msgspec.Struct):
    html: str


class Struct(msgspec.Struct):
    metadata: ObjectMeta
    spec: Spec


class Optional(msgspec.Struct):
    spec: Spec
    metadata: ObjectMeta | None = None


@dataclass
class Dataclass:
    metadata: ObjectMeta
    spec: Spec


class Typed(TypedDict):
    metadata: dict[str, Any]
    spec: dict[str, Any]


class PydanticSpec(pydantic.BaseModel):
    html: str


class Pydantic(pydantic.BaseModel):
    metadata: ObjectMeta
    spec: PydanticSpec


class FromDict:
    """What cannot be known of it is not held against it."""

    def __init__(self, metadata: ObjectMeta, html: str) -> None:
        self.metadata = metadata
        self.html = html

    @classmethod
    def from_dict(cls, body: dict[str, Any]) -> FromDict:
        return cls(msgspec.convert(body["metadata"], ObjectMeta), body["spec"]["html"])


GOOD = [Struct, Optional, Dataclass, Typed, Pydantic, FromDict, dict, dict[str, Any], Any]


class Without(msgspec.Struct):
    spec: Spec


class OnlySpec(msgspec.Struct):
    spec: Spec | None = None


class DictMetadata(msgspec.Struct):
    metadata: dict[str, Any]
    spec: Spec


class CamelMeta(msgspec.Struct):
    name: str
    namespace: str
    uid: str
    resourceVersion: str  # noqa: N815
    labels: dict[str, str] | None = None
    deletionTimestamp: str | None = None  # noqa: N815


class Camel(msgspec.Struct):
    metadata: CamelMeta


class TypedWithout(TypedDict):
    spec: dict[str, Any]


class PydanticWithout(pydantic.BaseModel):
    spec: PydanticSpec


class PydanticDict(pydantic.BaseModel):
    metadata: dict[str, Any]


class Unknown:
    """Neither msgspec nor anybody else can make one."""


BAD = [
    (Without, "has no field `metadata`"),
    (OnlySpec, "has no field `metadata`"),
    (DictMetadata, "does not show name, namespace, uid, resource_version"),
    (Camel, "does not show resource_version, generation, deletion_timestamp, annotations, owner_references"),
    (TypedWithout, "has no field `metadata`"),
    (PydanticWithout, "has no field `metadata`"),
    (PydanticDict, "does not show name"),
    (Unknown, "cannot be decoded to"),
    (int, "cannot be decoded to|has no field"),
]


@pytest.mark.parametrize("model", GOOD, ids=str)
def test_models_that_show_metadata_are_taken(model: Any) -> None:
    controller_for(SITES, model).owns(SECRETS, model)


def test_the_kubernetes_packages_models_are_taken() -> None:
    # Imported here: it takes longer than all that the other tests of this folder import.
    from kubernetes.aio.client import V1ConfigMap, V1Deployment

    for model in (V1ConfigMap, V1Deployment):
        controller_for(SITES, model).owns(SECRETS, model)


@pytest.mark.parametrize(("model", "why"), BAD, ids=str)
def test_models_that_hide_metadata_are_refused_with_what_to_write(model: Any, why: str) -> None:
    for declare in (
        lambda: controller_for(SITES, model),
        lambda: controller_for(SECRETS).owns(SITES, model),
        lambda: controller_for(SECRETS).watches(SITES, lambda _: [], model),
        lambda: Cache(None, SITES, model=model, clock=SystemClock(), rng=None),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigurationError, match=rf"model of sites.example.com, .*({why})") as refused:
            declare()
        assert "write `metadata: ObjectMeta`" in str(refused.value)


@pytest.mark.parametrize("model", [Struct, Dataclass, Pydantic, FromDict], ids=str)
def test_objects_of_each_kind_of_model_are_reconciled_one_by_one(model: Any) -> None:
    seen: dict[str, str] = {}

    async def reconcile(context: Context[Any]) -> None:
        thing = context.object
        seen[context.request.name] = thing.html if isinstance(thing, FromDict) else thing.spec.html

    drive(
        controller_for(SITES, model).reconcile(reconcile),
        [(SITES, {"metadata": {"name": name}, "spec": {"html": f"<{name}>"}}) for name in "abc"],
    )

    assert seen == {"a": "<a>", "b": "<b>", "c": "<c>"}


def test_an_object_that_does_not_fit_a_pydantic_model_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    async def reconcile(context: Context[Pydantic]) -> None:
        seen.append(context.request.name)

    drive(
        controller_for(SITES, Pydantic).reconcile(reconcile),
        [(SITES, {"metadata": {"name": "a"}, "spec": {}}), (SITES, {"metadata": {"name": "b"}, "spec": {"html": ""}})],
    )

    assert seen == ["b"]


class Counted(pydantic.BaseModel):
    """With a field that is no text."""

    metadata: ObjectMeta
    pins: list[int]

    @pydantic.model_validator(mode="after")
    def check(self) -> Counted:
        if len(self.pins) > 1:
            raise ValueError("more than one")
        return self


@pytest.mark.parametrize(
    ("pins", "said"),
    [
        (
            ["s3cret", 1, "s3cret"],
            "ValidationError: pins.0: Input should be a valid integer, unable to parse string as an integer;"
            " pins.2: Input should be a valid integer, unable to parse string as an integer",
        ),
        ([1, 2], "ValidationError: Value error, more than one"),
    ],
)
def test_what_does_not_fit_pydantic_is_told_by_its_path_and_without_its_value(pins: list[Any], said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        codec_of(Counted).read(msgspec.json.encode({"metadata": {"name": "a"}, "pins": pins}))
    assert str(raised.value) == said
    assert "s3cret" not in "".join(traceback.format_exception(raised.value))
