"""Predicates: which changes of an object are worth a reconcile.

A predicate takes a change (`Delta`: kind, object, old) and says yes or no.
They are only asked about objects that stay this shard's, and about an object's
arrival (ADDED).  Whatever the predicates say, a drain and its end pass.  When a main
object with finalizers begins to be deleted they are asked about that change, and then
as about an arrival; who refuses both leaves the object, and its finalizers, to others.
That it is gone (DELETED) they are asked about owned and watched objects alone: of a
main object nothing is left to reconcile.

>>> only_when = any_of(generation_changed, annotations_changed)

Does: compare old and new metadata.  Refuses: to look at spec or status; write a
function of your own for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from typing_extensions import TypeVar

from shardsdk.cache.objects import metadata_of
from shardsdk.errors import ConfigurationError
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.protocol.objects import ObjectMeta
from shardsdk.queueing.functions import check_no_generator, check_plain

__all__ = [
    "Predicate",
    "all_of",
    "always",
    "annotations_changed",
    "any_of",
    "generation_changed",
    "labels_changed",
    "negate",
    "never",
    "of_kind",
    "per_kind",
]

_T = TypeVar("_T", default=Any)

#: Says whether a change is worth a reconcile.
Predicate = Callable[[Delta[_T]], bool]


def always(delta: object) -> bool:
    """Every change.

    >>> from shardsdk import Delta, EventKind, ObjectMeta, PartialObject
    >>> always(Delta(EventKind.ADDED, PartialObject(ObjectMeta()), None, initial=True))
    True
    """
    return True


def never(delta: object) -> bool:
    """No change; of use in `per_kind`.

    >>> from shardsdk import Delta, EventKind, ObjectMeta, PartialObject
    >>> never(Delta(EventKind.DELETED, PartialObject(ObjectMeta()), None, initial=False))
    False
    """
    return False


def generation_changed(delta: Delta[Any]) -> bool:
    """The spec changed (arrivals and ends pass, and a deletion that was asked for).

    Changes of status, labels and annotations alone do not pass; for resources
    without a generation (Secrets, ConfigMaps) every change passes.

    >>> from shardsdk import Delta, EventKind, ObjectMeta, PartialObject
    >>> before = PartialObject(ObjectMeta(generation=1))
    >>> after = PartialObject(ObjectMeta(generation=1, labels={"team": "a"}))
    >>> generation_changed(Delta(EventKind.MODIFIED, after, before, initial=False))
    False
    """
    if metadata_of(delta.object).generation == 0:
        return True
    return _changed(delta, lambda meta: (meta.generation, meta.deletion_timestamp))


def labels_changed(delta: Delta[Any]) -> bool:
    """The labels changed (arrivals and ends pass).

    >>> from shardsdk import Delta, EventKind, ObjectMeta, PartialObject
    >>> before, after = PartialObject(ObjectMeta()), PartialObject(ObjectMeta(labels={"team": "a"}))
    >>> labels_changed(Delta(EventKind.MODIFIED, after, before, initial=False))
    True
    """
    return _changed(delta, lambda meta: meta.labels or {})


def annotations_changed(delta: Delta[Any]) -> bool:
    """The annotations changed (arrivals and ends pass).

    >>> from shardsdk import Delta, EventKind, ObjectMeta, PartialObject
    >>> before, after = PartialObject(ObjectMeta()), PartialObject(ObjectMeta(labels={"team": "a"}))
    >>> annotations_changed(Delta(EventKind.MODIFIED, after, before, initial=False))
    False
    """
    return _changed(delta, lambda meta: meta.annotations or {})


def of_kind(*kinds: EventKind) -> Predicate:
    """Only these kinds of change.  Raises: ConfigurationError for none, or for what is no kind.

    >>> from shardsdk import Delta, EventKind, ObjectMeta, PartialObject
    >>> arrives = Delta(EventKind.ADDED, PartialObject(ObjectMeta()), None, initial=False)
    >>> of_kind(EventKind.ADDED, EventKind.MODIFIED)(arrives), of_kind(EventKind.DELETED)(arrives)
    (True, False)
    """
    if not kinds or not all(isinstance(each, EventKind) for each in kinds):
        given = ", ".join(map(repr, kinds))
        raise ConfigurationError(f"of_kind({given}) would pass nothing: give kinds of change, as EventKind.ADDED")
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

    >>> from shardsdk import Delta, EventKind, ObjectMeta, PartialObject
    >>> only_spec_and_arrivals = per_kind(modified=generation_changed, deleted=never)
    >>> only_spec_and_arrivals(Delta(EventKind.DELETED, PartialObject(ObjectMeta()), None, initial=False))
    False
    """
    for each in (added, modified, deleted, generic):
        check_predicate(each)
    chosen = {
        EventKind.ADDED: added,
        EventKind.MODIFIED: modified,
        EventKind.DELETED: deleted,
        EventKind.GENERIC: generic,
    }
    return lambda delta: chosen[delta.kind](delta)


def all_of(*predicates: Predicate) -> Predicate:
    """Every one of `predicates` passes.  Raises: ConfigurationError for none of them, or for what is none.

    >>> from shardsdk import Delta, EventKind, ObjectMeta, PartialObject
    >>> arrives = Delta(EventKind.ADDED, PartialObject(ObjectMeta()), None, initial=False)
    >>> all_of(labels_changed, of_kind(EventKind.MODIFIED))(arrives)
    False
    """
    _check_some(predicates, "all_of", "always")
    return lambda delta: all(predicate(delta) for predicate in predicates)


def any_of(*predicates: Predicate) -> Predicate:
    """At least one of `predicates` passes.  Raises: ConfigurationError for none of them, or for what is none.

    >>> from shardsdk import Delta, EventKind, ObjectMeta, PartialObject
    >>> arrives = Delta(EventKind.ADDED, PartialObject(ObjectMeta()), None, initial=False)
    >>> any_of(labels_changed, of_kind(EventKind.MODIFIED))(arrives)
    True
    """
    _check_some(predicates, "any_of", "never")
    return lambda delta: any(predicate(delta) for predicate in predicates)


def negate(predicate: Predicate) -> Predicate:
    """`predicate` does not pass.

    >>> from shardsdk import Delta, EventKind, ObjectMeta, PartialObject
    >>> arrives = Delta(EventKind.ADDED, PartialObject(ObjectMeta()), None, initial=False)
    >>> negate(of_kind(EventKind.ADDED))(arrives)
    False
    """
    check_predicate(predicate)
    return lambda delta: not predicate(delta)


def check_predicate(predicate: Any) -> None:
    """Raises: ConfigurationError for what would say yes to every change, because it says something else than yes or no.

    That is a function that would have to be awaited, one with a `yield`, or one that only makes a predicate.

    >>> check_predicate(any_of)
    Traceback (most recent call last):
    shardsdk.errors.ConfigurationError: any_of makes a predicate, and is none itself: call it, as in when=any_of(…)
    """
    check_plain(predicate, "a predicate (when=…)")
    check_no_generator(predicate)
    if any(predicate is each for each in _MAKERS):  # what is compared by == may not answer yes or no
        name = predicate.__name__
        raise ConfigurationError(f"{name} makes a predicate, and is none itself: call it, as in when={name}(…)")


def _check_some(predicates: tuple[Predicate, ...], name: str, instead: str) -> None:
    """Raises: ConfigurationError."""
    if not predicates:
        raise ConfigurationError(f"{name}() is given no predicates: if that is what is meant, write {instead}")
    for each in predicates:
        check_predicate(each)


def _changed(delta: Delta[Any], part: Callable[[ObjectMeta], object]) -> bool:
    """Whether `part` of the metadata differs from what it was; of what came or went it does."""
    if delta.kind is not EventKind.MODIFIED or delta.old is None:
        return True
    return part(metadata_of(delta.old)) != part(metadata_of(delta.object))


#: What people write without calling it.
_MAKERS: Final = (all_of, any_of, negate, of_kind, per_kind)
