"""Caches of rings and leases that do not show what there is, though their watches are open and well."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import pytest

from sharder.cache.freshness import LISTING_SECONDS
from sharder.cache.rings import RingCache
from shardsdk.errors import ConnectionFailed
from shardsdk.kube.api import ListOptions, Selection, T, WatchEvent, WatchOptions
from shardsdk.kube.initialevents import Silent
from shardsdk.kube.reading import STREAM_SILENCE_SECONDS
from shardsdk.protocol.leases import render_micro_time
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, Resource
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    OWNERS,
    RING,
    SHARDS,
    Stage,
    leading,
    lease,
    make_stage,
    ring,
    running,
    thing,
)

#: The lease of which no watch ever tells.
HIDDEN = "three"


class Hiding(MemoryApi):
    """As an API server whose etcd was put back below the position of a watch, for some objects."""

    async def read_events(self, selection: Selection[T], options: WatchOptions) -> AsyncIterator[WatchEvent[T]]:
        listing = options.resource_version is None
        async for event in super().read_events(selection, options):
            listing = listing and not event.initial_end
            metadata = getattr(event.object, "metadata", None)
            if listing or metadata is None or metadata.name != HIDDEN:
                yield event


@in_virtual_time
async def test_a_lease_that_its_watch_keeps_to_itself_is_found_by_lists(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make_stage(clock, api=Hiding)
    stage.set_up(ring(ALONE), "one")
    async with leading(stage) as leader:
        await stage.until(lambda: stage.condition("Settled") == "True")
        caplog.clear()
        stage.create(LEASES, lease(clock, HIDDEN), SHARDS)
        await stage.until(lambda: HIDDEN in names_in(leader.cache))
    (line,) = [each for each in caplog.records if each.msg.startswith("leases are not what their watch shows")]
    assert f"{SHARDS}/{HIDDEN}" in line.__dict__["why"]
    for shard in stage.shards.values():
        shard.cancel()


class Mute(MemoryApi):
    """As behind something that answers lists, and passes on nothing of the watches of some resources."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.mute: set[Resource] = set()
        self.begun: Counter[Resource] = Counter()
        #: For how long a list by initial events says nothing, and whether those in pages are answered.
        self.held_back_seconds, self.pages_come = STREAM_SILENCE_SECONDS, True

    async def read_pages(self, selection: Selection[T], options: ListOptions) -> AsyncIterator[list[T]]:
        if not self.pages_come:
            raise ConnectionFailed("no answer")
        async for page in super().read_pages(selection, options):
            yield page

    async def read_events(self, selection: Selection[T], options: WatchOptions) -> AsyncIterator[WatchEvent[T]]:
        resource, listing = selection.resource, options.resource_version is None
        self.begun.update([resource] if listing else ())
        if resource in self.mute:
            await asyncio.sleep(self.held_back_seconds if listing else options.silence_seconds)
            raise Silent("nothing has come")
        async for event in super().read_events(selection, options):
            if resource not in self.mute:
                yield event


def staged(clock: VirtualClock, *mute: Resource) -> tuple[Stage, Mute]:
    stage = make_stage(clock, api=Mute)
    assert isinstance(stage.api, Mute)
    stage.api.mute |= {*mute}
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    return stage, stage.api


@asynccontextmanager
async def knowing(stage: Stage) -> AsyncIterator[RingCache]:
    cache = RingCache(stage.api, clock=stage.clock, rng=Random(7))
    async with running(stage, cache.run()):
        yield cache


@asynccontextmanager
async def known_for_a_minute(clock: VirtualClock) -> AsyncIterator[tuple[Stage, Mute, RingCache]]:
    """A ring with one shard, all of which a cache knows."""
    stage, api = staged(clock)
    stage.start("one")
    async with knowing(stage) as cache:
        await stage.until(lambda: cache.warm)
        await stage.pass_time(60)
        yield stage, api, cache


def told(records: Iterable[logging.LogRecord], what: str, field: str) -> list[str]:
    """What the lines about lists that are made anew say in a field."""
    message = f"{what} are not what their watch shows; listing them anew"
    return [each.__dict__[field] for each in records if each.msg == message]


@pytest.mark.parametrize("resource", [CLUSTERRINGS, LEASES])
@in_virtual_time
async def test_a_first_list_whose_initial_events_do_not_come_is_left_to_fall_back_to_pages(
    clock: VirtualClock, resource: Resource
) -> None:
    stage, _ = staged(clock, resource)
    stage.start("one")
    async with knowing(stage) as cache:
        await stage.until(lambda: cache.warm, seconds=LISTING_SECONDS)


def is_edited(cache: RingCache, number: str) -> bool:
    return [each.metadata.label("edited") for each in cache.ring_informer.store] == [number]


@in_virtual_time
async def test_rings_are_listed_anew_also_where_their_initial_events_do_not_come_any_more(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with known_for_a_minute(clock) as (stage, api, cache):
        api.mute.add(CLUSTERRINGS)
        for number in ("1", "2", "3"):
            stage.server.patch(CLUSTERRINGS, RING, None, {"metadata": {"labels": {"edited": number}}})
            await stage.until(partial(is_edited, cache, number), seconds=LISTING_SECONDS)
            await stage.pass_time(60)
    assert told(caplog.records, "rings", "ring") == [RING] * 3


def names_in(cache: RingCache) -> set[str]:
    return {each.metadata.name for each in cache.lease_informer.store}


@in_virtual_time
async def test_leases_are_listed_anew_also_where_their_initial_events_do_not_come_any_more(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with known_for_a_minute(clock) as (stage, api, cache):
        api.mute.add(LEASES)
        stage.create(LEASES, lease(clock, HIDDEN), SHARDS)
        await stage.until(lambda: HIDDEN in names_in(cache), seconds=LISTING_SECONDS)
    assert told(caplog.records, "leases", "why") == [f"2 are otherwise, as {SHARDS}/one"]


async def renew(stage: Stage, shard: str, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        stage.server.patch(LEASES, shard, SHARDS, {"spec": {"renewTime": render_micro_time(stage.clock.now())}})


@pytest.mark.parametrize("duration", [120, 600, 3600])
@in_virtual_time
async def test_leases_that_are_renewed_rarely_are_not_taken_for_a_watch_that_hangs(
    clock: VirtualClock, duration: int
) -> None:
    stage, api = staged(clock)
    stage.create(LEASES, lease(clock, "one", duration=duration), SHARDS)
    stage.shards["one"] = asyncio.create_task(renew(stage, "one", duration * 2 / 15))
    async with knowing(stage) as cache:
        await stage.until(lambda: cache.warm)
        api.begun.clear()
        for _ in range(1200):
            await stage.pass_time(0.5)
            assert not cache.stale
            assert not cache.unheard
    assert not api.begun


@in_virtual_time
async def test_a_watch_that_hangs_is_noticed_by_the_first_renewal_that_it_hides(clock: VirtualClock) -> None:
    stage, api = staged(clock)
    stage.create(LEASES, lease(clock, "one", duration=3600), SHARDS)
    async with knowing(stage) as cache:
        await stage.until(lambda: cache.warm)
        await stage.pass_time(60)
        api.begun.clear()
        api.mute.add(LEASES)
        await stage.pass_time(60)
        assert not api.begun
        stage.server.patch(LEASES, "one", SHARDS, {"spec": {"renewTime": render_micro_time(clock.now())}})
        await stage.until(lambda: api.begun[LEASES] > 0, seconds=11)


@in_virtual_time
async def test_a_shard_that_has_crashed_while_nobody_else_is_there_has_nothing_listed_again_and_again(
    clock: VirtualClock,
) -> None:
    stage, api = staged(clock)
    stage.start("one")
    async with leading(stage):
        stage.create(OWNERS, thing("it"))
        await stage.until(lambda: stage.label(OWNERS, "it") == "one")
        stage.crash("one")
        await stage.until(lambda: stage.said("ShardsAvailable").get("status") == "False")
        await stage.pass_time(60)
        api.begun.clear()
        await stage.pass_time(600)
        assert api.begun[OWNERS] <= 1
        assert api.begun[LEASES] <= 1


@in_virtual_time
async def test_who_begins_to_lead_after_it_was_cut_off_waits_until_it_has_heard_of_leases_again(
    clock: VirtualClock,
) -> None:
    stage, api = staged(clock)
    stage.create(LEASES, lease(clock, "one"), SHARDS)
    async with knowing(stage) as cache:
        await clock.sleep(1)
        before = clock.monotonic()
        await cache.until_heard(60)
        assert clock.monotonic() == before
        api.fault = Fault.LOST
        await clock.sleep(30)
        before = clock.monotonic()
        await cache.until_heard(20)
        assert 20 <= clock.monotonic() - before < 21, "who may not read them leads all the same"
        api.fault = Fault.NONE
        await cache.until_heard(60)
        assert not cache.stale
        assert clock.monotonic() - before < 50


@pytest.mark.parametrize(
    ("lists", "why"),
    [
        (True, "lists show what its watch does not tell"),
        (False, "neither watches nor lists are answered"),
    ],
)
@in_virtual_time
async def test_what_is_unheard_says_whether_lists_are_answered(clock: VirtualClock, lists: bool, why: str) -> None:
    async with known_for_a_minute(clock) as (stage, api, cache):
        api.mute.add(LEASES)
        api.held_back_seconds, api.pages_come = 600.0, lists
        await stage.until(lambda: bool(cache.unheard), seconds=300)
        ((_, error), *_) = cache.unheard
        assert str(error).endswith(why)
