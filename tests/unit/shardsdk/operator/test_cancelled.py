"""Functions that are cancelled and take no notice, or answer with something of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from shardsdk import Context, Done, Operator, Permanent, finalizing
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import Website, site

#: Longer than any of these functions may take.
LONG_SECONDS = 100.0


async def _deaf() -> None:
    try:
        await asyncio.sleep(LONG_SECONDS)
    except asyncio.CancelledError:
        """It was told to end, and goes on."""


async def _quietly_deaf() -> None:
    task = asyncio.current_task()
    assert task is not None
    await _deaf()
    task.uncancel()


def operator_with(function: Callable[[Context[Website]], Any]) -> Operator:
    operator = Operator("websites")
    operator.reconcile(Website, timeout_seconds=5)(function)
    return operator


async def _delete(rig: Rig) -> None:
    rig.delete(Website, "home")
    await rig.settle()


@pytest.mark.parametrize("deaf", [_deaf, _quietly_deaf])
@pytest.mark.parametrize("returned", [None, Done()])
def test_a_clean_up_that_was_cancelled_is_called_again_unless_it_says_that_it_is_done(
    deaf: Callable[[], Any], returned: Any
) -> None:
    calls = list[str]()

    async def function(ctx: Context[Website]) -> None: ...

    async def clean_up(ctx: Context[Website]) -> Any:
        calls.append(ctx.name)
        if len(calls) == 1:
            await deaf()  # and what comes after it, in there, is left out
            return returned
        return None

    operator = operator_with(function)
    operator._reconcilers[0].finalize(clean_up)
    rig = drive(operator, [site()], _delete, raises=False)
    assert len(calls) == (1 if returned else 2)
    assert rig.find(Website, "home") is None


@pytest.mark.parametrize("deaf", [_deaf, _quietly_deaf])
def test_so_is_one_of_finalizing(deaf: Callable[[], Any]) -> None:
    calls = list[int]()

    async def clean_up() -> None:
        calls.append(1)
        if len(calls) == 1:
            await deaf()

    async def function(ctx: Context[Website]) -> None:
        await finalizing(ctx, "example.com/mine", clean_up)

    operator = operator_with(function)
    operator._reconcilers[0].finalize(function)
    rig = drive(operator, [site()], _delete, raises=False)
    assert len(calls) == 2
    assert rig.find(Website, "home") is None


def test_an_async_reconcile_sees_that_it_is_to_end_while_it_runs() -> None:
    seen = list[tuple[bool, bool]]()

    async def function(ctx: Context[Website]) -> None:
        seen.append((ctx.cancelled, ctx.remaining_seconds > 0))
        await _deaf()
        seen.append((ctx.cancelled, ctx.remaining_seconds > 0))

    drive(operator_with(function), [site()], raises=False)
    assert seen == [(False, True), (True, False)]


def test_permanent_in_answer_to_a_cancellation_is_that_cancellation() -> None:
    calls = list[str]()

    async def function(ctx: Context[Website]) -> None:
        calls.append(ctx.name)
        try:
            await asyncio.sleep(LONG_SECONDS if len(calls) == 1 else 0)
        except BaseException as error:
            raise Permanent("cannot be made") from error

    rig = drive(operator_with(function), [site()], raises=False)
    assert len(calls) == 2
    assert rig.events == []
