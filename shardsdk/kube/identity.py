"""What tells one object from another, whatever it is decoded to."""

from __future__ import annotations

from typing import NamedTuple

from shardsdk.kinds.base import Kind
from shardsdk.protocol.objects import PartialObject


class Identity(NamedTuple):
    """What tells one object, and one version of it, from another."""

    namespace: str
    name: str
    uid: str
    resource_version: str


def identify(thing: object) -> Identity:
    """Read identity from a struct, a dict or a typed model; missing parts are empty."""
    if isinstance(thing, PartialObject | Kind):
        meta = thing.metadata
        return Identity(meta.namespace, meta.name, meta.uid, meta.resource_version)
    if isinstance(thing, dict):
        entries = thing.get("metadata") or {}
        return Identity(
            entries.get("namespace") or "",
            entries.get("name") or "",
            entries.get("uid") or "",
            entries.get("resourceVersion") or "",
        )
    found = getattr(thing, "metadata", None)
    return Identity(
        getattr(found, "namespace", None) or "",
        getattr(found, "name", None) or "",
        getattr(found, "uid", None) or "",
        getattr(found, "resource_version", None) or "",
    )
