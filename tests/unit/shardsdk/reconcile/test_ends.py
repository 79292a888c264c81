"""When a reconcile has ended: whatever it has left behind writes no more, and what it was writing holds its object."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shardsdk.cache.objects import Request
from shardsdk.errors import ConfigurationError, ConnectionFailed
from shardsdk.protocol.objects import PartialObject
from shardsdk.protocol.ranges import EVERYWHERE, HashBy
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.ending import work_ended
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, Rig

Ctx = Context[PartialObject]
MINE = Request("default", "mine")


def child_of(context: Ctx, name: str = "child") -> dict[str, Any]:
    return {"metadata": {"name": name, "ownerReferences": [context.controller_reference()]}}


class Slow:
    """Writes on config maps wait for a connection until the gate opens, and only then are on their way."""

    def __init__(self, rig: Rig) -> None:
        self.gate = asyncio.Event()
        self.waiting = 0
        self._send = rig.api.send
        rig.api.send = self  # type: ignore[method-assign]

    async def __call__(self, operation: Any) -> Any:
        if operation.writes and operation.resource == CONFIGMAPS:
            self.waiting += 1
            try:
                await self.gate.wait()
            finally:
                self.waiting -= 1
        return await self._send(operation)


def write(context: Ctx) -> Awaitable[object]:
    return context.api.create(CONFIGMAPS, child_of(context), "default")


def write_raw(context: Ctx) -> Awaitable[object]:
    return context.api.raw("POST", "/api/v1/namespaces/default/configmaps")


@pytest.mark.parametrize("late", [write, write_raw])
@in_virtual_time
async def test_what_it_has_left_behind_writes_no_more(
    clock: VirtualClock, late: Callable[[Ctx], Awaitable[object]]
) -> None:
    """`gather` leaves the others running when one of them fails; another shard has the object by then."""
    rig = Rig(clock)
    refused: list[ConfigurationError] = []

    async def fails() -> None:
        await clock.sleep(1)
        raise RuntimeError("boom")

    async def is_slow(context: Ctx) -> None:
        await clock.sleep(5)
        assert await context.api.find(CONFIGMAPS, "child", "default") is None  # reading harms nobody
        try:
            await late(context)
        except ConfigurationError as error:
            refused.append(error)

    async def leave(context: Ctx) -> None:
        await asyncio.gather(fails(), is_slow(context))

    rig.secret("mine")
    async with rig.shard(leave):
        await clock.sleep(0.5)
        rig.drain("mine")
        await clock.sleep(2)
        assert rig.labels("mine") == {}
        rig.relabel(rig.main.resource, "mine", shard="shard-2")
        await clock.sleep(10)
    assert "TaskGroup" in str(refused[0])
    assert rig.server.find(CONFIGMAPS, "child", "default") is None


@in_virtual_time
async def test_its_context_says_so_to_what_it_has_left_in_threads(clock: VirtualClock) -> None:
    """Before another shard may have the object, whose lease this shard still holds."""
    rig, said = Rig(clock), list[tuple[bool, float]]()

    async def leave(context: Ctx) -> None:
        contexts.append(context)
        said.append((context.cancelled, context.remaining_seconds))
        await clock.sleep(60)

    contexts = list[Ctx]()
    rig.secret("mine")
    async with rig.shard(leave) as controller:
        await clock.sleep(0.5)
        rig.drain("mine")
        controller.cancel(MINE)
        await clock.sleep(2)
        assert rig.labels("mine") == {}
        assert said[0][0] is False
        assert said[0][1] > 0
        assert contexts[0].cancelled
        assert contexts[0].remaining_seconds < 0


def leaving_a_write(clock: VirtualClock) -> Callable[[Ctx], Awaitable[None]]:
    """A reconcile that fails after a second, while its write is under way."""

    async def fails() -> None:
        await clock.sleep(1)
        raise RuntimeError("boom")

    async def leave(context: Ctx) -> None:
        await asyncio.gather(write(context), fails())

    return leave


@in_virtual_time
async def test_a_write_under_way_as_it_ends_holds_its_object(clock: VirtualClock) -> None:
    rig = Rig(clock)
    slow = Slow(rig)
    rig.secret("mine")
    async with rig.shard(leaving_a_write(clock)):
        await clock.sleep(0.5)
        rig.drain("mine")
        await clock.sleep(5)
        assert rig.resource.inflight.busy(MINE)
        assert RING.drain in rig.labels("mine")
        slow.gate.set()
        await clock.sleep(1)
        assert rig.labels("child", CONFIGMAPS) == {RING.shard: "shard-1"}
        assert rig.labels("mine") == {}


async def check_given_up(clock: VirtualClock, function: Callable[[Ctx], Awaitable[None]]) -> None:
    """A drain cancels the reconcile in the end, and its object is given away without what it was writing."""
    rig = Rig(clock)
    slow = Slow(rig)
    rig.secret("mine")
    async with rig.shard(function, drain_timeout_seconds=10):
        await clock.sleep(0.5)
        rig.drain("mine")
        await clock.sleep(5)
        assert slow.waiting == 1
        await clock.sleep(10)
        assert slow.waiting == 0
        assert rig.labels("mine") == {}
    assert rig.server.find(CONFIGMAPS, "child", "default") is None


@in_virtual_time
async def test_cancelled_then_it_gives_up_what_is_under_way(clock: VirtualClock) -> None:
    await check_given_up(clock, leaving_a_write(clock))


def start_writing(context: Ctx) -> asyncio.Future[object]:
    """What becomes of it is looked at by nobody else: asyncio would tell of it whenever it is collected."""
    writing = asyncio.ensure_future(write(context))
    writing.add_done_callback(lambda done: done.cancelled() or done.exception())
    return writing


async def shielding(context: Ctx) -> None:
    await asyncio.shield(start_writing(context))


async def doing_something_else(context: Ctx) -> None:
    writing = start_writing(context)
    await asyncio.Event().wait()
    await writing


async def failing_when_cancelled(context: Ctx) -> None:
    """What is raised then is a group."""

    async def fails() -> None:
        try:
            await asyncio.shield(start_writing(context))
        except asyncio.CancelledError:
            raise RuntimeError("boom") from None

    async with asyncio.TaskGroup() as group:
        group.create_task(fails())


CANCELLED = pytest.mark.parametrize("function", [shielding, doing_something_else, failing_when_cancelled])


@CANCELLED
@in_virtual_time
async def test_cancelled_before_its_end_it_gives_up_what_is_under_way(
    clock: VirtualClock, function: Callable[[Ctx], Awaitable[None]]
) -> None:
    await check_given_up(clock, function)


@CANCELLED
@in_virtual_time
async def test_a_process_that_is_to_end_waits_for_no_such_write(
    clock: VirtualClock, function: Callable[[Ctx], Awaitable[None]]
) -> None:
    """The gate stays shut."""
    rig = Rig(clock)
    slow = Slow(rig)
    rig.secret("mine")
    async with asyncio.timeout(60):
        async with rig.shard(function) as controller:
            await clock.sleep(5)
            assert slow.waiting == 1
            await controller.stop()
    assert slow.waiting == 0


@in_virtual_time
async def test_a_task_that_writes_for_many_reconciles_loses_that_write_alone(clock: VirtualClock) -> None:
    rig = Rig(clock)
    slow = Slow(rig)
    jobs: asyncio.Queue[Ctx] = asyncio.Queue()
    ended: list[Exception | None] = []

    async def batcher() -> None:
        while True:
            context = await jobs.get()
            try:
                await write(context)
            except ConnectionFailed as error:
                ended.append(error)
            else:
                ended.append(None)

    async def leave(context: Ctx) -> None:
        jobs.put_nowait(context)
        await clock.sleep(1)

    for name in ("mine", "next"):
        rig.secret(name, shard="shard-1" if name == "mine" else None)
    writing = asyncio.create_task(batcher())
    async with rig.shard(leave, drain_timeout_seconds=10):
        await clock.sleep(0.5)
        rig.drain("mine")
        await clock.sleep(20)
        assert rig.labels("mine") == {}
        slow.gate.set()
        rig.relabel(rig.main.resource, "next", shard="shard-1")
        await clock.sleep(5)
    given_up, written = ended
    assert "may be executed" in str(given_up)
    assert written is None
    writing.cancel()


@in_virtual_time
async def test_a_range_has_ended_when_the_last_write_of_its_last_reconcile_can_no_longer_be_executed(
    clock: VirtualClock,
) -> None:
    rig = Rig(clock)
    rig.hold.seconds = 60
    begun, gate = asyncio.Event(), asyncio.Event()

    async def reconcile(context: Ctx) -> None:
        if begun.is_set():
            return  # the news of its own child
        begun.set()
        await gate.wait()
        rig.api.delay = lambda: 20.0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await write(context)

    rig.secret("mine")
    async with rig.shard(reconcile):
        await begun.wait()
        ending = asyncio.ensure_future(work_ended(EVERYWHERE, HashBy.NAMESPACE, [rig.resource], rig.api, clock))
        await clock.sleep(1)
        gate.set()
        await clock.sleep(5)
        assert not rig.resource.inflight.busy(MINE)
        assert rig.server.find(CONFIGMAPS, "child", "default") is None
        assert not ending.done()
        await ending
        assert rig.server.find(CONFIGMAPS, "child", "default") is not None
