"""Label and field selectors as the API server evaluates them, for servers in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from shardsdk.errors import BadRequest
from shardsdk.kube.selectors import Selector

_SET: Final = re.compile(r"(?P<key>\S+) (?P<verb>in|notin) \((?P<values>[^)]*)\)")
_NONE: Final[Mapping[str, str]] = {}
_TERMS: Final = re.compile(r",(?![^()]*\))")


def matches(thing: Mapping[str, Any], namespace: str | None, selector: Selector) -> bool:
    """Whether an object is in `namespace` (`None`: any) and selected."""
    return matcher(namespace, selector.labels, selector.fields)(thing)


@lru_cache(maxsize=1024)
def matcher(namespace: str | None, labels: str, fields: str) -> Callable[[Mapping[str, Any]], bool]:
    """What a list or watch asks for, as a function of an object: it is asked of each at each of its changes."""
    of_labels = [_label(term) for term in _split(labels)]
    of_fields = [_field(term) for term in _split(fields)]

    def selects(thing: Mapping[str, Any]) -> bool:
        metadata = thing["metadata"]
        if namespace and metadata.get("namespace") != namespace:
            return False
        if of_fields and not all(holds(thing) for holds in of_fields):
            return False
        carried = metadata.get("labels") or _NONE
        return all(holds(carried) for holds in of_labels)

    return selects


def _split(text: str) -> tuple[str, ...]:
    return tuple(term.strip() for term in _TERMS.split(text) if term.strip())


def _label(term: str) -> Callable[[Mapping[str, str]], bool]:
    found = _SET.fullmatch(term)
    if found:
        key, values = found["key"], {value.strip() for value in found["values"].split(",")}
        if found["verb"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    key, differs, value = term.partition("!=")
    if differs:
        return lambda labels: labels.get(key) != value
    key, equals, value = term.partition("=")
    if equals:
        wanted = value.removeprefix("=")
        return lambda labels: labels.get(key) == wanted
    absent = term[1:]
    return (lambda labels: absent not in labels) if term.startswith("!") else (lambda labels: term in labels)


def _field(term: str) -> Callable[[Mapping[str, Any]], bool]:
    key, differs, value = term.partition("!=")
    if not differs:
        key, equals, value = term.partition("=")
        if not equals:
            raise BadRequest(f"field selector {term!r} is not understood", status=400, reason="BadRequest")
    path = key.split(".")

    def holds(thing: Mapping[str, Any]) -> bool:
        found: Any = thing
        for part in path:
            found = found.get(part) if isinstance(found, Mapping) else None
        return ((found or "") != value) if differs else ((found or "") == value)

    return holds
