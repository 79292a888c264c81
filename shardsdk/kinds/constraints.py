"""What stands beside a type, as the words of a schema."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from shardsdk.errors import ConfigurationError
from shardsdk.kinds.markers import Doc, Format, Length, ListType, OneOf, Pattern, Range, Rule
from shardsdk.kinds.wire import encode

#: A schema as it is built; also what a field's markers are written into.
Schema = dict[str, Any]

#: What bytes are sent as.  Instead of the format `byte`, which an empty string has not.
BASE64: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

_NUMBERS: Final = ("integer", "number")
_LENGTHS: Final = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


def rules_of(rules: Iterable[Rule]) -> list[Schema]:
    """CEL rules as a schema has them."""
    return [{"rule": rule.expression} | ({"message": rule.message} if rule.message else {}) for rule in rules]


def check_null_of_enum(where: str, *, none_is_absent: bool) -> None:
    """Of a field that is a value of an enumeration, or None: the API server finds no null among such values.

    Raises: ConfigurationError unless None is told by leaving the field out.
    """
    if not none_is_absent:
        raise ConfigurationError(
            f"{where}: no CRD can say an enumeration, or None, where None has to be sent; give the field the default"
            " None, or write a value that means nothing"
        )


def constrain(schema: Schema, markers: Iterable[Any], where: str) -> None:
    """Write markers into a schema; what is none is passed over.

    In their order, but how a list is merged after what is said of its entries.
    Raises: ConfigurationError when a marker is for another type.
    """
    is_bytes = schema.get("pattern") == BASE64
    for marker in sorted(markers, key=lambda each: isinstance(each, ListType)):
        match marker:
            case Range(low=low, high=high):
                _only(schema, where, "Range", _NUMBERS)
                set_bounds(schema, low, high)
            case Length():
                _measure(schema, where, marker.low, marker.high, is_bytes=is_bytes)
            case Pattern(expression=expression):
                if not schema.get("x-kubernetes-int-or-string"):
                    _only(schema, where, "Pattern", ("string",))
                schema["pattern"] = expression
            case OneOf(values=values):
                schema["enum"] = list(map(encode, values))
                _check_values(schema, where, schema["enum"])
            case Format(name=name):
                _only(schema, where, "Format", ("string", *_NUMBERS))
                schema["format"] = name
            case Doc(text=text):
                schema["description"] = text
            case Rule():
                schema.setdefault("x-kubernetes-validations", []).extend(rules_of([marker]))
            case ListType(kind=kind, keys=keys):
                _only(schema, where, "ListType", ("array",))
                set_list_type(schema, kind, keys, where)
            case msgspec.Meta():
                _take_meta(schema, where, marker, is_bytes=is_bytes)
            case _:
                pass


def set_list_type(schema: Schema, kind: str, keys: Sequence[str], where: str) -> None:
    """Say how a list is merged, and of its entries what an API server wants to be said for that.

    Raises: ConfigurationError for a key that cannot be one, and for a set with None in it.
    """
    entry = schema.get("items", {})
    if kind == "set":
        if entry.get("nullable"):
            raise ConfigurationError(f"{where}: no CRD can say a set that has None in it; make it a list")
        if entry.get("type") in ("object", "array"):
            kind = "atomic"  # an API server takes a CRD with a set of these, and answers each apply with 500
    schema["x-kubernetes-list-type"] = kind
    if not keys:
        return
    schema["x-kubernetes-list-map-keys"] = list(keys)
    for key in keys:
        field = entry.get("properties", {}).get(key)
        if field is None:
            raise ConfigurationError(f"{where}: its entries have no field {key}, which is to be their key")
        if key in entry.get("required", ()) or "default" in field:
            continue
        can_be_empty = "" in field.get("enum", [""]) and not field.get("minLength")
        if field.get("type") != "string" or field.get("nullable") or not can_be_empty:
            raise ConfigurationError(
                f"{where}: {key} is the key of its entries, but may be absent; give it no default, or a value"
            )
        field["default"] = ""  # other empty defaults are not said


def _take_meta(schema: Schema, where: str, meta: msgspec.Meta, *, is_bytes: bool) -> None:
    """What msgspec validates when it decodes, too."""
    if any(each is not None for each in (meta.gt, meta.ge, meta.lt, meta.le)):
        _only(schema, where, "Meta", _NUMBERS)
        set_bounds(schema, meta.ge, meta.le, above=meta.gt, below=meta.lt)
    if meta.multiple_of is not None:
        schema["multipleOf"] = meta.multiple_of
    if meta.min_length is not None or meta.max_length is not None:
        _measure(schema, where, meta.min_length, meta.max_length, is_bytes=is_bytes)
    if meta.pattern is not None:
        schema["pattern"] = meta.pattern
    if meta.description is not None:
        schema["description"] = meta.description
    schema.update(meta.extra_json_schema or {})


def set_bounds(
    schema: Schema, low: float | None, high: float | None, *, above: float | None = None, below: float | None = None
) -> None:
    """A number is at least `low` and more than `above`, at most `high` and less than `below`; `None`: no such limit.

    A schema has one limit on each side: of two the stricter, instead of what it has.
    Of integers an API server takes whole bounds alone, and none that it cannot tell from the ends of an int64.
    """
    least = max((each for each in (low, above) if each is not None), default=None)
    most = min((each for each in (high, below) if each is not None), default=None)
    if schema.get("type") == "integer":
        least = None if least is None or float(least) <= -(2.0**63) else math.ceil(least)
        most = None if most is None or float(most) >= 2.0**63 else math.floor(most)
    for bound, exclusive, limit, beyond in (
        ("minimum", "exclusiveMinimum", least, above),
        ("maximum", "exclusiveMaximum", most, below),
    ):
        if limit is not None:
            schema.pop(exclusive, None)
            schema |= {bound: limit} | ({exclusive: True} if limit == beyond else {})


def _measure(schema: Schema, where: str, low: int | None, high: int | None, *, is_bytes: bool) -> None:
    _only(schema, where, "Length", tuple(_LENGTHS))
    if is_bytes:
        low, high = _measure_bytes(schema, low, high)
    least, most = _LENGTHS[schema["type"]]
    if low is not None:
        schema[least] = low
    if high is not None:
        schema[most] = high


def _measure_bytes(schema: Schema, low: int | None, high: int | None) -> tuple[int | None, int | None]:
    """How long the text may be, and how its last group of four ends if that is to have fewer than three bytes, or more.

    No rule: of one that is asked of each of many entries an API server says that it costs too much.
    """
    least, most = (None if limit is None else (limit + 2) // 3 * 4 for limit in (low, high))
    ends: list[Schema] = []
    if low and least and low % 3 != 1:
        ends.append({"anyOf": [{"minLength": least + 4}, {"pattern": "[^=].$" if low % 3 else "[^=]$"}]})
    if high and most and high % 3:
        ends.append({"anyOf": [{"maxLength": most - 4}, {"pattern": "==$" if high % 3 == 1 else "=$"}]})
    if ends:
        schema.setdefault("allOf", []).extend(ends)
    return least, most


def _check_values(schema: Schema, where: str, values: Iterable[Any]) -> None:
    """Raises: ConfigurationError for one that no value of that type equals."""
    type_ = schema.get("type", "")
    for value in values:
        # To JSON true is no number, and 1.0 an integer.
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = {
            "string": isinstance(value, str),
            "integer": is_number and float(value).is_integer(),
            "number": is_number,
            "boolean": isinstance(value, bool),
            "array": isinstance(value, list),
            "object": isinstance(value, dict),
        }
        if value is not None and not fits.get(type_, True):
            raise ConfigurationError(f"{where}: OneOf has {value!r}, this is {type_}")


def _only(schema: Schema, where: str, marker: str, types: tuple[str, ...]) -> None:
    if schema.get("type") not in types:
        raise ConfigurationError(
            f"{where}: {marker} is for {' and '.join(types)}, this is {schema.get('type', 'of any type')}"
        )
