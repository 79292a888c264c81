"""ShardLease with its keeper in a thread, in real time: what a blocked event loop must not break."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn

import pytest

from shardsdk.errors import ConfigurationError, LeaseLost
from shardsdk.kube.clock import SystemClock
from shardsdk.lease.keeper import Keeper
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.steps import Moment
from shardsdk.lease.timings import LeaseTimings
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from tests.lease_rig import NAMESPACE, RING, SHARD, connecting, lease_in, lose

TIMINGS = LeaseTimings(lease_duration=2, renew_deadline=1.4, retry_period=0.2)


def shard(api: MemoryApi, *, ring: str = RING, on_deadline: Callable[[], None] | None = None) -> ShardLease:
    return ShardLease(
        connecting(api), ring, SHARD, NAMESPACE, instance="uid-1", timings=TIMINGS, on_deadline=on_deadline
    )


async def eventually(condition: Callable[[], bool], seconds: float = 40.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def block(seconds: float) -> None:
    """What a reconciler does that should have been run in a thread."""
    time.sleep(seconds)


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"lease-{SHARD}"]


async def test_a_blocked_loop_loses_no_lease() -> None:
    server = MemoryServer()
    lease = shard(MemoryApi(server, SystemClock()))
    async with lease:
        block(3.2)  # longer than the lease
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
    told: list[float] = []
    deadline = threading.Event()

    def tell() -> None:
        told.append(lease.fence.remaining())
        deadline.set()

    lease: ShardLease = shard(api, on_deadline=tell)

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
    lease = shard(api)

    async def work() -> None:
        async with lease:
            api.fault = Fault.LOST
            await asyncio.Event().wait()

    with pytest.raises(LeaseLost, match=r"not renewed within 1\.4 s"):
        await work()


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
