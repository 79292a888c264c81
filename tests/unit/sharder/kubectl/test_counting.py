"""Objects are counted as the sharder itself would judge them."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sharder.kubectl.counting as census_module
from sharder.core.decisions import Decision, Facts, decide, desire_controlled, desire_main
from sharder.core.keys import main_key
from sharder.core.membership import Membership
from sharder.core.ringspec import ResolvedMain, Role, Subject
from sharder.kubectl.counting import Census, Tally, Trouble
from shardsdk.protocol.objects import Resource, SlimMeta
from tests.unit.sharder.kubectl.rings import CONFIGMAP, LABELS, SECRET, glimpse, members

OUTSIDE = "outside"


def covers(namespace: str) -> bool | None:
    return {OUTSIDE: False, "unknown": None}.get(namespace, True)


def count(
    membership: Membership | None, mains: list[SlimMeta], children: list[SlimMeta] | None = None
) -> tuple[Tally, Tally]:
    census = Census(LABELS, membership, covers)
    owners, controlled = Tally(SECRET), Tally(CONFIGMAP)
    for meta in mains:
        census.add(owners, meta)
    for meta in children or ():
        census.add(controlled, meta)
    return owners, controlled


def place(membership: Membership, name: str) -> str:
    shard = membership.target(main_key("", "Secret", "default", name))
    assert shard is not None
    return shard


def test_objects_in_their_place_are_in_no_trouble() -> None:
    membership = members("one", "two")
    names = [f"object-{number}" for number in range(20)]
    mains = [glimpse(name, place(membership, name)) for name in names]
    children = [glimpse(f"{name}-child", place(membership, name), owner=name) for name in names]
    owners, controlled = count(membership, mains, children)
    assert not owners.troubles
    assert not controlled.troubles
    assert owners.by_shard == controlled.by_shard
    assert sum(owners.by_shard.values()) == 20


def test_children_follow_an_owner_that_is_not_where_the_hash_puts_it() -> None:
    membership = members("one", "two")
    other = {"one": "two", "two": "one"}[place(membership, "a")]
    owners, controlled = count(
        membership,
        [glimpse("a", other)],
        [glimpse("with", other, owner="a"), glimpse("without", place(membership, "a"), owner="a")],
    )
    assert owners.examples == {Trouble.MISPLACED: ["default/a"]}
    assert controlled.examples == {Trouble.MISPLACED: ["default/without"]}


def test_a_drain_label_on_a_child_asks_nobody_for_anything() -> None:
    owners, controlled = count(members("one"), [glimpse("a", "one")], [glimpse("b", "one", owner="a", drain=True)])
    assert not owners.troubles
    assert not controlled.troubles
    assert not controlled.draining
    assert controlled.by_shard == {"one": 1}


def test_objects_of_others_are_not_counted() -> None:
    _, controlled = count(members("one"), [], [glimpse("foreign"), glimpse("of-a-pod", None)])
    assert not controlled.troubles


def test_what_left_the_scope_and_still_has_a_label_is_leaving() -> None:
    owners, _ = count(members("one"), [glimpse("a", "one", namespace=OUTSIDE), glimpse("b", namespace=OUTSIDE)])
    assert owners.troubles == {Trouble.LEAVING: 1}
    assert owners.by_shard == {"one": 1}


def test_a_child_is_with_an_owner_that_has_no_namespace_wherever_it_is() -> None:
    main = ResolvedMain(Resource("", "v1", "secrets", "Secret", namespaced=False))
    tally = Tally(Subject(Role.CONTROLLED, CONFIGMAP.resource, main))
    census = Census(LABELS, members("one"), covers)
    census.add(tally, glimpse("labelled", "one", namespace=OUTSIDE, owner="a"))
    census.add(tally, glimpse("unlabelled", namespace=OUTSIDE, owner="a"))
    assert dict(tally.troubles) == {Trouble.UNASSIGNED: 1}


def test_where_nobody_knows_the_scope_only_unlabelled_objects_are_unjudged() -> None:
    owners, _ = count(members("one"), [glimpse("a", namespace="unknown"), glimpse("b", "one", namespace="unknown")])
    assert (owners.unjudged, dict(owners.troubles)) == (1, {})


def test_without_membership_nothing_is_stranded_or_misplaced() -> None:
    owners, _ = count(None, [glimpse("a", "ghost"), glimpse("b"), glimpse("c", "one", drain=True)])
    assert owners.troubles == {Trouble.UNASSIGNED: 1, Trouble.DRAINING: 1}


def test_some_objects_are_named_and_all_are_counted() -> None:
    owners, _ = count(members("one"), [glimpse(f"o-{number}") for number in range(40)])
    assert owners.troubles[Trouble.UNASSIGNED] == 40
    assert len(owners.examples[Trouble.UNASSIGNED]) == census_module.MAX_EXAMPLES


def test_too_many_displaced_owners_leave_misplaced_children_uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census_module, "MAX_DISPLACED", 1)
    census = Census(LABELS, members("one"), covers)
    tally = Tally(SECRET)
    for name in ("a", "b"):
        census.add(tally, glimpse(name, "ghost"))
    assert census.overfull


def test_counting_keeps_nothing_of_objects_in_their_place() -> None:
    membership = members("one", "two")
    census, owners, controlled = Census(LABELS, membership, covers), Tally(SECRET), Tally(CONFIGMAP)

    def count_some(first: int) -> None:
        for name in (f"object-{number}" for number in range(first, first + 5_000)):
            shard = place(membership, name)
            census.add(owners, glimpse(name, shard))
            census.add(controlled, glimpse(f"{name}-child", shard, owner=name))

    count_some(0)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        count_some(5_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(owners.by_shard.values()) == 10_000
    assert after - before < 20_000


labels = st.sampled_from([None, "one", "two", "three", "ghost"])


@given(
    shards=st.sets(st.sampled_from(["one", "two", "three"])),
    mains=st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(labels, st.booleans()), max_size=8),
    children=st.lists(st.tuples(labels, st.sampled_from("abcdefghxy")), max_size=8),
)
def test_counts_agree_with_the_sharders_decisions(
    shards: set[str], mains: dict[str, tuple[str | None, bool]], children: list[tuple[str | None, str]]
) -> None:
    membership = members(*shards)
    owners, controlled = count(
        membership,
        [glimpse(name, shard, drain=drain and shard is not None) for name, (shard, drain) in mains.items()],
        [glimpse(f"child-{number}", shard, owner=owner) for number, (shard, owner) in enumerate(children)],
    )

    expected: Counter[Trouble] = Counter()
    for name, (shard, drain) in mains.items():
        drains = drain and shard is not None
        desired = desire_main(main_key("", "Secret", "default", name), membership)
        outcome = decide(Facts(Role.MAIN, shard, drains, True, desired, membership))
        expected += Counter(judge(shard, outcome.decision, membership))
        expected[Trouble.DRAINING] += drains
    assert +owners.troubles == +expected

    expected = Counter()
    for shard, owner in children:
        key = main_key("", "Secret", "default", owner)
        label = mains[owner][0] if owner in mains else None
        desired = desire_controlled(key, membership, owner_exists=owner in mains, owner_label=label, owner_moves=False)
        outcome = decide(Facts(Role.CONTROLLED, shard, False, True, desired, membership))
        expected += Counter(judge(shard, outcome.decision, membership))
    assert +controlled.troubles == +expected


def judge(shard: str | None, decision: Decision, membership: Membership) -> list[Trouble]:
    if shard is None:
        return [Trouble.UNASSIGNED]
    if shard not in membership.available:
        return [Trouble.STRANDED]
    return [Trouble.MISPLACED] if decision in (Decision.DRAIN, Decision.MOVE) else []
