"""Objects that wait say no more than placement reads, and what they have in common is held once."""

from __future__ import annotations

import msgspec
import pytest

from sharder.backlog.objects import MAX_SHARED, Sharing, slim
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import OwnerReference, SlimMeta, SlimObject

LABELS = parse_ring_name("ring")
OWNER = OwnerReference(api_version="v1", kind="Secret", name="owner", uid="uid-of-owner", controller=True)


def _received(
    name: str, labels: dict[str, str] | None, namespace: str = "a-namespace-of-some-length", *others: OwnerReference
) -> SlimObject:
    """An object as a watch brings it: nothing in it is shared with another."""
    meta = SlimMeta(
        name=name, namespace=namespace, uid=f"uid-of-{name}", resource_version="7", labels=labels,
        owner_references=[*others, OWNER],
    )  # fmt: skip
    return msgspec.json.decode(msgspec.json.encode(SlimObject(meta)), type=SlimObject)


def test_objects_with_equal_labels_hold_them_once_and_their_namespace_too() -> None:
    sharing = Sharing(LABELS)
    one, other = (sharing.share(_received(name, {LABELS.shard: "shard-1", "app": name})) for name in ("one", "other"))
    assert one.metadata.labels == {LABELS.shard: "shard-1"}
    assert one.metadata.labels is other.metadata.labels
    assert one.metadata.namespace is other.metadata.namespace


@pytest.mark.parametrize(
    "labels", [None, {LABELS.shard: "shard-1"}, {LABELS.drain: "true"}, {LABELS.shard: "", LABELS.drain: ""}]
)
def test_what_placement_reads_stays_what_it_was(labels: dict[str, str] | None) -> None:
    received = _received("one", labels)
    assert Sharing(LABELS).share(received) == received


def test_what_else_an_object_says_is_not_kept() -> None:
    others = [msgspec.structs.replace(OWNER, name=f"other-{number}", controller=False) for number in range(3)]
    received = _received("one", {"app": "web", LABELS.shard: "shard-1"}, "somewhere", *others)
    kept = slim(received.metadata, LABELS)
    assert (kept.labels, kept.owner_references) == ({LABELS.shard: "shard-1"}, [OWNER])


@pytest.mark.parametrize("field", ["api_version", "kind", "name", "uid"])
def test_a_reference_that_is_to_no_object_is_not_kept_either(field: str) -> None:
    meta = SlimMeta(name="one", owner_references=[msgspec.structs.replace(OWNER, **{field: "x" * 4096})])
    assert slim(meta, LABELS).owner_references is None


def test_what_is_shared_is_bounded_where_every_object_has_labels_of_its_own() -> None:
    sharing = Sharing(LABELS)
    for number in range(3 * MAX_SHARED):
        labels = {LABELS.shard: str(number)}
        assert sharing.share(_received("one", labels)).metadata.labels == labels
        assert sharing.kept <= MAX_SHARED
