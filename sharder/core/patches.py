"""The label patches by which objects change hands.

Does: render them, each conditional on the version that was seen.  Refuses:
patches that touch anything but this ring's two labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardsdk.protocol.labels import DRAIN_VALUE, RingLabels
from shardsdk.protocol.names import pointer_part

Patch = dict[str, Any]


def assign(labels: RingLabels, target: str, resource_version: str, clear_drain: bool = False) -> Patch:
    """Merge patch: the object is the shard `target`'s; for ASSIGN and for MOVE, so there is no moment without owner.

    `clear_drain` removes the drain label in the same write (harmless when absent).
    """
    changed: dict[str, str | None] = {labels.shard: target}
    if clear_drain:
        changed[labels.drain] = None
    return _merge(changed, resource_version)


def drain(labels: RingLabels, resource_version: str) -> Patch:
    """Merge patch: ask the object's shard to let go."""
    return _merge({labels.drain: DRAIN_VALUE}, resource_version)


def release(labels: RingLabels, resource_version: str) -> Patch:
    """Merge patch: the object is nobody's."""
    return _merge({labels.shard: None, labels.drain: None}, resource_version)


def restore(present: Mapping[str, object] | None, wanted: Mapping[str, str]) -> list[Patch]:
    """JSON patch for an admission answer: the object wears the labels `wanted` besides those that are `present`."""
    if not present:
        return [{"op": "add", "path": "/metadata/labels", "value": dict(wanted)}]
    return [{"op": "add", "path": _pointer(label), "value": value} for label, value in wanted.items()]


def admit(labels: RingLabels, present: Mapping[str, object] | None, target: str) -> list[Patch]:
    """JSON patch for an admission answer: the object is the shard `target`'s, and does not drain.

    `present` are the labels of the object under review, None when it has no map of them.
    """
    return restore(present, {labels.shard: target}) + _remove(present, labels.drain)


def withdraw(labels: RingLabels, present: Mapping[str, object] | None) -> list[Patch]:
    """JSON patch for an admission answer: the object is nobody's; `present` as for `admit`."""
    return _remove(present, labels.shard, labels.drain)


def _remove(present: Mapping[str, object] | None, *names: str) -> list[Patch]:
    return [{"op": "remove", "path": _pointer(name)} for name in names if name in (present or {})]


def _merge(changed: Mapping[str, str | None], resource_version: str) -> Patch:
    return {"metadata": {"resourceVersion": resource_version, "labels": dict(changed)}}


def _pointer(label: str) -> str:
    return f"/metadata/labels/{pointer_part(label)}"
