"""Predicates: which changes of an object are worth a reconcile.

A predicate takes a change (`Delta`: kind, object, old) and says yes or no.
They are only asked about objects that stay this shard's: a drain, its end and
an object's arrival pass whatever the predicates say.

>>> only_when = any_of(generation_changed, annotations_changed)

Does: compare old and new metadata.  Refuses: to look at spec or status; write a
function of your own for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.runtime.objects import metadata_of

#: Says whether a change is worth a reconcile.
Predicate = Callable[[Delta[Any]], bool]


def always(delta: Delta[Any]) -> bool:
    """Every change."""
    return True


def never(delta: Delta[Any]) -> bool:
    """No change."""
    return False


def generation_changed(delta: Delta[Any]) -> bool:
    """The spec changed (arrivals and deletions pass, and a deletion that was asked for).

    Changes of status, labels and annotations alone do not pass; for resources
    without a generation (Secrets, ConfigMaps) every change passes.
    """
    if delta.kind is not EventKind.MODIFIED or delta.old is None:
        return True
    old, new = metadata_of(delta.old), metadata_of(delta.object)
    if new.generation == 0:
        return True
    return old.generation != new.generation or old.deletion_timestamp != new.deletion_timestamp


def labels_changed(delta: Delta[Any]) -> bool:
    """The labels changed (arrivals and deletions pass)."""
    if delta.kind is not EventKind.MODIFIED or delta.old is None:
        return True
    return (metadata_of(delta.old).labels or {}) != (metadata_of(delta.object).labels or {})


def annotations_changed(delta: Delta[Any]) -> bool:
    """The annotations changed (arrivals and deletions pass)."""
    if delta.kind is not EventKind.MODIFIED or delta.old is None:
        return True
    return (metadata_of(delta.old).annotations or {}) != (metadata_of(delta.object).annotations or {})


def of_kind(*kinds: EventKind) -> Predicate:
    """Only these kinds of change."""
    return lambda delta: delta.kind in kinds


def per_kind(
    *,
    added: Predicate = always,
    modified: Predicate = always,
    deleted: Predicate = always,
    generic: Predicate = always,
) -> Predicate:
    """Another predicate for each kind of change; what is not given passes.

    `generic` is asked about requests that come from a timer or a trigger.

    >>> only_spec_and_arrivals = per_kind(modified=generation_changed, deleted=never)
    """
    chosen = {
        EventKind.ADDED: added,
        EventKind.MODIFIED: modified,
        EventKind.DELETED: deleted,
        EventKind.GENERIC: generic,
    }
    return lambda delta: chosen[delta.kind](delta)


def all_of(*predicates: Predicate) -> Predicate:
    """Every one of `predicates` passes."""
    return lambda delta: all(predicate(delta) for predicate in predicates)


def any_of(*predicates: Predicate) -> Predicate:
    """At least one of `predicates` passes."""
    return lambda delta: any(predicate(delta) for predicate in predicates)


def negate(predicate: Predicate) -> Predicate:
    """`predicate` does not pass."""
    return lambda delta: not predicate(delta)
