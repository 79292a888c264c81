"""What somebody else keeps from being written is told of, also where each refusal reads as if he had been faster."""

from __future__ import annotations

import logging

import pytest

from shardsdk import Conflict, Context, Operator, Requeue, Retry
from shardsdk.errors import FieldConflict
from shardsdk.queueing.raised import FASTER
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import ConfigMap, Website, site


async def an_hour(rig: Rig) -> None:
    await rig.clock.sleep(3600)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def applying() -> Operator:
    operator = Operator("websites")

    @operator.reconcile(Website, owns=[ConfigMap])
    async def function(ctx: Context[Website]) -> None:
        await ctx.apply(ConfigMap(data={"mode": "ours"}), force=False)

    return operator


def test_fields_that_another_owner_keeps_are_a_failure_at_once(caplog: pytest.LogCaptureFixture) -> None:
    there = [site(), ConfigMap("home", data={"mode": "theirs"})]
    rig = drive(applying(), there, raises=False)
    assert [reason for _, reason, _ in rig.events] == ["ReconcileFailed"]
    assert "FieldConflict: " in rig.events[0][2]
    assert "Reconcile failed; trying again" in warnings(caplog)[0]
    with pytest.raises(FieldConflict):
        drive(applying(), there)


def test_what_is_there_for_good_is_a_failure_after_some_attempts(caplog: pytest.LogCaptureFixture) -> None:
    operator, calls = Operator("websites"), list[int]()

    @operator.reconcile(Website, owns=[ConfigMap])
    async def function(ctx: Context[Website]) -> None:
        calls.append(1)
        await ctx.api.create(ConfigMap.resource, {"metadata": {"name": "home"}}, ctx.namespace)

    rig = drive(operator, [site(), ConfigMap("home")], an_hour, raises=False)
    assert [(reason, message.split(":")[0]) for _, reason, message in rig.events] == [
        ("ReconcileFailed", "AlreadyExists")
    ]
    assert len(warnings(caplog)) == len(calls) - FASTER > 2


def test_who_is_faster_now_and_then_alarms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    operator, calls = Operator("websites"), list[int]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> None:
        calls.append(1)
        if len(calls) % FASTER:
            raise Conflict("stale", status=409)
        ctx.requeue(after=60)

    rig = drive(operator, [site()], an_hour)
    assert len(calls) > 2 * FASTER
    assert (rig.events, warnings(caplog)) == ([], [])


@pytest.mark.parametrize("otherwise", [Requeue(), Retry("not there yet", after=60)])
@pytest.mark.parametrize("every", [2, 2 * FASTER])
def test_who_is_faster_while_something_else_is_waited_for_alarms_nobody(
    caplog: pytest.LogCaptureFixture, otherwise: Requeue | Retry, every: int
) -> None:
    """What was asked for by the reconcile itself counts for nothing, however often that was."""
    operator, calls = Operator("websites"), list[int]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> Requeue:
        calls.append(1)
        if len(calls) % every == 0:
            raise Conflict("stale", status=409)
        if isinstance(otherwise, Retry):
            raise otherwise
        return otherwise

    async def a_day(rig: Rig) -> None:
        await rig.clock.sleep(24 * 3600)

    rig = drive(operator, [site()], a_day)
    assert len(calls) > 2 * 2 * FASTER
    assert (rig.events, warnings(caplog)) == ([], [])
