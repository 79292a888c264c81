"""What the sharder does with the lease of a shard that is gone, case by case."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf

import pytest

from sharder.core.shards import LeaseFacts, Proof, ShardState, State, classify
from sharder.core.takeover import (
    OTHERWISE,
    RULES,
    Act,
    Holder,
    Limits,
    Step,
    TakeoverFacts,
    Why,
    decide_takeover,
    hold_seconds,
    holder_of,
    needs_no_look,
)
from shardsdk.protocol.labels import SHARDER_HOLDER

NOW = 1000.0
LIMITS = Limits(
    min_hold_seconds=15, stall_seconds=60, retry_after_stall_seconds=60, return_after_seconds=3,
    orphaned_after_seconds=60,
)  # fmt: skip


def held_by(holder: str, *, observed_at: float = NOW, duration: int = 10, released: bool = False) -> LeaseFacts:
    return LeaseFacts("ns", "a", holder, 1 if released else duration, False, observed_at, released)


def facts(lease: LeaseFacts | None, *, now: float = NOW) -> TakeoverFacts:
    """A ring with another ready shard, objects left on this one, and nothing that speaks against moving them."""
    return TakeoverFacts(
        lease=lease,
        state=classify(lease, Proof(0.0, now)) if lease is not None else None,
        presumed_until=0.0,
        spared_until=0.0,
        hold_until=None,
        hold_seconds=30.0,
        ready_elsewhere=True,
        available_elsewhere=True,
        lives_elsewhere=False,
        objects_left=True,
        last_move_at=0.0,
        progress_at=0.0,
        barred_until=0.0,
    )


def decide(given: TakeoverFacts, now: float = NOW) -> Step:
    return decide_takeover(given, now, LIMITS)


# -- the rules as a whole --------------------------------------------------------


def test_there_is_a_rule_for_every_case() -> None:
    assert list(RULES) == list(Holder)
    for rules in RULES.values():
        assert [rule.when is OTHERWISE for rule in rules] == [False] * (len(rules) - 1) + [True]


def test_every_rule_decides_some_case() -> None:
    reached = set()
    leases = [
        None,
        *(held_by(holder, observed_at=NOW - age) for holder in ("", "a", SHARDER_HOLDER) for age in (1, 80)),
    ]
    moments = (0.0, NOW + 5)
    for lease, presumed, barred, spared in product(leases, moments, moments, (*moments, inf)):
        for hold_until, left, ready, elsewhere, moved_at in product(
            (None, NOW + 5, NOW + 25), (None, False, True), (False, True), (False, True), (NOW - 1, NOW - 61)
        ):
            given = replace(
                facts(lease), presumed_until=presumed, barred_until=barred, hold_until=hold_until, objects_left=left,
                ready_elsewhere=ready, available_elsewhere=elsewhere, last_move_at=moved_at, progress_at=moved_at,
                spared_until=spared,
            )  # fmt: skip
            reached.add((holder_of(given, NOW), decide(given).why))
    assert reached == {(holder, rule.why) for holder, rules in RULES.items() for rule in rules}


# -- held by its shard -----------------------------------------------------------


@pytest.mark.parametrize("age", [0, 9.9, 10, 19.9])
def test_a_lease_that_its_shard_may_still_renew_is_left_alone_until_the_state_changes(age: float) -> None:
    step = decide(facts(held_by("a", observed_at=NOW - age)))
    assert step.act is Act.WAIT
    assert step.look_again_at == (NOW - age + 10 if age < 10 else NOW - age + 20)


def test_a_lease_that_was_not_renewed_in_time_is_acquired() -> None:
    assert decide(facts(held_by("a", observed_at=NOW - 20))).act is Act.ACQUIRE


def test_where_a_write_of_it_was_refused_its_shard_has_time_to_come_back_once_none_would_be() -> None:
    gone = facts(held_by("a", observed_at=NOW - 20))
    assert decide(replace(gone, spared_until=inf)).act is Act.TRY
    waiting = decide(replace(gone, spared_until=NOW + 5))
    assert (waiting.act, waiting.look_again_at) == (Act.WAIT, NOW + 5)
    assert decide(replace(gone, spared_until=NOW)).act is Act.ACQUIRE


def test_it_is_acquired_even_if_no_object_is_left_because_that_proves_that_the_shard_is_gone() -> None:
    assert decide(replace(facts(held_by("a", observed_at=NOW - 20)), objects_left=False)).act is Act.ACQUIRE


def test_a_rings_only_shard_is_not_taken_over_while_no_other_is_ready() -> None:
    given = replace(facts(held_by("a", observed_at=NOW - 20)), ready_elsewhere=False, available_elsewhere=False)
    assert decide(given).act is Act.WAIT


# -- held by nobody ---------------------------------------------------------------


def test_a_released_lease_is_acquired_before_anything_moves() -> None:
    assert decide(facts(held_by("", released=True))).act is Act.ACQUIRE


def test_a_released_lease_without_objects_is_left_to_its_shard() -> None:
    step = decide(replace(facts(held_by("", released=True)), objects_left=False))
    assert step == Step(Act.WAIT, Why.NOTHING_LEFT, NOW + 1 + 60)


def test_nothing_is_done_before_it_is_known_whether_objects_are_left() -> None:
    assert decide(replace(facts(held_by("", released=True)), objects_left=None)).act is Act.WAIT


def test_a_lease_emptied_by_hand_counts_as_held_until_it_would_have_run_out() -> None:
    step = decide(replace(facts(held_by("")), presumed_until=NOW + 7))
    assert (step.act, step.look_again_at) == (Act.WAIT, NOW + 7)
    assert decide(replace(facts(held_by("")), presumed_until=NOW)).act is Act.ACQUIRE


def test_a_strangers_lease_is_acquired_once_it_has_run_out() -> None:
    given = facts(held_by("somebody"))
    assert decide(replace(given, presumed_until=NOW + 10)).act is Act.WAIT
    assert decide(replace(given, presumed_until=NOW)).act is Act.ACQUIRE


def test_a_lease_that_was_given_back_for_lack_of_progress_is_not_acquired_again_at_once() -> None:
    step = decide(replace(facts(held_by("", released=True)), barred_until=NOW + 60))
    assert (step.act, step.look_again_at) == (Act.WAIT, NOW + 60)


def test_an_orphaned_lease_is_deleted_once_nothing_is_left() -> None:
    lease = held_by("", observed_at=NOW - 61, released=True)
    assert decide(replace(facts(lease), objects_left=False)).act is Act.DELETE
    assert decide(facts(lease)).act is Act.ACQUIRE


def test_an_orphaned_lease_that_counts_as_held_is_looked_at_again_when_it_does_not() -> None:
    lease = held_by("", observed_at=NOW - 71)
    given = replace(facts(lease), objects_left=False, presumed_until=NOW + 50)
    assert given.state == ShardState(State.ORPHANED, None)
    step = decide(given)
    assert (step.act, step.look_again_at) == (Act.WAIT, NOW + 50)


# -- no lease at all ---------------------------------------------------------------


def test_a_missing_lease_is_created_once_it_would_have_run_out() -> None:
    given = facts(None)
    assert decide(replace(given, presumed_until=NOW + 15)).act is Act.WAIT
    assert decide(given).act is Act.CREATE


@pytest.mark.parametrize("work_left", [False, None])
def test_a_missing_lease_is_not_missed_while_no_object_is_known_to_need_it(work_left: bool | None) -> None:
    assert decide(replace(facts(None), objects_left=work_left)).act is Act.WAIT


@pytest.mark.parametrize("lease", [None, held_by("")])
def test_what_carries_the_name_of_a_shard_that_lives_under_another_lease_belongs_to_that_one(
    lease: LeaseFacts | None,
) -> None:
    given = replace(facts(lease), lives_elsewhere=True)
    assert given.work_left is False
    assert decide(given).act is Act.WAIT
    assert replace(facts(held_by("a")), lives_elsewhere=True).work_left


# -- held by the sharder -------------------------------------------------------------


def ours(*, hold_until: float | None = NOW + 25, observed_at: float = NOW - 5) -> TakeoverFacts:
    held = facts(held_by(SHARDER_HOLDER, observed_at=observed_at, duration=30))
    return replace(held, hold_until=hold_until, progress_at=NOW - 5)


def test_a_confirmed_hold_is_renewed_when_a_third_of_it_is_used_up() -> None:
    step = decide(ours(hold_until=NOW + 25))
    assert (step.act, step.look_again_at) == (Act.WAIT, NOW + 5)
    assert decide(ours(hold_until=NOW + 20)).act is Act.RENEW


def test_a_lease_found_in_our_name_is_no_hold_until_we_renewed_it() -> None:
    assert decide(ours(hold_until=None)).act is Act.RENEW


def test_a_hold_that_has_run_out_is_no_hold() -> None:
    assert decide(ours(hold_until=NOW)).act is Act.RENEW


def test_a_lease_found_in_our_name_waits_until_it_is_known_what_is_left() -> None:
    assert decide(replace(ours(hold_until=None), objects_left=None)).act is Act.WAIT


def test_the_lease_is_given_back_some_seconds_after_the_last_move() -> None:
    given = replace(ours(), objects_left=False, last_move_at=NOW - 1)
    step = decide(given)
    assert (step.act, step.look_again_at) == (Act.WAIT, NOW + 2)
    assert decide(replace(given, last_move_at=NOW - 3)).act is Act.GIVE_BACK


def test_a_lease_found_in_our_name_is_given_back_some_seconds_after_it_was_seen() -> None:
    given = replace(ours(hold_until=None, observed_at=NOW - 1), objects_left=False)
    step = decide(given)
    assert (step.act, step.look_again_at) == (Act.WAIT, NOW + 2)
    assert decide(replace(ours(hold_until=None, observed_at=NOW - 3), objects_left=False)).act is Act.GIVE_BACK


def test_the_lease_is_given_back_when_no_other_shard_is_left() -> None:
    assert decide(replace(ours(), available_elsewhere=False)).act is Act.GIVE_BACK


def test_the_lease_is_given_back_when_nothing_moves_and_stays_so_for_a_while() -> None:
    stalled = replace(ours(), progress_at=NOW - 60)
    assert decide(stalled).act is Act.GIVE_BACK
    found_again = replace(ours(hold_until=None), barred_until=NOW + 60)
    assert (decide(found_again).act, decide(found_again).look_again_at) == (Act.WAIT, NOW + 60)


# -- for how long ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lease", "seconds"),
    [
        (None, 15),
        (held_by("a", duration=10), 20),
        (held_by("a", duration=3), 6),
        (held_by("", released=True), 15),
        (held_by("", duration=10), 20),
        (held_by("somebody", duration=40), 80),
        (held_by(SHARDER_HOLDER, duration=30), 30),
    ],
)
def test_a_hold_lasts_twice_what_the_shard_asked_for_and_long_enough(lease: LeaseFacts | None, seconds: float) -> None:
    assert hold_seconds(lease, LIMITS) == seconds


# -- renewals that need no look ------------------------------------------------------------

READY = ShardState(State.READY, 115.0)


def left_to_a_later_look(
    shown: str | None = "ready",
    state: ShardState = READY,
    *,
    held: bool = False,
    may_lag: bool = False,
    looks_at: float = 110.0,
) -> bool:
    return needs_no_look(shown, state, held=held, may_lag=may_lag, looks_at=looks_at)


def test_a_renewal_that_changes_nothing_is_left_to_the_look_that_is_due() -> None:
    assert left_to_a_later_look()


@pytest.mark.parametrize("shown", [None, "dead"])
def test_one_whose_state_is_not_shown_is_not(shown: str | None) -> None:
    assert not left_to_a_later_look(shown)


def test_one_of_which_something_is_to_be_decided_is_not() -> None:
    assert not left_to_a_later_look(looks_at=float("inf")), "no look is due"
    assert not left_to_a_later_look(looks_at=116.0), "the look comes too late"
    assert not left_to_a_later_look(held=True)
    assert not left_to_a_later_look(may_lag=True)


@pytest.mark.parametrize("state", [each for each in State if each is not State.READY])
def test_one_of_a_shard_that_is_not_ready_is_not(state: State) -> None:
    assert not left_to_a_later_look(state.value, ShardState(state, 115.0))
