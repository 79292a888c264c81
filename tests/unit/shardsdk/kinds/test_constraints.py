"""Limits and list types, as an API server takes them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from shardsdk import Model, Range
from shardsdk.errors import ConfigurationError
from shardsdk.kinds import Length, ListType
from shardsdk.kinds.foreign import foreign_schema
from shardsdk.kinds.schema import begin, schema_of
from shardsdk.kinds.wire import encode


def schema(annotation: Any) -> dict[str, Any]:
    return schema_of(annotation, begin("Thing"))


def takes(schema: dict[str, Any], text: str) -> bool:
    """Whether a text is as these words of a schema have it."""
    each = [takes(part, text) for part in schema.get("allOf", ())]
    some = [takes(part, text) for part in schema.get("anyOf", ())]
    fits = schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", len(text))
    return all(each) and (not some or any(some)) and fits and bool(re.search(schema.get("pattern", ""), text))


@pytest.mark.parametrize("low", [None, *range(8)])
@pytest.mark.parametrize("high", [None, *range(8)])
def test_the_length_of_bytes_is_theirs_and_not_that_of_the_text_they_are_sent_as(
    low: int | None, high: int | None
) -> None:
    for marker in (Length(low, high), msgspec.Meta(min_length=low, max_length=high)):
        made = schema(Annotated[bytes, marker])
        taken = [count for count in range(10) if takes(made, encode(b"\xff" * count))]
        assert taken == [count for count in range(10) if (low or 0) <= count <= (9 if high is None else high)]


@pytest.mark.parametrize(
    ("marker", "bounds"),
    [
        (Range(0.5, 2.5), {"minimum": 1, "maximum": 2}),
        (msgspec.Meta(gt=0.5, lt=2.5), {"minimum": 1, "maximum": 2}),
        (msgspec.Meta(gt=1, lt=3), {"minimum": 1, "exclusiveMinimum": True, "maximum": 3, "exclusiveMaximum": True}),
        (Range(-(2**63), 2**63 - 1), {}),
        (Range(-float("inf"), float("inf")), {}),
        (msgspec.Meta(ge=0, lt=2**63), {"minimum": 0}),
        (Range(-(2**53), 2**53), {"minimum": -(2**53), "maximum": 2**53}),
    ],
)
def test_bounds_of_integers_are_whole_and_none_at_the_ends_of_what_there_is(marker: Any, bounds: Any) -> None:
    made = schema(Annotated[int, marker])
    assert {name: made[name] for name in made if name not in ("type", "format")} == bounds
    assert all(isinstance(each, int) for each in made.values() if not isinstance(each, str))


def test_bounds_of_other_numbers_are_as_they_are() -> None:
    made = schema(Annotated[float, Range(0.5, 2.5)])
    assert (made["minimum"], made["maximum"]) == (0.5, 2.5)


class Frozen(Model, frozen=True):
    size: int = 0


class Named(Model):
    name: str = ""
    number: int = 0
    mode: Literal["a", "b"] | None = None
    maybe: str | None = None


@pytest.mark.parametrize("annotation", [frozenset[Frozen], Annotated[list[Frozen], ListType("set")]])
def test_objects_in_a_set_are_atomic(annotation: Any) -> None:
    made = schema(annotation)
    assert (made["x-kubernetes-list-type"], made["items"]["x-kubernetes-map-type"]) == ("set", "atomic")
    assert "x-kubernetes-map-type" not in schema(set[str])["items"]


@pytest.mark.parametrize("keys", [("name",), ("number", "name")])
def test_a_key_of_entries_that_is_empty_by_default_says_so(keys: tuple[str, ...]) -> None:
    made = schema(Annotated[list[Named], ListType("map", keys)])
    assert made["x-kubernetes-list-map-keys"] == list(keys)
    assert {key: made["items"]["properties"][key]["default"] for key in keys}["name"] == ""
    assert "default" not in schema(list[Named])["items"]["properties"]["name"]


@pytest.mark.parametrize(
    ("key", "said"), [("nobody", "no field nobody"), ("mode", "may be absent"), ("maybe", "may be absent")]
)
def test_what_cannot_be_a_key_is_refused(key: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"Thing: .*{said}"):
        schema(Annotated[list[Named], ListType("map", (key,))])


class Still(pydantic.BaseModel, frozen=True):
    size: int = 0


class Various(pydantic.BaseModel):
    number: int | float | None = 5
    text: int | str | None = 5
    most: int = pydantic.Field(0, ge=-(2**63), lt=2**63)
    some: float = pydantic.Field(0.5, gt=0.25, le=0.75)
    all: frozenset[Still] = frozenset()


def test_the_same_of_pydantic() -> None:
    made = foreign_schema(Various, "Thing.spec")["properties"]
    assert made["number"] == {"type": "number", "default": 5, "nullable": True}
    assert made["text"] == {"x-kubernetes-int-or-string": True, "default": 5, "nullable": True}
    assert made["most"] == {"type": "integer", "default": 0}
    assert made["some"] == {
        "type": "number", "default": 0.5, "minimum": 0.25, "exclusiveMinimum": True, "maximum": 0.75
    }  # fmt: skip
    assert (made["all"]["x-kubernetes-list-type"], made["all"]["items"]["x-kubernetes-map-type"]) == ("set", "atomic")
