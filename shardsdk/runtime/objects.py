"""Objects as reconcilers meet them: their names, their metadata, copies that cannot do harm.

Does: read metadata from whatever an object is decoded to (a struct with an
`ObjectMeta`, a dict, a typed model of the kubernetes package).  Refuses: to
compare resourceVersions that are not numbers by anything but equality.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import msgspec

from shardsdk.kube.decoding import identify
from shardsdk.kube.store import Key
from shardsdk.protocol.objects import ObjectMeta, OwnerReference, PartialObject, Resource

T = TypeVar("T")


#: Names one object of a resource: what queues hold and reconcilers are asked
#: for.  The namespace of a cluster-scoped object is empty.
Request = Key


def request_of(thing: object) -> Request:
    """The name of an object."""
    identity = identify(thing)
    return Request(identity.namespace, identity.name)


def metadata_of(thing: object) -> ObjectMeta:
    """The metadata of an object; a missing part is empty."""
    if isinstance(thing, PartialObject):
        return thing.metadata
    if isinstance(thing, dict):
        return msgspec.convert(thing.get("metadata") or {}, ObjectMeta, strict=False)
    found = getattr(thing, "metadata", None)
    if isinstance(found, ObjectMeta):
        return found
    identity = identify(thing)
    deleted = getattr(found, "deletion_timestamp", None)
    return ObjectMeta(
        name=identity.name,
        namespace=identity.namespace,
        uid=identity.uid,
        resource_version=identity.resource_version,
        generation=getattr(found, "generation", None) or 0,
        deletion_timestamp=None if deleted is None else str(deleted),
        labels=getattr(found, "labels", None),
        annotations=getattr(found, "annotations", None),
        owner_references=[_reference(reference) for reference in getattr(found, "owner_references", None) or ()],
        finalizers=getattr(found, "finalizers", None),
    )


def owner_of(thing: object, main: Resource) -> Request | None:
    """The object of `main` that controls `thing`; `None`: none does."""
    metadata = metadata_of(thing)
    reference = metadata.controller
    if reference is None or reference.kind != main.kind or reference.group != main.group:
        return None
    return Request(metadata.namespace if main.namespaced else "", reference.name)


def controller_reference(main: Resource, owner: ObjectMeta) -> dict[str, Any]:
    """The entry of a child's `metadata.ownerReferences` that makes `owner` its controller."""
    return {
        "apiVersion": main.api_version,
        "kind": main.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_at_least(version: str, wanted: str) -> bool:
    """Whether resourceVersion `version` is `wanted` or a later one of the same resource.

    Kubernetes makes them comparable numbers; anything else counts only when equal.
    """
    if version == wanted:
        return True
    try:
        return int(version) >= int(wanted)
    except ValueError:
        return False


def private_copy(thing: T) -> T:
    """A copy whose containers can be changed without anyone else seeing it."""
    if isinstance(thing, dict):
        return {name: private_copy(value) for name, value in thing.items()}  # type: ignore[return-value]
    if isinstance(thing, list):
        return [private_copy(value) for value in thing]  # type: ignore[return-value]
    if isinstance(thing, msgspec.Struct):
        return type(thing)(**{name: private_copy(getattr(thing, name)) for name in thing.__struct_fields__})
    if isinstance(thing, (str, bytes, int, float, bool, type(None))):
        return thing
    return copy.deepcopy(thing)


def drop_managed_fields(thing: T) -> T:
    """Take `metadata.managedFields` away: half of many objects' size, and no reconciler reads it."""
    if isinstance(thing, dict):
        metadata = thing.get("metadata")
        if isinstance(metadata, dict):
            metadata.pop("managedFields", None)
    elif getattr(getattr(thing, "metadata", None), "managed_fields", None) is not None:
        thing.metadata.managed_fields = None  # type: ignore[attr-defined]
    return thing


def _reference(reference: object) -> OwnerReference:
    return OwnerReference(
        api_version=getattr(reference, "api_version", None) or "",
        kind=getattr(reference, "kind", None) or "",
        name=getattr(reference, "name", None) or "",
        uid=getattr(reference, "uid", None) or "",
        controller=getattr(reference, "controller", None),
        block_owner_deletion=getattr(reference, "block_owner_deletion", None),
    )
