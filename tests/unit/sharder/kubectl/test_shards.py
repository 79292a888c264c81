"""What one look at a lease tells."""

from __future__ import annotations

import pytest

from sharder.core.membership import NotNow
from sharder.core.shards import State
from sharder.kubectl.shards import read_membership, read_shard_status
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.leases import Lease
from tests.unit.sharder.kubectl.rings import NOW, lease


@pytest.mark.parametrize("state", ["ready", "expired", "uncertain"])
def test_the_sharders_word_about_a_held_lease_is_taken(state: str) -> None:
    shard_status = read_shard_status(lease("one", state=state, renewed=40), NOW)
    assert (shard_status.state, shard_status.available, shard_status.judged) == (State(state), True, True)


@pytest.mark.parametrize(
    ("renewed", "fenced", "state"),
    [(3, True, State.READY), (20, False, State.EXPIRED), (20, True, State.UNCERTAIN), (40, False, State.UNCERTAIN)],
)
def test_a_lease_that_nobody_judged_is_shown_by_its_own_times(renewed: float, fenced: bool, state: State) -> None:
    shard_status = read_shard_status(lease("one", state=None, renewed=renewed, fenced=fenced), NOW)
    assert (shard_status.state, shard_status.judged) == (state, False)


@pytest.mark.parametrize("holder", ["", "somebody", SHARDER_HOLDER])
def test_a_lease_that_its_shard_does_not_hold_is_dead_whatever_the_label_still_says(holder: str) -> None:
    shard_status = read_shard_status(lease("one", holder=holder, state="ready"), NOW)
    assert (shard_status.state, shard_status.available, shard_status.judged) == (State.DEAD, False, False)
    assert shard_status.taken_over == (holder == SHARDER_HOLDER)


def test_an_orphan_is_called_so() -> None:
    assert read_shard_status(lease("one", holder="", state="orphaned"), NOW).state is State.ORPHANED


def test_a_ready_shard_that_renewed_long_ago_is_silent() -> None:
    assert read_shard_status(lease("one", renewed=46), NOW).silent
    assert not read_shard_status(lease("one", renewed=44), NOW).silent


def test_times_ahead_of_our_clock_are_no_negative_spans() -> None:
    assert read_shard_status(lease("one", renewed=-5, held=-5), NOW).renewed_seconds == 0


@pytest.mark.parametrize(
    ("renewed", "words"),
    [(3, "3s ago"), (-14, "0s ago"), (-16, "in 16s, by its clock"), (-100 * 86_400, "in 100d, by its clock")],
)
def test_a_renewal_that_is_far_ahead_of_our_clock_is_not_called_a_moment_ago(renewed: float, words: str) -> None:
    shard_status = read_shard_status(lease("one", state="expired", renewed=renewed), NOW)
    assert (shard_status.renewed, shard_status.ahead) == (words, words.startswith("in"))


@pytest.mark.parametrize(
    ("made", "strange"),
    [
        (lease("one", holder="one_0b1f5f0e", held=60), True),
        (lease("one", holder="one_0b1f5f0e", held=10), False),  # for a moment, anybody may
        (lease("one", holder="one_0b1f5f0e", held=600, renewed=60), False),  # no longer
        (lease("one", holder=SHARDER_HOLDER, held=60), False),
        (lease("one", holder="", held=60), False),
        (lease("one", held=60), False),
    ],
)
def test_whoever_goes_on_renewing_a_lease_under_another_name_is_a_stranger(made: Lease, strange: bool) -> None:
    assert read_shard_status(made, NOW).strange is strange


def test_names_held_twice_are_in_nobodys_ring() -> None:
    leases = [lease("one"), lease("two"), lease("two", namespace="other")]
    membership = read_membership(leases, [read_shard_status(each, NOW) for each in leases])
    assert membership.available == {"one"}
    assert membership.ambiguous == {"two"}


def test_what_belongs_on_a_shard_that_long_has_not_renewed_is_not_said_to_be_drained_toward_it() -> None:
    """A backup has brought its Lease back, say, with the label of that time."""
    leases = [lease("one"), lease("late", renewed=14), lease("gone", renewed=86_400)]
    membership = read_membership(leases, [read_shard_status(each, NOW) for each in leases])
    assert membership.why_not_drain_to("gone") is NotNow.UNRENEWED
    assert membership.may_drain_to("one")
    assert membership.may_drain_to("late")


@pytest.mark.parametrize(
    ("there", "runs"),
    [
        (lease("one"), True),
        (lease("one", holder="another"), True),
        (lease("one", holder=""), False),
        (lease("one", holder=SHARDER_HOLDER), False),
        (lease("one", renewed=3600), False),
        (lease("one", instance="uid"), True),
        (lease("one", instance=""), False),
    ],
)
def test_whether_a_shard_runs_is_read_off_its_holder_its_age_and_whether_it_was_left(there: Lease, runs: bool) -> None:
    assert read_shard_status(there, NOW).runs is runs
