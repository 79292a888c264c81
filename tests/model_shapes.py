"""Models of any shape, for property tests: what hypothesis draws types and their values from."""

from __future__ import annotations

import types
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Any, Literal

import msgspec
from hypothesis import strategies as st

from shardsdk.kinds import Model
from shardsdk.kinds.wire import encode


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


#: A type, what its values are, and what they are when nobody says; `None` of the last: it is required.
Shape = tuple[Any, st.SearchStrategy[Any], Any]

INTEGERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
TIMES = st.integers(0, 2**42).map(lambda number: datetime.fromtimestamp(number / 1000, UTC))
SCALARS: tuple[Shape, ...] = (
    (bool, st.booleans(), False),
    (int, INTEGERS, 0),
    (float, st.floats(allow_nan=False, allow_infinity=False), 0.5),
    (str, TEXTS, "a"),
    (bytes, st.binary(max_size=5), b""),
    (datetime, TIMES, datetime(2030, 1, 1, tzinfo=UTC)),
    (Literal["a", "b"], st.sampled_from(["a", "b"]), "b"),
    (Colour, st.sampled_from(Colour), Colour.RED),
    (int | str, INTEGERS | TEXTS, 80),
)


def lists(shape: Shape) -> Shape:
    return list[shape[0]], st.lists(shape[1], max_size=3), []  # type: ignore[valid-type]


def maps(shape: Shape) -> Shape:
    return dict[str, shape[0]], st.dictionaries(TEXTS, shape[1], max_size=3), {}  # type: ignore[valid-type]


def maybe(shape: Shape) -> Shape:
    return shape[0] | None, shape[1] | st.none(), None


def models(fields: list[tuple[Shape, bool]]) -> Shape:
    """A class of such fields; those that are required come first."""
    annotations: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for number, ((annotation, _, default), required) in enumerate(sorted(fields, key=lambda each: not each[1])):
        name = f"field_{chr(ord('a') + number)}"
        annotations[name] = annotation
        if not required:
            defaults[name] = made_anew(default) if isinstance(default, Model) else default
    ordered = [shape for shape, _ in sorted(fields, key=lambda each: not each[1])]
    cls = types.new_class("Made", (Model,), {}, lambda space: space.update(defaults, __annotations__=annotations))
    values = st.tuples(*(shape[1] for shape in ordered)).map(lambda given: cls(*given))
    default = None if any(required for _, required in fields) else cls()
    return cls, values, default


def made_anew(default: Model) -> Any:
    return msgspec.field(default_factory=type(default))


def is_plain(shape: Shape) -> bool:
    """Unions with `None` are not looked into a second time."""
    return type(None) not in getattr(shape[0], "__args__", ())


def may_be_null(shape: Shape) -> bool:
    """No CRD can say an enumeration or `null`."""
    return is_plain(shape) and shape[0] not in (Colour, Literal["a", "b"])


@cache  # a new one would be validated anew for each example, which takes most of the time
def shapes(*, patched: bool = False) -> st.SearchStrategy[Shape]:
    def field_of(pair: tuple[Shape, bool]) -> tuple[Shape, bool]:
        shape, required = pair
        return shape, (required and (is_plain(shape) or not patched)) or needs_value(shape)

    def larger(smaller: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
        field = st.tuples(smaller, st.booleans()).map(field_of)
        return (
            smaller.map(lists)
            | (st.nothing() if patched else smaller.map(maps))
            | smaller.filter(may_be_null).map(maybe)
            | st.lists(field, min_size=1, max_size=4).map(models)
        )

    return st.recursive(st.sampled_from(SCALARS), larger, max_leaves=8)


def needs_value(shape: Shape) -> bool:
    return shape[2] is None and is_plain(shape)


def whole(value: Any) -> Any:
    """With its defaults, as the API server fills them in."""
    if isinstance(value, Model):
        pairs = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {sent: whole(getattr(value, name)) for sent, name in pairs}
    if isinstance(value, list):
        return [whole(each) for each in value]
    return {key: whole(each) for key, each in value.items()} if isinstance(value, dict) else encode(value)
