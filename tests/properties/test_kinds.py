"""Models of any shape: what is sent reads as what was written, and the schema takes what the model takes."""

from __future__ import annotations

import types
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shardsdk.kinds import Kind, Model, body_of, merge_patch_of
from shardsdk.kinds.schema import begin, schema_of
from shardsdk.kinds.wire import encode
from shardsdk.protocol.objects import ObjectMeta, Resource


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


def shapes(*, patched: bool = False) -> st.SearchStrategy[Shape]:
    def field_of(pair: tuple[Shape, bool]) -> tuple[Shape, bool]:
        shape, required = pair
        return shape, (required and (is_plain(shape) or not patched)) or needs_value(shape)

    def larger(smaller: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
        field = st.tuples(smaller, st.booleans()).map(field_of)
        return (
            smaller.map(lists)
            | (st.nothing() if patched else smaller.map(maps))
            | smaller.filter(is_plain).map(maybe)
            | st.lists(field, min_size=1, max_size=4).map(models)
        )

    return st.recursive(st.sampled_from(SCALARS), larger, max_leaves=8)


def needs_value(shape: Shape) -> bool:
    return shape[2] is None and is_plain(shape)


@st.composite
def written(draw: st.DrawFn) -> tuple[Any, Any]:
    """A class and a value of it."""
    shape = draw(shapes())
    return shape[0], draw(shape[1])


@given(written())
def test_what_is_sent_reads_as_what_was_written(pair: tuple[Any, Any]) -> None:
    model, value = pair
    assert msgspec.json.decode(msgspec.json.encode(encode(value)), type=model) == value


@given(written())
def test_the_schema_takes_what_the_model_takes(pair: tuple[Any, Any]) -> None:
    model, value = pair
    schema = schema_of(model, begin("Thing"))
    assert complaints(schema, encode(value), "$") == []
    assert complaints(schema, whole(value), "$") == []


@st.composite
def rewritten(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """A class and two values of it, of what a merge patch can say: it sets no `null`, and knows no dict's old keys."""
    shape = st.tuples(shapes(patched=True), st.booleans())
    fields = [
        (each, (needed and is_plain(each)) or needs_value(each))
        for each, needed in draw(st.lists(shape, min_size=1, max_size=4))
    ]
    model, values, _ = models(fields)
    return model, draw(values), draw(values)


@given(rewritten())
def test_a_merge_patch_of_a_value_makes_any_other_into_it(triple: tuple[Any, Any, Any]) -> None:
    model, before, after = triple
    for start in ({}, {"whole": encode(before)}, {"whole": whole(before)}):
        merged = merge(start, {"whole": merge_patch_of(after)})["whole"]
        assert msgspec.convert(merged, model) == after


@given(
    st.builds(
        ObjectMeta,
        name=TEXTS,
        namespace=TEXTS,
        labels=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=2),
        finalizers=st.none() | st.lists(TEXTS, max_size=2),
        generation=st.integers(0, 9),
    ),
    st.dictionaries(TEXTS, INTEGERS, max_size=2),
)
def test_an_object_that_is_sent_reads_as_it_was(metadata: ObjectMeta, sizes: dict[str, int]) -> None:
    widget = Widget(metadata, sizes=sizes)
    body = body_of(widget)
    assert msgspec.convert(body, Widget) == widget
    assert all(body["metadata"].values()) or "labels" in body["metadata"] or "finalizers" in body["metadata"]


class Widget(Kind):
    resource = Resource("example.com", "v1", "widgets", "Widget")
    sizes: dict[str, int] = {}


def whole(value: Any) -> Any:
    """With its defaults, as the API server fills them in."""
    if isinstance(value, Model):
        pairs = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {sent: whole(getattr(value, name)) for sent, name in pairs}
    if isinstance(value, list):
        return [whole(each) for each in value]
    return {key: whole(each) for key, each in value.items()} if isinstance(value, dict) else encode(value)


def merge(target: Any, patch: Any) -> Any:
    """JSON merge patch, RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}


def complaints(schema: dict[str, Any], value: Any, place: str) -> list[str]:
    """What a structural schema has against a value."""
    if value is None:
        return [] if schema.get("nullable") else [f"{place}: null"]
    if schema.get("x-kubernetes-int-or-string"):
        return [] if isinstance(value, int | str) else [f"{place}: neither"]
    kind = schema["type"]
    if not isinstance(value, TYPES[kind]) or (kind != "boolean" and isinstance(value, bool)):  # type: ignore[arg-type]
        return [f"{place}: {value!r} is no {kind}"]
    found = [] if value in schema.get("enum", [value]) else [f"{place}: {value!r} is none of {schema['enum']}"]
    if kind == "array":
        return found + [each for entry in value for each in complaints(schema["items"], entry, f"{place}[]")]
    if kind != "object":
        return found
    if "additionalProperties" in schema:
        return found + [each for x in value.values() for each in complaints(schema["additionalProperties"], x, place)]
    found += [f"{place}: {name} is missing" for name in schema.get("required", ()) if name not in value]
    found += [f"{place}: {name} is unknown" for name in value if name not in schema["properties"]]
    for name, each in value.items():
        found += complaints(schema["properties"].get(name, {"nullable": True}), each, f"{place}.{name}")
    return found
