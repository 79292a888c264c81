"""ShardLease in virtual time; the same on a real API server is in tests/integration/test_shardlease.py."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from shardsdk.errors import LeaseLost, ServerError
from shardsdk.lease.shardlease import LeaseState, ShardLease
from shardsdk.logs import message_of
from shardsdk.protocol.labels import LEASE_STATE_LABEL, SHARDER_HOLDER
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.processes import Process
from shardsdk.testing.virtual import EPOCH, VirtualClock, in_virtual_time
from tests.lease_rig import SHARD, Rig, lose


@in_virtual_time
async def test_the_body_runs_while_the_lease_is_held_and_then_it_is_released(clock: VirtualClock) -> None:
    rig = Rig(clock)
    lease = rig.shard()
    assert lease.fence.remaining() <= 0
    states = [lease.state]
    async with lease:
        states.append(lease.state)
        await asyncio.sleep(100)
        assert rig.holder() == SHARD
        assert lease.fence.remaining() > 10
    states.append(lease.state)
    assert states == [LeaseState.WAITING, LeaseState.HELD, LeaseState.LEFT]
    assert rig.holder() == ""
    assert lease.fence.remaining() <= 0
    assert not lease.lost.is_set()


@in_virtual_time
async def test_whether_a_sharder_looks_at_it_is_known_from_the_label_that_answers_show(clock: VirtualClock) -> None:
    rig = Rig(clock)

    def label(state: str) -> None:
        rig.meddle({"metadata": {"labels": {LEASE_STATE_LABEL: state}}})

    lease = rig.shard()
    async with lease:
        await asyncio.sleep(10)
        assert not lease.looked_at
        label("dead")
        await asyncio.sleep(10)
        assert not lease.looked_at, "that was said of its predecessor"
        label("ready")
        await asyncio.sleep(10)
        assert lease.looked_at


@in_virtual_time
async def test_an_error_of_the_body_comes_through_and_the_lease_is_released(clock: VirtualClock) -> None:
    rig = Rig(clock)
    with pytest.raises(ValueError, match="mine"):
        async with rig.shard():
            raise ValueError("mine")
    assert rig.holder() == ""


class Breaking:
    """A clock that fails whoever sleeps by it from some moment on."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.broken: BaseException | None = None

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def now(self) -> datetime:
        return self._clock.now()

    async def sleep(self, seconds: float) -> None:
        if self.broken is not None:
            raise self.broken
        await self._clock.sleep(seconds)


@pytest.mark.parametrize(
    "error", [MemoryError("no memory"), asyncio.CancelledError(), None], ids=["error", "cancelled", "abandoned"]
)
@in_virtual_time
async def test_a_keeper_that_ends_by_itself_ends_the_body_and_releases_nothing(
    clock: VirtualClock, error: BaseException | None
) -> None:
    rig = Rig(clock)
    breaking = Breaking(clock)
    overdue: list[float] = []
    lease: ShardLease = rig.shard(
        clock=breaking, on_deadline=lambda: overdue.append(clock.monotonic() - lease.fence.ends_at)
    )
    holders = []

    async def work() -> None:
        breaking.broken = error
        if error is None:
            next(task for task in asyncio.all_tasks() if task.get_name() == "lease").cancel()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(20)  # a body that takes its time
            holders.append(rig.holder())

    assert "the keeper of" in await lose(lease, work)
    assert clock.monotonic() < 30
    assert holders == [SHARD]
    assert lease.state is LeaseState.LOST
    assert rig.holder() == SHARD, "it runs out: nobody knows what the keeper has left undone"
    assert overdue == [pytest.approx(0, abs=2)], "the process is told to end when the hold has ended"


class Frozen(Breaking):
    """A clock whose wall stands still."""

    def now(self) -> datetime:
        return EPOCH


@in_virtual_time
async def test_renewals_that_change_nothing_lose_the_lease(clock: VirtualClock) -> None:
    rig = Rig(clock)
    lease = rig.shard(clock=Frozen(clock))
    assert "not renewed within 10 s; last failure: the renewal changed nothing" in await lose(lease, no_work)
    assert clock.monotonic() < 15


async def no_work() -> None:
    """Leave the body to wait."""


@in_virtual_time
async def test_a_cancelled_body_stays_cancelled_and_the_lease_is_released(clock: VirtualClock) -> None:
    rig = Rig(clock)

    async def work() -> None:
        async with rig.shard():
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rig.holder() == ""


@in_virtual_time
async def test_the_body_is_cancelled_at_the_deadline_and_well_before_the_lease_can_be_taken(
    clock: VirtualClock,
) -> None:
    rig = Rig(clock)
    api = rig.api()
    lease = rig.shard(api)

    async def work() -> None:
        await asyncio.sleep(1)
        api.fault = Fault.REFUSED
        renewed = lease.fence.ends_at - 12.6
        try:
            await asyncio.Event().wait()
        finally:
            assert clock.monotonic() == pytest.approx(renewed + 10, abs=0.01)
            assert 0 < lease.fence.remaining() <= 4
            assert lease.lost.is_set()

    assert "not renewed within 10 s" in await lose(lease, work)
    assert lease.state is LeaseState.LOST


@in_virtual_time
async def test_a_lost_lease_is_left_to_the_next_process_of_its_name(clock: VirtualClock) -> None:
    """The API server is back in time for a release, which would have the sharder move everything."""
    rig = Rig(clock)
    api = rig.api()

    async def work() -> None:
        api.fault = Fault.REFUSED
        try:
            await asyncio.Event().wait()
        finally:
            api.fault = Fault.NONE

    await lose(rig.shard(api), work)
    await asyncio.sleep(1)
    assert rig.holder() == SHARD
    async with rig.shard():
        assert rig.holder() == SHARD


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.UNANSWERED])
@in_virtual_time
async def test_an_api_server_that_hangs_costs_the_lease_at_the_deadline_too(clock: VirtualClock, fault: Fault) -> None:
    rig = Rig(clock)
    api = rig.api()
    lease = rig.shard(api)
    began = clock.monotonic()

    async def work() -> None:
        api.fault = fault

    await lose(lease, work)
    assert lease.fence.ends_at == pytest.approx(began + 12.6, abs=0.01), "a renewal without answer must extend nothing"


@in_virtual_time
async def test_an_outage_shorter_than_the_deadline_is_survived(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api = rig.api()
    async with rig.shard(api):
        for fault in (Fault.REFUSED, Fault.LOST, Fault.UNANSWERED):
            api.fault = fault
            await asyncio.sleep(4)
            api.fault = Fault.NONE
            await asyncio.sleep(10)
        api.error = ServerError("etcd is slow", status=500)
        await asyncio.sleep(6)
        api.error = None
        await asyncio.sleep(60)
    assert rig.holder() == ""


@in_virtual_time
async def test_the_body_is_cancelled_when_somebody_else_holds_the_lease(clock: VirtualClock) -> None:
    rig = Rig(clock)
    lease = rig.shard()

    async def work() -> None:
        rig.meddle({"spec": {"holderIdentity": SHARDER_HOLDER}})
        try:
            await asyncio.Event().wait()
        finally:
            assert lease.fence.remaining() <= 0

    assert SHARDER_HOLDER in await lose(lease, work)
    assert rig.holder() == SHARDER_HOLDER


@in_virtual_time
async def test_of_two_processes_of_one_name_the_second_waits_until_the_first_has_gone(clock: VirtualClock) -> None:
    rig = Rig(clock)
    log: list[str] = []

    async def work(instance: str, seconds: float) -> None:
        async with rig.shard(instance=instance):
            log.append(f"{instance} begins")
            await asyncio.sleep(seconds)
            log.append(f"{instance} ends")

    async with asyncio.TaskGroup() as group:
        group.create_task(work("uid-1", 60))
        await asyncio.sleep(1)
        group.create_task(work("uid-2", 1))
    assert log == ["uid-1 begins", "uid-1 ends", "uid-2 begins", "uid-2 ends"]


@in_virtual_time
async def test_who_waits_says_for_whom(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(clock)
    caplog.set_level("INFO", logger="shardsdk.lease")

    async def work() -> None:
        async with rig.shard(instance="uid-2"):
            pass

    async with rig.shard(instance="uid-1"):
        task = asyncio.create_task(work())
        await asyncio.sleep(30)
    await task
    waiting = [message_of(record) for record in caplog.records if "Waiting" in record.message]
    assert waiting == ["Waiting for the lease default/shard-a: held by shard-a (instance uid-1)"]


@in_virtual_time
async def test_a_crashed_process_is_succeeded_after_its_lease_and_at_once_in_its_own_pod(clock: VirtualClock) -> None:
    rig = Rig(clock)

    async def work(instance: str, acquired: asyncio.Event) -> None:
        async with rig.shard(instance=instance):
            acquired.set()
            await asyncio.Event().wait()

    first, second, third = asyncio.Event(), asyncio.Event(), asyncio.Event()
    process = Process("first")
    process.start(work("uid-1", first))
    await first.wait()
    process.kill()

    process = Process("second")
    began = clock.monotonic()
    process.start(work("uid-1", second))
    await second.wait()
    assert clock.monotonic() - began < 0.1
    process.kill()

    began = clock.monotonic()
    task = asyncio.create_task(work("uid-3", third))
    await third.wait()
    assert 14.9 < clock.monotonic() - began < 15.1
    task.cancel()


@pytest.mark.parametrize("seconds", [3, 10, 11, 14.5, 3600])
@in_virtual_time
async def test_a_process_that_slept_works_only_if_nobody_can_have_taken_its_lease(
    clock: VirtualClock, seconds: float
) -> None:
    """While it sleeps, another process of its name takes the lease as soon as it may."""
    rig = Rig(clock)
    lease = rig.shard(instance="uid-1")
    wrote_with: list[float] = []

    async def work() -> None:
        async with lease:
            while True:
                wrote_with.append(lease.fence.remaining())
                await asyncio.sleep(0.5)

    async def other() -> None:
        async with rig.shard(instance="uid-2"):
            await asyncio.sleep(1000)

    process = Process("sleeper")
    sleeper = process.start(work())
    await asyncio.sleep(5)
    waiter = asyncio.create_task(other())
    await asyncio.sleep(0.1)
    process.pause()
    await asyncio.sleep(seconds)
    wrote_with.clear()
    process.resume()
    await asyncio.sleep(20)
    if seconds < 7:
        assert not sleeper.done()
    else:
        assert isinstance(sleeper.exception(), LeaseLost)
    if seconds > 14:
        assert all(remaining <= 0 for remaining in wrote_with)
    for task in (sleeper, waiter):
        task.cancel()
    await asyncio.wait((sleeper, waiter))


@in_virtual_time
async def test_a_machine_that_was_suspended_steps_down_within_a_second(clock: VirtualClock) -> None:
    """Its timers stand still meanwhile, which here is a jump of the clock that no timer sees coming."""
    rig = Rig(clock)
    lease = rig.shard()

    async def work() -> None:
        await asyncio.sleep(0.5)
        clock.jump(3600)
        assert lease.fence.remaining() <= 0

    await lose(lease, work)
    assert clock.monotonic() <= 3600 + 0.5 + 1.1


@in_virtual_time
async def test_a_process_that_was_forked_has_no_hold(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody renews there, and no release waits for its writes."""
    async with Rig(clock).shard() as lease:
        assert lease.fence.remaining() > 0
        with monkeypatch.context() as forked:
            forked.setattr("os.getpid", lambda: -1)
            assert lease.fence.remaining() < 0
        assert lease.fence.remaining() > 0


@in_virtual_time
async def test_a_lease_that_was_made_before_the_process_was_forked_is_the_one_that_enters_it(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As servers do that load a program once for all their workers."""
    lease = Rig(clock).shard()
    monkeypatch.setattr("os.getpid", lambda: -1)
    async with lease:
        assert lease.fence.remaining() > 0


@in_virtual_time
async def test_of_processes_that_were_forked_with_one_lease_a_single_one_has_it(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was drawn before is the same in all of them."""
    rig = Rig(clock)
    one, other = rig.shard(), rig.shard()
    assert one.instance == other.instance
    monkeypatch.setattr("os.getpid", lambda: -1)
    async with one:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60), other:
                raise AssertionError("both have it")
        assert one.fence.remaining() > 0
