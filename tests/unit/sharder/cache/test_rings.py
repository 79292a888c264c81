"""What every replica knows of rings and shards: views, holds that may still run, and rings that cannot be looked up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from sharder.cache.rings import Registry
from sharder.core.observed import ObservedLease
from shardsdk.errors import ServerError
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import CHILDREN, OWNERS, RING, SHARDS, Stage, lease, make_stage, ring, running


class Unhurried(MemoryApi):
    """Discovery that fails or hangs for some groups."""

    away = True

    async def discover(self, group: str, plural: str) -> Resource | None:
        if group == "hangs.org":
            await asyncio.sleep(30)
            raise ServerError("no answer")
        if group == "broken.org":
            raise ValueError("nobody expected this")
        if group == "away.org" and self.away:
            raise ServerError("the server is currently unable to handle the request", status=503)
        return await super().discover(group, plural)


class Hanging(MemoryApi):
    """While `hangs`, watches of leases that begin say nothing after their first list."""

    hangs = True

    async def watch(self, resource: Resource, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        hangs = self.hangs and resource == LEASES
        async for event in super().watch(resource, *args, **kwargs):
            yield event
            if hangs and event.initial_end:
                await asyncio.sleep(85)


@asynccontextmanager
async def knowing(stage: Stage) -> AsyncIterator[Registry]:
    registry = Registry(stage.api, clock=stage.clock, rng=Random(7))
    async with running(stage, registry.run()):
        yield registry


def seen(registry: Registry, shard: str = "one") -> ObservedLease:
    entry = registry.entry(RING)
    assert entry is not None
    return entry.leases[SHARDS, shard]


def ends(registry: Registry, shard: str = "one") -> float:
    begins, seconds = seen(registry, shard).held
    return begins + seconds


@in_virtual_time
async def test_a_ring_that_cannot_be_looked_up_holds_up_no_other(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Unhurried)
    stage.create(CLUSTERRINGS, ring({"group": "hangs.org", "resource": "slows"}, name="a-slow"), None)
    stage.create(CLUSTERRINGS, ring({"group": "broken.org", "resource": "bads"}, name="b-broken"), None)
    stage.create(CLUSTERRINGS, ring(name="c-good"), None)
    async with knowing(stage) as registry:
        await stage.until(lambda: registry.view("c-good") is not None, seconds=5)
        await stage.until(lambda: registry.warm, seconds=60)
        stage.create(CLUSTERRINGS, ring(name="d-later"), None)
        await stage.until(lambda: registry.view("d-later") is not None, seconds=5)


@pytest.mark.parametrize("group", ["away.org", "hangs.org"])
def test_a_group_that_does_not_answer_holds_up_only_those_resources_that_have_to_do_with_it(group: str) -> None:
    later = Resource(group, "v1", "laters", "Later")

    @in_virtual_time
    async def scenario(clock: VirtualClock) -> None:
        stage = make_stage(clock, api=Unhurried)
        assert isinstance(stage.api, Unhurried)
        stage.api.served.append(later)
        whose_children_are_away = {
            "resource": CHILDREN.plural,
            "controlledResources": [{"group": group, "resource": later.plural}],
        }
        alone = {"group": OWNERS.group, "resource": OWNERS.plural}
        stage.create(CLUSTERRINGS, ring(alone, whose_children_are_away), None)
        async with knowing(stage) as registry:
            await stage.until(lambda: registry.view(RING) is not None, seconds=6)
            assert registry.warm
            view, entry = registry.view(RING), registry.entry(RING)
            assert view is not None
            assert entry is not None
            assert [each.resource for each in view.resolved.subjects()] == [OWNERS], "no owner without its children"
            assert [str(resource) for resource, _ in entry.unanswered] == [f"laters.{group}"]
            assert entry.unserved == ()
            if group == "away.org":
                stage.api.away = False
                await stage.until(lambda: entry.unanswered == (), seconds=30)
                assert entry.resolved is not None
                assert [each.resource for each in entry.resolved.subjects()] == [OWNERS, CHILDREN, later]
                # Once known, it stays known.
                stage.api.away = True
                registry.resolve_again(RING)
                await stage.pass_time(30)
                assert [each.resource for each in entry.resolved.subjects()] == [OWNERS, CHILDREN, later]

    scenario()


@in_virtual_time
async def test_a_ring_that_is_looked_up_again_does_not_make_a_replica_unready(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Unhurried)
    stage.create(CLUSTERRINGS, ring({"group": "hangs.org", "resource": "slows"}), None)
    async with knowing(stage) as registry:
        await stage.until(lambda: registry.warm, seconds=60)
        for _ in range(200):
            await stage.pass_time(0.5)
            assert registry.warm


@in_virtual_time
async def test_a_new_ring_that_cannot_be_looked_up_takes_the_webhook_from_no_other(clock: VirtualClock) -> None:
    """A replica that is not ready is not called, for whatever ring."""
    stage = make_stage(clock, api=Unhurried)
    stage.create(CLUSTERRINGS, ring(), None)
    async with knowing(stage) as registry:
        await stage.until(lambda: registry.warm, seconds=5)
        stage.create(CLUSTERRINGS, ring({"group": "hangs.org", "resource": "slows"}, name="slow"), None)
        for _ in range(120):
            await stage.pass_time(0.5)
            assert registry.warm


@in_virtual_time
async def test_a_subscriber_that_fails_keeps_no_news_from_the_others(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(), None)
    told: list[str] = []

    def fail(ring: str, what: int) -> None:
        raise KeyError(ring)

    async with knowing(stage) as registry:
        registry.subscribe(fail)
        registry.subscribe(lambda ring, what: told.append(ring))
        await stage.until(lambda: registry.view(RING) is not None, seconds=5)
        await stage.pass_time(30)
    assert RING in told


@in_virtual_time
async def test_a_lease_taken_by_hand_counts_as_held_as_long_as_its_shard_may_hold_it(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(), None)
    stage.create(LEASES, lease(clock, "one"), SHARDS)
    async with knowing(stage) as registry:
        await stage.until(lambda: registry.entry(RING) is not None and registry.leases.synced.is_set())
        until = ends(registry)
        assert until == pytest.approx(clock.monotonic() + 15, abs=1)
        stage.server.patch(LEASES, "one", SHARDS, {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 1}})
        await stage.until(lambda: seen(registry).lease.holder == "me")
        assert ends(registry) >= until
        stage.server.patch(LEASES, "one", SHARDS, {"spec": {"holderIdentity": ""}})
        await stage.until(lambda: seen(registry).lease.holder == "")
        assert ends(registry) >= until


@in_virtual_time
async def test_a_lease_that_its_shard_released_is_free_at_once(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(), None)
    stage.start("one")
    async with knowing(stage) as registry:
        await stage.until(lambda: registry.entry(RING) is not None and registry.leases.synced.is_set())
        stage.release("one")
        await stage.until(lambda: seen(registry).lease.holder == "")
        assert ends(registry) <= clock.monotonic()


@in_virtual_time
async def test_a_lease_watch_that_hangs_is_begun_anew_long_before_the_connection_is_given_up(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock, api=Hanging)
    stage.create(CLUSTERRINGS, ring(), None)
    stage.start("one")
    async with knowing(stage) as registry:
        await stage.until(lambda: registry.entry(RING) is not None and registry.leases.synced.is_set())
        before = seen(registry).lease.spec.renew_time
        await stage.until(lambda: seen(registry).lease.spec.renew_time != before, seconds=15)
        assert isinstance(stage.api, Hanging)
        stage.api.hangs = False
        await stage.until(lambda: not registry.stale, seconds=20)
        for _ in range(20):
            await stage.pass_time(2)
            assert not registry.stale


class Mute(Hanging):
    """No list is answered either, as of an API server that is suspended."""

    mute = False

    async def pages(self, *args: Any, **kwargs: Any) -> AsyncIterator[list[Any]]:
        while self.mute:
            await asyncio.sleep(1)
        async for page in super().pages(*args, **kwargs):
            yield page


@in_virtual_time
async def test_a_lease_watch_on_which_no_shard_is_heard_is_begun_anew_although_no_list_is_answered(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock, api=Mute)
    assert isinstance(stage.api, Mute)
    stage.create(CLUSTERRINGS, ring(), None)
    stage.start("one")
    async with knowing(stage) as registry:
        await stage.until(lambda: registry.entry(RING) is not None and registry.leases.synced.is_set())
        stage.api.mute = True
        await stage.until(lambda: registry.stale, seconds=15)
        stage.api.hangs = False
        await stage.until(lambda: clock.monotonic() - registry.leases.fresh_at < 2, seconds=20)
