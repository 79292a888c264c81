"""Who is silent and who is unsteady, by what was seen of a lease."""

from __future__ import annotations

from typing import Final

import pytest

from sharder.core.liveness import CRASH_SECONDS, MAX_CRASHES, History, follow, is_silent, is_unsteady
from sharder.core.shards import LeaseFacts, Proof
from shardsdk.protocol.labels import ENDED_ANNOTATION, INSTANCE_ANNOTATION, SHARDER_HOLDER
from shardsdk.protocol.leases import Lease, LeaseSpec, render_failure, render_instance
from shardsdk.protocol.objects import ObjectMeta

RENEWED: Final = "2030-01-01T00:00:00.000000Z"
ALWAYS: Final = Proof(0.0, 1000.0)


def lease(
    holder: str = "a",
    *,
    renewed: str = RENEWED,
    duration: int = 15,
    instance: str | None = None,
    acquired: str = "2029",
    transitions: int = 0,
    failed: bool = False,
    uid: str = "",
) -> Lease:
    annotations = {} if instance is None else {INSTANCE_ANNOTATION: render_instance(instance, RENEWED)}
    if failed:
        annotations[ENDED_ANNOTATION] = render_failure(RENEWED)
    spec = LeaseSpec(holder, duration, acquired, renewed, transitions)
    return Lease(ObjectMeta(name="a", uid=uid, annotations=annotations), spec)


def facts(observed_at: float, duration: int = 15, holder: str = "a") -> LeaseFacts:
    return LeaseFacts("ns", "a", holder, duration, fenced=True, observed_at=observed_at, released=False)


def test_a_lease_that_is_out_of_date_when_it_comes_is_doubted_until_it_is_renewed() -> None:
    came = follow(History(), None, 10, lease(), 10, out_of_date=True)
    assert came.unrenewed
    assert follow(came, lease(), 10, lease(duration=30), 12, out_of_date=True).unrenewed, "it is the same hold, edited"
    assert not follow(came, lease(), 10, lease(renewed="2029-01-01T00:00:02.000000Z"), 12, out_of_date=True).unrenewed
    assert not follow(History(), None, 10, lease(), 10).unrenewed
    assert not follow(History(), lease(), 10, lease(), 12, out_of_date=True).unrenewed, "it is known"
    assert not follow(History(), None, 10, lease(SHARDER_HOLDER), 10, out_of_date=True).unrenewed


def test_a_lease_is_doubted_that_says_again_what_it_said_before_it_was_taken_over() -> None:
    taken = follow(History(), lease(), 10, lease(SHARDER_HOLDER), 25)
    assert follow(taken, lease(SHARDER_HOLDER), 25, lease(), 90, out_of_date=True).unrenewed


@pytest.mark.parametrize(
    ("observed_at", "pause", "until", "silent"),
    [(0, 2, 4.9, False), (0, 2, 5.1, True), (0, 4, 7.9, False), (0, 4, 8.1, True), (3, 2, 7.9, False)],
)
def test_a_shard_is_silent_after_two_renewals_that_did_not_come(
    observed_at: float, pause: float, until: float, silent: bool
) -> None:
    assert is_silent(facts(observed_at), History(pause=pause), Proof(-100, until)) is silent


def test_a_short_lease_makes_nobody_silent_who_is_late_by_a_moment() -> None:
    assert not is_silent(facts(0, duration=3), History(), Proof(-100, 1.9))
    assert is_silent(facts(0, duration=3), History(), Proof(-100, 2.1))


def test_time_that_no_commit_proves_makes_nobody_silent() -> None:
    assert not is_silent(facts(0), History(), Proof(58, 62))
    assert not is_silent(facts(0), History(), Proof(-100, 4))


def test_who_does_not_hold_its_lease_is_neither_silent_nor_unsteady() -> None:
    assert not is_silent(facts(0, holder=""), History(), ALWAYS)
    assert not is_unsteady(facts(0, holder=SHARDER_HOLDER), History(crashed_at=(0.0,)), 1)


def test_a_shard_that_lost_its_lease_is_unsteady_for_one_duration_once_it_is_back() -> None:
    history = follow(History(), lease(), 10, lease(SHARDER_HOLDER), 25)
    history = follow(history, lease(SHARDER_HOLDER), 25, lease(""), 30)
    history = follow(history, lease(""), 30, lease(), 40)
    assert is_unsteady(facts(42), history, 54.9)
    assert not is_unsteady(facts(54), history, 55.1)


def test_with_every_further_crash_it_takes_twice_as_long_up_to_a_bound() -> None:
    for crashes, durations in [(1, 1), (2, 2), (3, 4), (4, 8), (9, 8)]:
        history = History(held_since=100, crashed_at=tuple(float(each) for each in range(crashes))[-MAX_CRASHES:])
        assert is_unsteady(facts(100), history, 100 + 15 * durations - 0.1)
        assert not is_unsteady(facts(100), history, 100 + 15 * durations)


def test_a_shard_whose_lease_was_deleted_after_a_crash_is_unsteady_once_it_is_back() -> None:
    crashed = follow(History(), lease(), 10, lease(SHARDER_HOLDER), 25)
    assert is_unsteady(facts(42), follow(crashed, None, 30, lease(), 40), 54.9)
    # Nobody knows since when one holds its lease that was never seen to crash.
    assert follow(History(), None, 30, lease(), 40).held_since == float("-inf")


def test_an_old_crash_is_forgotten() -> None:
    history = History(held_since=CRASH_SECONDS + 1, crashed_at=(0.0,))
    assert not is_unsteady(facts(0), history, CRASH_SECONDS + 2)


def test_a_shard_that_left_in_order_is_steady_at_once() -> None:
    for left in (lease("", duration=1), lease(instance="")):
        history = follow(History(), lease(instance="x"), 10, left, 12)
        history = follow(history, left, 12, lease(SHARDER_HOLDER), 40)
        history = follow(history, lease(SHARDER_HOLDER), 40, lease(instance="y"), 60)
        assert not is_unsteady(facts(60), history, 60.1)


@pytest.mark.parametrize(
    "back",
    [
        lease(instance="x", acquired="2030"),
        lease(instance="y", acquired="2030"),
        lease(instance="y"),
    ],
)
def test_a_process_that_goes_on_with_a_lease_that_nobody_gave_back_comes_after_a_crash(back: Lease) -> None:
    """Nothing was taken from it meanwhile: it was back in time."""
    history = follow(History(pause=3), lease(instance="x"), 10, back, 17)
    assert history == History(held_since=17, crashed_at=(17,))
    assert is_unsteady(facts(20), history, 31.9)
    assert not is_unsteady(facts(31), history, 32)
    assert follow(history, back, 17, back, 19) == History(held_since=17, pause=2, crashed_at=(17,))


@pytest.mark.parametrize(
    ("before", "back"),
    [
        (lease(instance="x"), lease(instance="x")),
        (lease(), lease()),
        # The Go library does not say which process it is.
        (lease(), lease(acquired="2030")),
        # Somebody has taken the annotations off, and they are written again.
        (lease(instance="x"), lease()),
        (lease(), lease(instance="x")),
        # It was left to it.
        (lease(instance=""), lease(instance="x", acquired="2030")),
        # It was given back, and this was not observed.
        (lease(instance="x"), lease(instance="y", acquired="2030", transitions=1)),
        # Somebody has deleted it, and its shard has made it again.
        (lease(instance="x", uid="1"), lease(instance="x", acquired="2030", uid="2")),
    ],
)
def test_a_renewal_and_what_comes_after_an_end_in_order_is_no_crash(before: Lease, back: Lease) -> None:
    assert not follow(History(), before, 10, back, 12).crashed_at


def test_a_shard_whose_process_says_that_it_has_failed_has_crashed() -> None:
    for left in (lease("", duration=1, failed=True), lease(instance="", failed=True, duration=60)):
        history = follow(History(pause=2), lease(instance="x"), 10, left, 12)
        history = follow(history, left, 12, lease(instance="y", transitions=left.holder == ""), 40)
        assert history == History(held_since=40, crashed_at=(12,))
        assert is_unsteady(facts(54), history, 54.9)
        assert not is_unsteady(facts(54), history, 55)


def test_what_a_lease_says_of_an_end_counts_once() -> None:
    left = lease("", duration=1, failed=True)
    history = follow(History(), lease(instance="x"), 10, left, 12)
    assert follow(history, left, 12, left, 14).crashed_at == (12,)
    assert follow(history, left, 12, lease(SHARDER_HOLDER), 14).crashed_at == (12,)


def test_the_pause_is_that_between_two_renewals() -> None:
    history = follow(History(), None, 5, lease(), 5)
    assert history.pause == 0
    history = follow(history, lease(), 5, lease(), 9)
    assert history.pause == 4
