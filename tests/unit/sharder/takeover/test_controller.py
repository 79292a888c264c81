"""The leases' side: what is done with the leases of shards that are gone, and at what cost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from sharder.cache import subscribers
from sharder.cache.rings import RingCache
from sharder.core import takeover
from sharder.takeover.controller import TakeoverController
from sharder.takeover.fences import CommitProof, ShardHold
from sharder.takeover.lease_client import LeaseWriter
from sharder.takeover.records import Record
from shardsdk.errors import Conflict, FenceClosed
from shardsdk.protocol.labels import FENCED_ANNOTATION, SHARDER_HOLDER
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, NAMESPACES, Resource
from shardsdk.testing.memory import Change
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.kube_fakes import FakeFence, ending
from tests.unit.sharder.placement.stage import (
    ALONE,
    LABELS,
    OWNERS,
    RING,
    SHARDS,
    SlowApi,
    Stage,
    leading,
    lease,
    make_stage,
    names_on,
    ring,
    thing,
)


@dataclass
class FakeWork:
    """Stands in for the backlog: `left` are the shards that objects are labelled with."""

    left: set[str] = field(default_factory=set)
    reads: list[str] = field(default_factory=list)
    acquired: list[str] = field(default_factory=list)

    def is_empty_of(self, shard: str) -> bool | None:
        return shard not in self.left

    async def confirm_empty_of(self, shard: str) -> bool:
        self.reads.append(shard)
        return shard not in self.left


@dataclass
class Controlled:
    """The takeover of one ring's leases alone, under a leadership that never ends."""

    controller: TakeoverController
    work: FakeWork
    proof: CommitProof
    registry: RingCache


@asynccontextmanager
async def controlling(stage: Stage, work: FakeWork) -> AsyncIterator[Controlled]:
    clock = stage.clock
    registry = RingCache(stage.api, clock=clock, rng=Random(7))
    proof = CommitProof(clock, 2.0)
    controller = TakeoverController(RING, stage.api, registry, leader=FakeFence(1e9), proof=proof, clock=clock)
    controller.set_work(work)
    controller.when_acquired.append(work.acquired.append)

    async def prove() -> None:
        while True:
            proof.renewed(clock.monotonic(), clock.monotonic())
            await clock.sleep(2)

    tasks = [asyncio.create_task(each) for each in (prove(), registry.run())]
    try:
        await registry.lease_informer.synced.wait()
        await registry.ring_informer.synced.wait()
        registry.subscribe(lambda ring, what: controller.enqueue_all() if what != subscribers.Change.LEASES else None)
        registry.follow_leases(lambda ring, lease: controller.on_lease(lease))
        tasks.append(asyncio.create_task(controller.run()))
        yield Controlled(controller, work, proof, registry)
        assert not any(task.done() for task in tasks)
    finally:
        for task in (*tasks, *stage.shards.values()):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@in_virtual_time
async def test_a_move_on_its_way_is_waited_for_before_the_lease_is_given_back(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=SlowApi)
    taken_from_the_living: list[Change] = []

    def look(change: Change) -> None:
        if change.resource == OWNERS.group_resource and change.old is not None and change.new is not None:
            before = change.old["metadata"]["labels"].get(LABELS.shard)
            after = change.new["metadata"]["labels"].get(LABELS.shard)
            if before == "one" and after != before and stage.holder("one") == "one":
                taken_from_the_living.append(change)

    stage.server.listeners.append(look)
    stage.set_up(ring(ALONE), "one", "two")
    [name] = names_on("one", "one", "two")
    stage.create(OWNERS, thing(name, shard="one"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Ready") == "True")
        assert isinstance(stage.api, SlowApi)
        stage.api.slow[OWNERS.plural] = 8.0
        stage.crash("one")
        await stage.until(lambda: stage.patches(OWNERS) > 0)
        stage.release("two")
        await stage.until(lambda: stage.holder("one") == "")
        stage.start("one")
        await stage.pass_time(10)
    assert not taken_from_the_living


def test_a_renewal_is_one_look_at_one_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Any] = []
    decide = takeover.decide_takeover

    def count(*arguments: Any) -> Any:
        looks.append(arguments)
        return decide(*arguments)

    monkeypatch.setattr("sharder.takeover.controller.decide_takeover", count)

    @in_virtual_time
    async def at_rest(clock: VirtualClock) -> None:
        stage = make_stage(clock)
        stage.create(CLUSTERRINGS, ring(), None)
        for number in range(20):
            stage.start(f"shard-{number}")
        async with controlling(stage, FakeWork()):
            await stage.pass_time(20)
            looks.clear()
            await stage.pass_time(60)

    at_rest()
    # 20 shards renew every 2 s; each lease is looked at on top of that when it could have run out.
    assert len(looks) <= 2 * 20 * 60 / 2


@in_virtual_time
async def test_what_is_known_of_shards_that_are_long_gone_is_forgotten(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(), "stays")
    async with controlling(stage, FakeWork()) as controlled:
        for number in range(50):
            name = f"shard-{number}"
            stage.create(LEASES, lease(clock, name), SHARDS)
            await stage.pass_time(0.2)
            controlled.controller.enqueue(f"never-seen-{number}")
            stage.server.delete(LEASES, name, SHARDS)
            await stage.pass_time(0.2)
        await stage.pass_time(1)
        assert len(controlled.controller._records) <= 2


@in_virtual_time
async def test_the_lease_of_a_dead_twin_is_deleted_although_the_living_one_has_objects(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(), "one", "two")
    gone = lease(clock, "one", holder="", duration=1)
    stage.create(LEASES, gone, "elsewhere")
    async with controlling(stage, FakeWork(left={"one"})) as controlled:
        await stage.until(lambda: stage.holder("one", "elsewhere") is None, seconds=70)
        assert len(controlled.work.reads) < 10
        assert stage.holder("one") == "one"


class Terminating(MemoryApi):
    """One namespace is being deleted."""

    async def create(
        self, resource: Resource, body: Mapping[str, Any], namespace: str | None = None, **more: Any
    ) -> Any:
        if namespace == "a-going":
            raise ending(namespace)
        return await super().create(resource, body, namespace, **more)


@in_virtual_time
async def test_a_lease_that_its_shard_has_taken_since_it_was_seen_is_not_deleted(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(LEASES, lease(clock, "one", holder="", duration=1), SHARDS)
    seen = await stage.api.get(LEASES, "one", SHARDS, model=Lease)
    stage.server.patch(LEASES, "one", SHARDS, {"spec": lease(clock, "one")["spec"]})
    with pytest.raises(Conflict):
        await LeaseWriter(stage.api, FakeFence(), clock).delete(seen)
    assert stage.holder("one") == "one"


@in_virtual_time
async def test_a_namespace_that_is_being_deleted_keeps_no_objects_from_moving(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Terminating)
    stage.create(NAMESPACES, {"metadata": {"name": "a-going"}}, None)
    stage.create(CLUSTERRINGS, ring(), None)
    stage.create(LEASES, lease(clock, "one"), "a-going")
    stage.start("two")
    async with controlling(stage, FakeWork(left={"one"})) as controlled:
        await stage.pass_time(1)
        stage.server.delete(LEASES, "one", "a-going")
        await stage.until(lambda: "one" in controlled.work.acquired, seconds=40)
        assert stage.holder("one") == "shardlease-controller"


@pytest.mark.parametrize("leaves", [Stage.release, Stage.crash], ids=["in order", "by a crash"])
@in_virtual_time
async def test_the_lease_of_a_shard_whose_name_no_label_can_hold_goes_like_any_other(
    clock: VirtualClock, leaves: Callable[[Stage, str], None]
) -> None:
    """No object can carry it, and an API server refuses a list of those that do."""
    stage, name = make_stage(clock), "x" * 64
    stage.set_up(ring(ALONE), "one")
    stage.start(name)
    async with leading(stage):
        await stage.pass_time(10)
        leaves(stage, name)
        await stage.until(lambda: stage.holder(name) is None, seconds=180)


@in_virtual_time
async def test_a_hold_ends_before_a_shard_with_a_faster_clock_may_take_its_lease_back(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(LEASES, lease(clock, "one", holder="", duration=1), SHARDS)
    api = MemoryApi(stage.server, clock)
    record = Record(ShardHold("one", clock))
    writer = LeaseWriter(api, FakeFence(), clock)
    found = await api.get(LEASES, "one", SHARDS, model=Lease)
    asked_at = clock.monotonic()
    assert await writer.acquire(record, found, 30)
    assert (await api.get(LEASES, "one", SHARDS, model=Lease)).spec.lease_duration_seconds == 30
    assert (record.hold.until - asked_at) * 1.1 <= 30


@in_virtual_time
async def test_a_lease_that_cannot_be_given_back_yet_is_not_read_for_all_the_time(clock: VirtualClock) -> None:
    """The watches show nothing left, the read does: they lag, or do not work."""
    stage = make_stage(clock)
    stage.set_up(ring(), "two")

    class Lagging(FakeWork):
        async def confirm_empty_of(self, shard: str) -> bool:
            self.reads.append(shard)
            return False

    work = Lagging(left={"one"})
    stage.create(LEASES, lease(clock, "one", holder="", duration=1), SHARDS)
    async with controlling(stage, work):
        await stage.until(lambda: "one" in work.acquired)
        work.left.clear()
        await stage.pass_time(60)
        assert 3 <= len(work.reads) < 25


@in_virtual_time
async def test_a_lease_given_back_because_nothing_moves_is_free_for_its_shard_for_a_while(clock: VirtualClock) -> None:
    """Acquired again at once, it would keep off the shard that could go on with what nobody else takes."""
    stage = make_stage(clock)
    stage.set_up(ring(), "two")
    stage.create(LEASES, lease(clock, "one", holder="", duration=1), SHARDS)
    async with controlling(stage, FakeWork(left={"one"})):
        await stage.until(lambda: stage.holder("one") == SHARDER_HOLDER)
        await stage.until(lambda: stage.holder("one") == "", seconds=takeover.STALL_SECONDS + 5)
        for _ in range(int(takeover.RETRY_AFTER_STALL_SECONDS) - 2):
            await stage.pass_time(1)
            assert stage.holder("one") == ""
        await stage.until(lambda: stage.holder("one") == SHARDER_HOLDER, seconds=5)


@in_virtual_time
async def test_a_known_name_that_starts_in_a_namespace_new_to_the_ring_is_not_kept_off(clock: VirtualClock) -> None:
    """What README does not guarantee: its Lease is created where nobody holds it, while a move is on its way."""
    stage = make_stage(clock, api=SlowApi)
    assert isinstance(stage.api, SlowApi)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    stage.create(NAMESPACES, {"metadata": {"name": "elsewhere"}}, None)
    stage.start("one")
    stage.create(OWNERS, thing("moving", shard="wanderer"))
    async with leading(stage):
        stage.api.slow[OWNERS.plural] = 1.0
        await stage.until(lambda: ("patch", OWNERS.plural, "moving") in stage.api.writes)
        assert stage.holder("wanderer") == SHARDER_HOLDER, "held where the ring has shards"
        stage.create(LEASES, lease(clock, "wanderer"), "elsewhere")
        await stage.until(lambda: stage.label(OWNERS, "moving") == "one", seconds=2)
        assert stage.holder("wanderer", "elsewhere") == "wanderer", "it has not been asked"
        # From then on it is a shard like any other: what is its own stays with it.
        [name] = names_on("wanderer", "one", "wanderer")
        stage.create(OWNERS, thing(name, shard="wanderer"))
        await stage.pass_time(5)
        assert stage.label(OWNERS, name) == "wanderer"
        assert not stage.draining(OWNERS, name)


@in_virtual_time
async def test_what_a_crashed_shard_promised_does_not_bind_a_shard_in_go_that_starts_under_its_name(
    clock: VirtualClock,
) -> None:
    """It rewrites the spec alone, so the annotation is there still, with the renewTime of a write that is gone."""
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "two")
    stage.create(LEASES, lease(clock, "one", fenced=True), SHARDS)
    [name] = names_on("one", "one", "two")
    stage.create(OWNERS, thing(name, shard="one"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        for _ in range(3):
            await stage.pass_time(2)
            spec = lease(clock, "one")["spec"]
            stage.server.patch(LEASES, "one", SHARDS, {"spec": {"renewTime": spec["renewTime"]}})
        kept = stage.server.get(LEASES, "one", SHARDS)["metadata"]["annotations"]
        assert kept[FENCED_ANNOTATION], "the promise of the one before it"
        took = await stage.until(lambda: stage.holder("one") == SHARDER_HOLDER, seconds=60)
        assert 30 <= took <= 32


@in_virtual_time
async def test_a_lease_that_was_renewed_since_it_was_seen_is_not_acquired(clock: VirtualClock) -> None:
    """Its shard is back, and the watch does not show that yet."""
    stage = make_stage(clock)
    stage.create(LEASES, lease(clock, "one"), SHARDS)
    api = MemoryApi(stage.server, clock)
    record = Record(ShardHold("one", clock))
    found = await api.get(LEASES, "one", SHARDS, model=Lease)
    await stage.pass_time(20)
    stage.server.patch(LEASES, "one", SHARDS, {"spec": {"renewTime": lease(clock, "one")["spec"]["renewTime"]}})
    assert not await LeaseWriter(api, FakeFence(), clock).acquire(record, found, 30)
    assert stage.holder("one") == "one"
    assert not record.held
    assert record.hold.remaining() <= 0


@in_virtual_time
async def test_nothing_more_is_sent_under_a_hold_that_is_about_to_be_given_back(clock: VirtualClock) -> None:
    """What is on its way is waited for; what came after it would not be."""
    stage = make_stage(clock, api=SlowApi)
    api = stage.api
    assert isinstance(api, SlowApi)
    stage.create(OWNERS, thing("moving", shard="one"))
    stage.create(LEASES, lease(clock, "one", holder="", duration=1), SHARDS)
    record, writer = Record(ShardHold("one", clock)), LeaseWriter(api, FakeFence(), clock)
    assert await writer.acquire(record, await api.get(LEASES, "one", SHARDS, model=Lease), 30)
    held = await api.get(LEASES, "one", SHARDS, model=Lease)
    move: Any = {"metadata": {"labels": {LABELS.shard: "two"}}}
    api.slow[OWNERS.plural] = 2.0
    moving = asyncio.create_task(api.patch(OWNERS, "moving", "default", move, fences=(record.hold,)))
    await stage.pass_time(0.1)
    giving_back = asyncio.create_task(writer.give_back(record, held))
    await stage.pass_time(0.1)
    assert stage.holder("one") == SHARDER_HOLDER, "a move is under way"
    with pytest.raises(FenceClosed):
        await api.patch(OWNERS, "moving", "default", move, fences=(record.hold,))
    await giving_back
    assert moving.done()
    await moving
    assert stage.holder("one") == ""


@pytest.mark.parametrize("longest", [15, 40])
def test_a_lease_that_this_leader_never_saw_counts_as_held_for_the_rings_longest_duration(longest: int) -> None:
    """Somebody may have deleted it under a living shard, just before this leader began."""

    @in_virtual_time
    async def unknown(clock: VirtualClock) -> None:
        stage = make_stage(clock)
        stage.create(CLUSTERRINGS, ring(), None)
        stage.start("two", duration=longest)
        work = FakeWork(left={"one"})
        async with controlling(stage, work) as controlled:
            controlled.controller.enqueue("one")
            await stage.pass_time(longest - 1)
            assert stage.holder("one") is None
            await stage.until(lambda: work.acquired == ["one"], seconds=5)

    unknown()
