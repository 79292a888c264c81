"""What is being deleted and becomes another shard's is not worked on by two."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from shardsdk.protocol.objects import ObjectMeta, PartialObject
from shardsdk.queueing.workers import Waiting
from shardsdk.reconcile.context import Context
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import SECRETS, Lag, Reconcile, Rig

Ctx = Context[PartialObject]
FINALIZER = "example.com/f"


class Filled(msgspec.Struct, frozen=True):
    """A type that an object without `data` does not fit."""

    metadata: ObjectMeta
    data: dict[str, str]


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


@pytest.mark.parametrize("how", ["moved", "moved while it is deleted", "deleted", "made anew", "made anew, and unfit"])
@in_virtual_time
async def test_one_that_cannot_be_read_any_more_takes_its_reconcile_with_it_as_well(
    clock: VirtualClock, how: str
) -> None:
    rig, ended = Rig(clock), list[str]()
    fits, unfit = {"data": {"k": "v"}}, {"data": None}
    made = rig.secret("mine")["metadata"]
    metadata = {key: made[key] for key in ("name", "namespace", "labels")}
    rig.server.patch(SECRETS, "mine", "default", fits)
    async with rig.shard(slow(clock, ended), owns=False, models={SECRETS: Filled}):
        await clock.sleep(5)
        rig.server.patch(SECRETS, "mine", "default", unfit)
        if how == "moved while it is deleted":
            rig.server.patch(SECRETS, "mine", "default", {"metadata": {"finalizers": [FINALIZER]}})
            rig.server.delete(SECRETS, "mine", "default")
        await clock.sleep(5)
        assert ended == []
        if how.startswith("moved"):
            rig.relabel(SECRETS, "mine", shard="shard-2")
        else:
            lag = Lag(rig, SECRETS, 0 if how == "deleted" else 1000)
            rig.server.delete(SECRETS, "mine", "default")
            if lag.seconds:
                rig.server.create(SECRETS, {"metadata": metadata, **(fits if how == "made anew" else {})})
                rig.main._reflectors[None].restart()  # a list shows the new one, and no deletion
        await clock.sleep(1)
        assert ended == ["cancelled at 10"]


@in_virtual_time
async def test_nothing_is_known_any_more_of_one_that_failed_for_good_as_it_went(clock: VirtualClock) -> None:
    """Its reconcile goes on, for it is being deleted."""
    rig = Rig(clock)

    async def give_up(context: Ctx) -> Waiting | None:
        if context.metadata.deletion_timestamp is None:
            return None
        rig.server.patch(SECRETS, "mine", "default", {"metadata": {"finalizers": []}})
        await clock.sleep(5)
        return Waiting("the printer is on fire")

    async with rig.shard(give_up, owns=False) as reconciler:
        rig.secret("mine")
        rig.server.patch(SECRETS, "mine", "default", {"metadata": {"finalizers": [FINALIZER]}})
        await clock.sleep(5)
        rig.server.delete(SECRETS, "mine", "default")
        await clock.sleep(100)
        assert reconciler.not_at_rest() == []
    assert len(rig.reconciled) >= 2
