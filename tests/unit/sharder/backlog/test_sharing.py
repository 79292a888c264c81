"""What the objects that wait have in common is held once."""

from __future__ import annotations

import msgspec

from sharder.backlog.objects import MAX_SHARED, Sharing
from shardsdk.protocol.objects import OwnerReference, SlimMeta, SlimObject


def _received(name: str, labels: dict[str, str] | None, namespace: str = "a-namespace-of-some-length") -> SlimObject:
    """An object as a watch brings it: nothing in it is shared with another."""
    owner = OwnerReference(api_version="v1", kind="Secret", name="owner", uid="uid-of-owner", controller=True)
    meta = SlimMeta(
        name=name, namespace=namespace, uid=f"uid-of-{name}", resource_version="7", labels=labels,
        owner_references=[owner],
    )  # fmt: skip
    return msgspec.json.decode(msgspec.json.encode(SlimObject(meta)), type=SlimObject)


def test_objects_with_equal_labels_hold_them_once_and_their_namespace_too() -> None:
    sharing = Sharing()
    one, other = (
        sharing.share(_received(name, {"shard.alpha.sharding.timebertt.dev/ring": "shard-1", "app": "web"}))
        for name in ("one", "other")
    )
    assert one.metadata.labels is other.metadata.labels
    assert one.metadata.namespace is other.metadata.namespace


def test_an_object_stays_what_it_was() -> None:
    sharing = Sharing()
    for labels in (None, {"app": "web"}, {"app": "db"}, {"app": "web", "shard": ""}):
        received = _received("one", labels)
        assert sharing.share(received) == received


def test_the_order_of_labels_does_not_confuse_them() -> None:
    sharing = Sharing()
    first, second = {"a": "1", "b": "2"}, {"b": "1", "a": "2"}
    assert sharing.share(_received("one", first)).metadata.labels == first
    assert sharing.share(_received("two", second)).metadata.labels == second


def test_what_is_shared_is_bounded_where_every_object_has_labels_of_its_own() -> None:
    sharing = Sharing()
    for number in range(3 * MAX_SHARED):
        labels = {"index": str(number)}
        assert sharing.share(_received("one", labels)).metadata.labels == labels
        assert sharing.kept <= MAX_SHARED
