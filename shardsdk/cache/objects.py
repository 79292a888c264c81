"""Objects as reconcilers meet them: their names, their metadata, copies that cannot do harm.

Metadata is read from whatever an object is decoded to: a struct with an
`ObjectMeta`, a dict, a typed model of the kubernetes package.
"""

from __future__ import annotations

import copy
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from shardsdk.kube.decoding import metadata_of
from shardsdk.kube.identity import identify
from shardsdk.kube.store import Key
from shardsdk.protocol.objects import ObjectMeta, Resource

__all__ = [
    "Request", "controller_reference", "drop_managed_fields", "is_at_least", "metadata_of", "owner_of", "private_copy",
    "request_of",
]  # fmt: skip

T = TypeVar("T")


_IMMUTABLE: Final = frozenset({str, int, float, bool, bytes, type(None), datetime})

#: Names one object of a resource: what queues hold and reconcilers are asked
#: for.  The namespace of a cluster-scoped object is empty.
Request = Key


def request_of(thing: object) -> Request:
    """The name of an object."""
    identity = identify(thing)
    return Request(identity.namespace, identity.name)


def owner_of(thing: object, main: Resource) -> Request | None:
    """The object of `main` that controls `thing`; `None`: none does."""
    metadata = metadata_of(thing)
    reference = metadata.controller
    if reference is None or not reference.names_an_object:
        return None
    if reference.kind != main.kind or reference.group != main.group:
        return None
    return Request(metadata.namespace if main.namespaced else "", reference.name)


def is_controlled(thing: object, main: Resource, owner: Request, uid: str) -> bool:
    """Whether the object `owner` of `main`, which has this uid, controls `thing`.

    Its uid alone does not say so: an API server takes any in a reference, from whoever may write in some namespace.
    """
    metadata = metadata_of(thing)
    reference = metadata.controller
    if reference is None or reference.uid != uid or reference.name != owner.name or not reference.names_an_object:
        return False
    # Whether it has a namespace the owner itself tells: what a program declares of `main` may not be so.
    return (reference.kind, reference.group) == (main.kind, main.group) and owner.namespace in ("", metadata.namespace)


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
        copied = copy.copy(thing)
        for name in thing.__struct_fields__:
            value = getattr(thing, name)
            if type(value) not in _IMMUTABLE:
                msgspec.structs.force_setattr(copied, name, private_copy(value))
        return copied
    if isinstance(thing, (str, bytes, int, float, bool, datetime, type(None))):
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
