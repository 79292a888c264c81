"""Label patches: conditional, and about nothing but the ring's two labels."""

from __future__ import annotations

import pytest

from sharder.core.patches import admit, assign, drain, release, restore
from shardsdk.protocol.labels import parse_ring_name

LABELS = parse_ring_name("example")
SHARD_POINTER = "/metadata/labels/shard.alpha.sharding.timebertt.dev~1clusterring-50d858e0-example"
DRAIN_POINTER = "/metadata/labels/drain.alpha.sharding.timebertt.dev~1clusterring-50d858e0-example"


def test_merge_patches_are_conditional_on_the_version_seen() -> None:
    assert assign(LABELS, "a", "7") == {"metadata": {"resourceVersion": "7", "labels": {LABELS.shard: "a"}}}
    assert drain(LABELS, "7") == {"metadata": {"resourceVersion": "7", "labels": {LABELS.drain: "true"}}}
    assert release(LABELS, "7")["metadata"]["labels"] == {LABELS.shard: None, LABELS.drain: None}
    assert release(LABELS, "7")["metadata"]["resourceVersion"] == "7"


def test_a_move_ends_the_drain_in_the_same_write() -> None:
    patched = assign(LABELS, "a", "7", clear_drain=True)
    assert patched["metadata"]["labels"] == {LABELS.shard: "a", LABELS.drain: None}


@pytest.mark.parametrize("present", [None, {}])
def test_admission_makes_the_map_of_labels_where_there_is_none(present: dict[str, object] | None) -> None:
    assert admit(LABELS, present, "a") == [{"op": "add", "path": "/metadata/labels", "value": {LABELS.shard: "a"}}]


def test_admission_adds_to_the_labels_that_are_there() -> None:
    assert admit(LABELS, {"app": "x"}, "a") == [{"op": "add", "path": SHARD_POINTER, "value": "a"}]


def test_admission_clears_a_drain_where_there_is_one() -> None:
    assert admit(LABELS, {LABELS.drain: ""}, "a")[1:] == [{"op": "remove", "path": DRAIN_POINTER}]


def test_what_was_taken_off_is_put_back_beside_what_is_there() -> None:
    both = {LABELS.shard: "a", LABELS.drain: "true"}
    assert restore(None, both) == [{"op": "add", "path": "/metadata/labels", "value": both}]
    assert restore({"app": "x"}, both) == [
        {"op": "add", "path": SHARD_POINTER, "value": "a"},
        {"op": "add", "path": DRAIN_POINTER, "value": "true"},
    ]
