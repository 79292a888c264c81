"""What the sharder does with the lease of a shard that is gone, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sharder.core.shards import LeaseFacts, Proof, Standing, State, classify
from sharder.core.takeover import Act, Custody, Limits, Step, decide_custody, hold_seconds
from shardsdk.protocol.labels import SHARDER_HOLDER

NOW = 1000.0
LIMITS = Limits(
    min_hold_seconds=15, stall_seconds=60, retry_after_stall_seconds=60, return_after_seconds=3,
    orphaned_after_seconds=60,
)  # fmt: skip


def facts(holder: str, *, seen_at: float = NOW, duration: int = 10, released: bool = False) -> LeaseFacts:
    return LeaseFacts("ns", "a", holder, 1 if released else duration, False, seen_at, released)


def custody(lease: LeaseFacts | None, *, now: float = NOW) -> Custody:
    """A ring with another ready shard, objects left on this one, and nothing that speaks against moving them."""
    return Custody(
        facts=lease,
        standing=classify(lease, Proof(0.0, now)) if lease is not None else None,
        presumed_until=0.0,
        hold_until=None,
        hold_seconds=30.0,
        ready_elsewhere=True,
        available_elsewhere=True,
        work_left=True,
        last_move_at=0.0,
        progress_at=0.0,
        barred_until=0.0,
    )


def decide(given: Custody, now: float = NOW) -> Step:
    return decide_custody(given, now, LIMITS)


# -- held by its shard -----------------------------------------------------------


@pytest.mark.parametrize("age", [0, 9.9, 10, 19.9])
def test_a_lease_that_its_shard_may_still_renew_is_left_alone_until_the_state_changes(age: float) -> None:
    step = decide(custody(facts("a", seen_at=NOW - age)))
    assert step.act is Act.WAIT
    assert step.look_again_at == (NOW - age + 10 if age < 10 else NOW - age + 20)


def test_a_lease_that_was_not_renewed_in_time_is_acquired() -> None:
    assert decide(custody(facts("a", seen_at=NOW - 20))).act is Act.ACQUIRE


def test_it_is_acquired_even_if_no_object_is_left_because_that_proves_that_the_shard_is_gone() -> None:
    assert decide(replace(custody(facts("a", seen_at=NOW - 20)), work_left=False)).act is Act.ACQUIRE


def test_a_rings_only_shard_is_not_taken_over_while_no_other_is_ready() -> None:
    given = replace(custody(facts("a", seen_at=NOW - 20)), ready_elsewhere=False, available_elsewhere=False)
    assert decide(given).act is Act.WAIT


# -- held by nobody ---------------------------------------------------------------


def test_a_released_lease_is_acquired_before_anything_moves() -> None:
    assert decide(custody(facts("", released=True))).act is Act.ACQUIRE


def test_a_released_lease_without_objects_is_left_to_its_shard() -> None:
    step = decide(replace(custody(facts("", released=True)), work_left=False))
    assert step == Step(Act.WAIT, step.reason, NOW + 1 + 60)


def test_nothing_is_done_before_it_is_known_whether_objects_are_left() -> None:
    assert decide(replace(custody(facts("", released=True)), work_left=None)).act is Act.WAIT


def test_a_lease_emptied_by_hand_counts_as_held_until_it_would_have_run_out() -> None:
    step = decide(replace(custody(facts("")), presumed_until=NOW + 7))
    assert (step.act, step.look_again_at) == (Act.WAIT, NOW + 7)
    assert decide(replace(custody(facts("")), presumed_until=NOW)).act is Act.ACQUIRE


def test_a_strangers_lease_is_acquired_once_it_has_run_out() -> None:
    given = custody(facts("somebody"))
    assert decide(replace(given, presumed_until=NOW + 10)).act is Act.WAIT
    assert decide(replace(given, presumed_until=NOW)).act is Act.ACQUIRE


def test_a_lease_that_was_given_back_for_lack_of_progress_is_not_acquired_again_at_once() -> None:
    step = decide(replace(custody(facts("", released=True)), barred_until=NOW + 60))
    assert (step.act, step.look_again_at) == (Act.WAIT, NOW + 60)


def test_an_orphaned_lease_is_deleted_once_nothing_is_left() -> None:
    lease = facts("", seen_at=NOW - 61, released=True)
    assert decide(replace(custody(lease), work_left=False)).act is Act.DELETE
    assert decide(custody(lease)).act is Act.ACQUIRE


def test_an_orphaned_lease_that_counts_as_held_is_looked_at_again_when_it_does_not() -> None:
    lease = facts("", seen_at=NOW - 71)
    given = replace(custody(lease), work_left=False, presumed_until=NOW + 50)
    assert given.standing == Standing(State.ORPHANED, None)
    step = decide(given)
    assert (step.act, step.look_again_at) == (Act.WAIT, NOW + 50)


# -- no lease at all ---------------------------------------------------------------


def test_a_missing_lease_is_created_once_it_would_have_run_out() -> None:
    given = custody(None)
    assert decide(replace(given, presumed_until=NOW + 15)).act is Act.WAIT
    assert decide(given).act is Act.CREATE


@pytest.mark.parametrize("work_left", [False, None])
def test_a_missing_lease_is_not_missed_while_no_object_is_known_to_need_it(work_left: bool | None) -> None:
    assert decide(replace(custody(None), work_left=work_left)).act is Act.WAIT


# -- held by the sharder -------------------------------------------------------------


def ours(*, hold_until: float | None = NOW + 25, seen_at: float = NOW - 5) -> Custody:
    held = custody(facts(SHARDER_HOLDER, seen_at=seen_at, duration=30))
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
    assert decide(replace(ours(hold_until=None), work_left=None)).act is Act.WAIT


def test_the_lease_is_given_back_some_seconds_after_the_last_move() -> None:
    given = replace(ours(), work_left=False, last_move_at=NOW - 1)
    step = decide(given)
    assert (step.act, step.look_again_at) == (Act.WAIT, NOW + 2)
    assert decide(replace(given, last_move_at=NOW - 3)).act is Act.GIVE_BACK


def test_a_lease_found_in_our_name_is_given_back_some_seconds_after_it_was_seen() -> None:
    given = replace(ours(hold_until=None, seen_at=NOW - 1), work_left=False)
    step = decide(given)
    assert (step.act, step.look_again_at) == (Act.WAIT, NOW + 2)
    assert decide(replace(ours(hold_until=None, seen_at=NOW - 3), work_left=False)).act is Act.GIVE_BACK


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
        (facts("a", duration=10), 20),
        (facts("a", duration=3), 6),
        (facts("", released=True), 15),
        (facts("", duration=10), 20),
        (facts("somebody", duration=40), 80),
        (facts(SHARDER_HOLDER, duration=30), 30),
    ],
)
def test_a_hold_lasts_twice_what_the_shard_asked_for_and_long_enough(lease: LeaseFacts | None, seconds: float) -> None:
    assert hold_seconds(lease, LIMITS) == seconds
