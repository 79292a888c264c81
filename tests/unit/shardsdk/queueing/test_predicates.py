from __future__ import annotations

from typing import Any

import pytest

from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.protocol.objects import ObjectMeta, PartialObject
from shardsdk.queueing.predicates import (
    Predicate,
    all_of,
    always,
    annotations_changed,
    any_of,
    generation_changed,
    labels_changed,
    negate,
    never,
    of_kind,
    per_kind,
)


def change(**changes: Any) -> Delta[PartialObject]:
    old = ObjectMeta(name="x", generation=1, labels={"a": "1"})
    new = ObjectMeta(**{"name": "x", "generation": 1, "labels": {"a": "1"}, **changes})
    return Delta(EventKind.MODIFIED, PartialObject(new), PartialObject(old), initial=False)


def arrival() -> Delta[PartialObject]:
    return Delta(EventKind.ADDED, PartialObject(ObjectMeta(name="x", generation=1)), None, initial=False)


@pytest.mark.parametrize(
    ("predicate", "delta", "expected"),
    [
        (always, change(), True),
        (generation_changed, change(), False),
        (generation_changed, change(generation=2), True),
        (generation_changed, change(deletion_timestamp="2030-01-01T00:00:00Z"), True),
        (generation_changed, change(labels={}), False),
        (generation_changed, change(generation=0), True),  # a resource that has none
        (labels_changed, change(), False),
        (labels_changed, change(labels={"a": "2"}), True),
        (annotations_changed, change(), False),
        (annotations_changed, change(annotations={"a": "2"}), True),
        (annotations_changed, change(annotations={}), False),
        (of_kind(EventKind.ADDED), change(), False),
        (negate(of_kind(EventKind.ADDED)), change(), True),
        (any_of(labels_changed, generation_changed), change(generation=2), True),
        (all_of(labels_changed, generation_changed), change(generation=2), False),
    ],
)
def test_predicates_compare_old_and_new(predicate: Predicate, delta: Delta[Any], expected: bool) -> None:
    assert predicate(delta) is expected


@pytest.mark.parametrize("kind", EventKind)
def test_each_kind_of_change_may_have_a_predicate_of_its_own(kind: EventKind) -> None:
    thing = PartialObject(ObjectMeta(name="x"))
    delta = Delta(kind, thing, thing, initial=False)
    assert per_kind()(delta)
    refusing = {
        EventKind.ADDED: per_kind(added=never),
        EventKind.MODIFIED: per_kind(modified=never),
        EventKind.DELETED: per_kind(deleted=never),
        EventKind.GENERIC: per_kind(generic=never),
    }
    assert [each for each, predicate in refusing.items() if not predicate(delta)] == [kind]


@pytest.mark.parametrize("predicate", [generation_changed, labels_changed, annotations_changed])
def test_arrivals_pass(predicate: Predicate) -> None:
    assert predicate(arrival())
