"""Driving functions that are cancelled: at their time limit, by themselves, because their object went."""

from __future__ import annotations

import asyncio

import pytest

from shardsdk import Context, PartialObject, controller_for
from shardsdk.testing.rig import Rig, drive
from tests.shard_rig import SECRETS

Ctx = Context[PartialObject]

SECRET = (SECRETS, {"metadata": {"name": "a"}})


async def too_slow(context: Ctx) -> None:
    await asyncio.sleep(1000)


async def cancel_itself(context: Ctx) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)


def test_one_that_is_always_over_its_limit_has_failed() -> None:
    with pytest.raises(TimeoutError, match=r"cancelled at its time limit of 0\.01 s"):
        drive(controller_for(SECRETS).options(timeout_seconds=0.01).reconcile(too_slow), [SECRET])


def test_one_that_cancels_itself_has_failed() -> None:
    with pytest.raises(RuntimeError, match="was cancelled"):
        drive(controller_for(SECRETS).reconcile(cancel_itself), [SECRET])


def test_one_that_is_cancelled_because_its_object_went_has_not() -> None:
    async def reconcile(context: Ctx) -> None:
        if not context.metadata.annotations:
            await asyncio.sleep(1000)

    async def story(rig: Rig) -> None:
        rig.create(*SECRET)
        await rig.clock.sleep(1)
        rig.delete(SECRETS, "a")

    rig = drive(controller_for(SECRETS).reconcile(reconcile), [], story)
    assert rig.outcomes == []
