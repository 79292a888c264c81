"""Owners with children between two shards: how many at a time, for how long, and who may stop whom."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any, Final

import pytest

from sharder.backlog.objects import ItemKey
from sharder.placement.transit import FIRST_PLACES, OVERDUE_SECONDS, Transit
from shardsdk.errors import Gone, StreamInterrupted
from shardsdk.kube.api import WatchKind
from shardsdk.protocol.objects import CLUSTERRINGS, SlimMeta, SlimObject
from shardsdk.testing.memory import Change
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.families import create_family, split_families
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    LABELS,
    OWNERS,
    SETTINGS,
    Stage,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)

PLACES: Final = SETTINGS.concurrent_moves


class Transits:
    """Which owners drain or have no shard, most of them at once, and how long each had no shard; as it happens."""

    def __init__(self, stage: Stage) -> None:
        self._clock = stage.clock
        self._unowned_since: dict[str, float] = {}
        self.draining: set[str] = set()
        self.most = 0
        self.unowned_seconds: list[float] = []
        stage.server.listeners.append(self._look)

    @property
    def now(self) -> set[str]:
        """Owners in transit."""
        return self.draining | self._unowned_since.keys()

    def _look(self, change: Change) -> None:
        if change.resource != OWNERS.group_resource or change.new is None:
            return
        meta = change.new["metadata"]
        name, labels = meta["name"], meta.get("labels") or {}
        (self.draining.add if LABELS.drain in labels else self.draining.discard)(name)
        if LABELS.shard not in labels:
            self._unowned_since[name] = self._clock.monotonic()
        elif name in self._unowned_since:
            self.unowned_seconds.append(self._clock.monotonic() - self._unowned_since.pop(name))
        self.most = max(self.most, len(self.now))


def acknowledging(stage: Stage, how: Callable[[str, str], Awaitable[bool]]) -> None:
    """Each drain is acknowledged once `how(owner, shard)` returns True."""

    async def acknowledge(name: str, shard: str) -> None:
        if await how(name, shard) and stage.draining(OWNERS, name) and stage.label(OWNERS, name) == shard:
            stage.acknowledge(name)

    def look(change: Change) -> None:
        if change.resource != OWNERS.group_resource or change.new is None or change.old is None:
            return
        labels, before = (each["metadata"].get("labels") or {} for each in (change.new, change.old))
        if LABELS.drain in labels and LABELS.drain not in before:
            tasks.add(asyncio.create_task(acknowledge(change.new["metadata"]["name"], labels[LABELS.shard])))

    tasks: set[asyncio.Task[None]] = set()
    stage.server.listeners.append(look)


def families_of(stage: Stage, shards: tuple[str, ...], joins: str, count: int) -> dict[str, str]:
    """`count` owners with a child, on each of `shards`, whose place is `joins` once that is there."""
    places: dict[str, str] = {}
    moving = set(names_on(joins, *shards, joins, count=20 * count * len(shards)))
    for shard in shards:
        mine = [name for name in names_on(shard, *shards, count=40 * count) if name in moving]
        for name in mine[:count]:
            create_family(stage, name, shard=shard, children=(shard,))
            places[name] = shard
    return places


async def at_once(name: str, shard: str) -> bool:
    """A shard that has nothing to do."""
    return True


@pytest.mark.parametrize("seed", range(4))
def test_never_more_are_in_transit_than_may_move_at_once(seed: int) -> None:
    """Whatever time requests, watches and acknowledgements take."""

    @in_virtual_time
    async def scenario(clock: VirtualClock) -> None:
        rng = Random(seed)
        stage = make_stage(clock)
        stage.api.delay = lambda: rng.uniform(0.001, 0.05)
        stage.api.lag = lambda: rng.uniform(0.0, 0.02)
        stage.set_up(ring(), "one", "two")
        places = families_of(stage, ("one", "two"), "three", 40)
        split, transits = split_families(stage), Transits(stage)

        async def sometime(name: str, shard: str) -> bool:
            await clock.sleep(rng.choice((0.0, 0.01, 0.5)))
            return True

        acknowledging(stage, sometime)
        async with leading(stage):
            await stage.until(lambda: stage.condition("Settled") == "True")
            reads = stage.api.lists.count(CHILDREN.plural)
            stage.start("three")
            await stage.until(lambda: all(stage.label(OWNERS, name) == "three" for name in places), seconds=20)
            assert stage.api.lists.count(CHILDREN.plural) - reads < len(places) / 4
            await stage.until(lambda: stage.condition("Settled") == "True", seconds=60)
        assert 1 < transits.most <= PLACES
        assert len(transits.unowned_seconds) >= len(places)
        assert max(transits.unowned_seconds) < 2
        assert not split

    scenario()


@in_virtual_time
async def test_a_shard_that_never_acknowledges_stops_the_moves_of_no_other(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(), "one", "two")
    places = families_of(stage, ("one", "two"), "three", 4 * PLACES)
    transits = Transits(stage)
    hangs = {"one"}

    async def how(name: str, shard: str) -> bool:
        await stage.until(lambda: shard not in hangs, seconds=1e6, every=1.0)
        return True

    acknowledging(stage, how)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.start("three")
        theirs = [name for name, shard in places.items() if shard == "two"]
        await stage.until(lambda: all(stage.label(OWNERS, name) == "three" for name in theirs), seconds=60)
        await stage.pass_time(5 * OVERDUE_SECONDS)
        assert transits.most <= PLACES
        assert transits.draining
        hangs.clear()
        await stage.until(lambda: all(stage.label(OWNERS, name) == "three" for name in places), seconds=120)
        assert transits.most <= PLACES


@in_virtual_time
async def test_an_object_that_its_shard_works_on_for_long_keeps_no_other_waiting(clock: VirtualClock) -> None:
    """One shard has two places, and its first object is not let go."""
    stage = make_stage(clock)
    stage.set_up(ring(), "one", "two")
    places = families_of(stage, ("one", "two"), "three", 20)
    transits = Transits(stage)
    busy: list[str] = []

    async def how(name: str, shard: str) -> bool:
        if shard == "one" and not busy:
            busy.append(name)
        return name not in busy

    acknowledging(stage, how)
    async with leading(stage, dataclasses.replace(SETTINGS, concurrent_moves=6)):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.start("three")
        rest = places.keys()
        await stage.until(lambda: all(stage.label(OWNERS, each) == "three" for each in rest - busy), seconds=60)
        assert transits.now == set(busy)


@in_virtual_time
async def test_what_a_former_leader_drained_counts(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(), "one", "two", "three")
    places = families_of(stage, ("one", "two"), "three", 2 * PLACES)
    transits = Transits(stage)
    drained = list(places)[:: len(places) // PLACES][:PLACES]
    for name in drained:
        stage.server.patch(OWNERS, name, "default", {"metadata": {"labels": {LABELS.drain: "true"}}})
    async with leading(stage):
        await stage.pass_time(OVERDUE_SECONDS - 2)
        assert transits.now == set(drained)
        acknowledging(stage, at_once)
        for name in drained:
            stage.acknowledge(name)
        await stage.until(lambda: all(stage.label(OWNERS, name) == "three" for name in places), seconds=60)
        assert transits.most <= PLACES


@in_virtual_time
async def test_objects_that_leave_the_ring_take_no_place(clock: VirtualClock) -> None:
    """Nobody may be there who acknowledges: a resource that was listed by mistake."""
    stage = make_stage(clock)
    both = ring({**ALONE, "controlledResources": []}, {"resource": CHILDREN.plural})
    stage.create(CLUSTERRINGS, both, None)
    for shard in ("one", "two"):
        stage.start(shard)
    async with leading(stage):
        for number in range(4 * PLACES):
            stage.create(CHILDREN, {"metadata": {"name": f"mistaken-{number}"}})
        await stage.until(lambda: all(stage.label(CHILDREN, f"mistaken-{each}") for each in range(4 * PLACES)))
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.server.patch(CLUSTERRINGS, ring()["metadata"]["name"], None, {"spec": {"resources": [ALONE]}})
        await stage.until(lambda: all(stage.draining(CHILDREN, f"mistaken-{each}") for each in range(4 * PLACES)))
        [name] = names_on("two", "one", "two", "three")
        create_family(stage, name, shard="one", children=())
        stage.start("three")
        await stage.until(lambda: stage.draining(OWNERS, name), seconds=5)


class Forgetful(MemoryApi):
    """A watch of unassigned objects that says nothing from some moment on, as behind an API server that hangs."""

    silent = False

    async def watch(self, *args: Any, **more: Any) -> AsyncIterator[Any]:
        async for event in super().watch(*args, **more):
            if self.silent and more["selector"].labels.startswith("!"):
                await asyncio.Event().wait()
            yield event


@in_virtual_time
async def test_an_owner_that_was_let_go_is_read_when_no_watch_shows_it(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Forgetful)
    assert isinstance(stage.api, Forgetful)
    stage.set_up(ring(), "one", "two")
    places = families_of(stage, ("one", "two"), "three", 1)
    transits = Transits(stage)
    acknowledging(stage, at_once)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.silent = True
        stage.start("three")
        await stage.until(lambda: all(stage.label(OWNERS, name) == "three" for name in places), seconds=20)
    assert max(transits.unowned_seconds) < 5


def test_what_has_a_shard_again_takes_no_place_however_late_the_watches_are() -> None:
    """The answer to the write that assigned it may come before the news that it was let go."""
    transit = Transit(1, VirtualClock(), lambda key, obj: None)
    transit.set_shards(frozenset({"one"}))
    transit.open(0)
    first, second = (ItemKey(0, "default", name) for name in ("first", "second"))
    assert transit.enter(first, SlimObject(SlimMeta("first")), "one")
    transit.drains(first, "one")
    transit.let_go(first, seen=True)
    assert not transit.enter(second, SlimObject(SlimMeta("second")), "one")
    transit.leave(first)
    transit.let_go(first, seen=False)
    assert len(transit) == 1
    assert transit.enter(second, SlimObject(SlimMeta("second")), "one")


class Stuck(MemoryApi):
    """All watches that are open fall silent, as behind an API server that hangs; new ones reach another one."""

    hung = 0
    opened = 0

    async def watch(self, *args: Any, **more: Any) -> AsyncIterator[Any]:
        self.opened += 1
        mine = self.opened
        async for event in super().watch(*args, **more):
            if mine <= self.hung:
                await asyncio.Event().wait()
            yield event


@in_virtual_time
async def test_what_hangs_with_the_leases_watch_is_begun_anew_with_it(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Stuck)
    assert isinstance(stage.api, Stuck)
    stage.set_up(ring(), "one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.hung = stage.api.opened
        stage.create(OWNERS, thing("new"))
        await stage.until(lambda: stage.label(OWNERS, "new") == "one", seconds=40)


class Lagging(MemoryApi):
    """Watches of children are late, each by a time of its own; some break off and begin anew."""

    rng = Random(0)

    async def watch(self, resource: Any, *args: Any, **more: Any) -> AsyncIterator[Any]:
        if resource != CHILDREN:
            async for event in super().watch(resource, *args, **more):
                yield event
            return
        late, breaks = self.rng.choice((0.0, 0.2, 3.0)), self.rng.choice((False, True))
        async for event in super().watch(resource, *args, **more):
            if event.kind is not WatchKind.BOOKMARK and (more.get("resource_version") or self.rng.random() < 0.1):
                await asyncio.sleep(self.rng.uniform(0, late))
            yield event
            if breaks and self.rng.random() < 0.03:
                raise self.rng.choice((StreamInterrupted, Gone))("the API server has ended the watch")


@pytest.mark.parametrize("seed", range(6))
def test_no_child_is_left_behind_however_late_it_was_made_and_the_watches_are(seed: int) -> None:
    """The last write of a shard before it lets an owner go is a child, on itself or anywhere."""

    @in_virtual_time
    async def scenario(clock: VirtualClock) -> None:
        stage = make_stage(clock, api=Lagging)
        assert isinstance(stage.api, Lagging)
        rng = stage.api.rng = Random(seed)
        stage.api.delay = lambda: rng.uniform(0.001, 0.02)
        stage.set_up(ring(), "one", "two")
        places = families_of(stage, ("one", "two"), "three", 30)
        split, transits = split_families(stage), Transits(stage)

        async def one_more(name: str, shard: str) -> bool:
            await clock.sleep(rng.choice((0.0, 0.05)))
            owner = stage.server.get(OWNERS, name, "default")
            where = rng.choice((shard, shard, "two", "three", None))
            if rng.random() < 0.7:
                stage.create(CHILDREN, thing(f"{name}-last", shard=where, owner=owner))
            return True

        acknowledging(stage, one_more)
        async with leading(stage):
            await stage.until(lambda: stage.condition("Settled") == "True")
            stage.start("three")
            await stage.until(lambda: all(stage.label(OWNERS, name) == "three" for name in places), seconds=240)
        assert not split
        assert transits.most <= PLACES

    scenario()


@in_virtual_time
async def test_no_child_is_left_behind_when_one_more_shard_joins_while_families_move(clock: VirtualClock) -> None:
    """What was where it belongs, and so was not watched, belongs elsewhere from then on."""
    stage = make_stage(clock)
    stage.set_up(ring(), "one", "two")
    places = {name: shard for shard in ("one", "two") for name in names_on(shard, "one", "two", count=80)}
    for name, shard in places.items():
        create_family(stage, name, shard=shard, children=(shard,))
    split = split_families(stage)
    acknowledging(stage, at_once)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.start("three")
        await stage.until(lambda: any(stage.label(OWNERS, name) == "three" for name in places))
        stage.start("four")
        await stage.until(lambda: stage.condition("Settled") == "False", seconds=10)
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=240)
        assert any(stage.label(OWNERS, name) == "four" for name in places)
    assert not split


@pytest.mark.parametrize(("paced", "most"), [(True, FIRST_PLACES), (False, 100)])
def test_only_owners_with_children_are_let_go_as_fast_as_they_get_on(paced: bool, most: int) -> None:
    """What the webhook assigns in the acknowledging request is without an owner at no time."""
    transit = Transit(100, VirtualClock(), lambda key, obj: None, paced=lambda resource: paced)
    transit.set_shards(frozenset({"one"}))
    transit.open(0)
    for number in range(200):
        transit.enter(ItemKey(0, f"namespace-{number}", "owner"), SlimObject(SlimMeta("owner")), "one")
    assert (len(transit), transit.waiting) == (most, 200 - most)
