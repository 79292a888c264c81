"""Writes in growing batches, and the cap on the writes of one reconcile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from shardsdk.errors import Forbidden, TooManyWrites
from shardsdk.objects.batches import MAX_BATCH, slow_start_batch
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.queueing.workers import Outcome, Requeue
from shardsdk.reconcile.spec import controller_for
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, SECRETS
from tests.unsharded_rig import Cluster, Ctx


class Calls:
    """Notes how many calls run at once, and fails those that it is told to."""

    def __init__(self, clock: VirtualClock, fail: Callable[[int], bool] = lambda number: False) -> None:
        self.batches: list[int] = []
        self.cancelled = 0
        self._clock = clock
        self._fail = fail
        self._at = -1.0

    def __call__(self, number: int) -> Callable[[], Coroutine[Any, Any, int]]:
        async def call() -> int:
            now = self._clock.monotonic()
            if now != self._at:
                self._at = now
                self.batches.append(0)
            self.batches[-1] += 1
            try:
                await self._clock.sleep(1)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            if self._fail(number):
                raise Forbidden(f"call {number} is forbidden", status=403)
            return number

        return call


@in_virtual_time
async def test_batches_double_until_everything_is_done(clock: VirtualClock) -> None:
    call = Calls(clock)
    assert await slow_start_batch([call(number) for number in range(20)]) == list(range(20))
    assert call.batches == [1, 2, 4, 8, 5]


@in_virtual_time
async def test_batches_do_not_grow_without_bounds(clock: VirtualClock) -> None:
    call = Calls(clock)
    await slow_start_batch([call(number) for number in range(4 * MAX_BATCH)])
    assert max(call.batches) == MAX_BATCH == 64


@in_virtual_time
async def test_what_fails_for_all_is_tried_once(clock: VirtualClock) -> None:
    call = Calls(clock, lambda number: True)
    with pytest.raises(Forbidden, match="call 0") as raised:
        await slow_start_batch([call(number) for number in range(100)])
    assert call.batches == [1]
    assert raised.value.__notes__ == ["0 of 100 calls had succeeded when this one failed"]


@in_virtual_time
async def test_after_an_error_the_batch_ends_and_no_other_begins(clock: VirtualClock) -> None:
    call = Calls(clock, lambda number: number == 4)
    with pytest.raises(Forbidden, match="call 4") as raised:
        await slow_start_batch([call(number) for number in range(100)])
    assert call.batches == [1, 2, 4]
    assert raised.value.__notes__ == ["6 of 100 calls had succeeded when this one failed"]


@in_virtual_time
async def test_a_cancelled_batch_leaves_nothing_running(clock: VirtualClock) -> None:
    call = Calls(clock)
    running = asyncio.create_task(slow_start_batch([call(number) for number in range(20)]))
    await clock.sleep(2.5)
    running.cancel()
    await asyncio.wait([running])
    assert call.cancelled == 4
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_a_call_that_raises_at_once_is_waited_for_like_any_other(clock: VirtualClock) -> None:
    call = Calls(clock)

    def build() -> Coroutine[Any, Any, int]:
        raise ValueError("no body for it")

    with pytest.raises(ValueError, match="no body") as raised:
        await slow_start_batch([call(0), call(1), build])
    assert raised.value.__notes__ == ["2 of 3 calls had succeeded when this one failed"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_nothing_to_call_is_nothing_done() -> None:
    assert await slow_start_batch([]) == []


@in_virtual_time
async def test_a_reconcile_that_writes_without_end_is_stopped_by_its_cap(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    replica, refused = cluster.replica(), list[str]()

    async def create_many(context: Ctx) -> Outcome | None:
        have = {child.metadata.name for child in context.children(CONFIGMAPS)}
        calls = []
        for name in [f"child-{number:02}" for number in range(12)]:
            if name not in have:
                metadata = {"name": name, "ownerReferences": [context.controller_reference()]}
                calls.append(partial(context.api.create, CONFIGMAPS, {"metadata": metadata}, "default"))
        try:
            await slow_start_batch(calls[: context.writes_left])
            if context.writes_left == 0:
                await context.api.delete(CONFIGMAPS, "child-00", "default")
        except TooManyWrites as error:
            refused.append(str(error))
        return Requeue() if len(calls) > 5 else None

    spec = controller_for(SECRETS).owns(CONFIGMAPS).options(max_writes=5).reconcile(create_many)
    process = replica.start(manager := Manager().add(spec))
    await clock.sleep(5)
    assert len(cluster.names(CONFIGMAPS)) == 12
    assert [write[0] for write in replica.writes] == ["create"] * 12
    assert len(refused) == 2
    assert "max_writes" in refused[0]
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_the_cap_counts_every_kind_of_write_of_one_reconcile(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    replica = cluster.replica()

    async def write(context: Ctx) -> None:
        await context.api.create(CONFIGMAPS, {"metadata": {"name": "one"}}, "default")
        await context.api.patch(CONFIGMAPS, "one", "default", {"data": {"k": "v"}})
        await context.api.get(CONFIGMAPS, "one", "default")
        await context.api.update(CONFIGMAPS, {"metadata": {"name": "one", "namespace": "default"}})
        replica.reconciled.append("three writes")
        await context.api.delete(CONFIGMAPS, "one", "default")

    spec = controller_for(SECRETS).options(max_writes=3).reconcile(write)
    process = replica.start(manager := Manager().add(spec))
    await clock.sleep(0.05)
    assert replica.reconciled == ["three writes"]
    assert [write[0] for write in replica.writes][:3] == ["create", "patch", "update"]
    assert "delete" not in [write[0] for write in replica.writes]
    manager.stopping.set()
    assert await process is ExitCode.OK
