"""Each rule finds what is planted for it, and nothing in a history that is as it should be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.faults import FAULTS
from tests.chaos.play import moves_beyond
from tests.chaos.rules import judge
from tests.chaos.story import LEASE_SECONDS, Story, begun, handed_over, rules
from tests.chaos.unowned import longest_gap


def test_a_handover_in_order_is_well() -> None:
    verdict = judge(handed_over().told())
    assert verdict.violations == ()
    assert (verdict.moves, verdict.reconciles, verdict.writes) == (1, 2, 1)


def test_two_reconciles_at_once_are_found() -> None:
    story = begun()
    story.lease("one", holder="")
    story.begin("one", "one/2", lasts=10.0)
    story.child("two", write="w1")
    story.owner("two")
    story.begin("two", "two/1")
    assert rules(story.told()) == ["two at once"]


def test_a_shard_that_was_suspended_may_find_its_reconcile_unfinished() -> None:
    story = begun()
    story.begin("one", "one/2", lasts=10.0)
    story.down("one.1", 8.0)
    story.lease("one", holder="sharder")
    story.child("two", write="w1")
    story.owner("two")
    story.begin("two", "two/1")
    assert rules(story.told()) == []


@pytest.mark.parametrize("answered", [True, False])
def test_a_late_write_is_found_also_when_its_shard_was_suspended_or_never_heard_of_it(answered: bool) -> None:
    story = begun()
    story.begin("one", "one/2", lasts=None)
    sent_at = story.now
    story.down("one.1", 8.0)
    story.lease("one", holder="sharder")
    story.child("two", write="w1")
    story.owner("two")
    story.begin("two", "two/1")
    story.write("one/2", "w2", answered=answered)
    if not answered:
        story.facts["writes"][-1] = replace(story.facts["writes"][-1], sent=sent_at)
    story.child("two", write="w2")
    assert rules(story.told()) == ["late write"]


def test_a_write_that_may_have_come_before_the_other_began_is_no_finding() -> None:
    story = begun()
    story.begin("one", "one/2", lasts=None)
    story.write("one/2", "w2", answered=False)
    story.child("one", write="w2")
    story.lease("one", holder="")
    story.child("two", write="w2")
    story.owner("two")
    story.begin("two", "two/1")
    assert rules(story.told()) == []


def test_what_the_same_shards_last_process_had_sent_is_no_finding() -> None:
    story = begun()
    story.begin("one", "one/2", lasts=None)
    story.begin("one", "one/3", process="one.2")
    story.write("one/2", "w2")
    story.child("one", write="w2")
    assert rules(story.told()) == []


@pytest.mark.parametrize("shard", ["one", None])
def test_a_child_that_is_left_behind_is_found(shard: str | None) -> None:
    story = begun()
    story.lease("one", holder="")
    story.child(shard, write="w1")
    story.owner("two")
    story.begin("two", "two/1")
    story.child("two", write="w1")
    assert rules(story.told()) == ["split family"]


def test_a_move_from_a_shard_that_held_its_lease_to_one_that_had_its_own_all_the_time_is_found() -> None:
    story = Story()
    for _ in range(8):
        story.renew("one", "two")
    story.owner("one")
    story.renew("two")
    story.child("one", write="w1")
    story.owner("one", drain=True)
    story.child("two", write="w1")
    story.owner("two")
    story.begin("two", "two/1")
    story.renew("two")
    assert rules(story.told()) == ["needless move"]
    assert rules(story.told(begin=story.now)) == [], "what was before is not asked for"


def test_a_move_to_a_shard_that_has_joined_is_needed() -> None:
    story = Story()
    story.renew("one")
    story.owner("one")
    story.child("one")
    for _ in range(8):
        story.renew("one")
    story.lease("two")
    story.child("two")
    story.owner("two")
    story.begin("two", "two/1")
    assert rules(story.told()) == []


def test_a_new_object_that_went_past_a_silent_shard_may_be_given_back() -> None:
    story = Story()
    story.renew("one", "two")
    story.now += LEASE_SECONDS
    story.owner("one")
    story.child("one")
    story.now += LEASE_SECONDS
    story.renew("one", "two")
    story.child("two")
    story.owner("two")
    assert rules(story.told()) == []


def test_a_replica_may_not_have_seen_yet_that_a_silent_shard_has_renewed() -> None:
    story = Story()
    story.renew("one", "two")
    story.now += 3 * LEASE_SECONDS
    story.renew("two", "two")
    story.owner("one")
    story.child("one")
    story.renew("two")
    story.child("two")
    story.owner("two")
    assert rules(story.told()) == []
    assert not moves_beyond(story.told(), FAULTS["leader-killed"])


@pytest.mark.parametrize("how", ["deleted", "restarts", "there"])
def test_a_new_object_that_went_past_a_shard_that_was_away_may_be_given_back(how: str) -> None:
    story = Story()
    story.renew("one", "two")
    if how == "deleted":
        story.lease("two", deleted=True)
    elif how == "restarts":
        story.down("two.1", None, "ended")
    story.owner("one")
    story.child("one")
    story.renew("two")
    story.child("two")
    story.owner("two")
    assert moves_beyond(story.told(), FAULTS["leader-killed"]) == (how == "there")


def test_moves_beyond_those_of_a_faults_victims_are_counted() -> None:
    history = handed_over().told()
    victims = replace(FAULTS["shard-killed"], victims=("one",))
    assert moves_beyond(history, victims) == 0
    assert moves_beyond(history, replace(victims, victims=("three",))) == 1
    assert moves_beyond(history, replace(victims, moves=0)) == 1
    assert moves_beyond(history, FAULTS["ten-changes"]) == 0


@pytest.mark.parametrize(
    ("shard", "drain", "found"),
    [("gone", False, ["lost", "lost"]), (None, False, ["lost", "lost"]), ("one", True, ["lost"]), ("one", False, [])],
)
def test_an_object_that_ends_on_no_living_shard_is_lost(shard: str | None, drain: bool, found: list[str]) -> None:
    story = begun()
    story.facts["versions"].append(replace(story.owner(shard, drain=drain), at=(0, 98)))
    assert [each for each in rules(story.told()) if each == "lost"] == found


def test_an_object_that_is_not_made_to_its_last_wish_is_lost() -> None:
    story = begun()
    story.owner("one", value="2")
    assert rules(story.told()) == ["lost"]
    assert rules(story.told(children=2)) == ["lost", "lost"]


def test_a_deleted_object_is_not_asked_for() -> None:
    story = begun()
    story.owner("one", value="2", deleted=True)
    story.child("one", write="w1", deleted=True)
    assert rules(story.told()) == []


def test_the_longest_time_without_an_owner_ends_with_the_next_shards_reconcile() -> None:
    story = begun()
    died = story.now
    story.down("one.1", None)
    story.now += 10
    story.lease("one", holder="sharder")
    story.child("two", write="w1")
    story.owner("two")
    story.begin("two", "two/1")
    verdict = judge(story.told())
    assert verdict.longest == story.now - died
    assert verdict.longest_of == "a"


def test_who_goes_on_after_it_was_suspended_owns_what_it_had() -> None:
    story = begun()
    story.down("one.1", 5.0)
    story.now += 20
    story.renew("one", "two")
    assert judge(story.told()).longest == 5.0


@pytest.mark.parametrize(
    ("spans", "longest"),
    [
        ([], 10.0),
        ([(0, 10)], 0.0),
        ([(2, 4), (3, 9)], 2.0),
        ([(3, 9), (0, 1)], 2.0),
        ([(0, 7)], 3.0),
        ([(-5, 99)], 0.0),
    ],
)
def test_the_longest_gap(spans: list[tuple[float, float]], longest: float) -> None:
    assert longest_gap(spans, 0.0, 10.0) == longest
