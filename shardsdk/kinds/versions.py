"""The schema of one version of a custom resource."""

from __future__ import annotations

from typing import Final

from shardsdk.kinds.base import Kind
from shardsdk.kinds.constraints import Schema
from shardsdk.kinds.declaration import declaration_of
from shardsdk.kinds.defaults import fill_in_defaults
from shardsdk.kinds.markers import Column
from shardsdk.kinds.schema import begin, object_schema

#: As `kubectl explain` says them of every kind.
_TYPE_META: Final = {
    "apiVersion": {"type": "string", "description": "The version of the API that the object is written in."},
    "kind": {"type": "string", "description": "What the object is of, as a word in CamelCase."},
    "metadata": {"type": "object"},
}


def version_schema(kind: type[Kind]) -> tuple[Schema, list[Column]]:
    """The schema of one version, and the columns that its fields ask for.

    Raises: ConfigurationError for what cannot be a schema.
    """
    walk = begin(kind.__name__)
    schema = object_schema(kind, walk)
    properties = schema["properties"]
    properties.pop("metadata")
    # One that nobody has written yet is to be seen as such.
    properties.get("status", {}).pop("default", None)
    spec = declaration_of(kind).parts.get("spec")
    if spec is not None and spec.required:
        properties["spec"].pop("default", None)
        schema["required"] = ["spec", *schema.get("required", ())]
    schema["properties"] = _TYPE_META | properties
    fill_in_defaults(schema)
    return schema, walk.columns
