"""The place that an object has on its way from one shard to the next: who has one, who waits for it, and until when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sharder.backlog.objects import ItemKey
from sharder.placement.transit import FIRST_PLACES, MAX_SILENT, OVERDUE_SECONDS, SOON_SECONDS, Transit
from shardsdk.protocol.objects import SlimMeta, SlimObject
from shardsdk.testing.virtual import VirtualClock

FIRST, SECOND, THIRD = (ItemKey(0, "default", name) for name in ("first", "second", "third"))


class Places:
    """So many, of a ring of two shards; `went` are those that were told to go after they had waited."""

    def __init__(
        self,
        places: int = 1,
        *,
        ready: Callable[[int], bool] = lambda resource: True,
        paced: Callable[[int], bool] = lambda resource: True,
    ) -> None:
        self.clock = VirtualClock()
        self.went: list[ItemKey] = []
        self.transit = Transit(places, self.clock, lambda key, obj: self.went.append(key), ready=ready, paced=paced)
        self.transit.set_shards(frozenset({"one", "two"}))
        self.transit.open(0)

    def enter(self, key: ItemKey, shard: str = "one") -> bool:
        return self.transit.enter(key, SlimObject(SlimMeta(key.name, key.namespace)), shard)

    def fill(self) -> int:
        """Have as many enter as may."""
        return sum(self.enter(ItemKey(1, f"namespace-{number}", "other")) for number in range(100))


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
    places.transit.let_go(ItemKey(1, "namespace-0", "other"), seen=True)
    assert places.went == [ItemKey(1, f"namespace-{asked}", "other")]


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


@pytest.mark.parametrize(("share", "most"), [(1, 1), (2, 2), (3, 2), (4, 3), (33, 17)])
def test_of_one_namespace_no_more_is_asked_back_than_leaves_places_to_another(share: int, most: int) -> None:
    """One more than is left of the share of its shard; then the next namespace has the same of what is left."""
    places = Places(2 * share, paced=lambda resource: False)
    first, second = (
        sum(places.enter(ItemKey(0, namespace, f"it-{number}")) for number in range(3 * share))
        for namespace in ("first", "second")
    )
    assert (first, second) == (most, min(share - most, (share - most) // 2 + 1))


def test_a_shard_that_acknowledges_nothing_in_a_namespace_is_asked_for_no_more_there() -> None:
    """Its shard may not change objects there, say; what is not asked back it works on."""
    places = Places(100)
    keys = [ItemKey(0, "default", f"it-{number}") for number in range(100)]

    asked = [key for key in keys if places.enter(key)]
    for _ in range(10):
        for key in asked:
            places.transit.drains(key, "one")
        places.clock.move_to(places.clock.monotonic() + OVERDUE_SECONDS)
        places.transit.look(lambda key: True)
        asked, places.went = places.went, []
    assert (len(places.transit), places.went) == (MAX_SILENT, [])
    assert places.enter(ItemKey(0, "other", "it"))
    assert places.enter(ItemKey(0, "default", "theirs"), "two")
    places.transit.let_go(keys[0], seen=True)
    assert places.went, "it acknowledges some"


def test_what_a_shard_acknowledges_tells_of_that_resource_and_namespace_of_it_only() -> None:
    places = Places(100)
    places.transit.open(1)
    among = [(resource, namespace, shard) for resource in (0, 1) for namespace in "ab" for shard in ("one", "two")]
    for resource, namespace, shard in among:
        for number in range(MAX_SILENT):
            places.transit.drains(ItemKey(resource, namespace, f"{shard}-{number}"), shard)
    places.clock.move_to(OVERDUE_SECONDS)
    places.transit.look(lambda key: True)
    for resource, namespace, shard in among:
        assert not places.enter(ItemKey(resource, namespace, f"{shard}-waits"), shard)
    places.transit.let_go(ItemKey(0, "a", "one-0"), seen=True)
    assert places.went == [ItemKey(0, "a", "one-waits")]


def test_a_shard_is_not_silent_about_what_it_was_not_asked_for_yet() -> None:
    """The drain label is not written yet: the API server is slow, say."""
    places = Places(100)
    assert all(places.enter(ItemKey(0, "default", f"it-{number}")) for number in range(MAX_SILENT))
    places.clock.move_to(OVERDUE_SECONDS)
    places.transit.look(lambda key: True)
    assert places.enter(ItemKey(0, "default", "other"))


def let_go(places: Places, keys: list[ItemKey]) -> None:
    """Have each that gets a place let go by its shard; none of them is assigned."""
    for key in keys:
        if places.enter(key):
            places.transit.drains(key, "one")
            places.transit.let_go(key, seen=True)
            places.clock.move_to(places.clock.monotonic() + OVERDUE_SECONDS)
            places.transit.look(lambda key: True)


def test_what_was_let_go_and_waits_leaves_places_to_other_namespaces() -> None:
    """While they wait for some: where nobody else would use them, those of the same namespace do."""
    places = Places(20)
    waits = ItemKey(1, "other", "it")
    assert not places.enter(waits)
    keys = [ItemKey(0, "default", f"it-{number}") for number in range(100)]
    let_go(places, keys)
    assert len(places.transit) == 11
    places.transit.open(1)
    assert places.went.pop(0) == waits
    places.transit.leave(waits)
    let_go(places, places.went)
    assert len(places.transit) == 20


def test_however_many_drains_hang_no_more_are_let_go_beside_them_than_there_are_places() -> None:
    places = Places(2)
    for number in range(2):
        places.transit.drains(ItemKey(0, "default", f"hangs-{number}"), "two")
    places.clock.move_to(OVERDUE_SECONDS)
    places.transit.look(lambda key: True)
    let_go(places, [ItemKey(0, "default", f"it-{number}") for number in range(10)])
    assert len(places.transit) == 2 + 2


def test_namespaces_of_a_shard_take_turns() -> None:
    places = Places(2)
    keys = [ItemKey(0, namespace, f"it-{number}") for namespace in ("first", "second") for number in range(3)]
    entered = [key for key in keys if places.enter(key)]
    assert entered == keys[:1]
    for _ in keys:
        places.transit.leave((entered + places.went)[-1])
    assert places.went == [keys[each] for each in (1, 3, 2, 4, 5)]
    assert places.transit.waiting == 0


def test_no_more_are_in_transit_however_many_resources_and_shards_there_are() -> None:
    places = Places(100)
    for resource in range(1, 4):
        places.transit.open(resource)
        for number in range(20):
            for shard in ("one", "two"):
                places.enter(ItemKey(resource, shard, f"it-{number}"), shard)
    assert len(places.transit) == FIRST_PLACES
