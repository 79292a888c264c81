"""Label, field and shard selectors as the API server evaluates them, for servers in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from shardsdk.errors import BadRequest, ServerError
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.labels import is_label_key, is_label_name
from shardsdk.protocol.objects import Resource, SlimMeta
from shardsdk.protocol.ranges import HashBy, HashRanges
from shardsdk.testing.strategies import is_builtin

#: One requirement: `key in (a,b)`, `key>1`, `key=value`, `!key` or `key`.
_REQUIREMENT: Final = re.compile(
    r"(?P<absent>!\s*)?(?P<key>[^\s=!<>(),]+)\s*"
    r"(?:(?<=\s)(?P<set>in|notin)\s*\((?P<values>[^()]*)\)|(?P<verb>!=|==?|<|>)(?P<value>[^()]*))?"
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NONE: Final[Mapping[str, str]] = {}
_SHARD: Final = re.compile(r"shardRange\((?P<field>[a-z.]+), '(?P<start>0x[0-9a-f]+)', '(?P<end>0x[0-9a-f]+)'\)")
_TERMS: Final = re.compile(r",(?![^()]*\))")
#: Of fields: the terms, then what one consists of.  A backslash takes what follows for a part of the value.
_FIELD_TERMS: Final = re.compile(r"(?:\\.?|[^\\,])+", re.DOTALL)
_FIELD_TERM: Final = re.compile(r"(?P<key>[^=!]*)(?P<verb>!=|==?)(?P<value>(?:\\[\\,=]|[^\\,=])*)", re.DOTALL)


def matches(thing: Mapping[str, Any], namespace: str | None, selector: Selector) -> bool:
    """Whether an object is in `namespace` (`None`: any) and selected."""
    return matcher(namespace, selector.labels, selector.fields, selector.shards)(thing)


@lru_cache(maxsize=1024)
def matcher(namespace: str | None, labels: str, fields: str, shards: str = "") -> Callable[[Mapping[str, Any]], bool]:
    """What a list or watch asks for, as a function of an object: it is asked of each at each of its changes."""
    of_labels = [_label(term) for term in _split(labels)]
    of_fields = [_field(term) for term in _split_fields(fields)]
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
    return tuple(term.strip() for term in _TERMS.split(text)) if text.strip() else ()


def _split_fields(text: str) -> tuple[str, ...]:
    return tuple(term.strip() for term in _FIELD_TERMS.findall(text) if term.strip())


def _label(term: str) -> Callable[[Mapping[str, str]], bool]:
    """Raises: BadRequest for what an API server cannot read, whose spaces are as free as its."""
    found = _REQUIREMENT.fullmatch(term)
    verb = found and (found["set"] or found["verb"])
    if found is None or not is_label_key(found["key"]) or (found["absent"] and verb):
        raise BadRequest(f"unable to parse requirement: {term!r}", status=400, reason="BadRequest")
    key = found["key"]
    if verb in ("in", "notin"):
        values = {_value(value.strip()) for value in found["values"].split(",")}
        return (
            (lambda labels: labels.get(key) in values) if verb == "in" else lambda labels: labels.get(key) not in values
        )
    value = _value((found["value"] or "").strip())
    if verb in (">", "<"):
        return _compared(key, verb, value)
    if verb == "!=":
        return lambda labels: labels.get(key) != value
    if verb:
        return lambda labels: labels.get(key) == value
    return (lambda labels: key not in labels) if found["absent"] else lambda labels: key in labels


def _compared(key: str, verb: str, value: str) -> Callable[[Mapping[str, str]], bool]:
    if not _INTEGER.fullmatch(value):
        raise BadRequest(f"for '>' and '<' the value must be an integer: {value!r}", status=400, reason="BadRequest")
    bound = int(value)

    def selects(labels: Mapping[str, str]) -> bool:
        carried = labels.get(key, "")
        if not _INTEGER.fullmatch(carried):
            return False
        return int(carried) > bound if verb == ">" else int(carried) < bound

    return selects


def _value(text: str) -> str:
    """The value that a label is compared with.  Raises: BadRequest when no label can have it."""
    if text and not is_label_name(text):
        raise BadRequest(f"unable to parse requirement: {text!r} is no label value", status=400, reason="BadRequest")
    return text


def _field(term: str) -> Callable[[Mapping[str, Any]], bool]:
    """Raises: BadRequest for what an API server cannot read, such as a value with a bare `,` or `=` of its own."""
    read = _FIELD_TERM.fullmatch(term)
    if read is None:
        raise BadRequest(f"field selector {term!r} is not understood", status=400, reason="BadRequest")
    key, differs, value = read["key"], read["verb"] == "!=", re.sub(r"\\(.)", r"\1", read["value"])
    path = key.split(".")

    def holds(thing: Mapping[str, Any]) -> bool:
        found: Any = thing
        for part in path:
            found = found.get(part) if isinstance(found, Mapping) else None
        return (_text(found, key) == value) is not differs

    return holds


def _text(value: Any, key: str) -> str:
    """How a selector says the value of a field."""
    if value is None:
        return _ABSENT.get(key, "")
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_fields(resource: Resource, fields: str) -> None:
    """A custom resource takes any beside metadata: which its definition lists as `selectableFields`, nobody knows here.

    Raises: BadRequest for a field by which an API server selects no objects of `resource`.
    """
    known = ("metadata.name", "metadata.namespace", *_FIELDS.get(str(resource.group_resource), ()))
    for term in _split_fields(fields):
        name = re.split("[!=]", term, maxsplit=1)[0]
        if name not in known and (is_builtin(resource) or name.startswith("metadata.")):
            message = f"field label not supported: {name} ({resource.plural} are selected by {', '.join(known)})"
            raise BadRequest(message, status=400, reason="BadRequest")


_REFERENCE: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
#: By which fields, beside name and namespace, some can be selected.
#: Source: the conversions below kubernetes/pkg/apis, as Kubernetes 1.36 has them.
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "certificatesigningrequests.certificates.k8s.io": ("spec.signerName",),
    "clustertrustbundles.certificates.k8s.io": ("spec.signerName",),
    "events": (
        *(f"involvedObject.{part}" for part in _REFERENCE),
        *("reason", "reportingComponent", "source", "type"),
    ),
    "events.events.k8s.io": (
        *(f"regarding.{part}" for part in _REFERENCE),
        *("reason", "reportingController", "type"),
    ),
    "jobs.batch": ("status.successful",),
    "namespaces": ("status.phase",),
    "nodes": ("spec.unschedulable",),
    "podcertificaterequests.certificates.k8s.io": (
        *("spec.signerName", "spec.podName", "spec.serviceAccountName", "spec.nodeName"),
    ),
    "pods": (
        *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork"),
        *("status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName"),
    ),
    "replicasets.apps": ("status.replicas",),
    "replicationcontrollers": ("status.replicas",),
    "resourceslices.resource.k8s.io": ("spec.nodeName", "spec.driver"),
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
}
#: What those are that an object does not say.
_ABSENT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("spec.hostNetwork", "spec.unschedulable"), "false"),
    **dict.fromkeys(("status.replicas", "status.successful"), "0"),
}


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
