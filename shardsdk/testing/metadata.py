"""What metadata may say, and which of it holds up a deletion, for servers in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from shardsdk.errors import BadRequest, Conflict, Invalid, ServerError
from shardsdk.protocol.labels import is_label_key, is_label_value
from shardsdk.protocol.names import is_dns_label, is_dns_subdomain, is_path_segment
from shardsdk.protocol.objects import Resource
from shardsdk.testing.strategies import RBAC, Object, takes_any_finalizer

_OF_OWNER: Final = ("apiVersion", "kind", "name", "uid")
_MAY_BE_EMPTY: Final = frozenset({"annotations", "finalizers", "labels", "ownerReferences"})
#: What each is in JSON, and what is in it.
_TYPES: Final[Mapping[str, tuple[Any, Any]]] = {
    "annotations": (Mapping, str | None),
    "labels": (Mapping, str | None),
    "finalizers": (list | tuple, str),
    "ownerReferences": (list | tuple, Mapping),
    "resourceVersion": (str, str),
}
#: What a way of deletion has an object wait for.
_HELD_BY: Final = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
_STANDARD_FINALIZERS: Final = ("foregroundDeletion", "kubernetes", "orphan")
#: Of keys and values together.  Source: apimachinery, api/validation, TotalAnnotationSizeLimitB.
_ANNOTATIONS_BYTES: Final = 256 * 1024


def check_new(body: Mapping[str, Any]) -> None:
    """Raises: ServerError for an object that says that it is there already."""
    if version_named(body.get("metadata") or {}):
        message = "resourceVersion should not be set on objects to be created"
        raise ServerError(message, status=500, reason="InternalError")


def version_of(text: str) -> int:
    """A resourceVersion.  Raises: ServerError for what is none: that is what an API server makes of it."""
    if not (text.isascii() and text.isdecimal()):
        raise ServerError(f"parsing {text!r}: invalid syntax", status=500, reason="InternalError")
    return int(text)


def version_named(metadata: Mapping[str, Any]) -> int:
    """The resourceVersion that an object is said to be of; 0: of any.  Raises: Invalid, ServerError."""
    if mistyped := mistyped_in(metadata, "resourceVersion"):
        raise _invalid(mistyped)
    return version_of(metadata.get("resourceVersion") or "0")


def check_place_in(body: Mapping[str, Any], name: str | None, namespace: str | None) -> None:
    """Raises: BadRequest for a body that names another object than its path does."""
    metadata = body.get("metadata") or {}
    for part, wanted in (("name", name), ("namespace", namespace)):
        if wanted is not None and metadata.get(part) not in (None, "", wanted):
            message = f"the {part} of the object ({metadata[part]}) does not match the {part} on the URL ({wanted})"
            raise BadRequest(message, status=400, reason="BadRequest")


def check_metadata(resource: Resource, old: Object | None, new: Object) -> None:
    """What metadata may say; `old` None: of a new object.

    Raises: Invalid; BadRequest for what is of the wrong type in a new one.
    """
    if mistyped := mistyped_in(new):
        raise BadRequest(mistyped, status=400, reason="BadRequest") if old is None else _invalid(mistyped)
    faults = []
    if old is None and not _is_name(resource, new["name"]):
        faults.append(f"metadata.name: Invalid value: {new['name']!r}")
    for part in ("labels", "annotations"):
        entries = new.get(part) or {}
        if old is None or entries != old.get(part):
            faults += _faults_of_entries(part, entries)
    faults += _faults_of_owners(new.get("ownerReferences") or ())
    faults += _faults_of_finalizers(resource, new.get("finalizers") or ())
    if old is not None and "deletionTimestamp" in old:
        added = set(new.get("finalizers") or ()).difference(old.get("finalizers") or ())
        if added:
            faults.append(f"metadata.finalizers: Forbidden: no new ones while it is being deleted: {sorted(added)}")
    if faults:
        raise Invalid(f"{resource.kind} {new['name']!r} is invalid: {'; '.join(faults)}", status=422, reason="Invalid")


def _invalid(message: str) -> Invalid:
    return Invalid(message, status=422, reason="Invalid")


def mistyped_in(metadata: Mapping[str, Any], *parts: str) -> str:
    """Which of these parts of metadata, or of all, is of another type than it has to be; empty: none."""
    for part in parts or _TYPES:
        (outer, inner), found = _TYPES[part], metadata.get(part)
        fits = found is None or isinstance(found, outer)
        inside = found.values() if isinstance(found, Mapping) else found or ()
        if not (fits and all(isinstance(each, inner) for each in inside)):
            return f"metadata.{part}: {found!r} is of the wrong type"
    return ""


def _faults_of_entries(part: str, entries: Mapping[str, Any]) -> Iterator[str]:
    """Of labels and annotations.  Raises: BadRequest."""
    for key, value in entries.items():
        if not isinstance(value, str):
            raise BadRequest(f"metadata.{part}.{key}: {value!r} is no string", status=400, reason="BadRequest")
        # Those of annotations are read as if they had no capitals.
        if not is_label_key(key.lower() if part == "annotations" else key) or (
            part == "labels" and not is_label_value(value)
        ):
            yield f"metadata.{part}: Invalid value: {key!r}: {value!r}"
    if part == "annotations" and sum(len(f"{key}{entries[key]}".encode()) for key in entries) > _ANNOTATIONS_BYTES:
        yield f"metadata.annotations: Too long: may not be more than {_ANNOTATIONS_BYTES} bytes"


def _faults_of_owners(owners: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for each in owners:
        yield from (f"metadata.ownerReferences.{part}: must not be empty" for part in _OF_OWNER if not each.get(part))
        if (each.get("apiVersion"), each.get("kind")) == ("v1", "Event"):
            yield "metadata.ownerReferences: Invalid value: v1, Kind=Event is disallowed from being an owner"
    if len([each for each in owners if each.get("controller")]) > 1:
        yield "metadata.ownerReferences: Invalid value: only one reference can have controller set to true"


def _faults_of_finalizers(resource: Resource, finalizers: Sequence[str]) -> Iterator[str]:
    """Those of Kubernetes' own kinds have a domain.  Source: the validation below kubernetes/pkg/apis/core."""
    for each in finalizers:
        if not is_label_key(each):
            yield f"metadata.finalizers: Invalid value: {each!r}"
        elif "/" not in each and each not in _STANDARD_FINALIZERS and not takes_any_finalizer(resource):
            yield f"metadata.finalizers: Invalid value: {each!r}: neither a standard finalizer nor fully qualified"
    if {*_HELD_BY.values()} <= set(finalizers):
        yield "metadata.finalizers: Invalid value: finalizers orphan and foregroundDeletion cannot be both set"


def _is_name(resource: Resource, name: str) -> bool:
    """Whether an object may be called so.  Source: the validation below kubernetes/pkg/apis."""
    which = str(resource.group_resource)
    if which in RBAC or which == "ipaddresses.networking.k8s.io":
        return is_path_segment(name)
    return is_dns_label(name) if which in ("namespaces", "services") else is_dns_subdomain(name)


def without_empties(metadata: Object) -> Object:
    """The same but for lists and maps that have nothing in them, and owners that are there twice.

    An API server stores none of those.
    """
    kept = {name: value for name, value in metadata.items() if value or name not in _MAY_BE_EMPTY}
    owners = kept.get("ownerReferences")
    if isinstance(owners, list) and len(owners) > 1:
        kept["ownerReferences"] = [each for at, each in enumerate(owners) if each not in owners[:at]]
    return kept


def finalizers_of_deletion(propagation: str | None, finalizers: Sequence[str]) -> list[str]:
    """The finalizers of an object that is deleted in such a way; `None`: nobody has said.  Raises: Invalid."""
    if propagation is None:
        return list(finalizers)
    if propagation not in ("Background", *_HELD_BY):
        raise Invalid(f"propagationPolicy: Invalid value: {propagation!r}", status=422, reason="Invalid")
    others = [each for each in finalizers if each not in _HELD_BY.values()]
    return [*others, _HELD_BY[propagation]] if propagation in _HELD_BY else others


def naming_of(metadata: Object) -> Object:
    """What names an object, and which it has to be."""
    return {part: metadata[part] for part in ("name", "namespace", "uid", "resourceVersion") if part in metadata}


def check_preconditions(resource: Resource, metadata: Object, version: str | None, uid: str | None) -> None:
    """Raises: Conflict for an object of another version, or another object, than it has to be; empty: any."""
    about = f"{resource.plural} {metadata.get('namespace')}/{metadata['name']}"
    if (version or metadata["resourceVersion"]) != metadata["resourceVersion"]:
        raise Conflict(f"{about} has changed", status=409, reason="Conflict")
    if (uid or metadata["uid"]) != metadata["uid"]:
        raise Conflict(f"{about} is another one", status=409, reason="Conflict")
