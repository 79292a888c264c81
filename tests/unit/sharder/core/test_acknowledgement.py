"""Which write lets go of an object, told by what it changes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from sharder.core.acknowledgement import is_acknowledgement
from shardsdk.protocol.labels import parse_ring_name

LABELS = parse_ring_name("example")
OTHER = parse_ring_name("another")
Object = dict[str, Any]

DRAINING: Object = {
    "apiVersion": "v1",
    "kind": "Thing",
    "metadata": {
        "name": "x",
        "namespace": "n",
        "uid": "7c6e",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "resourceVersion": "41",
        "generation": 3,
        "labels": {"app": "x", LABELS.shard: "a", LABELS.drain: "true", OTHER.shard: "b", OTHER.drain: "true"},
        "annotations": {"noted": "before"},
        "finalizers": ["hold"],
        "ownerReferences": [{"name": "owner", "uid": "1"}],
        "managedFields": [{"manager": "sharder"}],
    },
    "spec": {"size": 1, "ratio": 1.5, "list": [1, {"a": None}]},
    "status": {"ready": True},
}


def acknowledged() -> Object:
    """The object as an acknowledgement leaves it."""
    after = copy.deepcopy(DRAINING)
    for label in (LABELS.shard, LABELS.drain):
        del after["metadata"]["labels"][label]
    return after


def judged(after: Object, before: Object = DRAINING) -> bool:
    return is_acknowledgement(json.dumps({"request": {"object": after, "oldObject": before}}).encode(), LABELS)


def test_both_labels_and_nothing_else_is_an_acknowledgement() -> None:
    assert judged(acknowledged())


def test_the_last_labels_may_go_with_their_map() -> None:
    before = copy.deepcopy(DRAINING)
    before["metadata"]["labels"] = {LABELS.shard: "a", LABELS.drain: ""}
    after = copy.deepcopy(before)
    after["metadata"]["labels"] = {}
    assert judged(after, before)
    after["metadata"]["labels"] = None
    assert judged(after, before)
    del after["metadata"]["labels"]
    assert judged(after, before)


SERVERS_OWN: dict[str, Callable[[Object], object]] = {
    "version": lambda it: it["metadata"].update(resourceVersion="42"),
    "no version": lambda it: it["metadata"].pop("resourceVersion"),
    "managed fields": lambda it: it["metadata"].pop("managedFields"),
    "generation": lambda it: it["metadata"].update(generation=4),
    "order": lambda it: it.update(spec=dict(reversed(it["spec"].items()))),
    "a number written otherwise": lambda it: it["spec"].update(size=1.0),
    "null for what is not there": lambda it: it.update(extra=None),
}


@pytest.mark.parametrize("change", SERVERS_OWN.values(), ids=SERVERS_OWN)
def test_what_the_api_server_changes_by_itself_does_not_count(change: Callable[[Object], object]) -> None:
    after = acknowledged()
    change(after)
    assert judged(after)


def test_notes_of_other_webhooks_do_not_keep_an_object_draining() -> None:
    after = acknowledged()
    after["metadata"]["annotations"] = {"noted": "at a later time", "by": "whom"}
    assert judged(after)


CHANGES: dict[str, Callable[[Object], object]] = {
    "spec": lambda it: it["spec"].update(size=2),
    "a list in the spec": lambda it: it["spec"]["list"].append(1),
    "no spec": lambda it: it.pop("spec"),
    "status": lambda it: it["status"].update(ready=False),
    "another field": lambda it: it.update(data={}),
    "no uid": lambda it: it["metadata"].pop("uid"),
    "no creation timestamp": lambda it: it["metadata"].pop("creationTimestamp"),
    "creation timestamp null": lambda it: it["metadata"].update(creationTimestamp=None),
    "finalizers": lambda it: it["metadata"].update(finalizers=[]),
    "owner references": lambda it: it["metadata"].pop("ownerReferences"),
    "an annotation gone": lambda it: it["metadata"].update(annotations={"by": "whom"}),
    "no annotations": lambda it: it["metadata"].pop("annotations"),
    "a label gone": lambda it: it["metadata"]["labels"].pop("app"),
    "a label changed": lambda it: it["metadata"]["labels"].update(app="y"),
    "a label more": lambda it: it["metadata"]["labels"].update(team="y"),
    "no labels": lambda it: it["metadata"].pop("labels"),
    "another ring's labels": lambda it: it["metadata"]["labels"].pop(OTHER.shard),
    "the shard label stays": lambda it: it["metadata"]["labels"].update({LABELS.shard: "a"}),
    "the drain label stays": lambda it: it["metadata"]["labels"].update({LABELS.drain: "true"}),
    "no metadata": lambda it: it.pop("metadata"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_else_changes_is_no_acknowledgement(change: Callable[[Object], object]) -> None:
    after = acknowledged()
    change(after)
    assert not judged(after)


@pytest.mark.parametrize("label", [LABELS.shard, LABELS.drain])
def test_an_object_that_does_not_wear_both_labels_cannot_be_let_go_of(label: str) -> None:
    before = copy.deepcopy(DRAINING)
    del before["metadata"]["labels"][label]
    assert not judged(acknowledged(), before)


@pytest.mark.parametrize(
    "review",
    [
        b"",
        b"{",
        b"\xff",
        b"{}",
        b"null",
        b'{"request": {}}',
        b'{"request": {"object": [], "oldObject": {}}}',
        b'{"request": {"object": {"metadata": []}, "oldObject": {"metadata": 1}}}',
        b'{"request": {"object": {"metadata": {"labels": 1}}, "oldObject": {"metadata": {"labels": "x"}}}}',
        b'{"request": {"object": ' + b"[" * 100_000,
    ],
)
def test_what_cannot_be_read_is_no_acknowledgement(review: bytes) -> None:
    assert not is_acknowledgement(review, LABELS)
