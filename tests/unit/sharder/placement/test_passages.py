"""The place that an object has on its way from one shard to the next: who has one, who waits for it, and until when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sharder.backlog.objects import ItemKey
from sharder.placement.transit import FIRST_PLACES, OVERDUE_SECONDS, SOON_SECONDS, Transit
from shardsdk.protocol.objects import SlimMeta, SlimObject
from shardsdk.testing.virtual import VirtualClock

FIRST, SECOND, THIRD = (ItemKey(0, "default", name) for name in ("first", "second", "third"))


class Places:
    """So many, of a ring of two shards; `went` are those that were told to go after they had waited."""

    def __init__(self, places: int = 1, *, ready: Callable[[int], bool] = lambda resource: True) -> None:
        self.clock = VirtualClock()
        self.went: list[ItemKey] = []
        self.transit = Transit(places, self.clock, lambda key, obj: self.went.append(key), ready=ready)
        self.transit.set_shards(frozenset({"one", "two"}))
        self.transit.open(0)

    def enter(self, key: ItemKey, shard: str = "one") -> bool:
        return self.transit.enter(key, SlimObject(SlimMeta(key.name, key.namespace)), shard)

    def fill(self) -> int:
        """Have as many enter as may."""
        return sum(self.enter(ItemKey(1, "default", f"other-{number}")) for number in range(100))


@pytest.mark.parametrize("seen_to_drain", [True, False])
def test_what_drains_already_has_a_place_which_nothing_but_its_end_gives_back(seen_to_drain: bool) -> None:
    places = Places()
    if seen_to_drain:
        places.transit.drains(FIRST, "one")
    else:
        assert places.enter(FIRST)
    assert not places.enter(SECOND, "two")
    places.transit.leave_unless_begun(FIRST)
    places.transit.leave_unless_begun(THIRD)
    assert places.went == ([] if seen_to_drain else [SECOND])
    places.transit.leave(FIRST)
    assert places.went == [SECOND]


def test_nothing_enters_before_what_drains_is_known() -> None:
    places = Places(8)
    unknown = ItemKey(1, "default", "unknown")
    assert not places.enter(unknown)
    places.transit.open(1)
    assert places.went == [unknown]


def test_what_is_gone_while_it_waits_does_not_go() -> None:
    places = Places()
    places.enter(FIRST)
    for key in (SECOND, THIRD):
        assert not places.enter(key)
    places.transit.leave(SECOND)
    places.transit.leave(FIRST)
    assert places.went == [THIRD]


def test_what_entered_after_it_had_waited_does_not_go_once_more() -> None:
    ready = False
    places = Places(8, ready=lambda resource: ready)
    assert not places.enter(FIRST)
    ready = True
    assert places.enter(FIRST)
    places.transit.admit()
    assert (places.went, places.transit.waiting) == ([], 0)


def test_what_was_let_go_keeps_its_place_whichever_shards_come_and_go() -> None:
    places = Places()
    places.enter(FIRST)
    places.transit.let_go(FIRST, seen=True)
    places.transit.set_shards(frozenset({"two"}))
    assert not places.enter(SECOND, "two")
    places.transit.leave(FIRST)
    assert places.went == [SECOND]


def test_what_is_asked_of_a_shard_that_goes_gives_its_place_back() -> None:
    places = Places()
    places.transit.drains(FIRST, "one")
    for key, shard in ((SECOND, "one"), (THIRD, "two")):
        assert not places.enter(key, shard)
    places.transit.set_shards(frozenset({"two"}))
    assert (places.went, len(places.transit), places.transit.waiting) == ([THIRD], 1, 0)


def test_the_next_is_asked_of_a_shard_as_soon_as_it_has_let_go() -> None:
    places = Places(100)
    places.transit.open(1)
    asked = places.fill()
    places.transit.let_go(ItemKey(1, "default", "other-0"), seen=True)
    assert places.went == [ItemKey(1, "default", f"other-{asked}")]


def test_what_no_watch_has_shown_since_it_was_let_go_is_told_once() -> None:
    places = Places(8)
    keys = asked, shown, left, unknown = (*(ItemKey(0, "default", name) for name in ("asked", "shown", "left")), FIRST)
    for key in keys[:3]:
        assert places.enter(key, "one" if key == asked else "two")
        places.clock.move_to(places.clock.monotonic() + 1)
        places.transit.let_go(key, seen=False)
    places.transit.let_go(unknown, seen=False)
    places.transit.let_go(shown, seen=True)
    places.transit.let_go(shown, seen=False)
    places.transit.leave(left)
    assert not places.transit.unseen_since(1.0), "a watch may be late"
    assert places.transit.unseen_since(10.0) == [asked]
    assert not places.transit.unseen_since(10.0)
    assert len(places.transit) == 2


def _lets_go(places: Places) -> None:
    places.enter(FIRST)
    places.transit.drains(FIRST, "one")
    places.transit.let_go(FIRST, seen=False)


def _asks_alone(places: Places) -> None:
    places.enter(FIRST)
    places.transit.drains(FIRST, "one")


def _finds_unassigned(places: Places) -> None:
    places.transit.let_go(FIRST, seen=True)


@pytest.mark.parametrize(("begins", "waited"), [(_lets_go, True), (_asks_alone, False), (_finds_unassigned, False)])
def test_only_what_a_shard_has_let_go_tells_how_fast_others_get_on(
    begins: Callable[[Places], None], waited: bool
) -> None:
    places = Places(100)
    places.transit.open(1)
    places.transit.set_shards(frozenset({"one"}))
    begins(places)
    places.clock.move_to(2 * SOON_SECONDS)
    if waited:
        places.transit.let_go(FIRST, seen=True)  # it has no owner for all that time, whenever a watch shows that
    places.transit.leave(FIRST)
    assert places.fill() == (FIRST_PLACES - 1 if waited else FIRST_PLACES)


def test_what_has_a_place_and_is_nowhere_seen_is_not_waited_for_once_it_has_begun() -> None:
    places = Places()
    places.transit.drains(FIRST, "one")
    places.clock.move_to(OVERDUE_SECONDS)
    places.transit.look(lambda key: False)
    assert len(places.transit) == 0


def test_what_nobody_ever_had_gives_its_place_back_when_it_cannot_be_placed_soon() -> None:
    places = Places()
    places.transit.let_go(FIRST, seen=True)
    assert not places.enter(SECOND)
    places.clock.move_to(OVERDUE_SECONDS)
    places.transit.look(lambda key: True)
    assert (places.went, len(places.transit)) == ([SECOND], 1)


def test_as_many_again_are_asked_of_a_shard_as_it_works_on_for_long() -> None:
    places = Places(100)
    places.transit.open(1)
    assert places.fill() == FIRST_PLACES // 2, "of two shards"
    places.clock.move_to(OVERDUE_SECONDS)
    places.transit.look(lambda key: True)
    assert len(places.went) == FIRST_PLACES // 2
    assert len(places.transit) == FIRST_PLACES


def test_a_shard_that_hangs_has_its_share_of_the_places_and_no_more() -> None:
    places = Places(FIRST_PLACES)
    places.transit.open(1)
    for _ in range(3):
        places.fill()
        places.clock.move_to(places.clock.monotonic() + OVERDUE_SECONDS)
        places.transit.look(lambda key: True)
    assert (len(places.transit), places.went) == (FIRST_PLACES // 2, [])


def test_no_more_are_in_transit_however_many_resources_and_shards_there_are() -> None:
    places = Places(100)
    for resource in range(1, 4):
        places.transit.open(resource)
        for number in range(20):
            for shard in ("one", "two"):
                places.enter(ItemKey(resource, shard, f"it-{number}"), shard)
    assert len(places.transit) == FIRST_PLACES
