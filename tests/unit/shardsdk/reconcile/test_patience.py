"""Whoever waits for a reconcile that does not end, to give its object or a range away, says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shardsdk.protocol.ranges import EVERYWHERE, HashBy
from shardsdk.reconcile.ending import work_ended
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import RING, Rig, stubborn


@asynccontextmanager
async def giving_away(rig: Rig, gate: asyncio.Event, what: str = "drain") -> AsyncIterator[None]:
    """A drain, or the end of a range, begins, and at the end the gate opens."""
    ending = None
    if what == "drain":
        rig.drain("mine")
    else:
        given_up = work_ended(EVERYWHERE, HashBy.NAMESPACE, [rig.resource], rig.api, rig.clock)
        ending = asyncio.ensure_future(given_up)
    try:
        yield
    finally:
        gate.set()
    if ending is not None:
        await ending


def told(caplog: pytest.LogCaptureFixture, begins: str) -> list[object]:
    lines = [line.__dict__ for line in caplog.records if line.msg.startswith(begins)]
    assert all(
        (line["resource"], line["namespace"], line["object"]) == ("secrets", "default", "mine") for line in lines
    )
    return [line.get("waited_seconds") for line in lines]


@pytest.mark.parametrize("what", ["drain", "range"])
@in_virtual_time
async def test_it_is_told_what_holds_it_up_at_growing_pauses_until_that_has_ended(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    rig, gate = Rig(clock), asyncio.Event()
    rig.secret("mine")
    async with rig.shard(stubborn(gate)):
        await clock.sleep(5)
        async with giving_away(rig, gate, what):
            await clock.sleep(14)
            rig.nudge(rig.main.resource)
            assert told(caplog, "A drain waits for a reconcile") == []
            await clock.sleep(100)
            assert told(caplog, "A drain waits for a reconcile") == [15, 30, 60]
            assert told(caplog, "Reconcile cancelled") == []
        await clock.sleep(1000)
        assert len(told(caplog, "A drain waits for a reconcile")) == 3
        if what == "drain":
            assert rig.labels("mine") == {}


@pytest.mark.parametrize("what", ["drain", "range"])
@in_virtual_time
async def test_what_is_cancelled_and_goes_on_is_told_as_well(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    rig, gate = Rig(clock), asyncio.Event()
    rig.secret("mine")
    async with rig.shard(stubborn(gate), drain_timeout_seconds=20):
        await clock.sleep(5)
        async with giving_away(rig, gate, what):
            await clock.sleep(19)
            assert told(caplog, "Reconcile cancelled") == []
            await clock.sleep(100)
            assert len(told(caplog, "Reconcile cancelled: its object is being drained")) == 1
            assert told(caplog, "A drain waits for a reconcile") == [15, 30, 60]


@pytest.mark.parametrize("what", ["drain", "range"])
@in_virtual_time
async def test_what_two_controllers_work_on_is_told_once(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    rig, gate = Rig(clock), asyncio.Event()
    rig.secret("mine")
    async with rig.shard(stubborn(gate), also=stubborn(gate), drain_timeout_seconds=20):
        await clock.sleep(5)
        assert len(rig.resource.inflight.running()) == 2
        async with giving_away(rig, gate, what):
            await clock.sleep(100)
            assert told(caplog, "A drain waits for a reconcile") == [15, 30, 60]
            assert len(told(caplog, "Reconcile cancelled: its object is being drained")) == 1


@in_virtual_time
async def test_changes_of_a_busy_object_tell_it_no_more_often(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig, gate = Rig(clock), asyncio.Event()
    rig.secret("mine")
    async with rig.shard(stubborn(gate), drain_timeout_seconds=20):
        await clock.sleep(5)
        async with giving_away(rig, gate):
            for number in range(50):
                await clock.sleep(1)
                body = {"metadata": {"annotations": {"beat": str(number)}}}
                rig.server.patch(rig.main.resource, "mine", "default", body)
            assert len([line for line in caplog.records if "goes on" not in line.msg]) == 3
            assert RING.drain in rig.labels("mine")
        await clock.sleep(5)
        assert rig.labels("mine") == {}
