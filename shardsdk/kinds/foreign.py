"""Schemas of pydantic's models, as those of CRDs have to be: without references, unions and draft 2020's words."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from shardsdk.errors import ConfigurationError
from shardsdk.kinds.constraints import Schema, check_null_of_enum, set_bounds, set_list_type

_KEPT: Final = (
    *("type", "description", "enum", "format", "pattern", "required", "nullable", "multipleOf", "uniqueItems"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
)
_INT_OR_STRING: Final = {"x-kubernetes-int-or-string": True}
#: Formats that the API server's own types have, or that it knows; another would be passed over with a warning.
_FORMATS: Final = ("date-time", "date", "byte", "uuid", "uri", "email", "ipv4", "ipv6", "int32", "int64", "double")


def foreign_schema(model: Any, place: str) -> Schema:
    """The schema of a pydantic model.  Raises: ConfigurationError for what cannot be one of a CRD."""
    made = model.model_json_schema(by_alias=True)
    return _convert(made, made.get("$defs", {}), place, ())


def _convert(given: Any, known: Schema, place: str, around: tuple[str, ...]) -> Schema:
    if given is True or given == {}:
        return {"x-kubernetes-preserve-unknown-fields": True}
    if reference := given.get("$ref"):
        return _follow(given, reference.rpartition("/")[2], known, place, around)
    if len(given.get("allOf", ())) == 1:
        merged = {key: value for key, value in given.items() if key != "allOf"} | given["allOf"][0]
        return _convert(merged, known, place, around)
    if "anyOf" in given or "oneOf" in given:
        return _union(given, known, place, around)
    schema = {key: value for key, value in given.items() if key in _KEPT}
    if schema.get("format") not in (None, *_FORMATS):
        del schema["format"]
    if "const" in given:
        schema["enum"] = [given["const"]]
    above, below = given.get("exclusiveMinimum"), given.get("exclusiveMaximum")
    set_bounds(schema, given.get("minimum"), given.get("maximum"), above=above, below=below)
    if given.get("default") is not None:
        schema["default"] = given["default"]
    is_set = schema.pop("uniqueItems", False)
    _convert_inside(given, schema, known, place, around)
    if is_set:
        set_list_type(schema, "set", (), place)
        if "default" in schema:  # pydantic has it in another order in each process
            schema["default"] = sorted(schema["default"], key=msgspec.json.encode)
    if not schema.get("type"):
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return schema


def _convert_inside(given: Any, schema: Schema, known: Schema, place: str, around: tuple[str, ...]) -> None:
    """What an object, or a list, is made of."""
    if "prefixItems" in given:
        raise ConfigurationError(f"{place}: no CRD can say a tuple of different entries; write a class with fields")
    if properties := given.get("properties"):
        schema["properties"] = {
            name: _convert(each, known, f"{place}.{name}", around) for name, each in properties.items()
        }
    if given.get("type") == "object":
        entries = given.get("additionalProperties", not properties)
        # Beside properties a structural schema cannot say of what type the others are, only that they are kept.
        if entries in (True, {}) or (entries and properties):
            schema["x-kubernetes-preserve-unknown-fields"] = True
        elif entries:
            schema["additionalProperties"] = _convert(entries, known, f"{place}[…]", around)
    if given.get("type") == "array":
        schema["items"] = _convert(given.get("items", True), known, f"{place}[]", around)


def _follow(given: Any, name: str, known: Schema, place: str, around: tuple[str, ...]) -> Schema:
    if name in around:
        raise ConfigurationError(f"{place}: {name} contains itself, which no CRD can say; write `dict[str, Any]` there")
    beside = {key: value for key, value in given.items() if key in ("description", "default")}
    return _convert(known[name], known, place, (*around, name)) | beside


def _union(given: Any, known: Schema, place: str, around: tuple[str, ...]) -> Schema:
    choices = [each for each in given.get("anyOf") or given["oneOf"] if each.get("type") != "null"]
    beside = {key: given[key] for key in ("description", "default") if given.get(key) is not None}
    if len(choices) == 1:
        schema = _convert(choices[0], known, place, around) | beside
        if "enum" not in schema:
            return schema | {"nullable": True}
        check_null_of_enum(place, none_is_absent="default" in given and given["default"] is None)
        return schema
    nullable = {"nullable": True} if len(choices) < len(given.get("anyOf") or given["oneOf"]) else {}
    types = {each.get("type") for each in choices}
    if types == {"integer", "string"}:
        return _INT_OR_STRING | beside | nullable
    if types == {"integer", "number"}:
        return {"type": "number"} | beside | nullable
    raise ConfigurationError(f"{place}: of unions a CRD can say `X | None` and `int | str` alone")
