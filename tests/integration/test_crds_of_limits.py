"""CRDs of classes whose limits and lists the API server is particular about: taken, and so is what keeps to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
import pytest_asyncio

from localcluster import ControlPlane
from shardsdk import CustomResource, Model, Range
from shardsdk.errors import Invalid
from shardsdk.kinds import Kind, Length, ListType, body_of, crd_of, resource_of
from shardsdk.kube.access import load_access
from shardsdk.kube.api import PatchKind
from shardsdk.kube.client import Client
from tests.integration.served import served

GROUP = "limits.example.com"
Short = Annotated[bytes, Length(2, 4)]


class Frozen(Model, frozen=True):
    size: int = 0


class Named(Model):
    name: str = ""
    value: int = 0


class Limited(Model):
    key: Short | None = None
    keys: list[Short] = []
    by_name: dict[str, list[Annotated[bytes, msgspec.Meta(max_length=3)]]] = {}
    few: Annotated[int, Range(0.5, 2.5)] = 1
    any: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] = 0
    parts: frozenset[Frozen] = frozenset({Frozen(1)})
    entries: Annotated[list[Named], ListType("map", ("name",))] = msgspec.field(
        default_factory=lambda: [Named(value=1)]
    )
    groups: frozenset[frozenset[int]] = frozenset()
    sizes: frozenset[int] = frozenset()


class Box(CustomResource[Limited], group=GROUP, version="v1"):
    """Of what is limited."""


class Still(pydantic.BaseModel, frozen=True):
    size: int = 0


class Foreign(pydantic.BaseModel):
    number: int | float | None = 5
    any: int = pydantic.Field(0, ge=-(2**63), le=2**63 - 1)
    parts: frozenset[Still] = frozenset({Still(size=1)})
    replicas: pydantic.PositiveInt = pydantic.Field(default=1, ge=1, le=10)


class Bag(CustomResource[Foreign], group=GROUP, version="v1"):
    """The same of pydantic."""


TAKEN: dict[str, Kind] = {
    "defaults": Box("a"),
    "values": Box(
        "b",
        Limited(
            b"ab", [b"abc", b"abcd"], {"a": [b"", b"abc"]}, 2, 2**63 - 1, frozenset({Frozen(1), Frozen(2)}),
            [Named(), Named("b", 2)], frozenset({frozenset({1}), frozenset({2, 3})}),
        ),
    ),
    "the least": Box("c", Limited(any=-(2**63), parts=frozenset(), entries=[])),
    "pydantic's defaults": Bag("a"),
    "pydantic's values": Bag("b", Foreign(number=None, any=2**63 - 1, parts=frozenset({Still(), Still(size=2)}))),
}  # fmt: skip
REFUSED: dict[str, Any] = {
    "too few bytes": Limited(b"a"),
    "too many bytes": Limited(keys=[b"abcde"]),
    "too many bytes further inside": Limited(by_name={"a": [b"abcd"]}),
    "out of bounds": Limited(few=0),
    "twice in a set": {"sizes": [1, 1]},
    "twice the same key": Limited(entries=[Named(), Named(value=2)]),
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(control_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """With both of them served."""
    async with served(control_plane, crd_of(Box), crd_of(Bag)):
        yield control_plane


@pytest_asyncio.fixture
async def client(plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(await load_access(str(plane.admin_kubeconfig))) as client:
        yield client


@pytest.mark.parametrize("case", TAKEN)
async def test_what_keeps_to_its_limits_is_taken_and_comes_back(client: Client, namespace: str, case: str) -> None:
    sent: Any = TAKEN[case]
    resource, model = resource_of(sent), type(sent)
    made = await client.create(resource, body_of(sent), namespace, model=model)
    assert made.spec == sent.spec
    applied = await client.patch(
        resource, sent.metadata.name, namespace, body_of(sent), kind=PatchKind.APPLY, field_manager="us", model=model
    )
    assert applied.spec == sent.spec


@pytest.mark.parametrize("case", REFUSED)
async def test_what_does_not_is_refused(client: Client, namespace: str, case: str) -> None:
    spec = REFUSED[case]
    body = body_of(Box("a")) | {"spec": spec if isinstance(spec, dict) else body_of(Box("a", spec))["spec"]}
    with pytest.raises(Invalid):
        await client.create(Box.resource, body, namespace)
