"""Models of any shape: what is sent reads as what was written, and the schema takes what the model takes."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shardsdk.kinds import Kind, body_of, merge_patch_of
from shardsdk.kinds.schema import begin, schema_of
from shardsdk.kinds.wire import encode
from shardsdk.protocol.objects import ObjectMeta, Resource
from tests.model_shapes import INTEGERS, TEXTS, is_plain, models, needs_value, shapes, whole


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


PATCHED = st.lists(st.tuples(shapes(patched=True), st.booleans()), min_size=1, max_size=4)


@st.composite
def rewritten(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """A class and two values of it, of what a merge patch can say: it sets no `null`, and knows no dict's old keys."""
    fields = [(each, (needed and is_plain(each)) or needs_value(each)) for each, needed in draw(PATCHED)]
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
        return [] if schema.get("nullable") and "enum" not in schema else [f"{place}: null"]
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
