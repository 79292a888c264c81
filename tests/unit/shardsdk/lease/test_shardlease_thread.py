"""ShardLease with its keeper in a thread, in real time: what a blocked event loop must not break."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NoReturn

import pytest

from shardsdk.errors import ConfigurationError, LeaseLost
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.server import direct_access
from shardsdk.lease import body
from shardsdk.lease.keeper import Keeper
from shardsdk.lease.seat import take_seat
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.steps import Moment
from shardsdk.lease.timings import LeaseTimings
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from tests.lease_rig import NAMESPACE, RING, SHARD, connecting, lease_in, lose

#: Lost soon after the API server has gone.
BRIEF = LeaseTimings(lease_duration=2, renew_deadline=1.4, retry_period=0.2)
#: Kept by a machine on which nothing of this process runs for some seconds.
STEADY = LeaseTimings(lease_duration=60, renew_deadline=40, retry_period=0.2)


def shard(
    api: MemoryApi,
    timings: LeaseTimings = STEADY,
    *,
    ring: str = RING,
    on_deadline: Callable[[], None] | None = None,
) -> ShardLease:
    return ShardLease(
        connecting(api), ring, SHARD, NAMESPACE, instance="uid-1", timings=timings, on_deadline=on_deadline
    )


def telling_its_deadline(api: MemoryApi) -> tuple[ShardLease, list[float], threading.Event]:
    """What is left of the hold each time that its deadline is told, and an event for that."""
    told, deadline = list[float](), threading.Event()

    def tell() -> None:
        told.append(lease.fence.remaining())
        deadline.set()

    lease = shard(api, BRIEF, on_deadline=tell)
    return lease, told, deadline


async def eventually(condition: Callable[[], bool], seconds: float = 40.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def block(lease: ShardLease, renewals: int) -> None:
    """What a reconciler does that should have been run in a thread, until its lease has been renewed so often."""
    until = time.monotonic() + 40
    for _ in range(renewals):
        before = lease.fence.ends_at
        while lease.fence.ends_at == before:
            assert time.monotonic() < until, "nobody renews it"
            time.sleep(0.02)


class Blocking(logging.Handler):
    """Sends lines to who does not take them: from the first that begins like this, it waits until `let_go` is set."""

    def __init__(self, beginning: str) -> None:
        super().__init__()
        self._beginning = beginning
        self.reached = threading.Event()
        self.let_go = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(self._beginning):
            self.reached.set()
            self.let_go.wait()


@contextmanager
def logging_to(handler: Blocking) -> Iterator[None]:
    logger = logging.getLogger("shardsdk")
    logger.addHandler(handler)
    try:
        yield
    finally:
        handler.let_go.set()
        logger.removeHandler(handler)


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"lease-{SHARD}"]


async def test_a_blocked_loop_loses_no_lease() -> None:
    server = MemoryServer()
    lease = shard(MemoryApi(server, SystemClock()))
    async with lease:
        block(lease, renewals=3)
        assert lease.fence.remaining() > 0
        assert not lease.lost.is_set()
    found = lease_in(server, SHARD)
    assert found is not None
    assert found.holder == ""


async def test_a_keepers_thread_that_ends_ends_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even by what no handler of exceptions catches."""

    def exit_thread(keeper: Keeper, at: Moment) -> NoReturn:
        raise SystemExit(7)

    async def break_it() -> None:
        monkeypatch.setattr(Keeper, "next", exit_thread)

    server = MemoryServer()
    assert "has ended: SystemExit(7)" in await lose(shard(MemoryApi(server, SystemClock())), break_it)
    found = lease_in(server, SHARD)
    assert found is not None
    assert found.holder == SHARD


async def test_while_the_loop_is_blocked_the_fence_closes_and_the_deadline_is_told() -> None:
    api = MemoryApi(MemoryServer(), SystemClock())
    lease, told, deadline = telling_its_deadline(api)

    async def work() -> None:
        async with lease:
            api.fault = Fault.REFUSED
            assert deadline.wait(40), "nobody told"  # the loop takes no turn meanwhile
            assert len(told) == 1
            assert told[0] <= 0
            assert lease.fence.remaining() <= 0
            await asyncio.sleep(60)

    with pytest.raises(LeaseLost):
        await work()


async def test_the_body_is_cancelled_from_the_keepers_thread() -> None:
    api = MemoryApi(MemoryServer(), SystemClock())
    lease = shard(api, BRIEF)

    async def work() -> None:
        async with lease:
            api.fault = Fault.LOST
            await asyncio.Event().wait()

    with pytest.raises(LeaseLost, match=r"not renewed within 1\.4 s"):
        await work()


@pytest.mark.parametrize("line", ["Could not renew the ", "Lost the lease: "])
async def test_the_deadline_is_told_whatever_log_line_its_keeper_waits_for(line: str) -> None:
    api, handler = MemoryApi(MemoryServer(), SystemClock()), Blocking(line)
    lease, told, deadline = telling_its_deadline(api)

    async def work() -> None:
        async with lease:
            api.fault = Fault.REFUSED
            try:
                assert deadline.wait(40), "nobody told"  # a body that heeds nothing
                assert handler.reached.wait(40)  # before the deadline, unless the machine stood still
            finally:
                handler.let_go.set()
            await asyncio.sleep(60)

    with logging_to(handler), pytest.raises(LeaseLost):
        await work()
    assert len(told) == 1
    assert told[0] <= 0


async def test_the_body_is_told_of_the_loss_before_anybody_reads_of_it() -> None:
    api, handler = MemoryApi(MemoryServer(), SystemClock()), Blocking("Lost the lease: ")
    lease = shard(api, BRIEF)

    async def work() -> None:
        async with lease:
            api.fault = Fault.LOST
            try:
                async with asyncio.timeout(40):
                    await asyncio.Event().wait()
            finally:
                lost = lease.loss
                reached = await asyncio.to_thread(handler.reached.wait, 40)
                handler.let_go.set()
                assert reached
                assert lost is not None

    with logging_to(handler), pytest.raises(LeaseLost):
        await work()


async def test_a_lost_leases_deadline_is_told_also_where_the_body_has_ended_and_its_keeper_cannot() -> None:
    """This loop waits for the keeper, then for the handler; what the body has left in threads goes on meanwhile."""
    handler, api = Blocking("Lost the lease: "), MemoryApi(MemoryServer(), SystemClock())
    told = threading.Event()

    def tell() -> None:
        told.set()
        handler.let_go.set()

    async def work() -> None:
        async with shard(api, BRIEF, on_deadline=tell):
            api.fault = Fault.LOST
            await asyncio.Event().wait()

    rescue = threading.Timer(40, handler.let_go.set)
    rescue.start()
    with logging_to(handler), pytest.raises(LeaseLost):
        await work()
    rescue.cancel()
    assert told.is_set()


async def test_a_body_that_blocks_its_loop_beyond_the_loss_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has said how the process is to end, and what the body writes by other clients is not refused."""
    monkeypatch.setattr(body, "TOLD_FIRST_SECONDS", 0.05)
    api = MemoryApi(MemoryServer(), SystemClock())

    def block() -> None:
        until = time.monotonic() + 40
        while "its body goes on" not in caplog.text and time.monotonic() < until:
            time.sleep(0.02)

    async def work() -> None:
        async with shard(api, BRIEF):
            api.fault = Fault.LOST
            block()
            await asyncio.Event().wait()

    with pytest.raises(LeaseLost):
        await work()
    assert "its body goes on" in caplog.text


async def test_a_lost_leases_deadline_is_not_told_because_its_keeper_has_left_something_in_a_thread() -> None:
    """Such as a name that is looked up; nobody can cancel that, and a loop is not closed before it has ended."""
    api, told, let_go = MemoryApi(MemoryServer(), SystemClock()), threading.Event(), threading.Event()

    @asynccontextmanager
    async def connect() -> AsyncIterator[MemoryApi]:
        asyncio.get_running_loop().run_in_executor(None, let_go.wait, 60)
        yield api

    def tell() -> None:
        told.set()
        let_go.set()

    timings = LeaseTimings(lease_duration=10, renew_deadline=1.4, retry_period=0.2)
    lease = ShardLease(connect, RING, SHARD, NAMESPACE, instance="uid-1", timings=timings, on_deadline=tell)

    async def work() -> None:
        async with lease:
            api.fault = Fault.LOST
            await asyncio.Event().wait()

    with pytest.raises(LeaseLost):
        await work()
    assert not told.is_set()
    assert len(keepers()) == 1
    let_go.set()
    await eventually(lambda: not keepers())


async def test_a_body_that_has_ended_is_told_no_deadline() -> None:
    told = threading.Event()
    async with shard(MemoryApi(MemoryServer(), SystemClock()), on_deadline=told.set):
        watches = [thread for thread in threading.enumerate() if thread.name == "hold-watch"]
        assert len(watches) == 1
    await asyncio.to_thread(watches[0].join, 40)
    assert not watches[0].is_alive()
    assert not told.is_set()


async def test_its_thread_ends_with_it() -> None:
    async with shard(MemoryApi(MemoryServer(), SystemClock())):
        assert len(keepers()) == 1
    await eventually(lambda: not keepers())


@pytest.mark.parametrize("impatient", [False, True])
async def test_giving_up_while_waiting_ends_the_thread(impatient: bool) -> None:
    api = MemoryApi(MemoryServer(), SystemClock())
    api.fault = Fault.LOST

    async def enter() -> None:
        async with shard(api):
            raise AssertionError("unreachable")

    task = asyncio.create_task(enter())
    await eventually(lambda: bool(api.requests))
    task.cancel()
    if impatient:
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    await eventually(lambda: not keepers())


async def test_what_makes_a_lease_impossible_is_raised_where_it_was_entered() -> None:
    server = MemoryServer()

    def connect_badly() -> object:
        raise ConfigurationError("no such file")

    with pytest.raises(ConfigurationError, match="no such file"):
        await ShardLease(connect_badly, RING, SHARD, NAMESPACE).__aenter__()  # type: ignore[arg-type]
    async with shard(MemoryApi(server, SystemClock())):
        with pytest.raises(ConfigurationError, match="names of their own"):
            await shard(MemoryApi(server, SystemClock()), ring="other").__aenter__()
    await eventually(lambda: not keepers())


async def test_writes_are_awaited_on_the_bodys_loop_before_the_release() -> None:
    server = MemoryServer()
    lease = shard(MemoryApi(server, SystemClock()))
    body_loop = asyncio.get_running_loop()

    async def settled() -> None:
        assert asyncio.get_running_loop() is body_loop
        await asyncio.sleep(0.1)
        found = lease_in(server, SHARD)
        assert found is not None
        assert found.holder == SHARD

    waiter: Callable[[], Awaitable[None]] = settled
    lease.settle_first(waiter)
    async with lease:
        pass
    found = lease_in(server, SHARD)
    assert found is not None
    assert found.holder == ""


async def test_where_no_thread_can_renew_the_seat_is_free_for_the_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    access, loops, new_loop = (
        direct_access("http://127.0.0.1:1"),
        list[asyncio.AbstractEventLoop](),
        asyncio.new_event_loop,
    )

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def note() -> asyncio.AbstractEventLoop:
        loops.append(new_loop())
        return loops[-1]

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", fail)
        limited.setattr(asyncio, "new_event_loop", note)
        lease = ShardLease(access, RING, SHARD, NAMESPACE, ranges=True)
        with pytest.raises(RuntimeError, match="new thread"):
            await lease.__aenter__()
    assert [loop.is_closed() for loop in loops] == [True]
    seat = take_seat(access.host, NAMESPACE, SHARD)
    assert seat is not None
    seat.give_up()


async def test_where_no_thread_can_watch_there_is_no_body_and_the_lease_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, start = MemoryServer(), threading.Thread.start

    def start_most(thread: threading.Thread) -> None:
        if thread.name == "hold-watch":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_most)
    with pytest.raises(RuntimeError, match="new thread"):
        await shard(MemoryApi(server, SystemClock()), on_deadline=lambda: None).__aenter__()
    found = lease_in(server, SHARD)
    assert found is not None
    assert found.holder == ""
    await eventually(lambda: not keepers())
