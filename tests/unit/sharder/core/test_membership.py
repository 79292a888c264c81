"""Who is available follows from the leases alone."""

from __future__ import annotations

from sharder.core.hashring import HashRing
from sharder.core.membership import Membership, build
from shardsdk.protocol.leases import Lease, LeaseSpec
from shardsdk.protocol.objects import ObjectMeta


def lease(name: str, holder: str | None, namespace: str = "default") -> Lease:
    return Lease(ObjectMeta(name=name, namespace=namespace), LeaseSpec(holder_identity=holder))


def test_available_is_exactly_held_by_its_own_shard() -> None:
    leases = [lease("a", "a"), lease("b", ""), lease("c", None), lease("d", "shardlease-controller"), lease("e", "a")]
    assert build(leases, {"a", "b"}) == Membership(available=frozenset("a"), ready=frozenset("a"))


def test_only_available_shards_are_ready() -> None:
    assert build([lease("a", "a"), lease("b", "b")], {"b", "ghost"}).ready == {"b"}


def test_a_name_held_in_two_namespaces_is_in_no_ring() -> None:
    found = build([lease("a", "a", "x"), lease("a", "a", "y"), lease("b", "b")], {"a", "b"})
    assert found == Membership(available=frozenset("b"), ready=frozenset("b"), ambiguous=frozenset("a"))
    assert {found.target(f"key-{index}") for index in range(50)} == {"b"}


def test_a_name_held_once_and_released_elsewhere_is_available() -> None:
    assert build([lease("a", "a", "x"), lease("a", "", "y")], {"a"}).available == {"a"}


def test_a_name_that_cannot_be_a_label_value_gets_nothing() -> None:
    found = build([lease("x" * 64, "x" * 64)], {"x" * 64})
    assert found == Membership(unusable=frozenset({"x" * 64}))


def test_without_shards_there_is_no_target() -> None:
    assert build([], ()).target("/Secret/default/a") is None
    assert Membership().target("/Secret/default/a") is None


def test_the_hash_ring_is_built_anew_only_when_names_change() -> None:
    first = build([lease("a", "a"), lease("b", "b")], {"a"})
    renewed = build([lease("b", "b"), lease("a", "a")], {"a", "b"}, first)
    changed = build([lease("b", "b")], {"b"}, renewed)
    assert renewed.ring is first.ring
    assert renewed != first
    assert changed.ring == HashRing({"b"})
