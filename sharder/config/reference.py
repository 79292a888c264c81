"""What may stand where in a configuration file, read off the schema itself.

Serves messages about unknown fields, and the reference that docs include.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from sharder.config.durations import render_duration
from sharder.config.fields import BindAddress
from sharder.config.schema import SharderConfig


@dataclass(frozen=True, slots=True)
class Entry:
    """One field: its name in a file, its default there, and the section that it holds (`None`: a value)."""

    name: str
    attribute: str
    default: Any
    description: str
    section: type[Any] | None


def entries(section: type[Any]) -> dict[str, Entry]:
    """The fields of one section by their names in a file."""
    known: Mapping[str, FieldInfo] = section.__pydantic_fields__
    found = (
        Entry(
            name=info.alias or attribute,
            attribute=attribute,
            default=info.get_default(call_default_factory=True, validated_data={}),
            description=info.description or "",
            section=_section_of(info.annotation),
        )
        for attribute, info in known.items()
    )
    return {entry.name: entry for entry in found}


def section_at(path: tuple[str | int, ...]) -> type[Any] | None:
    """The section that the names in `path` lead to from the top; `None` when it is no section."""
    section: type[Any] | None = SharderConfig
    for name in path:
        entry = entries(section).get(str(name)) if section is not None else None
        section = entry.section if entry is not None else None
    return section


def render_reference() -> str:
    """Every field as a Markdown table: path, default, meaning."""
    rows = ["| field | default | meaning |", "|---|---|---|"]
    rows += [f"| `{path}` | {_show(entry)} | {entry.description} |" for path, entry in _leaves(SharderConfig, "")]
    return "\n".join(rows) + "\n"


def _leaves(section: type[Any], prefix: str) -> Iterator[tuple[str, Entry]]:
    for name, entry in entries(section).items():
        if entry.section is None:
            yield prefix + name, entry
        else:
            yield from _leaves(entry.section, f"{prefix}{name}.")


def _section_of(annotation: Any) -> type[Any] | None:
    for candidate in (annotation, *typing.get_args(annotation)):
        if isinstance(candidate, type) and hasattr(candidate, "__pydantic_fields__"):
            return candidate
    return None


def _show(entry: Entry) -> str:
    match entry.default:
        case None | "" | {}:
            return "unset"
        case bool() as switch:
            return f"`{str(switch).lower()}`"
        case BindAddress() as address:
            return f'`"{address}"`'
        case float() as seconds if entry.attribute.endswith("_seconds") and not entry.name.endswith("Seconds"):
            return f"`{render_duration(seconds)}`"
        case float() as number:
            return f"`{number:g}`"
        case value if dataclasses.is_dataclass(value):
            return "see below"
        case value:
            return f"`{value}`"
