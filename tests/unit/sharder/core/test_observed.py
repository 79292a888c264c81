"""Until when a lease counts as held that its shard does not hold: every row of the table, and what holds for all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from sharder.core.observed import (
    FREE,
    REMAINS,
    UNSEEN_SECONDS,
    Known,
    ObservedLease,
    Says,
    Span,
    VanishedLease,
    held_until,
    longest_duration,
    observe,
    says,
    shard_held_until,
    vanish,
)
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.leases import MAX_DURATION_SECONDS, Lease, LeaseSpec
from shardsdk.protocol.objects import ObjectMeta

SHARD, STRANGER = "one", "somebody"
#: The shard held the lease for 30 s from second 100 on; now is second 110.
THEN, NOW, DURATION = 100.0, 110.0, 30


def lease(holder: str, duration: int = DURATION, *, name: str = SHARD, renewed: int = 0, **meta: Any) -> Lease:
    spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=duration, renew_time=str(renewed))
    return Lease(ObjectMeta(name=name, namespace="ns", **meta), spec)


HELD = ObservedLease(lease(SHARD), THEN)
BEFORE: dict[Known, ObservedLease | VanishedLease | None] = {
    Known.RIGHTFUL: HELD,
    Known.OTHERWISE: ObservedLease(lease("", renewed=1), THEN + 5, HELD.held),
    Known.VANISHED: vanish(HELD, HELD.lease, NOW),
    Known.NOTHING: None,
}
AFTER = {
    Says.RIGHTFUL: lease(SHARD, 15, renewed=2),
    Says.RELEASED: lease("", 1, renewed=2),
    Says.EMPTIED: lease("", 15),
    Says.STRANGER: lease(STRANGER, 15, renewed=2),
}
#: A ring whose longest lease is one of 60 s.
OTHERS = (ObservedLease(lease("two", 60, name="two"), 0.0),)

OWN, STILL = Span(NOW, 15), Span(THEN, DURATION)


@pytest.mark.parametrize(
    ("known", "now", "held"),
    [
        (Known.RIGHTFUL, Says.RIGHTFUL, OWN),
        (Known.RIGHTFUL, Says.RELEASED, FREE),
        (Known.RIGHTFUL, Says.EMPTIED, STILL),
        (Known.RIGHTFUL, Says.STRANGER, Span(NOW, DURATION)),
        (Known.OTHERWISE, Says.RIGHTFUL, OWN),
        (Known.OTHERWISE, Says.RELEASED, STILL),
        (Known.OTHERWISE, Says.EMPTIED, STILL),
        (Known.OTHERWISE, Says.STRANGER, Span(NOW, DURATION)),
        (Known.VANISHED, Says.RIGHTFUL, OWN),
        (Known.VANISHED, Says.RELEASED, STILL),
        (Known.VANISHED, Says.EMPTIED, STILL),
        (Known.VANISHED, Says.STRANGER, Span(NOW, DURATION)),
        (Known.NOTHING, Says.RIGHTFUL, OWN),
        (Known.NOTHING, Says.RELEASED, FREE),
        (Known.NOTHING, Says.EMPTIED, Span(NOW, 60)),
        (Known.NOTHING, Says.STRANGER, Span(NOW, 60)),
    ],
)
def test_for_how_long_a_lease_counts_as_held(known: Known, now: Says, held: Span) -> None:
    observed = observe(BEFORE[known], AFTER[now], NOW, OTHERS)
    assert (says(observed.lease), observed.observed_at) == (now, NOW)
    assert observed.held == held


def test_the_table_has_a_row_for_every_case() -> None:
    assert set(REMAINS) == {(known, now) for known in Known for now in Says}
    assert {says(each) for each in AFTER.values()} == set(Says)


def test_what_the_sharder_holds_it_may_give_away_as_a_shard_may() -> None:
    ours = observe(HELD, lease(SHARDER_HOLDER, renewed=1), THEN + 5, ())
    assert ours.held == Span(THEN + 5, DURATION)
    assert observe(ours, AFTER[Says.RELEASED], NOW, ()).held == FREE


def test_a_lease_that_says_the_same_is_observed_since_it_said_so_first() -> None:
    labelled = lease(SHARD, labels={"state": "ready"}, resource_version="7")
    again = observe(HELD, labelled, NOW, ())
    assert (again.lease, again.observed_at) == (labelled, THEN)


def test_another_lease_of_the_name_is_another_observation() -> None:
    assert observe(HELD, lease(SHARD, uid="new"), NOW, ()).observed_at == NOW


def test_a_lease_of_an_unknown_ring_counts_as_held_for_the_usual_duration() -> None:
    assert observe(None, AFTER[Says.EMPTIED], NOW, ()).held == Span(NOW, UNSEEN_SECONDS)


def test_a_crash_is_remembered_over_the_leases_end() -> None:
    held = observe(None, lease(SHARD, renewed=1), THEN, ())
    taken = observe(held, lease(SHARDER_HOLDER, renewed=2), NOW, ())
    assert taken.history.crashed_at == (NOW,)
    assert observe(vanish(taken, None, NOW), lease(SHARD, renewed=3), NOW + 5, ()).history.crashed_at == (NOW,)


# -- until when ------------------------------------------------------------------------


def until(
    observed: ObservedLease | None, *vanished: VanishedLease, missing_since: float = 0.0, proven: float = 0.0
) -> float:
    return held_until(observed, vanished, missing_since, OTHERS, lambda seconds: proven)


@pytest.mark.parametrize("holder", [SHARD, SHARDER_HOLDER])
def test_one_that_its_shard_or_the_sharder_holds_is_judged_by_its_state_alone(holder: str) -> None:
    assert until(ObservedLease(lease(holder), THEN), vanish(HELD, HELD.lease, NOW)) == 0.0


def test_one_that_was_released_is_free_at_once() -> None:
    assert until(observe(HELD, AFTER[Says.RELEASED], NOW, ())) == 0.0


def test_one_that_was_emptied_is_free_when_it_would_have_run_out() -> None:
    assert until(observe(HELD, AFTER[Says.EMPTIED], NOW, ())) == THEN + DURATION


def test_one_that_vanished_is_free_when_it_would_have_run_out() -> None:
    later = VanishedLease("other", SHARD, Span(NOW, 15), HELD.history)
    assert until(None, vanish(HELD, HELD.lease, NOW)) == THEN + DURATION
    assert until(None, vanish(HELD, HELD.lease, NOW), later, missing_since=NOW) == THEN + DURATION


def test_one_that_was_renewed_after_it_was_seen_last_may_be_counted_on_from_when_it_shows_what_became_of_it() -> None:
    """Its watch was silent: a list shows that somebody took it away, and its last renewal has been seen by nobody."""
    for content in (lease("", 15, renewed=1), lease(STRANGER, 15, renewed=1)):
        assert until(observe(HELD, content, NOW, ())) == NOW + DURATION
    assert until(None, vanish(HELD, lease(SHARD, renewed=1), NOW)) == NOW + DURATION
    assert until(None, vanish(HELD, None, NOW)) == NOW + DURATION
    released = observe(HELD, AFTER[Says.RELEASED], NOW, ())
    assert until(None, vanish(released, None, NOW)) == 0.0


def test_nobody_lengthens_what_remains_by_writing_it_again() -> None:
    emptied = observe(HELD, AFTER[Says.EMPTIED], NOW, ())
    for number in range(1, 5):
        emptied = observe(emptied, lease("", 15, renewed=number), NOW + number, ())
        assert until(emptied) == until(None, vanish(emptied, None, NOW + number)) == THEN + DURATION


def test_one_that_vanished_counts_whatever_another_of_the_name_says() -> None:
    assert until(observe(None, AFTER[Says.RELEASED], NOW, ()), vanish(HELD, HELD.lease, NOW)) == THEN + DURATION


def test_one_of_which_nothing_is_known_is_missed_for_the_rings_longest_duration() -> None:
    assert until(None, missing_since=NOW) == NOW + 60


def test_time_that_no_commit_proves_lets_nothing_run_out() -> None:
    assert until(None, vanish(HELD, HELD.lease, NOW), proven=NOW) == NOW + DURATION
    assert until(None, missing_since=NOW, proven=NOW + 7) == NOW + 67
    assert until(observe(HELD, AFTER[Says.EMPTIED], NOW, ()), proven=NOW) == NOW + DURATION


#: A lease that somebody has written for 68 years.
ENDLESS = lease(SHARD, 2**31 - 1)


@pytest.mark.parametrize("says_now", [Says.EMPTIED, Says.STRANGER])
def test_a_lease_for_longer_than_a_shard_may_ask_for_keeps_nothing_for_longer_once_its_shard_holds_it_no_more(
    says_now: Says,
) -> None:
    endless = ObservedLease(ENDLESS, THEN)
    assert until(None, vanish(endless, ENDLESS, NOW)) == THEN + MAX_DURATION_SECONDS
    after = observe(endless, AFTER[says_now], NOW, OTHERS)
    assert until(after) <= NOW + MAX_DURATION_SECONDS
    assert until(None, vanish(after, AFTER[says_now], NOW)) <= NOW + MAX_DURATION_SECONDS


@pytest.mark.parametrize("holder", [SHARD, SHARDER_HOLDER, STRANGER, ""])
def test_a_lease_for_longer_than_a_shard_may_ask_for_says_nothing_of_those_of_others(holder: str) -> None:
    ring = [*OTHERS, ObservedLease(lease(holder, MAX_DURATION_SECONDS + 1), THEN)]
    assert longest_duration(ring) == 60
    assert observe(None, lease(STRANGER, 15, name="unseen"), NOW, ring).held == Span(NOW, 60)
    assert longest_duration([ObservedLease(lease(holder, MAX_DURATION_SECONDS), THEN)]) == MAX_DURATION_SECONDS


@pytest.mark.parametrize("before", [HELD, None])
def test_a_stranger_holds_a_lease_for_no_longer_than_a_shard_may(before: ObservedLease | None) -> None:
    stray = observe(before, lease(STRANGER, 1_500_000_000, renewed=3), NOW, OTHERS)
    assert until(stray) == NOW + MAX_DURATION_SECONDS


# -- for all stories -------------------------------------------------------------------

contents = st.one_of(
    st.none(),
    st.builds(lease, st.sampled_from(["", SHARD, STRANGER, SHARDER_HOLDER]), st.sampled_from([1, 3, 15, 60])),
)


@given(st.lists(st.tuples(st.integers(0, 20), contents), max_size=12))
def test_no_hand_shortens_what_a_shard_may_count_on(story: list[tuple[int, Lease | None]]) -> None:
    """Whatever is done to a lease, only its holder's release ends what its last holder could count on."""
    now = 1000.0
    held: ObservedLease | VanishedLease = HELD
    may_count_until = THEN + DURATION
    for number, (seconds, content) in enumerate(story):
        now += seconds
        if content is None:
            held = vanish(held, None, now) if isinstance(held, ObservedLease) else held
        else:
            before = held
            content = lease(content.holder, content.spec.lease_duration_seconds or 0, renewed=number + 10)
            held = observe(before, content, now, ())
            rightful = isinstance(before, ObservedLease) and says(before.lease) is Says.RIGHTFUL
            if says(content) is Says.RIGHTFUL:
                may_count_until = now + (content.spec.lease_duration_seconds or 0)
            elif says(content) is Says.RELEASED and rightful:
                may_count_until = 0.0
        assert sum(held.held) >= may_count_until


@given(st.sampled_from(["", STRANGER]), st.integers(2, 2**31 - 1), st.lists(st.integers(1, 2**31 - 1), max_size=3))
def test_a_hold_that_only_its_lease_tells_of_counts_for_as_long_as_that_says(
    holder: str, duration: int, others: list[int]
) -> None:
    """Somebody has overwritten the holder alone before this leader has looked, in whatever order it reads Leases."""
    ring = [ObservedLease(lease("two", each, name="two"), 0.0) for each in others]
    seen = observe(None, lease(holder, duration), NOW, ring)
    may_count_until = NOW + min(duration, MAX_DURATION_SECONDS)
    assert held_until(seen, (), 0.0, ring, lambda seconds: 0.0) >= may_count_until
    assert shard_held_until(seen, (), 0.0, ring, lambda seconds: 0.0) >= may_count_until


@pytest.mark.parametrize(("before", "until"), [(HELD, NOW + DURATION), (None, NOW + 60)])
def test_a_stranger_that_goes_on_renewing_does_not_lengthen_what_the_shard_may_count_on(
    before: ObservedLease | None, until: float
) -> None:
    """Of a lease that was a stranger's when it was first seen nobody knows whose it was before."""
    seen = observe(before, lease(STRANGER, 15, renewed=2), NOW, OTHERS)
    for number in range(3, 60):
        seen = observe(seen, lease(STRANGER, 15, renewed=number), NOW + number, OTHERS)
        assert shard_held_until(seen, (), 0.0, OTHERS, lambda seconds: 0.0) == until
        assert held_until(seen, (), 0.0, OTHERS, lambda seconds: 0.0) > NOW + number
    emptied = observe(seen, lease("", 15, renewed=60), NOW + 60, OTHERS)
    assert shard_held_until(emptied, (), 0.0, OTHERS, lambda seconds: 0.0) == until


@pytest.mark.parametrize("holder", ["", SHARDER_HOLDER])
def test_an_older_copy_that_says_the_shard_has_left_gives_nothing_away(holder: str) -> None:
    def counted(given: Lease, transitions: int) -> Lease:
        return structs.replace(given, spec=structs.replace(given.spec, lease_transitions=transitions))

    def still_held(transitions: int) -> float:
        held = ObservedLease(counted(lease(SHARD), 4), THEN)
        copy = counted(lease(holder, 1 if not holder else DURATION, renewed=3), transitions)
        return held_until(observe(held, copy, NOW, ()), (), 0.0, (), lambda duration: 0.0)

    assert [still_held(transitions) for transitions in (3, 4, 5)] == [NOW + DURATION, 0.0, 0.0]


def test_a_copy_in_the_sharders_name_of_one_that_was_deleted_gives_nothing_away() -> None:
    gone = vanish(ObservedLease(lease(SHARD), THEN), None, NOW)
    copy = observe(gone, lease(SHARDER_HOLDER, renewed=3), NOW + 1, ())
    assert held_until(copy, (), 0.0, (), lambda duration: 0.0) == NOW + DURATION
    other = observe(copy, lease(SHARDER_HOLDER, renewed=2), NOW + 2, ())
    assert held_until(other, (), 0.0, (), lambda duration: 0.0) == NOW + DURATION
    later = int(NOW + DURATION + 1)
    renewed = observe(other, lease(SHARDER_HOLDER, renewed=later), later, ())
    assert held_until(renewed, (), 0.0, (), lambda duration: 0.0) == 0.0, "by whoever leads, and has waited"
