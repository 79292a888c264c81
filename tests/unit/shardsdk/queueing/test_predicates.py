from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.kinds import ConfigMap, Secret
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.operator import Operator
from shardsdk.protocol.objects import ObjectMeta, PartialObject
from shardsdk.queueing.predicates import (
    Predicate,
    all_of,
    always,
    annotations_changed,
    any_of,
    check_predicate,
    generation_changed,
    labels_changed,
    negate,
    never,
    of_kind,
    per_kind,
)
from shardsdk.queueing.sources import Every
from shardsdk.reconcile.spec import controller_for
from tests.shard_rig import CONFIGMAPS, SECRETS


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


async def waits(delta: Delta[Any]) -> bool:
    return False


def yields(delta: Delta[Any]) -> Iterator[bool]:
    yield False


NO_PREDICATES: list[tuple[Any, str]] = [
    (waits, "is an async function, but is asked between two events of a watch: write a plain one"),
    (yields, "^yields has a `yield`"),
    (of_kind, r"of_kind makes a predicate, and is none itself: call it, as in when=of_kind\(…\)"),
    (negate, "negate makes a predicate"),
    (None, "is None, which is no function"),
    (True, "is True, which is no function"),
]


@pytest.mark.parametrize(("given", "says"), NO_PREDICATES)
def test_what_would_pass_whatever_happens_is_refused_where_it_is_written(given: Any, says: str) -> None:
    """Something to await, or another predicate, is true."""
    operator, spec = Operator("secrets"), controller_for(SECRETS)
    watching = operator.reconcile(Secret)(lambda ctx: None)
    for write in (
        lambda: controller_for(SECRETS, when=given),
        lambda: spec.owns(CONFIGMAPS, when=given),
        lambda: spec.watches(CONFIGMAPS, lambda thing: [], when=given),
        lambda: spec.source(Every(60), when=given),
        lambda: operator.reconcile(ConfigMap, when=given),
        lambda: watching.watches(ConfigMap, to=lambda thing: [], when=given),
        lambda: any_of(labels_changed, given),
        lambda: all_of(given),
        lambda: negate(given),
        lambda: per_kind(modified=given),
    ):
        with pytest.raises(ConfigurationError, match=says):
            write()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: of_kind(cast("Any", "ADDED")),
            r"of_kind\('ADDED'\) would pass nothing: give kinds of change, as EventKind.ADDED",
        ),
        (lambda: of_kind(), r"of_kind\(\) would pass nothing"),
        (lambda: any_of(), r"any_of\(\) is given no predicates: if that is what is meant, write never"),
        (lambda: all_of(), r"all_of\(\) is given no predicates: if that is what is meant, write always"),
    ],
)
def test_what_would_pass_nothing_or_everything_is_refused(make: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        make()


def test_a_predicate_is_compared_with_nothing() -> None:
    """One may be an object whose `==` makes something else, as those of query builders do."""

    class Built:
        def __call__(self, delta: Delta[Any]) -> bool:
            return True

        def __eq__(self, other: object) -> bool:
            raise ValueError("neither yes nor no")

        __hash__ = None  # type: ignore[assignment]

    check_predicate(Built())
