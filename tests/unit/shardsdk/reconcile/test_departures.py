"""What is being deleted and becomes another shard's is not worked on by two."""

from __future__ import annotations

import asyncio

import pytest

from shardsdk.protocol.objects import PartialObject
from shardsdk.reconcile.context import Context
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import SECRETS, Reconcile, Rig

Ctx = Context[PartialObject]
FINALIZER = "example.com/f"


def slow(clock: VirtualClock, ended: list[str]) -> Reconcile:
    """A reconcile that takes very long, and notes how it ended."""

    async def reconcile(context: Ctx) -> None:
        try:
            await clock.sleep(1000)
            ended.append("well")
        except asyncio.CancelledError:
            ended.append(f"cancelled at {clock.monotonic():.0f}")
            raise

    return reconcile


def being_deleted(rig: Rig, name: str) -> None:
    """An object that is on its way out when its reconcile begins."""
    rig.secret(name, finalizers=[FINALIZER])
    rig.server.delete(SECRETS, name, "default")


@in_virtual_time
async def test_one_that_is_moved_unasked_takes_its_reconcile_with_it(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig, ended = Rig(clock), list[str]()
    being_deleted(rig, "mine")
    async with rig.shard(slow(clock, ended)):
        await clock.sleep(5)
        rig.relabel(SECRETS, "mine", shard="shard-2")
        await clock.sleep(1)
        assert ended == ["cancelled at 5"]
    assert "Reconcile cancelled: its object, which is being deleted, is another shard's" in caplog.text


@in_virtual_time
async def test_every_reconcile_of_it_ends(clock: VirtualClock) -> None:
    rig, ended = Rig(clock), list[str]()
    being_deleted(rig, "mine")
    async with rig.shard(slow(clock, ended), also=slow(clock, ended)):
        await clock.sleep(5)
        rig.relabel(SECRETS, "mine", shard=None)
        await clock.sleep(1)
        assert ended == ["cancelled at 5"] * 2


@in_virtual_time
async def test_a_question_without_an_answer_is_asked_again(clock: VirtualClock) -> None:
    rig, ended = Rig(clock), list[str]()
    being_deleted(rig, "mine")
    async with rig.shard(slow(clock, ended)):
        await clock.sleep(5)
        rig.api.lag = lambda: 1.0
        rig.relabel(SECRETS, "mine", shard="shard-2")
        rig.api.fault = Fault.REFUSED
        await clock.sleep(60)
        assert ended == []
        rig.api.fault = Fault.NONE
        await clock.sleep(15)
        assert len(ended) == 1


@in_virtual_time
async def test_one_that_has_ended_leaves_its_reconcile_alone(clock: VirtualClock) -> None:
    rig, ended = Rig(clock), list[str]()
    being_deleted(rig, "mine")
    async with rig.shard(slow(clock, ended)):
        await clock.sleep(5)
        rig.server.patch(SECRETS, "mine", "default", {"metadata": {"finalizers": None}})
        await clock.sleep(10)
        assert ended == []
        await clock.sleep(1000)
    assert ended == ["well"]


@in_virtual_time
async def test_another_shards_object_of_the_same_name_is_another_object(clock: VirtualClock) -> None:
    rig, ended = Rig(clock), list[str]()
    being_deleted(rig, "mine")
    async with rig.shard(slow(clock, ended)):
        await clock.sleep(5)
        rig.server.patch(SECRETS, "mine", "default", {"metadata": {"finalizers": None}})
        rig.secret("mine", shard="shard-2")
        await clock.sleep(1000)
    assert ended == ["well"]


@in_virtual_time
async def test_one_that_has_come_back_goes_on(clock: VirtualClock) -> None:
    rig, ended = Rig(clock), list[str]()
    being_deleted(rig, "mine")
    async with rig.shard(slow(clock, ended)):
        await clock.sleep(5)
        rig.relabel(SECRETS, "mine", shard="shard-2")
        rig.relabel(SECRETS, "mine", shard="shard-1")
        await clock.sleep(1000)
    assert ended[0] == "well"
