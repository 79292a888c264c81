"""What is sent of an object: sets, what is unset, JSON as it came, and a spec that is empty."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pydantic
import pytest
from msgspec import UNSET, UnsetType

from shardsdk import CustomResource, Model, Resource
from shardsdk.kinds import Kind, body_of, crd_of, merge_patch_of
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


def test_sets_are_sent_in_one_order_wherever_they_are_and_maps_as_they_are() -> None:
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
    assert list(sent["named"]) == ["z", "a"]
    assert merge_patch_of(data) == encode(data) == sent["data"]
    assert merge_patch_of(spec)["tags"] == [{"name": word} for word in words]


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


class Perhaps(CustomResource[Size | None, Size], group="example.com", version="v1"):
    """May be without a spec."""


class Always(CustomResource[Size], group="example.com", version="v1"):
    """Has a spec, whether it is sent or not."""


@pytest.mark.parametrize(
    ("thing", "sent"),
    [
        (Required("a", spec=Size()), {"spec": {}}),
        (Perhaps("a", Size()), {"spec": {}}),
        (Perhaps("a"), {}),
        (Always("a", Size()), {}),
        (Always("a"), {}),
    ],
    ids=["required", "it or None", "None", "made of nothing", "not given"],
)
def test_an_empty_spec_is_sent_where_none_is_something_else(thing: Kind, sent: dict[str, Any]) -> None:
    body = body_of(thing)
    assert {name: body[name] for name in body.keys() & {"spec", "status"}} == sent
    assert msgspec.convert(body, type(thing)) == thing
