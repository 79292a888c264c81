"""Limits and list types, as an API server takes them."""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Any, Literal, NewType, Optional

import msgspec
import pydantic
import pytest
from msgspec import UnsetType

from shardsdk import Model, Range
from shardsdk.errors import ConfigurationError
from shardsdk.kinds import Column, Length, ListType, OneOf, Pattern, Quantity, Rule
from shardsdk.kinds.foreign import foreign_schema
from shardsdk.kinds.schema import begin, schema_of
from shardsdk.kinds.wire import encode


def schema(annotation: Any) -> dict[str, Any]:
    return schema_of(annotation, begin("Thing"))


def bounds_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name.lower().endswith(("minimum", "maximum"))}


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
    assert bounds_of(made) == bounds
    assert all(isinstance(each, int) for each in bounds_of(made).values())


@pytest.mark.parametrize(
    ("markers", "bounds"),
    [
        ((msgspec.Meta(gt=0), Range(1, 9)), {"minimum": 1, "maximum": 9}),
        ((msgspec.Meta(lt=9), Range(1, 9)), {"minimum": 1, "maximum": 9}),
        ((Range(1), msgspec.Meta(gt=0)), {"minimum": 0, "exclusiveMinimum": True}),
    ],
)
def test_a_later_bound_takes_the_place_of_an_earlier_one_as_a_whole(markers: Any, bounds: Any) -> None:
    made = schema(Annotated[float, *markers])
    assert bounds_of(made) == bounds


def test_bounds_of_other_numbers_are_as_they_are() -> None:
    made = schema(Annotated[float, Range(0.5, 2.5)])
    assert (made["minimum"], made["maximum"]) == (0.5, 2.5)


@pytest.mark.parametrize("limit", [Length(2, 4), msgspec.Meta(min_length=2, max_length=4)])
def test_the_order_of_a_pattern_and_a_length_of_bytes_says_nothing(limit: Any) -> None:
    pattern = Pattern("^A")
    assert schema(Annotated[bytes, pattern, limit]) == schema(Annotated[bytes, limit, pattern])


class Frozen(Model, frozen=True):
    size: int = 0


class Named(Model):
    name: str = ""
    number: int = 0
    mode: Literal["a", "b"] | None = None
    maybe: str | None = None
    some: Annotated[str, Length(1)] = ""


@pytest.mark.parametrize("keys", [("name",), ("number", "name")])
def test_a_key_of_entries_that_is_empty_by_default_says_so(keys: tuple[str, ...]) -> None:
    made = schema(Annotated[list[Named], ListType("map", keys)])
    assert made["x-kubernetes-list-map-keys"] == list(keys)
    assert {key: made["items"]["properties"][key]["default"] for key in keys}["name"] == ""
    assert "default" not in schema(list[Named])["items"]["properties"]["name"]


@pytest.mark.parametrize(
    ("key", "said"),
    [("nobody", "no field nobody"), *((key, "may be absent") for key in ("mode", "maybe", "some"))],
)
def test_what_cannot_be_a_key_is_refused(key: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"Thing: .*{said}"):
        schema(Annotated[list[Named], ListType("map", (key,))])


def test_a_set_with_none_in_it_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Thing: no CRD can say a set that has None in it"):
        schema(frozenset[int | None])


@pytest.mark.parametrize(
    "annotation",
    [
        frozenset[Frozen],
        Annotated[list[Frozen], ListType("set")],
        frozenset[tuple[int, ...]],
        frozenset[frozenset[int]],
    ],
)
def test_a_set_of_objects_or_lists_is_merged_as_a_whole(annotation: Any) -> None:
    assert schema(annotation)["x-kubernetes-list-type"] == "atomic"
    assert schema(set[str])["x-kubernetes-list-type"] == "set"


def test_keys_may_be_those_of_entries_that_are_said_behind_them() -> None:
    items = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    said = msgspec.Meta(extra_json_schema={"items": items})
    made = schema(Annotated[list[dict[str, Any]], ListType("map", ("name",)), said])
    assert (made["items"], made["x-kubernetes-list-map-keys"]) == (items, ["name"])


def test_a_list_whose_entries_nobody_describes_can_be_atomic() -> None:
    made = schema(Annotated[Any, msgspec.Meta(extra_json_schema={"type": "array"}), ListType("atomic")])
    assert made["x-kubernetes-list-type"] == "atomic"


class Still(pydantic.BaseModel, frozen=True):
    size: int = 0


class Various(pydantic.BaseModel):
    number: int | float | None = 5
    text: int | str | None = 5
    most: int = pydantic.Field(0, ge=-(2**63), lt=2**63)
    some: float = pydantic.Field(0.5, gt=0.25, le=0.75)
    all: frozenset[Still] = frozenset()
    replicas: pydantic.PositiveInt = pydantic.Field(1, ge=1, le=10)
    more: pydantic.NonNegativeInt = pydantic.Field(6, gt=5)
    part: pydantic.PositiveFloat = pydantic.Field(0.5, ge=0.25, lt=1)
    owed: pydantic.NegativeFloat = pydantic.Field(-0.5, le=-0.25)
    less: pydantic.NonPositiveInt = pydantic.Field(-6, lt=-5)


def test_of_two_bounds_of_pydantic_the_stricter_is_said() -> None:
    made = foreign_schema(Various, "Thing.spec")["properties"]
    assert bounds_of(made["replicas"]) == {"minimum": 1, "maximum": 10}
    assert bounds_of(made["more"]) == {"minimum": 5, "exclusiveMinimum": True}
    assert bounds_of(made["part"]) == {"minimum": 0.25, "maximum": 1, "exclusiveMaximum": True}
    assert bounds_of(made["owed"]) == {"maximum": -0.25}
    assert bounds_of(made["less"]) == {"maximum": -5, "exclusiveMaximum": True}


def test_the_same_of_pydantic() -> None:
    made = foreign_schema(Various, "Thing.spec")["properties"]
    assert made["number"] == {"type": "number", "default": 5, "nullable": True}
    assert made["text"] == {"x-kubernetes-int-or-string": True, "default": 5, "nullable": True}
    assert made["most"] == {"type": "integer", "default": 0}
    assert made["some"] == {
        "type": "number", "default": 0.5, "minimum": 0.25, "exclusiveMinimum": True, "maximum": 0.75
    }  # fmt: skip
    assert made["all"]["x-kubernetes-list-type"] == "atomic"


UserId = NewType("UserId", str)


@pytest.mark.parametrize(
    ("annotation", "alone"),
    [
        (Annotated[int, Range(1, 5)] | UnsetType, Annotated[int, Range(1, 5)]),
        (Quantity | UnsetType, Quantity),
        (UserId | UnsetType, UserId),
        (Annotated[int, Range(1, 5)] | None | UnsetType, Annotated[int, Range(1, 5)] | None),
        (Optional[UserId], Optional[str]),  # noqa: UP045  # there is no `|` of a NewType before Python 3.12
    ],
    ids=str,
)
def test_a_type_beside_which_there_is_only_nothing_is_said_whole(annotation: Any, alone: Any) -> None:
    assert schema_of(annotation, begin("Thing")) == schema_of(alone, begin("Thing"))


def test_a_field_that_may_be_unset_is_a_column() -> None:
    walk = begin("Thing").into("spec")
    schema_of(Annotated[int, Column("Size")] | UnsetType, walk)
    assert [column.name for column in walk.columns] == ["Size"]


def test_the_rules_of_every_base_hold_and_each_once() -> None:
    class Base(Model, rules=[Rule("self.a > 0")]):
        a: int = 1

    class Left(Base, rules=[Rule("self.a > 1")]): ...

    class Right(Base, rules=[Rule("self.a > 2")]): ...

    class Both(Left, Right, rules=[Rule("self.a > 3")]): ...

    assert [rule.expression for rule in Both.__rules__] == [f"self.a > {least}" for least in range(4)]


class Pace(Enum):
    """Of an enumeration."""

    SLOW = "a"
    FAST = "b"


#: Not by its types.
ONE_OF: Any = OneOf


@pytest.mark.parametrize(
    ("annotation", "values"),
    [
        (Annotated[str, OneOf("a", "")], ["a", ""]),
        (Annotated[str | None, OneOf("a")], ["a", None]),
        (Annotated[int, OneOf(1, 2.0)], [1, 2.0]),
        (Annotated[float, OneOf(1, 2.5)], [1, 2.5]),
        (Annotated[bool, OneOf(True)], [True]),
        (Annotated[int | str, OneOf(1, "50%")], [1, "50%"]),
        (Annotated[str, ONE_OF(Pace.SLOW, "b")], ["a", "b"]),
        (Annotated[Pace, OneOf("a")], ["a"]),
        (Annotated[list[str], ONE_OF(["a"], ("b",))], [["a"], ["b"]]),
        (Annotated[dict[str, str], ONE_OF({"a": "b"})], [{"a": "b"}]),
    ],
    ids=str,
)
def test_a_value_is_one_of_those(annotation: Any, values: list[Any]) -> None:
    assert schema_of(annotation, begin("Thing"), none_is_absent=True)["enum"] == [
        each for each in values if each is not None
    ]


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (Annotated[str, OneOf("a", 1)], "OneOf has 1, this is string"),
        (Annotated[bool, OneOf("true")], "OneOf has 'true', this is boolean"),
        (Annotated[int, OneOf(1.5)], "OneOf has 1.5, this is integer"),
        (Annotated[float, OneOf("1")], "OneOf has '1', this is number"),
        (Annotated[list[str], OneOf("a")], "OneOf has 'a', this is array"),
    ],
    ids=str,
)
def test_a_value_that_none_of_the_type_equals_is_refused(annotation: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^Thing: {said}"):
        schema(annotation)
