"""What stands beside a type, as the words of a schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from shardsdk.errors import ConfigurationError
from shardsdk.kinds.markers import Doc, Format, Length, ListType, OneOf, Pattern, Range, Rule

#: A schema as it is built; also what a field's markers are written into.
Schema = dict[str, Any]

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
            case Range():
                _limit(schema, where, marker, low=marker.low, high=marker.high)
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
                schema["x-kubernetes-list-type"] = kind
                if keys:
                    schema["x-kubernetes-list-map-keys"] = list(keys)
            case msgspec.Meta():
                _take_meta(schema, where, marker)
            case _:
                pass


def _take_meta(schema: Schema, where: str, meta: msgspec.Meta) -> None:
    """What msgspec validates when it decodes, too."""
    if any(each is not None for each in (meta.gt, meta.ge, meta.lt, meta.le)):
        low, high = (meta.gt if meta.ge is None else meta.ge), (meta.lt if meta.le is None else meta.le)
        _limit(schema, where, meta, low=low, high=high)
        if meta.gt is not None:
            schema["exclusiveMinimum"] = True
        if meta.lt is not None:
            schema["exclusiveMaximum"] = True
    if meta.multiple_of is not None:
        schema["multipleOf"] = meta.multiple_of
    if meta.min_length is not None or meta.max_length is not None:
        _measure(schema, where, meta.min_length, meta.max_length)
    if meta.pattern is not None:
        schema["pattern"] = meta.pattern
    if meta.description is not None:
        schema["description"] = meta.description
    schema.update(meta.extra_json_schema or {})


def _limit(schema: Schema, where: str, marker: object, *, low: float | None, high: float | None) -> None:
    _only(schema, where, type(marker).__name__, _NUMBERS)
    if low is not None:
        schema["minimum"] = low
    if high is not None:
        schema["maximum"] = high


def _measure(schema: Schema, where: str, low: int | None, high: int | None) -> None:
    _only(schema, where, "Length", tuple(_LENGTHS))
    least, most = _LENGTHS[schema["type"]]
    if low is not None:
        schema[least] = low
    if high is not None:
        schema[most] = high


def _only(schema: Schema, where: str, marker: str, types: tuple[str, ...]) -> None:
    if schema.get("type") not in types:
        raise ConfigurationError(
            f"{where}: {marker} is for {' and '.join(types)}, this is {schema.get('type', 'of any type')}"
        )
