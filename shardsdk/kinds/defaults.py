"""The defaults of a schema, as whole as the API server makes them of what it is sent."""

from __future__ import annotations

import copy
from typing import Any

from shardsdk.kinds.constraints import Schema


class _NeedsNull(Exception):
    """A default that is another one without the null in it."""


def fill_in_defaults(schema: Schema) -> None:
    """Write out in each default what the defaults of the fields inside it say, and leave out what is null.

    The API server holds a default against the schema and its rules as it is written: before the fields in it get
    theirs, and before null is taken off fields that are not nullable.  Nulls that mean something do not get there,
    since `kubectl apply` takes them out; such a default is the class's alone.
    """
    for inner in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
        if inner:
            fill_in_defaults(inner)
    if "default" in schema:
        try:
            schema["default"] = _filled(schema, schema["default"])
        except _NeedsNull:
            del schema["default"]


def _filled(schema: Schema, value: Any) -> Any:
    """Raises: _NeedsNull."""
    if isinstance(value, list):
        return [_filled(schema.get("items", {}), each) for each in value]
    if not isinstance(value, dict):
        return value
    fields, required = schema.get("properties", {}), schema.get("required", ())
    made = {name: copy.deepcopy(each["default"]) for name, each in fields.items() if "default" in each}
    for name, each in value.items():
        inner = fields.get(name, schema.get("additionalProperties"))
        if inner is None:  # nothing is said of it
            made[name] = each
        elif each is not None:
            made[name] = _filled(inner, each)
        elif inner.get("nullable") and (name in made or name in required or name not in fields):
            raise _NeedsNull
    return made
