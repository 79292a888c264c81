"""What every replica knows of rings and shards: views, holds that may still run, and rings that cannot be looked up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from sharder.cache.rings import RingCache, RingSnapshot
from sharder.core.observed import ObservedLease
from shardsdk.errors import ServerError
from shardsdk.protocol.labels import LEASE_STATE_LABEL
from shardsdk.protocol.leases import render_micro_time
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, NAMESPACES, GroupResource, Resource
from shardsdk.protocol.ranges import HELD_RANGES_ANNOTATION, NAMESPACE_COUNTS_ANNOTATION
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
async def knowing(stage: Stage) -> AsyncIterator[RingCache]:
    cache = RingCache(stage.api, clock=stage.clock, rng=Random(7))
    async with running(stage, cache.run()):
        yield cache


def known(cache: RingCache) -> RingSnapshot:
    found = cache.get(RING)
    assert found is not None
    return found


def seen(cache: RingCache, shard: str = "one") -> ObservedLease:
    return known(cache).leases[SHARDS, shard]


def ends(cache: RingCache, shard: str = "one") -> float:
    begins, seconds = seen(cache, shard).held
    return begins + seconds


@in_virtual_time
async def test_a_ring_that_cannot_be_looked_up_holds_up_no_other(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Unhurried)
    stage.create(CLUSTERRINGS, ring({"group": "hangs.org", "resource": "slows"}, name="a-slow"), None)
    stage.create(CLUSTERRINGS, ring({"group": "broken.org", "resource": "bads"}, name="b-broken"), None)
    stage.create(CLUSTERRINGS, ring(name="c-good"), None)
    async with knowing(stage) as cache:
        await stage.until(lambda: cache.view("c-good") is not None, seconds=5)
        await stage.until(lambda: cache.warm, seconds=60)
        stage.create(CLUSTERRINGS, ring(name="d-later"), None)
        await stage.until(lambda: cache.view("d-later") is not None, seconds=5)


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
        async with knowing(stage) as cache:
            await stage.until(lambda: cache.view(RING) is not None, seconds=6)
            assert cache.warm
            view, entry = cache.view(RING), known(cache)
            assert view is not None
            assert [each.resource for each in view.resolved.subjects()] == [OWNERS], "no owner without its children"
            assert [str(resource) for resource, _ in entry.unanswered] == [f"laters.{group}"]
            assert entry.unserved == ()
            if group == "away.org":
                stage.api.away = False
                await stage.until(lambda: known(cache).unanswered == (), seconds=30)
                entry = known(cache)
                assert entry.resolved is not None
                assert [each.resource for each in entry.resolved.subjects()] == [OWNERS, CHILDREN, later]
                # Once known, it stays known.
                stage.api.away = True
                cache.resolve_again(RING)
                await stage.pass_time(30)
                entry = known(cache)
                assert entry.resolved is not None
                assert [each.resource for each in entry.resolved.subjects()] == [OWNERS, CHILDREN, later]

    scenario()


@in_virtual_time
async def test_a_ring_that_is_looked_up_again_does_not_make_a_replica_unready(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Unhurried)
    stage.create(CLUSTERRINGS, ring({"group": "hangs.org", "resource": "slows"}), None)
    async with knowing(stage) as cache:
        await stage.until(lambda: cache.warm, seconds=60)
        for _ in range(200):
            await stage.pass_time(0.5)
            assert cache.warm


@in_virtual_time
async def test_a_new_ring_that_cannot_be_looked_up_takes_the_webhook_from_no_other(clock: VirtualClock) -> None:
    """A replica that is not ready is not called, for whatever ring."""
    stage = make_stage(clock, api=Unhurried)
    stage.create(CLUSTERRINGS, ring(), None)
    async with knowing(stage) as cache:
        await stage.until(lambda: cache.warm, seconds=5)
        stage.create(CLUSTERRINGS, ring({"group": "hangs.org", "resource": "slows"}, name="slow"), None)
        for _ in range(120):
            await stage.pass_time(0.5)
            assert cache.warm


@in_virtual_time
async def test_a_subscriber_that_fails_keeps_no_news_from_the_others(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(), None)
    told: list[str] = []

    def fail(ring: str, what: int) -> None:
        raise KeyError(ring)

    async with knowing(stage) as cache:
        cache.subscribe(fail)
        cache.subscribe(lambda ring, what: told.append(ring))
        await stage.until(lambda: cache.view(RING) is not None, seconds=5)
        await stage.pass_time(30)
    assert RING in told


@in_virtual_time
async def test_a_lease_taken_by_hand_counts_as_held_as_long_as_its_shard_may_hold_it(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(), None)
    stage.create(LEASES, lease(clock, "one"), SHARDS)
    async with knowing(stage) as cache:
        await stage.until(lambda: cache.get(RING) is not None and cache.lease_informer.synced.is_set())
        until = ends(cache)
        assert until == pytest.approx(clock.monotonic() + 15, abs=1)
        stage.server.patch(LEASES, "one", SHARDS, {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 1}})
        await stage.until(lambda: seen(cache).lease.holder == "me")
        assert ends(cache) >= until
        stage.server.patch(LEASES, "one", SHARDS, {"spec": {"holderIdentity": ""}})
        await stage.until(lambda: seen(cache).lease.holder == "")
        assert ends(cache) >= until


@in_virtual_time
async def test_of_a_lease_no_more_is_kept_than_is_read(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(), None)
    said = lease(clock, "one", mains=[GroupResource("", "secrets")])
    told, noise = said["metadata"], {f"label{number}": "" for number in range(1000)}
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": f"pod{number}", "uid": "u"} for number in range(1000)]
    metadata = {
        **told,
        "labels": told["labels"] | noise | {LEASE_STATE_LABEL: "ready"},
        "annotations": told["annotations"] | {HELD_RANGES_ANNOTATION: "@", NAMESPACE_COUNTS_ANNOTATION: "a"} | noise,
        "ownerReferences": owners,
        "finalizers": list(noise),
    }
    stage.create(LEASES, {**said, "metadata": metadata}, SHARDS)
    async with knowing(stage) as cache:
        await stage.until(lambda: cache.get(RING) is not None and bool(known(cache).leases))
        kept = seen(cache).lease
        assert kept.metadata.labels == told["labels"] | {LEASE_STATE_LABEL: "ready"}
        assert kept.metadata.annotations == {
            name: text for name, text in metadata["annotations"].items() if name not in noise
        }
        assert (kept.metadata.owner_references, kept.metadata.finalizers) == (None, None)
        assert kept.held_by_shard
        assert kept.main_resources


@in_virtual_time
async def test_a_lease_that_its_shard_released_is_free_at_once(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(), "one")
    async with knowing(stage) as cache:
        await stage.until(lambda: cache.get(RING) is not None and cache.lease_informer.synced.is_set())
        stage.release("one")
        await stage.until(lambda: seen(cache).lease.holder == "")
        assert ends(cache) <= clock.monotonic()


@in_virtual_time
async def test_a_lease_watch_that_hangs_is_begun_anew_long_before_the_connection_is_given_up(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock, api=Hanging)
    stage.set_up(ring(), "one")
    async with knowing(stage) as cache:
        await stage.until(lambda: cache.get(RING) is not None and cache.lease_informer.synced.is_set())
        before = seen(cache).lease.spec.renew_time
        await stage.until(lambda: seen(cache).lease.spec.renew_time != before, seconds=15)
        assert isinstance(stage.api, Hanging)
        stage.api.hangs = False
        await stage.until(lambda: not cache.stale, seconds=20)
        for _ in range(20):
            await stage.pass_time(2)
            assert not cache.stale


@pytest.mark.parametrize("silent", [False, True], ids=["its watch tells", "a list shows"])
@pytest.mark.parametrize("how", ["emptied", "deleted"])
@in_virtual_time
async def test_a_lease_that_somebody_takes_away_counts_as_held_from_its_last_renewal_also_if_nobody_has_seen_that(
    clock: VirtualClock, how: str, *, silent: bool
) -> None:
    stage = make_stage(clock, api=Hanging)
    assert isinstance(stage.api, Hanging)
    stage.api.hangs = silent
    stage.set_up(ring(), "lives")
    stage.create(LEASES, lease(clock, "one"), SHARDS)
    async with knowing(stage) as cache:
        await stage.until(lambda: cache.get(RING) is not None and cache.lease_informer.synced.is_set())
        await stage.pass_time(3)
        renewed_at = clock.monotonic()
        stage.server.patch(LEASES, "one", SHARDS, {"spec": {"renewTime": render_micro_time(clock.now())}})
        await stage.pass_time(1)
        if how == "emptied":
            stage.server.patch(LEASES, "one", SHARDS, {"spec": {"holderIdentity": ""}})
            await stage.until(lambda: seen(cache).lease.holder == "", seconds=15)
            until = ends(cache)
        else:
            stage.server.delete(LEASES, "one", SHARDS)
            await stage.until(lambda: bool(known(cache).vanished_named("one")), seconds=15)
            until = sum(known(cache).vanished_named("one")[0].held)
        shown_at = clock.monotonic()
        assert until == pytest.approx((shown_at if silent else renewed_at) + 15, abs=0.5)
        assert (shown_at - renewed_at > 2) is silent


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
    stage.set_up(ring(), "one")
    async with knowing(stage) as cache:
        await stage.until(lambda: cache.get(RING) is not None and cache.lease_informer.synced.is_set())
        stage.api.mute = True
        await stage.until(lambda: cache.stale, seconds=15)
        stage.api.hangs = False
        await stage.until(lambda: clock.monotonic() - cache.lease_informer.fresh_at < 2, seconds=20)


@in_virtual_time
async def test_what_has_vanished_is_found_by_name_and_costs_a_renewal_nothing(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(NAMESPACES, {"metadata": {"name": "elsewhere"}}, None)
    stage.set_up(ring(), "lives")
    async with knowing(stage) as cache:
        for namespace in (SHARDS, "elsewhere"):
            for name in ("one", "two"):
                stage.create(LEASES, lease(clock, name), namespace)
        await stage.pass_time(1)
        stage.server.delete(LEASES, "one", SHARDS)
        stage.server.delete(LEASES, "one", "elsewhere")
        stage.server.delete(LEASES, "two", SHARDS)
        await stage.pass_time(1)
        before = known(cache)
        assert [gone.namespace for gone in before.vanished_named("one")] == [SHARDS, "elsewhere"]
        assert [gone.namespace for gone in before.vanished_named("two")] == [SHARDS]
        assert [each.lease.metadata.namespace for each in before.leases_named("two")] == ["elsewhere"]
        assert not list(before.leases_named("one"))
        await stage.pass_time(5)
        assert known(cache) is not before, "a shard has renewed its lease"
        assert known(cache).vanished is before.vanished
        stage.create(LEASES, lease(clock, "one"), SHARDS)
        await stage.pass_time(1)
        assert [gone.namespace for gone in known(cache).vanished_named("one")] == ["elsewhere"]
        assert [gone.namespace for gone in before.vanished_named("one")] == [SHARDS, "elsewhere"]


@in_virtual_time
async def test_a_snapshot_stays_as_it_is_and_is_made_anew_only_after_a_change(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(), "one")
    async with knowing(stage) as cache:
        await stage.until(lambda: cache.view(RING) is not None and cache.lease_informer.synced.is_set())
        before = cache.get(RING)
        assert before is not None
        assert before is cache.get(RING)
        renewed, available = before.leases[SHARDS, "one"], before.membership.available
        stage.start("two")
        await stage.pass_time(3)
        after = cache.get(RING)
        assert after is not None
        assert set(before.leases) == {(SHARDS, "one")}
        assert before.leases[SHARDS, "one"] is renewed
        assert before.membership.available == available == {"one"}
        assert set(after.leases) == {(SHARDS, "one"), (SHARDS, "two")}
        assert after.leases[SHARDS, "one"].observed_at > renewed.observed_at
        with pytest.raises(TypeError):
            after.leases[SHARDS, "three"] = renewed  # type: ignore[index]
        stage.server.delete(CLUSTERRINGS, RING, None)
        await stage.until(lambda: cache.get(RING) is None)
        assert after.obj.metadata.name == RING
