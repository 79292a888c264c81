"""What stands beside a type, as the words of a schema."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from shardsdk.errors import ConfigurationError
from shardsdk.kinds.markers import Doc, Format, Length, ListType, OneOf, Pattern, Range, Rule

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

    Raises: ConfigurationError when a marker is for another type.
    """
    for marker in markers:
        match marker:
            case Range(low=low, high=high):
                _only(schema, where, "Range", _NUMBERS)
                set_bounds(schema, low, high)
            case Length():
                _measure(schema, where, marker.low, marker.high)
            case Pattern(expression=expression):
                if not schema.get("x-kubernetes-int-or-string"):
                    _only(schema, where, "Pattern", ("string",))
                schema["pattern"] = expression
            case OneOf(values=values):
                schema["enum"] = list(values)
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
                _take_meta(schema, where, marker)
            case _:
                pass


def set_list_type(schema: Schema, kind: str, keys: Sequence[str], where: str) -> None:
    """Say how a list is merged, and of its entries what an API server wants to be said for that.

    Raises: ConfigurationError for a key that cannot be one.
    """
    schema["x-kubernetes-list-type"] = kind
    entry = schema["items"]
    if kind == "set" and entry.get("type") == "object":
        entry["x-kubernetes-map-type"] = "atomic"
    if not keys:
        return
    schema["x-kubernetes-list-map-keys"] = list(keys)
    for key in keys:
        field = entry.get("properties", {}).get(key)
        if field is None:
            raise ConfigurationError(f"{where}: its entries have no field {key}, which is to be their key")
        if key in entry.get("required", ()) or "default" in field:
            continue
        if field.get("type") != "string" or field.get("nullable") or "" not in field.get("enum", [""]):
            raise ConfigurationError(
                f"{where}: {key} is the key of its entries, but may be absent; give it no default, or a value"
            )
        field["default"] = ""  # other empty defaults are not said


def _take_meta(schema: Schema, where: str, meta: msgspec.Meta) -> None:
    """What msgspec validates when it decodes, too."""
    if any(each is not None for each in (meta.gt, meta.ge, meta.lt, meta.le)):
        _only(schema, where, "Meta", _NUMBERS)
        low, high = (meta.gt if meta.ge is None else meta.ge), (meta.lt if meta.le is None else meta.le)
        set_bounds(schema, low, high, above=meta.gt is not None, below=meta.lt is not None)
    if meta.multiple_of is not None:
        schema["multipleOf"] = meta.multiple_of
    if meta.min_length is not None or meta.max_length is not None:
        _measure(schema, where, meta.min_length, meta.max_length)
    if meta.pattern is not None:
        schema["pattern"] = meta.pattern
    if meta.description is not None:
        schema["description"] = meta.description
    schema.update(meta.extra_json_schema or {})


def set_bounds(
    schema: Schema, low: float | None, high: float | None, *, above: bool = False, below: bool = False
) -> None:
    """The least number and the highest, or that it has to be `above` the one or `below` the other.

    Of integers an API server takes whole bounds alone, and none that it cannot tell from the ends of an int64.
    """
    least, most = low, high
    if schema.get("type") == "integer":
        least = None if low is None or float(low) <= -(2.0**63) else math.ceil(low)
        most = None if high is None or float(high) >= 2.0**63 else math.floor(high)
    if least is not None:
        schema |= {"minimum": least} | ({"exclusiveMinimum": True} if above and least == low else {})
    if most is not None:
        schema |= {"maximum": most} | ({"exclusiveMaximum": True} if below and most == high else {})


def _measure(schema: Schema, where: str, low: int | None, high: int | None) -> None:
    _only(schema, where, "Length", tuple(_LENGTHS))
    if schema.get("pattern") == BASE64:
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


def _only(schema: Schema, where: str, marker: str, types: tuple[str, ...]) -> None:
    if schema.get("type") not in types:
        raise ConfigurationError(
            f"{where}: {marker} is for {' and '.join(types)}, this is {schema.get('type', 'of any type')}"
        )
