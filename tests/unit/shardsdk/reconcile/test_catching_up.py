"""What a list has shown is there once the cache shows all of it, as new as the list did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from shardsdk.cache.cache import Cache
from shardsdk.errors import StreamInterrupted
from shardsdk.kube.api import PARTIAL
from shardsdk.reconcile.barrier import CATCH_UP_SECONDS, catch_up
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, ME, SECRETS, Lag, Rig
from tests.unit.shardsdk.reconcile.test_unfit import BAD, Filled


async def second_by_second(rig: Rig, seconds: int) -> None:
    """Let time pass in which watches look for news."""
    for _ in range(seconds):
        await rig.clock.sleep(1)
        rig.nudge(CONFIGMAPS)
    await rig.clock.sleep(0.1)


def shown(cache: Cache[Any]) -> set[str]:
    return {each.name for each in cache.requests() if each.namespace == "default"}


@in_virtual_time
async def test_an_owner_waits_for_the_last_of_its_children(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner", shard="shard-2")
    for name in ("first", "last"):
        rig.child("owner", name, shard="shard-2")
    async with rig.shard():
        await clock.sleep(5)
        Lag(rig, CONFIGMAPS, 4)
        rig.relabel(CONFIGMAPS, "first", shard="shard-1")
        await second_by_second(rig, 3)
        rig.relabel(CONFIGMAPS, "last", shard="shard-1")
        rig.relabel(SECRETS, "owner", shard="shard-1")
        await second_by_second(rig, 3)
        assert shown(rig.children) == {"first"}
        assert rig.reconciled == []
        await second_by_second(rig, 3)
    assert rig.reconciled == ["owner"]


@in_virtual_time
async def test_an_owner_waits_for_its_child_as_it_was_when_it_was_listed(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner", shard="shard-2")
    rig.child("owner", "child", shard="shard-2")
    async with rig.shard():
        await clock.sleep(5)
        Lag(rig, CONFIGMAPS, 4)
        rig.relabel(CONFIGMAPS, "child", shard="shard-1")
        await second_by_second(rig, 3)
        rig.server.patch(CONFIGMAPS, "child", "default", {"data": {"k": "changed"}})
        rig.relabel(SECRETS, "owner", shard="shard-1")
        await second_by_second(rig, 3)
        assert shown(rig.children) == {"child"}
        assert rig.reconciled == []
        await second_by_second(rig, 3)
    assert rig.reconciled == ["owner"]


@asynccontextmanager
async def late_cache(rig: Rig, model: Any = PARTIAL) -> AsyncIterator[tuple[Cache[Any], Lag]]:
    """A shard's cache of config maps, to which further news come late."""
    cache: Cache[Any] = Cache(rig.api, CONFIGMAPS, clock=rig.clock, rng=Random(1), selector=ME.selector(), model=model)
    running = asyncio.create_task(cache.run())
    await rig.clock.sleep(1)
    try:
        yield cache, Lag(rig, CONFIGMAPS, 4)
    finally:
        running.cancel()
        await asyncio.wait((running,))


@in_virtual_time
async def test_a_cache_has_caught_up_when_it_shows_all_that_was_listed_as_new_as_it_was(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    rig.child("owner", "known")
    async with late_cache(rig) as (cache, _):
        for name in ("a", "b"):
            rig.child("owner", name)
        await second_by_second(rig, 2)
        rig.server.patch(CONFIGMAPS, "b", "default", {"data": {"k": "changed"}})
        waiting = asyncio.create_task(catch_up([cache]))
        await second_by_second(rig, 3)
        assert shown(cache) == {"known", "a", "b"}
        assert not waiting.done()
        # What is changed after the list is no part of it.
        rig.server.patch(CONFIGMAPS, "a", "default", {"data": {"k": "changed"}})
        await second_by_second(rig, 2)
        assert waiting.done()
        await waiting


@in_virtual_time
async def test_what_cannot_be_read_is_shown_once_the_cache_knows_of_it(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    async with late_cache(rig, Filled) as (cache, _):
        rig.child("owner", "a", **BAD)
        waiting = asyncio.create_task(catch_up([cache]))
        await second_by_second(rig, 3)
        assert not waiting.done()
        await second_by_second(rig, 2)
        assert waiting.done()
        await waiting
        assert shown(cache) == set()


@in_virtual_time
async def test_one_that_does_not_catch_up_is_given_up(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    async with late_cache(rig) as (cache, lag):
        lag.seconds = 10 * CATCH_UP_SECONDS
        rig.child("owner", "a")
        began = clock.monotonic()
        with pytest.raises(StreamInterrupted, match="behind"):
            await catch_up([cache])
        assert clock.monotonic() - began == pytest.approx(CATCH_UP_SECONDS, abs=0.1)
