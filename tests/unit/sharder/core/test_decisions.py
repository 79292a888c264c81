"""The decision has an answer for every fact, and it is the one that design asks for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from sharder.core.decisions import (
    LEAVING,
    TABLE,
    Decision,
    Desired,
    Facts,
    NoKey,
    NoShard,
    OwnerMoves,
    OwnerUnassigned,
    OwnerUnavailable,
    Reason,
    Situation,
    Target,
    decide,
    desire_controlled,
    desire_main,
    render_table,
)
from sharder.core.hashring import HashRing
from sharder.core.membership import Membership, NotNow
from sharder.core.ringspec import Role

#: `ready` and `slow` are available, `twin` is claimed twice, the Lease of `mixed` has two libraries' labels, `gone` is
#: not there.
SHARDS = Membership(
    available=frozenset({"ready", "slow"}),
    ready=frozenset({"ready"}),
    ambiguous=frozenset({"twin"}),
    mixed=frozenset({"mixed"}),
    ring=HashRing({"ready", "slow"}),
)
NONE_THERE = Membership(ambiguous=frozenset({"twin"}), overlong=frozenset({"mixed"}))
LABELS = (None, "", "ready", "slow", "twin", "mixed", "gone")
TARGETS = ("ready", "slow", "twin", "gone")
DESIRES: tuple[Desired, ...] = (
    NoKey(),
    NoShard(),
    OwnerUnassigned(),
    OwnerMoves(),
    *(OwnerUnavailable(name) for name in ("gone", "twin")),
    *(Target(name, by_owner) for name, by_owner in product(TARGETS, (False, True))),
)


def every_fact() -> Iterator[Facts]:
    for role, label, draining, in_scope, desired, membership in product(
        Role, LABELS, (False, True), (False, True), DESIRES, (SHARDS, NONE_THERE)
    ):
        yield Facts(role, label, draining, in_scope, desired, membership)


ALL = list(every_fact())


def expected(facts: Facts) -> Decision:
    """Design's words, in the order of its rules, written apart from the code."""
    main, available = facts.role is Role.MAIN, facts.shard_label in facts.membership.available
    nobody, stranded = facts.shard_label is None, facts.shard_label is not None and not available
    desired = facts.desired
    if isinstance(desired, NoKey) and not main:
        return Decision.IGNORE
    if facts.shard_label in ("twin", "mixed"):
        return Decision.DEFER
    if main and facts.draining and available:
        return Decision.AWAIT
    if not facts.in_scope or isinstance(desired, NoKey):
        if nobody:
            return Decision.KEEP
        if not main and isinstance(desired, OwnerMoves):
            return Decision.DEFER
        if stranded:
            return Decision.RELEASE
        if main:
            return Decision.DRAIN
        owned = isinstance(desired, OwnerUnavailable) or (isinstance(desired, Target) and desired.by_owner)
        return Decision.DEFER if owned else Decision.RELEASE
    if isinstance(desired, NoShard):
        return Decision.KEEP if available else Decision.DEFER
    if not isinstance(desired, Target) or desired.name not in facts.membership.available:
        return Decision.DEFER
    if nobody:
        return Decision.ASSIGN
    if facts.shard_label == desired.name:
        return Decision.KEEP
    if stranded or not main:
        return Decision.MOVE
    return Decision.DRAIN if desired.name in facts.membership.ready else Decision.DEFER


def test_every_fact_has_the_decision_that_design_gives_it() -> None:
    assert len(ALL) == 2 * 7 * 2 * 2 * 14 * 2
    wrong = [(facts, decide(facts)) for facts in ALL if decide(facts).decision is not expected(facts)]
    assert wrong == []


@pytest.mark.parametrize("table", [TABLE, LEAVING], ids=["inside", "leaving"])
def test_the_tables_are_total(table: dict[tuple[Role, Situation], Decision]) -> None:
    assert set(table) == set(product(Role, Situation))


def test_every_decision_and_reason_occurs() -> None:
    outcomes = [decide(facts) for facts in ALL]
    assert {outcome.decision for outcome in outcomes} == set(Decision)
    assert {outcome.reason for outcome in outcomes} == set(Reason)


def test_a_target_is_always_an_available_shard_and_given_exactly_when_needed() -> None:
    for facts in ALL:
        outcome = decide(facts)
        if outcome.target is not None:
            assert outcome.target in facts.membership.available
            assert outcome.target != facts.shard_label
        if outcome.decision in (Decision.ASSIGN, Decision.MOVE):
            assert outcome.target is not None
        elif outcome.decision is not Decision.DRAIN:
            assert outcome.target is None


def test_nothing_is_taken_from_an_available_shard_that_is_not_draining_its_main_object() -> None:
    for facts in ALL:
        if facts.role is Role.MAIN and facts.shard_label in facts.membership.available:
            assert decide(facts).decision in (
                Decision.KEEP,
                Decision.DRAIN,
                Decision.AWAIT,
                Decision.DEFER,
                Decision.IGNORE,
            )


def test_nothing_is_drained_toward_a_shard_that_is_not_ready() -> None:
    for facts in ALL:
        outcome = decide(facts)
        if outcome.decision is Decision.DRAIN and facts.in_scope and not isinstance(facts.desired, NoKey):
            assert outcome.target in facts.membership.ready


def test_what_sits_on_an_ambiguous_name_or_an_unfit_shard_stays() -> None:
    for facts in ALL:
        if facts.shard_label in ("twin", "mixed"):
            assert decide(facts).decision in (Decision.DEFER, Decision.IGNORE)


def test_a_drain_label_on_a_controlled_object_means_nothing() -> None:
    for facts in ALL:
        if facts.role is Role.CONTROLLED and facts.draining:
            calm = Facts(facts.role, facts.shard_label, False, facts.in_scope, facts.desired, facts.membership)
            assert decide(facts) == decide(calm)


def test_a_main_object_wants_the_rings_answer() -> None:
    assert desire_main("/Secret/default/a", SHARDS) == Target(str(SHARDS.target("/Secret/default/a")))
    assert desire_main("/Secret/default/a", NONE_THERE) == NoShard()
    assert desire_main(None, SHARDS) == NoKey()


@pytest.mark.parametrize(
    ("label", "desired"),
    [
        ("slow", Target("slow", by_owner=True)),
        (None, OwnerUnassigned()),
        ("gone", OwnerUnavailable("gone")),
        ("twin", OwnerUnavailable("twin")),
        ("", OwnerUnavailable("")),
    ],
)
def test_a_controlled_object_wants_to_be_with_its_owner(label: str | None, desired: Desired) -> None:
    assert (
        desire_controlled("/Secret/default/a", SHARDS, owner_exists=True, owner_label=label, owner_moves=False)
        == desired
    )


@pytest.mark.parametrize("label", [None, "slow", "gone"])
def test_a_controlled_object_waits_for_an_owner_that_is_under_way(label: str | None) -> None:
    key = "/Secret/default/a"
    desired = desire_controlled(key, SHARDS, owner_exists=True, owner_label=label, owner_moves=True)
    assert desired == OwnerMoves()
    assert isinstance(desire_controlled(key, SHARDS, owner_exists=False, owner_label=None, owner_moves=True), Target)


def test_without_an_owner_a_controlled_object_wants_the_rings_answer() -> None:
    key = "/Secret/default/a"
    alone = desire_controlled(key, SHARDS, owner_exists=False, owner_label=None, owner_moves=False)
    assert alone == desire_main(key, SHARDS)
    assert desire_controlled(None, SHARDS, owner_exists=True, owner_label="slow", owner_moves=False) == NoKey()


def test_the_table_prints_as_design_has_it() -> None:
    assert render_table().splitlines() == [
        "| | nobody | its shard (desired) | other, available | stranded |",
        "|---|---|---|---|---|",
        "| main | ASSIGN | KEEP | DRAIN | MOVE |",
        "| controlled | ASSIGN | KEEP | MOVE | MOVE |",
    ]


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_words_for_people_beside_its_value_for_programs(reason: Reason) -> None:
    assert str(reason) == reason.value
    assert len(reason.words.split()) > 2
    assert "." not in reason.words, "it stands in a sentence"


def test_why_the_target_is_not_ready_has_all_that_keeps_a_shard_from_being_drained_to() -> None:
    assert all(each.value in Reason.TARGET_NOT_READY.words for each in NotNow)
