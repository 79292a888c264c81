"""What a process that seeks its lease says while it does not get it."""

from __future__ import annotations

import asyncio

import pytest

from shardsdk.errors import NotFound, ServerError, TooManyRequests
from shardsdk.kube.api import Operation, T
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.processes import outside
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.lease_rig import SHARD, Rig, stay


class InEtcdsHands(MemoryApi):
    """What is created is answered with a 5xx, and is there some seconds later."""

    async def send(self, operation: Operation[T]) -> T:
        if operation.verb != "create":
            return await super().send(operation)
        self.delay = lambda: 2.0
        outside(super().send(operation))
        await asyncio.sleep(0.1)
        self.delay = lambda: 0.001
        raise ServerError("etcdserver: request timed out", status=500, reason="InternalError")


async def told(rig: Rig, api: MemoryApi, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is told in a minute, at info and above."""
    caplog.set_level("INFO", logger="shardsdk.lease")
    task = asyncio.create_task(stay(rig.shard(api)))
    await asyncio.sleep(60)
    task.cancel()
    said = [record.getMessage().partition(" namespace=")[0] for record in caplog.records]
    await asyncio.wait((task,))
    return said


@in_virtual_time
async def test_an_api_server_that_never_answers_is_told_once(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(clock)
    api = rig.api()
    api.fault = Fault.LOST
    said = await told(rig, api, caplog)
    assert said == [f"Could not acquire the lease default/{SHARD} yet: no answer within 5.0 s"]
    assert len(api.requests) > 5


@in_virtual_time
async def test_a_creation_that_never_is_answered_is_told_once(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody's admission webhook for leases, say."""
    rig = Rig(clock)
    api = rig.api()
    api.on_request = lambda right: setattr(api, "fault", Fault.LOST if right.verb == "create" else Fault.NONE)
    said = await told(rig, api, caplog)
    assert said == [f"Could not acquire the lease default/{SHARD} yet: no answer within 5.0 s"]


@in_virtual_time
async def test_each_reason_is_told_when_it_comes_up(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(clock)
    api = rig.api()
    api.error = TooManyRequests("slow down", status=429, retry_after_seconds=1.0)
    asyncio.get_running_loop().call_later(20, setattr, api, "fault", Fault.REFUSED)
    said = await told(rig, api, caplog)
    assert said == [
        f"Could not acquire the lease default/{SHARD} yet: slow down",
        f"Could not acquire the lease default/{SHARD} yet: connection refused",
    ]


@in_virtual_time
async def test_a_creation_that_is_executed_late_holds_the_lease_for_nobody_who_has_gone(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api = rig.api()
    api.on_request = lambda right: setattr(api, "delay", lambda: 4.0 if right.verb == "create" else 0.001)
    task = asyncio.create_task(stay(rig.shard(api)))
    await rig.until(lambda: bool(api.writes))
    assert rig.lease() is None
    task.cancel()
    await asyncio.wait((task,))
    await asyncio.sleep(60)
    assert rig.holder() == ""


@in_virtual_time
async def test_nor_does_one_that_was_answered_with_a_5xx(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api = InEtcdsHands(rig.server, clock)
    task = asyncio.create_task(stay(rig.shard(api)))
    await rig.until(lambda: bool(api.writes))
    await asyncio.sleep(0.5)
    assert rig.lease() is None
    task.cancel()
    await asyncio.wait((task,))
    await asyncio.sleep(60)
    assert rig.holder() == ""


@in_virtual_time
async def test_a_namespace_that_is_not_there_is_told_with_its_remedy_and_waited_for(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(clock)
    api = rig.api()
    missing = NotFound('namespaces "default" not found', status=404)
    api.on_request = lambda right: setattr(api, "error", missing if right.verb == "create" else None)
    said = await told(rig, api, caplog)
    assert said == [
        f"Could not acquire the lease default/{SHARD} yet: there is no namespace 'default' for the lease"
        f" default/{SHARD}: `kubectl create namespace default`"
    ]
    assert 5 < api.requests.count("create") <= 30, "as often as any other attempt"
    api.on_request, api.error = None, None
    async with rig.shard(api):
        assert rig.holder() == SHARD
