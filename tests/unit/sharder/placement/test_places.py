"""What cannot get on holds the places that it has, and stops nobody else: however much of it there is."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from sharder.backlog.objects import ItemKey
from sharder.placement.transit import FIRST_PLACES, LEAST_PLACES, OVERDUE_SECONDS, SOON_SECONDS, STEP_UP, Transit
from shardsdk.errors import Forbidden
from shardsdk.protocol.objects import CLUSTERRINGS, Resource, SlimMeta, SlimObject
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    OWNERS,
    SETTINGS,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)
from tests.unit.sharder.placement.test_transit import PLACES, Transits, acknowledging, at_once, families_of


class Unwritable(MemoryApi):
    """An API server on which some objects' labels cannot be written."""

    resource: Resource | None = None
    prefix = ""

    async def patch(self, resource: Resource, name: str, *args: Any, **options: Any) -> Any:
        """Refused for objects of `resource` whose names begin with `prefix`."""
        if resource == self.resource and name.startswith(self.prefix):
            raise Forbidden(f"{name}: denied by a policy")
        return await super().patch(resource, name, *args, **options)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_hangs_no_more_are_in_transit_and_all_others_get_on(seed: int) -> None:
    rng, clock = Random(seed), VirtualClock()
    shards = [f"shard-{number}" for number in range(rng.randint(2, 6))]
    resources, places = rng.randint(1, 3), rng.choice((4, 12, 40))
    lanes = [(resource, shard) for resource in range(resources) for shard in shards]
    hung = set(rng.sample(lanes, rng.randint(1, min(len(lanes), places) - 1)))
    begun: dict[ItemKey, str] = {}

    def go(key: ItemKey, obj: SlimObject) -> None:
        begun[key] = obj.metadata.namespace

    transit = Transit(places, clock, go, paced=lambda resource: resource == 0, resources=resources)
    transit.set_shards(frozenset(shards))
    for resource in range(resources):
        transit.open(resource)
    for number in range(30):
        for resource, shard in lanes:
            key = ItemKey(resource, shard, f"it-{number}")
            if transit.enter(key, SlimObject(SlimMeta(key.name, shard)), shard):
                begun[key] = shard
    most = 0
    for _ in range(1500):
        clock.move_to(clock.monotonic() + rng.choice((0.05, 0.5)))
        for key, shard in list(begun.items()):
            transit.drains(key, shard)
            if (key.resource, shard) not in hung and rng.random() < 0.5:
                del begun[key]
                transit.let_go(key, seen=True)
                transit.leave(key)
        transit.look(lambda key: True)
        most = max(most, len(transit))
    assert most <= places
    assert {(key.resource, shard) for key, shard in begun.items()} <= hung
    assert transit.waiting + len(transit) == 30 * len(hung)


@pytest.mark.parametrize("lets_go", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_whatever_cannot_get_on_in_some_namespaces_those_in_others_do(seed: int, lets_go: bool) -> None:
    """Its shard may not change it, or its shard lets it go and the sharder may not give it to another."""
    rng, clock, begun = Random(seed), VirtualClock(), list[ItemKey]()
    shards = [f"shard-{number}" for number in range(rng.randint(2, 4))]
    places, stuck = rng.choice((40, 100)), [f"stuck-{number}" for number in range(rng.randint(1, 2))]
    transit = Transit(places, clock, lambda key, obj: begun.append(key))
    transit.set_shards(frozenset(shards))
    transit.open(0)
    names = [(namespace, number) for namespace in (*stuck, "work") for number in range(4 * places)]
    for namespace, number in names:  # those that get no further come first
        shard = shards[number % len(shards)]
        key = ItemKey(0, namespace, f"{shard}-{number}")
        if transit.enter(key, SlimObject(SlimMeta(key.name, namespace)), shard):
            begun.append(key)
    moved = 0
    for _ in range(1000):
        clock.move_to(clock.monotonic() + rng.choice((0.05, 1.0)))
        for key in begun.copy():
            transit.drains(key, key.name.rpartition("-")[0])
            if key.namespace in stuck and not lets_go:
                continue
            begun.remove(key)
            transit.let_go(key, seen=True)
            if key.namespace not in stuck:
                transit.leave(key)
                moved += 1
        transit.look(lambda key: True)
        assert len(transit) <= places
    assert moved == 4 * places


@pytest.mark.parametrize("hung", [0, 1, 3, 10, 20])
@pytest.mark.parametrize("places", [1, 3, 10, 20])
def test_in_one_namespace_all_get_on_while_there_is_a_place_that_is_not_held_for_good(places: int, hung: int) -> None:
    """Some are with a shard each that hangs, and some were let go and may not be given to another."""
    clock, begun, moved = VirtualClock(), list[ItemKey](), 0
    hangs = [f"hangs-{number}" for number in range(hung)]
    transit = Transit(places, clock, lambda key, obj: begun.append(key))
    transit.set_shards(frozenset({"works", *hangs}))
    transit.open(0)
    for shard, count in (*((each, 1) for each in hangs), ("works", 3 * places)):
        for key in (ItemKey(0, "default", f"{shard}_{number}") for number in range(count)):
            if transit.enter(key, SlimObject(SlimMeta(key.name, "default")), shard):
                begun.append(key)
    stays = {f"works_{number}" for number in range(places - 1 - (hung if hung < places else 0))}
    for _ in range(1000):
        clock.move_to(clock.monotonic() + 1.0)
        for key in begun.copy():
            shard = key.name.partition("_")[0]
            transit.drains(key, shard)
            if shard in hangs:
                continue
            begun.remove(key)
            transit.let_go(key, seen=True)
            if key.name not in stays:
                transit.leave(key)
                moved += 1
        transit.look(lambda key: True)
    assert moved == 3 * places - len(stays)


@pytest.mark.parametrize("shown", [True, False])
def test_what_takes_too_long_and_no_watch_shows_any_more_gives_its_place_back(shown: bool) -> None:
    """Nothing else would: it is gone, and no event has said so."""
    clock, went = VirtualClock(), list[ItemKey]()
    first, second = ItemKey(0, "default", "first"), ItemKey(0, "default", "second")
    transit = Transit(1, clock, lambda key, obj: went.append(key))
    transit.set_shards(frozenset({"one"}))
    transit.open(0)
    assert transit.enter(first, SlimObject(SlimMeta("first", "default")), "one")
    transit.drains(first, "one")
    assert not transit.enter(second, SlimObject(SlimMeta("second", "default")), "one")
    clock.move_to(OVERDUE_SECONDS)
    transit.look(lambda key: shown)
    assert went == ([] if shown else [second])
    assert len(transit) == 1


def test_what_is_about_to_drain_keeps_its_place_however_long_that_takes_and_stops_no_other() -> None:
    clock, went = VirtualClock(), list[ItemKey]()
    first, second = ItemKey(0, "default", "first"), ItemKey(0, "default", "second")
    transit = Transit(1, clock, lambda key, obj: went.append(key))
    transit.set_shards(frozenset({"one", "two"}))
    transit.open(0)
    assert transit.enter(first, SlimObject(SlimMeta("first", "default")), "one")
    assert not transit.enter(second, SlimObject(SlimMeta("second", "default")), "two")
    clock.move_to(OVERDUE_SECONDS)
    transit.look(lambda key: False)
    assert (went, len(transit)) == ([second], 2)
    transit.drains(first, "one")
    transit.leave_unless_begun(second)
    transit.look(lambda key: False)
    assert len(transit) == 1, "no watch can have shown it yet"
    clock.move_to(2 * OVERDUE_SECONDS)
    transit.look(lambda key: False)
    assert len(transit) == 0


def test_as_many_are_let_go_at_a_time_as_have_an_owner_again_soon() -> None:
    clock, begun = VirtualClock(), list[ItemKey]()
    transit = Transit(40, clock, lambda key, obj: begun.append(key))
    transit.set_shards(frozenset({"one"}))
    transit.open(0)
    for number in range(1000):
        key = ItemKey(0, f"namespace-{number}", "owner")
        if transit.enter(key, SlimObject(SlimMeta(key.name)), "one"):
            begun.append(key)

    def change_hands(unowned_seconds: float) -> int:
        """All that have a place get on; returns how many others have one then."""
        going = begun.copy()
        begun.clear()
        for key in going:
            transit.drains(key, "one")
        clock.move_to(clock.monotonic() + OVERDUE_SECONDS / 2)  # how long its shard works on it is another matter
        for key in going:
            transit.let_go(key, seen=True)
        clock.move_to(clock.monotonic() + unowned_seconds)
        for key in going:
            transit.leave(key)
        return len(transit)

    assert len(transit) == FIRST_PLACES
    assert [change_hands(2 * SOON_SECONDS) for _ in range(4)] == [6, LEAST_PLACES, LEAST_PLACES, LEAST_PLACES]
    more = [change_hands(SOON_SECONDS / 2) for _ in range(15)]
    assert all(2 < after - before <= STEP_UP for before, after in pairwise([LEAST_PLACES, *more[:9]]))
    assert set(more[-3:]) == {40}


@pytest.mark.parametrize("hanging", [2, 3])
@pytest.mark.parametrize("places_at_once", [PLACES, 2])
def test_however_many_shards_hang_the_others_move_and_no_more_are_in_transit(hanging: int, places_at_once: int) -> None:
    """With more shards that hang than places, one more goes at a time."""
    bound = max(places_at_once, hanging + 1)

    @in_virtual_time
    async def scenario(clock: VirtualClock) -> None:
        stage = make_stage(clock)
        stage.create(CLUSTERRINGS, ring(), None)
        shards = ("one", "two", "three", "four")
        for shard in shards:
            stage.start(shard)
        places = families_of(stage, shards, "five", PLACES)
        transits = Transits(stage)
        hangs = set(shards[:hanging])

        async def how(name: str, shard: str) -> bool:
            await stage.until(lambda: shard not in hangs, seconds=1e6, every=1.0)
            return True

        acknowledging(stage, how)
        async with leading(stage, dataclasses.replace(SETTINGS, concurrent_moves=places_at_once)):
            await stage.until(lambda: stage.condition("Settled") == "True")
            stage.start("five")
            rest = [name for name, shard in places.items() if shard not in hangs]
            await stage.until(lambda: all(stage.label(OWNERS, name) == "five" for name in rest), seconds=120)
            await stage.pass_time(5 * OVERDUE_SECONDS)
            assert len(transits.draining) >= hanging
            hangs.clear()
            await stage.until(lambda: all(stage.label(OWNERS, name) == "five" for name in places), seconds=240)
            assert transits.most <= bound

    scenario()


@in_virtual_time
async def test_families_that_cannot_be_written_are_let_go_no_further_than_there_are_places(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock, api=Unwritable)
    assert isinstance(stage.api, Unwritable)
    stage.set_up(ring(), "one", "two")
    places = families_of(stage, ("one", "two"), "three", 2 * PLACES)
    transits = Transits(stage)
    acknowledging(stage, at_once)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.resource = CHILDREN
        stage.start("three")
        await stage.pass_time(20 * OVERDUE_SECONDS)
        assert transits.now
        stage.api.resource = None
        await stage.until(lambda: all(stage.label(OWNERS, name) == "three" for name in places), seconds=120)
        assert transits.most <= PLACES


@in_virtual_time
async def test_objects_that_never_had_a_shard_and_get_none_stop_no_moves(clock: VirtualClock) -> None:
    """A policy of others refuses to have them labelled, say."""
    stage = make_stage(clock, api=Unwritable)
    assert isinstance(stage.api, Unwritable)
    stage.set_up(ring(), "one", "two")
    places = families_of(stage, ("one", "two"), "three", PLACES)
    acknowledging(stage, at_once)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.resource, stage.api.prefix = OWNERS, "refused-"
        for number in range(2 * PLACES):
            stage.create(OWNERS, thing(f"refused-{number}"))
        stage.start("three")
        await stage.until(lambda: all(stage.label(OWNERS, name) == "three" for name in places), seconds=60)


@in_virtual_time
async def test_a_resource_that_no_shard_watches_stops_the_moves_of_no_other(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    both = ring({**ALONE, "controlledResources": []}, {"resource": CHILDREN.plural})
    stage.create(CLUSTERRINGS, both, None)
    for shard in ("one", "two"):
        stage.start(shard)
    watched, unwatched = (_moving(resource, 2 * PLACES) for resource in (OWNERS, CHILDREN))
    async with leading(stage):
        for name in unwatched:
            stage.create(CHILDREN, thing(name, shard="one"))
        await stage.until(lambda: stage.condition("Settled") == "True")
        transits = Transits(stage)
        stage.start("three")
        await stage.pass_time(3 * OVERDUE_SECONDS)
        assert any(stage.draining(CHILDREN, name) for name in unwatched)
        acknowledging(stage, at_once)
        for name in watched:
            stage.create(OWNERS, thing(name, shard="one"))
        await stage.until(lambda: all(stage.label(OWNERS, name) == "three" for name in watched), seconds=600)
        drained = sum(stage.draining(CHILDREN, name) for name in unwatched)
        assert transits.most + drained <= PLACES


def _moving(resource: Resource, count: int) -> list[str]:
    """Names of objects whose place is shard one, and three once that is there."""
    moving = set(names_on("three", "one", "two", "three", count=40 * count, resource=resource))
    names = names_on("one", "one", "two", count=40 * count, resource=resource)
    return [name for name in names if name in moving][:count]
