"""What is no hold on a shard's lease, so that nothing may be taken away from the shard under it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sharder.takeover.controller import TakeoverController
from sharder.takeover.fences import ShardHold, join
from sharder.takeover.lease_client import LeaseWriter
from sharder.takeover.records import Record, Records
from shardsdk.errors import ConnectionFailed
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.kube_fakes import FakeFence
from tests.simulation.machines import MachineClock
from tests.unit.sharder.placement.stage import SHARDS, Stage, lease, make_stage, ring
from tests.unit.sharder.takeover.test_controller import FakeWork, controlling


class Deaf(MemoryApi):
    """While it is `deaf`, patches are answered with what was there before, and change nothing."""

    deaf = False

    async def patch(self, resource: Any, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        if self.deaf:
            return await self.get(resource, name, namespace, model=more["model"])
        return await super().patch(resource, name, namespace, body, **more)


class Unsettled(MemoryApi):
    """What was sent may be executed still, however long one waits."""

    async def writes_settled(self) -> None:
        await asyncio.Event().wait()


class Bewildering(MemoryApi):
    """Patches of the object of that name meet what nobody expected."""

    bewildering = ""

    async def patch(self, resource: Any, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        if name == self.bewildering:
            raise KeyError(name)
        return await super().patch(resource, name, namespace, body, **more)


async def acquired(stage: Stage, record: Record) -> Lease:
    """The released lease of shard one, once `record` holds it for 30 s."""
    stage.create(LEASES, lease(stage.clock, "one", holder="", duration=1), SHARDS)
    writer = LeaseWriter(stage.api, FakeFence(), stage.clock)
    assert await writer.acquire(record, await read(stage), 30)
    return await read(stage)


async def read(stage: Stage) -> Lease:
    return await stage.api.get(LEASES, "one", SHARDS, model=Lease)


@asynccontextmanager
async def holding_one(clock: VirtualClock) -> AsyncIterator[tuple[Stage, TakeoverController]]:
    """A stage with shard two, and a controller that holds the lease which shard one has left."""
    stage = make_stage(clock)
    stage.set_up(ring(), "two")
    stage.create(LEASES, lease(clock, "one", holder="", duration=1), SHARDS)
    async with controlling(stage, FakeWork(left={"one"})) as controlled:
        controller = controlled.controller
        await stage.until(lambda: controller.fence_for("one") is not None)
        yield stage, controller


@in_virtual_time
async def test_a_lease_that_is_about_to_be_given_back_is_not_renewed(clock: VirtualClock) -> None:
    """A family's renewal may come in between, and would have it held again that nobody waits for."""
    stage = make_stage(clock)
    record = Record(ShardHold("one", clock))
    held = await acquired(stage, record)
    record.drop()
    assert not await LeaseWriter(stage.api, FakeFence(), clock).renew(record, held)
    assert (await read(stage)).metadata.resource_version == held.metadata.resource_version
    assert not record.held
    assert record.hold.remaining() <= 0


@in_virtual_time
async def test_a_lease_that_its_shard_has_taken_back_is_not_renewed(clock: VirtualClock) -> None:
    """Nobody knows what became of the last renewal; what the lease says decides."""
    stage = make_stage(clock)
    record = Record(ShardHold("one", clock))
    await acquired(stage, record)
    record.version = ""
    stage.server.patch(LEASES, "one", SHARDS, {"spec": lease(clock, "one")["spec"]})
    assert not await LeaseWriter(stage.api, FakeFence(), clock).renew(record, await read(stage))
    assert stage.holder("one") == "one"


@pytest.mark.parametrize("before", [False, True], ids=["acquiring", "renewing"])
@in_virtual_time
async def test_a_write_that_changed_nothing_is_no_hold(clock: VirtualClock, before: bool) -> None:
    """An admission webhook may undo it; whoever waits for the lease has seen nothing of it."""
    stage = make_stage(clock, api=Deaf)
    assert isinstance(stage.api, Deaf)
    record, writer = Record(ShardHold("one", clock)), LeaseWriter(stage.api, FakeFence(), clock)
    stage.create(LEASES, lease(clock, "one", holder="", duration=1), SHARDS)
    seen = await read(stage)
    if before:
        assert await writer.acquire(record, seen, 30)
        seen = await read(stage)
    until, stage.api.deaf = record.hold.until, True
    await stage.pass_time(10)
    assert not await (writer.renew(record, seen) if before else writer.acquire(record, seen, 30))
    assert record.hold.until == until
    assert record.held is before


@in_virtual_time
async def test_a_lease_is_not_given_back_while_what_was_sent_under_the_hold_may_be_executed(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock, api=Unsettled)
    record = Record(ShardHold("one", clock))
    held = await acquired(stage, record)
    with pytest.raises(ConnectionFailed, match="runs out by itself"):
        await LeaseWriter(stage.api, FakeFence(), clock).give_back(record, held)
    assert stage.holder("one") == SHARDER_HOLDER
    assert record.hold.remaining() <= 0


@in_virtual_time
async def test_a_hold_on_one_lease_of_a_name_is_none_while_a_shard_may_count_on_another_that_was_deleted(
    clock: VirtualClock,
) -> None:
    """A shard of that name has started in another namespace, and somebody has deleted the Lease that it holds."""
    async with holding_one(clock) as (stage, controller):
        stage.start("one", "elsewhere")
        renewed_at = clock.monotonic()
        await stage.pass_time(0.5)
        assert controller.fence_for("one") is None
        stage.crash("one")
        stage.server.delete(LEASES, "one", "elsewhere")
        await stage.until(lambda: controller.fence_for("one") is not None)
        assert clock.monotonic() - renewed_at >= 15


@in_virtual_time
async def test_a_hold_that_is_given_back_to_a_name_that_lives_elsewhere_bars_nobody(clock: VirtualClock) -> None:
    """What has the name is that shard's from then on; when that ends, too, it is moved at once."""
    async with holding_one(clock) as (stage, controller):
        stage.start("one", "elsewhere")
        await stage.until(lambda: stage.holder("one") == "")
        await stage.pass_time(1)
        stage.crash("one")
        released = lease(clock, "one", holder="", duration=1)["spec"]
        stage.server.patch(LEASES, "one", "elsewhere", {"spec": released})
        took = await stage.until(lambda: controller.fence_for("one") is not None, seconds=100)
        assert took < 5


@in_virtual_time
async def test_of_a_name_with_two_leases_both_are_renewed_or_there_is_no_hold(clock: VirtualClock) -> None:
    """A shard of that name has just taken the one, and no watch has told yet: it may be at work."""
    stage = make_stage(clock)
    stage.set_up(ring(), "two")
    for namespace in (SHARDS, "elsewhere"):
        stage.create(LEASES, lease(clock, "one", holder="", duration=1), namespace)
    async with controlling(stage, FakeWork(left={"one"})) as controlled:
        controller = controlled.controller
        await stage.until(lambda: controller.fence_for("one") is not None)
        await stage.pass_time(0.5)
        assert await controller.renew("one")
        await stage.pass_time(0.5)
        stage.api.lag = lambda: 1.0
        stage.start("one", "elsewhere")
        assert not await controller.renew("one")


@in_virtual_time
async def test_a_hold_ends_when_the_shard_is_seen_to_have_taken_its_lease_back(clock: VirtualClock) -> None:
    """By hand, for example: by this leader's clock the hold would go on, and the shard works already."""
    async with holding_one(clock) as (stage, controller):
        fence = controller.fence_for("one")
        assert fence is not None
        assert fence.remaining() > 5
        stage.start("one")
        await stage.pass_time(0.5)
        assert fence.remaining() <= 0, "also for what has got hold of the fence already"
        assert controller.fence_for("one") is None


def test_and_when_nothing_is_remembered_of_the_lease_any_more() -> None:
    """It is gone, and the shard may make itself another; a patch that waits for its turn has the fence already."""
    clock = VirtualClock()
    records = Records(clock)
    record = records.of((SHARDS, "one"))
    record.hold.until, record.held = clock.monotonic() + 25.0, True
    fence = join("one", (record.hold,))
    assert fence.remaining() > 0
    records.forget((SHARDS, "one"))
    assert fence.remaining() <= 0


@in_virtual_time
async def test_what_the_leaders_machine_has_missed_is_taken_off_its_hold(clock: VirtualClock) -> None:
    """Its clock stood still with it: by that alone it would go on when the shard may have its lease back."""
    stage, machine = make_stage(clock), MachineClock(clock)
    machine.lapses.note(100.0)  # long before, so the hold has none of it to lose
    record = Record(ShardHold("one", machine))
    stage.create(LEASES, lease(clock, "one", holder="", duration=1), SHARDS)
    assert await LeaseWriter(stage.api, FakeFence(), machine).acquire(record, await read(stage), 30)
    left = record.hold.remaining()
    assert left > 20
    machine.lapses.note(20.0)
    assert record.hold.remaining() == pytest.approx(left - 20)


@in_virtual_time
async def test_a_hold_that_the_watch_does_not_show_yet_is_not_decided_about(clock: VirtualClock) -> None:
    """By what the watch shows nobody holds the lease, and it would have to be acquired once more."""
    stage = make_stage(clock)
    stage.set_up(ring(), "two")
    stage.create(LEASES, lease(clock, "one", holder="", duration=1), SHARDS)
    async with controlling(stage, FakeWork(left={"one"})) as controlled:
        stage.api.lag = lambda: 2.0
        await stage.until(lambda: stage.holder("one") == SHARDER_HOLDER)
        before = (await read(stage)).metadata.resource_version
        for _ in range(4):
            controlled.controller.enqueue("one")
            await stage.pass_time(0.4)
            assert (await read(stage)).metadata.resource_version == before
        await stage.pass_time(1)
        assert controlled.controller.fence_for("one") is not None


@in_virtual_time
async def test_a_shard_whose_lease_nobody_has_looked_for_yet_may_count_on_one(clock: VirtualClock) -> None:
    """However long this replica has been leading: the Lease may have been deleted a moment ago."""
    stage = make_stage(clock)
    stage.set_up(ring(), "two")
    work = FakeWork()
    async with controlling(stage, work) as controlled:
        await stage.pass_time(60)
        assert controlled.controller.may_hold("one")
        work.left.add("one")
        controlled.controller.enqueue("one")
        await stage.pass_time(14)
        assert controlled.controller.may_hold("one")
        await stage.until(lambda: not controlled.controller.may_hold("one"), seconds=5)


@in_virtual_time
async def test_an_error_that_nobody_expected_keeps_a_lease_from_being_acquired_no_longer_than_it_lasts(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make_stage(clock, api=Bewildering)
    assert isinstance(stage.api, Bewildering)
    stage.set_up(ring(), "two")
    for name in ("one", "three"):
        stage.create(LEASES, lease(clock, name, holder="", duration=1), SHARDS)
    stage.api.bewildering = "one"
    work = FakeWork(left={"one", "three"})
    async with controlling(stage, work):
        await stage.until(lambda: work.acquired == ["three"], seconds=10)
        await stage.pass_time(10)
        [*_, told] = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert (told.getMessage(), vars(told)["shard"]) == ("lease not handled, will retry", "one")
        stage.api.bewildering = ""
        await stage.until(lambda: work.acquired == ["three", "one"], seconds=60)
