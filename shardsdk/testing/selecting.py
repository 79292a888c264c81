"""Label and field selectors as the API server evaluates them, for servers in memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from shardsdk.errors import BadRequest
from shardsdk.kube.selectors import Selector

_SET: Final = re.compile(r"(?P<key>\S+) (?P<verb>in|notin) \((?P<values>[^)]*)\)")
_TERMS: Final = re.compile(r",(?![^()]*\))")


def matches(thing: Mapping[str, Any], namespace: str | None, selector: Selector) -> bool:
    """Whether an object is in `namespace` (`None`: any) and selected."""
    metadata = thing["metadata"]
    if namespace and metadata.get("namespace") != namespace:
        return False
    if not all(_field(term, thing) for term in _split(selector.fields)):
        return False
    labels = metadata.get("labels") or {}
    return all(_label(term, labels) for term in _split(selector.labels))


@lru_cache(maxsize=1024)
def _split(text: str) -> tuple[str, ...]:
    return tuple(term.strip() for term in _TERMS.split(text) if term.strip())


def _label(term: str, labels: Mapping[str, str]) -> bool:
    found = _SET.fullmatch(term)
    if found:
        values = {value.strip() for value in found["values"].split(",")}
        inside = labels.get(found["key"]) in values
        return inside if found["verb"] == "in" else not inside
    key, differs, value = term.partition("!=")
    if differs:
        return labels.get(key) != value
    key, equals, value = term.partition("=")
    if equals:
        return labels.get(key) == value.removeprefix("=")
    return term[1:] not in labels if term.startswith("!") else term in labels


def _field(term: str, thing: Mapping[str, Any]) -> bool:
    key, differs, value = term.partition("!=")
    if not differs:
        key, equals, value = term.partition("=")
        if not equals:
            raise BadRequest(f"field selector {term!r} is not understood", status=400, reason="BadRequest")
    found: Any = thing
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return ((found or "") != value) if differs else ((found or "") == value)
