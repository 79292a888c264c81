"""What is sent of an object: sets, what is unset, JSON as it came, and a spec that is empty or null."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from msgspec import UNSET, UnsetType

from shardsdk import CustomResource, Model, Resource
from shardsdk.kinds import Kind, body_of, crd_of, merge_patch_of, wire
from shardsdk.kinds.wire import encode, written_out

WORDS = frozenset(f"word-{number:02}" for number in range(30))


class Tag(Model, frozen=True):
    name: str
    weight: int = 0


class Part(Model):
    words: frozenset[str] = frozenset()


class Data(pydantic.BaseModel):
    words: frozenset[str] = WORDS
    parts: list[frozenset[str]] = []


@dataclass
class Plain:
    parts: list[Part] = field(default_factory=list)


class BoxSpec(Model):
    words: frozenset[str] = WORDS
    tags: frozenset[Tag] = frozenset()
    anything: Any = None
    plain: Plain = msgspec.field(default_factory=Plain)
    named: dict[str, Part] = {}
    data: Data | None = None


class Box(CustomResource[BoxSpec], group="example.com", version="v1"):
    """Has sets everywhere."""


def test_sets_are_sent_in_one_order_wherever_they_are() -> None:
    tags = frozenset(Tag(word) for word in WORDS)
    part, data = Part(WORDS), Data(parts=[WORDS])
    spec = BoxSpec(WORDS, tags, {"a": (set(WORDS), 1)}, Plain([part]), {"z": part, "a": part}, data)
    words = sorted(WORDS)
    sent = body_of(Box("a", spec))["spec"]
    assert sent.pop("words", words) == words
    assert sent == {
        "tags": [{"name": word} for word in words],
        "anything": {"a": [words, 1]},
        "plain": {"parts": [{"words": words}]},
        "named": {"z": {"words": words}, "a": {"words": words}},
        "data": {"words": words, "parts": [words]},
    }
    assert merge_patch_of(data) == encode(data) == sent["data"]
    assert merge_patch_of(spec)["tags"] == [{"name": word} for word in words]


class Pair(msgspec.Struct, array_like=True, frozen=True):
    words: frozenset[str]


class Words(pydantic.RootModel[frozenset[str]]):
    """Nothing but a set."""


@dataclass
class Inner:
    words: frozenset[str] = WORDS


class Outer(pydantic.BaseModel):
    inner: Inner = Inner()
    words: Words = Words(WORDS)


@pytest.mark.parametrize("value", [Pair(WORDS), Outer(), Words(WORDS)], ids=lambda value: type(value).__name__)
def test_sets_are_in_order_whatever_they_are_inside_of(value: Any) -> None:
    words = sorted(WORDS)
    sent = {"Pair": [words], "Words": words, "Outer": {"inner": {"words": words}, "words": words}}
    assert encode({"a": value}) == {"a": sent[type(value).__name__]}


class Level(Enum):
    LOW = 9
    HIGH = 10


class Numbers(pydantic.BaseModel):
    levels: set[int] = {443, 9, 10}


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ({443, 9, 10}, [9, 10, 443]),
        ({Level.HIGH, Level.LOW}, [9, 10]),
        ([{Level.HIGH, Level.LOW}, {443, 9, 10}], [[9, 10], [9, 10, 443]]),
        (Numbers(), {"levels": [9, 10, 443]}),
        ({"b", 1, None}, ["b", 1, None]),
    ],
    ids=["numbers", "members", "numbers beside members", "of pydantic", "what cannot be compared"],
)
def test_a_set_is_ordered_by_value_where_its_values_have_an_order(value: Any, sent: Any) -> None:
    assert encode(value) == sent


class Serialized(pydantic.BaseModel):
    declared: set[int] = {443, 9, 10}
    annotated: Annotated[set[int], pydantic.PlainSerializer(lambda ports: sorted(ports, reverse=True))] = {443, 9, 10}

    @pydantic.field_serializer("declared")
    def in_an_order_of_its_own(self, ports: set[int]) -> list[int]:
        return sorted(ports, reverse=True)


def test_what_a_serializer_makes_of_a_set_stays_as_it_is() -> None:
    ports = [443, 10, 9]
    assert encode(Serialized()) == merge_patch_of(Serialized()) == {"declared": ports, "annotated": ports}


def test_two_keys_with_one_text_are_one_beside_any_set() -> None:
    assert encode([{1: "a", "1": "b"}, {Tag("c"), Tag("d")}]) == [{"1": "b"}, [{"name": "c"}, {"name": "d"}]]


def test_tuples_are_sent_as_lists() -> None:
    assert encode({"a": (1, (2, {"b": (3,)}))}) == {"a": [1, [2, {"b": [3]}]]}


def test_what_has_an_order_is_not_gone_through_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(wire, "_in_order")
    assert encode(BoxSpec(plain=Plain([Part(WORDS)])))["plain"] == {"parts": [{"words": sorted(WORDS)}]}


def test_a_default_that_is_a_set_is_in_order_in_the_definition() -> None:
    class Of(CustomResource[Data], group="example.com", version="v1"):
        """Of pydantic."""

    for kind in (Box, Of):
        schema = crd_of(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        assert schema["properties"]["spec"]["properties"]["words"]["default"] == sorted(WORDS)


def test_what_is_unset_is_not_sent() -> None:
    class Status(Model):
        ready: int = 0
        note: str | UnsetType | None = UNSET

    @dataclass
    class Other:
        note: str | UnsetType = UNSET

    for status, patch in ((Status(1), {"ready": 1}), (Status(1, None), {"ready": 1, "note": None}), (Other(), {})):
        assert merge_patch_of(status) == patch
    assert written_out(Status(1)) == {"ready": 1}


def test_json_as_it_came_is_sent_as_it_is() -> None:
    class Spec(Model):
        blob: msgspec.Raw

    class Thing(CustomResource[Spec], group="example.com", version="v1"):
        """Keeps JSON."""

    assert body_of(Thing("a", Spec(msgspec.Raw(b'{"b": [1]}'))))["spec"] == {"blob": {"b": [1]}}
    assert merge_patch_of(Spec(msgspec.Raw(b"2"))) == {"blob": 2}


def test_a_merge_patch_writes_out_what_is_in_a_dataclass() -> None:
    class Counts(Model):
        ready: int = 0

    @dataclass
    class Status:
        counts: Counts = field(default_factory=Counts)

    assert merge_patch_of(Status()) == {"counts": {"ready": 0}}


class Size(Model):
    width: int = 0


class Required(Kind, kw_only=True):
    resource = Resource("example.com", "v1", "required", "Required")
    spec: Size


class Nullable(Kind, kw_only=True):
    resource = Resource("example.com", "v1", "nullables", "Nullable")
    spec: Size | None


class Perhaps(CustomResource[Size | None, Size], group="example.com", version="v1"):
    """May be without a spec."""


class Always(CustomResource[Size], group="example.com", version="v1"):
    """Has a spec, whether it is sent or not."""


@pytest.mark.parametrize(
    ("thing", "sent"),
    [
        (Required("a", spec=Size()), {"spec": {}}),
        (Nullable("a", spec=None), {"spec": None}),
        (Perhaps("a", Size()), {"spec": {}}),
        (Perhaps("a"), {}),
        (Always("a", Size()), {}),
        (Always("a"), {}),
    ],
    ids=["required", "required or null", "it or None", "None", "made of nothing", "not given"],
)
def test_an_empty_spec_is_sent_where_none_is_something_else(thing: Kind, sent: dict[str, Any]) -> None:
    body = body_of(thing)
    assert {name: body[name] for name in body.keys() & {"spec", "status"}} == sent
    assert msgspec.convert(body, type(thing)) == thing
