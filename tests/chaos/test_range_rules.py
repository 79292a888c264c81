"""Each rule of rings by ranges finds what is planted for it, and nothing in a history that is as it should be."""

from __future__ import annotations

import pytest

from tests.chaos.history import LEASES, OWNERS, History, Writer
from tests.chaos.rules import judge
from tests.chaos.story import ALL, LEASE_SECONDS, SHARDER, USER, Story, rules


class Ranged(Story):
    """Two shards; an object with a child on the first, which holds everything.

    `second_left_to`: who had the Lease of the second before it was given back, if it was.
    """

    def __init__(self, renewals: int = 1, second_left_to: str | None = None) -> None:
        super().__init__()
        if second_left_to is not None:
            self.lease("two", holder=second_left_to)
            self.lease("two", holder="")
        for _ in range(renewals):
            self.renew("one", "two")
        self.name("one")
        self.lease("one", held=ALL)
        self.renew("two")
        self.owner(None)
        self.renew("two")
        self.begin("one", "one/1")
        self.write("one/1", "w1")
        self.child(None, write="w1")

    def told(self, **facts: object) -> History:
        return super().told(**{"by_ranges": True, **facts})

    def work(self, shard: str, number: int) -> None:
        """A reconcile that makes the child anew."""
        self.begin(shard, f"{shard}/{number}")
        self.write(f"{shard}/{number}", f"w{number}")
        self.child(None, write=f"w{number}")


def left() -> Ranged:
    """The first shard gives up what it has, and leaves."""
    story = Ranged()
    story.name(None)
    story.lease("one", held="")
    story.lease("one", holder="")
    return story


def handed_over() -> Ranged:
    """And the second one is named, and says that it holds it."""
    story = left()
    story.name("two")
    story.lease("two", held=ALL)
    return story


def test_a_handover_in_order_is_well() -> None:
    story = handed_over()
    story.work("two", 2)
    verdict = judge(story.told())
    assert verdict.violations == ()
    assert (verdict.moves, verdict.reconciles, verdict.writes) == (1, 2, 2)
    shards = [each.shard for each in story.told().given if each.resource == OWNERS]
    assert shards == ["one", None, "two"], "nothing was written to the object, which came to another shard"


def test_the_longest_time_without_an_owner_is_that_until_the_next_holder_works() -> None:
    story = left()
    gone = story.now - 1
    story.now += 7
    story.name("two")
    story.lease("two", held=ALL)
    story.begin("two", "two/1")
    assert judge(story.told()).longest == story.now - gone


def test_a_write_of_a_shard_that_holds_nothing_there_is_found() -> None:
    story = Ranged()
    story.begin("one", "one/2", lasts=None)
    story.lease("one", held="")
    story.write("one/2", "w2")
    story.child(None, write="w2")
    story.lease("one", held=ALL)
    assert rules(story.told()) == ["foreign write"]


def test_a_write_that_its_shard_made_before_is_its_own_however_often_it_is_stored() -> None:
    story = handed_over()
    story.child(None, write="w1", drain=True)
    assert rules(story.told()) == []


def test_a_reconcile_where_its_shard_holds_nothing_is_found() -> None:
    story = Ranged()
    story.begin("two", "two/1")
    assert rules(story.told()) == ["foreign reconcile"]


@pytest.mark.parametrize(("number", "found"), [(1, []), (2, ["foreign reconcile"])])
def test_a_shard_that_is_suspended_between_its_look_and_a_reconcile_begins_that_one_when_it_goes_on(
    number: int, found: list[str]
) -> None:
    story = Ranged()
    story.renew("one")
    story.down("one.1", 2 * LEASE_SECONDS)
    story.now += LEASE_SECONDS
    story.lease("one", holder="sharder")
    story.name("two")
    story.lease("two", held=ALL)
    story.now += LEASE_SECONDS
    for each in range(number):
        story.begin("one", f"one/{2 + each}", lasts=0.1)
    assert rules(story.told()) == found


def test_a_shard_that_held_nothing_when_it_was_suspended_begins_nothing_when_it_goes_on() -> None:
    story = Ranged()
    story.down("two.1", LEASE_SECONDS)
    story.now += LEASE_SECONDS
    story.begin("two", "two/1", lasts=0.1)
    assert rules(story.told()) == ["foreign reconcile"]


def test_a_shard_that_takes_off_its_lease_what_it_works_on_is_found() -> None:
    story = Ranged()
    story.begin("one", "one/2", lasts=10.0)
    story.name(None)
    story.lease("one", held="")
    story.now += 10
    story.name("one")
    story.lease("one", held=ALL)
    assert rules(story.told()) == ["let go too early"]


def test_one_whose_lease_was_taken_may_find_its_reconcile_unfinished() -> None:
    story = Ranged()
    story.begin("one", "one/2", lasts=10.0)
    story.down("one.1", 10.0)
    story.lease("one", holder="sharder")
    story.name(None)
    story.name("two")
    story.lease("two", held=ALL)
    story.begin("two", "two/1")
    assert rules(story.told(living={"two"})) == []


def test_two_that_hold_one_range_and_the_later_works_are_found() -> None:
    story = Ranged()
    story.name(None)
    story.name("two")
    story.lease("two", held=ALL)
    story.begin("two", "two/1")
    story.lease("one", held="")
    assert rules(story.told()) == ["overlap", "early grant"]


def test_one_who_says_that_it_holds_what_another_does_and_goes_back_is_well() -> None:
    story = Ranged()
    story.lease("two", held=ALL)
    story.begin("one", "one/2")
    story.lease("two", held="")
    assert rules(story.told()) == []


@pytest.mark.parametrize(("by", "found"), [(SHARDER, ["early grant"]), (USER, [])])
def test_a_grant_of_what_another_holds_is_found_but_one_by_hand(by: Writer, found: list[str]) -> None:
    story = Ranged()
    story.name(None)
    version = story.name("two")
    story.asked(by, version)
    story.lease("one", held="")
    story.lease("two", held=ALL)
    story.begin("two", "two/1")
    told = [each for each in rules(story.told()) if each != "unknown writer"]
    assert told == found


def test_an_object_whose_holder_is_not_named_in_the_end_is_lost() -> None:
    story = Ranged()
    story.name("two")
    assert rules(story.told()) == ["lost"]


@pytest.mark.parametrize(("by", "found"), [(SHARDER, ["needless move"]), (USER, [])])
def test_a_move_between_shards_that_had_their_leases_all_the_time_is_found_but_one_by_hand(
    by: Writer, found: list[str]
) -> None:
    story = Ranged(renewals=4)
    story.renew("two")
    story.name(None)
    story.lease("one", held="")
    story.asked(by, story.name("two"))
    story.lease("two", held=ALL)
    story.begin("two", "two/1")
    assert [each for each in rules(story.told()) if each != "unknown writer"] == found


@pytest.mark.parametrize(("holder", "found"), [("sharder", []), ("", ["needless move"])])
def test_a_shard_that_crashed_may_be_given_late_what_came_up_while_it_had_to_hold_its_lease_first(
    holder: str, found: list[str]
) -> None:
    story = Ranged(renewals=4, second_left_to=holder)
    story.name(None)
    story.lease("one", held="")
    story.name("two")
    story.lease("two", held=ALL)
    story.begin("two", "two/1")
    assert rules(story.told()) == found


@pytest.mark.parametrize(("seconds", "found"), [(0, []), (LEASE_SECONDS, ["foreign reconcile", "foreign write"])])
@pytest.mark.parametrize("torn", [{"deleted": True}, {"holder": "", "held": ALL}])
def test_who_was_robbed_of_its_lease_by_hand_works_on_for_as_long_as_it_would_have_lasted(
    torn: dict[str, object], seconds: float, found: list[str]
) -> None:
    story = Ranged()
    story.store(LEASES, "one", **torn)
    story.now += seconds
    story.work("one", 2)
    story.lease("one", held=ALL)
    assert sorted(rules(story.told())) == found


def test_by_labels_nobody_asks_what_leases_hold() -> None:
    story = Ranged()
    story.begin("two", "two/1")
    assert "foreign reconcile" not in rules(story.told(by_ranges=False))
