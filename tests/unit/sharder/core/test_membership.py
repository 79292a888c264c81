"""Who is available follows from the leases alone."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharder.core import hashring
from sharder.core.decisions import Target
from sharder.core.hashring import HashRing
from sharder.core.membership import Membership, NotNow, build, counts_the_same
from shardsdk.protocol.labels import (
    INSTANCE_ANNOTATION,
    LEASE_CONTROLLERRING_LABEL,
    LEASE_RING_LABEL,
    LEAVING_ANNOTATION,
    MAIN_RESOURCES_ANNOTATION,
)
from shardsdk.protocol.leases import (
    MAX_DURATION_SECONDS,
    Lease,
    LeaseSpec,
    render_instance,
    render_main_resources,
)
from shardsdk.protocol.objects import GroupResource, ObjectMeta

SECRETS = GroupResource("", "secrets")


def lease(
    name: str,
    holder: str | None,
    namespace: str = "default",
    *,
    seconds: int = 15,
    labels: tuple[str, ...] = (),
    mains: tuple[GroupResource, ...] = (),
    leaving: bool = False,
    instance: str | None = None,
) -> Lease:
    said = {MAIN_RESOURCES_ANNOTATION: render_main_resources(mains, "now")} if mains else {}
    if leaving:
        said[LEAVING_ANNOTATION] = "now"
    if instance is not None:
        said[INSTANCE_ANNOTATION] = render_instance(instance, "now")
    labelled = dict.fromkeys(labels, "example")
    meta = ObjectMeta(name=name, namespace=namespace, labels=labelled, annotations=said)
    return Lease(meta, LeaseSpec(holder_identity=holder, lease_duration_seconds=seconds, renew_time="now"))


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


def test_what_nobody_has_goes_past_silent_shards_while_there_are_others() -> None:
    found = build([lease("a", "a"), lease("b", "b")], {"a", "b"}, silent=frozenset({"a", "gone"}))
    assert found.silent == {"a"}
    assert {found.stand_in(f"key-{index}") for index in range(50)} == {"b"}


@pytest.mark.parametrize("gone", [frozenset[str](), frozenset({"gone"})])
def test_when_all_shards_are_silent_none_is(gone: frozenset[str]) -> None:
    """Otherwise what is created meanwhile would have no owner."""
    leases = [lease("a", "a"), lease("b", "b")]
    before = build(leases, {"a", "b"}, silent=frozenset("a"))
    found = build(leases, {"a", "b"}, before, silent=frozenset("ab") | gone)
    assert found.silent == frozenset()
    keys = [f"key-{index}" for index in range(50)]
    assert [found.stand_in(key) for key in keys] == [found.target(key) for key in keys]
    assert {found.stand_in(key) for key in keys} == {"a", "b"}


def test_a_shard_whose_lease_has_the_labels_of_two_libraries_gets_nothing_and_keeps_what_it_has() -> None:
    """client-go merges labels: whoever renews it after an update of the library may watch other labels of objects."""
    both = (LEASE_RING_LABEL, LEASE_CONTROLLERRING_LABEL)
    found = build([lease("a", "a", labels=both), lease("b", "b", labels=both[:1])], {"a", "b"})
    assert found == Membership(available=frozenset("b"), ready=frozenset("b"), mixed=frozenset("a"))
    assert found.untouched == {"a"}
    assert build([lease("a", "", labels=both)], {"a"}) == Membership()


def test_a_shard_that_asks_for_more_time_than_a_shard_may_gets_nothing_and_keeps_what_it_has() -> None:
    longest, longer = MAX_DURATION_SECONDS, MAX_DURATION_SECONDS + 1
    found = build([lease("a", "a", seconds=longer), lease("b", "b", seconds=longest)], {"a", "b"})
    assert found == Membership(available=frozenset("b"), ready=frozenset("b"), overlong=frozenset("a"))
    assert found.untouched == {"a"}


def test_what_shards_reconcile_as_main_counts_while_they_hold_their_lease_also_where_two_have_a_name() -> None:
    pods = GroupResource("", "pods")
    leases = [
        lease("b", "b", "x", mains=(SECRETS,)),
        lease("b", "b", "y", mains=(SECRETS, pods)),
        lease("a", "a", mains=(SECRETS,)),
        lease("gone", "", mains=(SECRETS,)),
    ]
    found = build(leases, {"a"})
    assert (found.shards_with_main(SECRETS), found.shards_with_main(pods)) == (("a", "b"), ("b",))
    assert found.shards_with_main(GroupResource("apps", "pods")) == ()


def test_a_shard_lacks_a_main_resource_when_it_is_given_objects_and_names_others_only() -> None:
    pods = GroupResource("", "pods")
    leases = [
        lease("both", "both", mains=(SECRETS, pods)),
        lease("one", "one", mains=(SECRETS,)),
        lease("silent", "silent"),
        lease("gone", "", mains=(SECRETS,)),
        *(lease("twice", "twice", namespace, mains=(SECRETS,)) for namespace in "xy"),
    ]
    found = build(leases, {"both", "one", "silent"})
    assert found.shards_without_main(SECRETS) == ()
    assert found.shards_without_main(pods) == ("one",)
    assert found.shards_without_main(GroupResource("apps", "pods")) == ("both", "one")


KEYS = [f"key-{index}" for index in range(50)]


def test_of_a_shard_that_is_left_to_its_next_process_nothing_is_new() -> None:
    found = build([lease("a", "a", instance=""), lease("b", "b", instance="x")], {"a", "b"})
    assert found.available == {"a", "b"}
    assert found.left == found.silent == {"a"}
    assert {found.target(key) for key in KEYS} == {"a", "b"}, "what it has stays"
    assert {found.stand_in(key) for key in KEYS} == {"b"}
    assert not found.may_drain_to("a")
    assert found.may_drain_to("b")


def test_where_all_shards_are_left_what_nobody_has_waits_for_their_next_processes() -> None:
    leases = [lease("a", "a", instance=""), lease("b", "b", instance="x")]
    found = build(leases, {"a", "b"}, silent=frozenset("b"))
    assert found.silent == frozenset()
    assert {found.stand_in(key) for key in KEYS} == {"a", "b"}
    assert not found.may_drain_to("a")


def test_a_shard_that_is_about_to_leave_is_available_and_in_no_ring() -> None:
    before = build([lease("a", "a"), lease("b", "b")], {"a", "b"})
    found = build([lease("a", "a", leaving=True), lease("b", "b")], {"a", "b"}, before)
    assert found.available == {"a", "b"}
    assert found.leaving == {"a"}
    assert found.staying == {"b"}
    assert {found.target(key) for key in KEYS} == {found.stand_in(key) for key in KEYS} == {"b"}
    assert not found.may_drain_to("a")
    assert build([lease("a", "a"), lease("b", "b")], {"a", "b"}, found).ring == before.ring


def test_where_all_shards_are_about_to_leave_they_are_the_ring() -> None:
    """What nobody has, and what a dead one had, has a place."""
    found = build([lease("a", "a", leaving=True), lease("b", "b", leaving=True)], {"a", "b"})
    assert found.staying == found.available == {"a", "b"}
    assert {found.target(key) for key in KEYS} == {found.stand_in(key) for key in KEYS} == {"a", "b"}
    assert not found.may_drain_to("a")


@pytest.mark.parametrize("other", [lease("b", "b"), lease("b", "b", instance="")])
def test_what_is_new_waits_for_a_silent_shard_rather_than_for_one_that_is_about_to_leave(other: Lease) -> None:
    found = build([lease("a", "a", leaving=True), other], {"a", "b"}, silent=frozenset("b"))
    assert found.silent == {"b"}
    assert {Target("b", stand_in=found.stand_in(key)).now(found) for key in KEYS} == {"b"}
    assert not found.may_drain_to("b"), "what the one has that leaves it keeps until then"


def test_why_nothing_is_drained_toward_a_shard_is_told() -> None:
    leases = [lease("a", "a", leaving=True), lease("b", "b", instance=""), lease("c", "c"), lease("d", "d")]
    found = build([*leases, lease("e", "e")], {"a", "b", "c", "d"}, silent=frozenset("c"), unsteady=frozenset("d"))
    assert {name: found.why_not_drain_to(name) for name in "abcde"} == {
        "a": NotNow.LEAVING, "b": NotNow.LEFT, "c": NotNow.LATE, "d": NotNow.UNSTEADY, "e": NotNow.LATE,
    }  # fmt: skip
    assert build([lease("a", "a")], {"a"}).why_not_drain_to("a") is None
    unrenewed = build([lease("a", "a")], {"a"}, unrenewed=frozenset("ab"))
    assert unrenewed.why_not_drain_to("a") is NotNow.UNRENEWED, "not even where there is no other"
    pair = build([lease("a", "a"), lease("b", "b")], {"a", "b"}, unrenewed=frozenset("b"))
    assert not pair.silent, "as far as clocks tell: what nobody has is placed by what is observed alone"


says = st.tuples(st.sampled_from("abcd"), st.booleans(), st.sampled_from([None, "", "x"]), st.booleans())
some_shards = st.frozensets(st.sampled_from("abcd"))


@given(st.lists(says, unique_by=lambda each: each[0]), some_shards, some_shards)
def test_whatever_shards_say_each_key_has_a_place_and_nothing_new_is_with_who_goes_while_another_stays(
    shards: list[tuple[str, bool, str | None, bool]], silent: frozenset[str], unrenewed: frozenset[str]
) -> None:
    leases = [lease(name, name, leaving=leaving, instance=instance) for name, leaving, instance, _ in shards]
    unsteady = frozenset(name for name, _, _, crashed in shards if crashed)
    found = build(leases, {name for name, *_ in shards}, silent=silent, unsteady=unsteady, unrenewed=unrenewed)
    going, away = {name for name, leaving, *_ in shards if leaving}, silent | found.left
    best = found.available - going - away or found.available - going or found.available - away or found.available
    for key in KEYS:
        target = found.target(key)
        if target is None:
            assert not shards
            continue
        assert target in (found.available - going or found.available)
        assert Target(target, stand_in=found.stand_in(key)).now(found) in best
        assert not (found.may_drain_to(target) and target in going | found.left | unsteady | unrenewed)


@pytest.mark.parametrize(
    "other",
    [
        lease("a", ""),
        lease("a", "a", seconds=MAX_DURATION_SECONDS + 1),
        lease("a", "a", labels=(LEASE_RING_LABEL, LEASE_CONTROLLERRING_LABEL)),
        lease("a", "a", mains=(SECRETS,)),
        lease("a", "a", leaving=True),
        lease("a", "a", instance=""),
    ],
)
def test_what_makes_another_membership_is_noticed(other: Lease) -> None:
    before = lease("a", "a")
    assert build([before], {"a"}) != build([other], {"a"})
    assert not counts_the_same(before, other)
    assert counts_the_same(before, lease("a", "a", seconds=30))


def test_leases_that_come_one_after_the_other_are_hashed_once_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    hash_tokens = hashring._token_hashes

    def note(name: str, tokens: int) -> array[int]:
        hashed.append(name)
        return hash_tokens(name, tokens)

    monkeypatch.setattr(hashring, "_token_hashes", note)
    names, membership = [f"shard-{number}" for number in range(20)], Membership()
    for count in range(1, len(names) + 1):
        membership = build([lease(name, name) for name in names[:count]], set(names), membership)
    assert hashed == [], "of 20 rings 19 were never asked"
    assert membership.target("/Secret/default/one") == membership.target("/Secret/default/one")
    assert sorted(hashed) == sorted(names)
