"""Label, field and shard selectors as the API server evaluates them, for servers in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from shardsdk.errors import BadRequest, ServerError
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.labels import is_label_name
from shardsdk.protocol.objects import SlimMeta
from shardsdk.protocol.ranges import HashBy, HashRanges

_SET: Final = re.compile(r"(?P<key>\S+) (?P<verb>in|notin) \((?P<values>[^)]*)\)")
_NONE: Final[Mapping[str, str]] = {}
_SHARD: Final = re.compile(r"shardRange\((?P<field>[a-z.]+), '(?P<start>0x[0-9a-f]+)', '(?P<end>0x[0-9a-f]+)'\)")
_TERMS: Final = re.compile(r",(?![^()]*\))")


def matches(thing: Mapping[str, Any], namespace: str | None, selector: Selector) -> bool:
    """Whether an object is in `namespace` (`None`: any) and selected."""
    return matcher(namespace, selector.labels, selector.fields, selector.shards)(thing)


@lru_cache(maxsize=1024)
def matcher(namespace: str | None, labels: str, fields: str, shards: str = "") -> Callable[[Mapping[str, Any]], bool]:
    """What a list or watch asks for, as a function of an object: it is asked of each at each of its changes."""
    of_labels = [_label(term) for term in _split(labels)]
    of_fields = [_field(term) for term in _split(fields)]
    in_shards = _shards(shards) if shards else None

    def selects(thing: Mapping[str, Any]) -> bool:
        metadata = thing["metadata"]
        if namespace and metadata.get("namespace") != namespace:
            return False
        if of_fields and not all(holds(thing) for holds in of_fields):
            return False
        if in_shards is not None and not in_shards(metadata):
            return False
        carried = metadata.get("labels") or _NONE
        return all(holds(carried) for holds in of_labels)

    return selects


def _split(text: str) -> tuple[str, ...]:
    return tuple(term.strip() for term in _TERMS.split(text) if term.strip())


def _label(term: str) -> Callable[[Mapping[str, str]], bool]:
    found = _SET.fullmatch(term)
    if found:
        key, values = found["key"], {_value(value.strip()) for value in found["values"].split(",")}
        if found["verb"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    key, differs, value = term.partition("!=")
    if differs:
        unwanted = _value(value)
        return lambda labels: labels.get(key) != unwanted
    key, equals, value = term.partition("=")
    if equals:
        wanted = _value(value.removeprefix("="))
        return lambda labels: labels.get(key) == wanted
    absent = term[1:]
    return (lambda labels: absent not in labels) if term.startswith("!") else (lambda labels: term in labels)


def _value(text: str) -> str:
    """The value that a label is compared with.  Raises: BadRequest when no label can have it."""
    if text and not is_label_name(text):
        raise BadRequest(f"unable to parse requirement: {text!r} is no label value", status=400, reason="BadRequest")
    return text


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


def _shards(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """Raises: ServerError, as an API server answers what it cannot read (500, not 400)."""
    found = [_SHARD.fullmatch(term) for term in text.split(" || ")]
    by = {each["field"] for each in found if each is not None}
    hashed = next((way for way in HashBy if {way.field} == by), None)
    if hashed is None or None in found:
        raise ServerError(f"unable to parse shardSelector {text!r}", status=500, reason="InternalError")
    ranges = HashRanges.of(*((int(each["start"], 16), int(each["end"], 16)) for each in found if each is not None))

    def selects(metadata: Mapping[str, Any]) -> bool:
        named = SlimMeta(metadata.get("name", ""), metadata.get("namespace") or "", metadata.get("uid", ""))
        return hashed.point(named) in ranges

    return selects
