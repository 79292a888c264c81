"""The references of ClusterRing and RingAssignment, read off their CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from docsite.pages import ROOT

RINGS: Final = "clusterrings"
ASSIGNMENTS: Final = "ringassignments"
_REFUSES: Final = {RINGS: "a ring", ASSIGNMENTS: "an assignment"}


def render_spec(plural: str) -> str:
    """Every field of `spec`, then the rules that the API server checks across fields."""
    schema = _schema(plural)
    refused = f"The API server refuses {_REFUSES[plural]} where"
    return "\n".join([*_table(schema["properties"]["spec"], "spec"), "", refused, "", *_rules(schema)])


def render_status(plural: str) -> str:
    """Every field of `status`."""
    return "\n".join(_table(_schema(plural)["properties"]["status"], "status"))


def render_columns(plural: str) -> str:
    """What `kubectl get` shows; wide ones only with `-o wide`."""
    lines = ["| column | shown | meaning |", "|---|---|---|"]
    for column in _version(plural)["additionalPrinterColumns"]:
        shown = "with `-o wide`" if column.get("priority") else "always"
        lines.append(f"| {column['name']} | {shown} | {column.get('description', 'Since its creation.')} |")
    return "\n".join(lines)


def _table(schema: Mapping[str, Any], path: str) -> list[str]:
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for name, field, required in _fields(schema, path):
        default = "required" if required else f"`{_literal(field['default'])}`" if "default" in field else ""
        meaning = f"{field.get('description', '')} {_limits(field)}".strip()
        lines.append(f"| `{name}` | {_type(field)} | {default} | {meaning} |")
    return lines


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        yield here, field, name in schema.get("required", ())
        items = field.get("items", {})
        yield from _fields(items, f"{here}[]")
        yield from _fields(field, here)


def _type(field: Mapping[str, Any]) -> str:
    match field.get("type"):
        case "array":
            return f"list of {_type(field['items'])}s"
        case "object" if "additionalProperties" in field:
            return "map of strings"
        case other:
            return str(other)


def _limits(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return "One of " + ", ".join(f"`{value}`" for value in field["enum"]) + "."
    for key, unit in (("maxItems", "items"), ("maxLength", "characters"), ("maxProperties", "entries")):
        if key in field:
            return f"At most {field[key]:,} {unit}."
    return ""


def _rules(schema: Mapping[str, Any]) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield f"- {' '.join(rule['message'].split())}"
    for field in schema.get("properties", {}).values():
        if field.get("type") in ("object", "array"):
            yield from _rules(field)
    if "items" in schema:
        yield from _rules(schema["items"])


def _literal(value: Any) -> str:
    return '""' if value == "" else str(value).lower() if isinstance(value, bool) else str(value)


def _schema(plural: str) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = _version(plural)["schema"]["openAPIV3Schema"]
    return schema


def _version(plural: str) -> Mapping[str, Any]:
    text = (ROOT / "crds" / f"{plural}.yaml").read_text()
    version: Mapping[str, Any] = yaml.safe_load(text)["spec"]["versions"][0]
    return version
