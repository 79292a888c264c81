"""What a function calls of its context and does not await, and what it awaits that is cancelled."""

from __future__ import annotations

import asyncio
import functools
import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import create_autospec

import pytest

from shardsdk import Context, Operator
from shardsdk.errors import ConfigurationError
from shardsdk.reconcile.calls import FORGOTTEN
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import ConfigMap, Secret, Website, WebsiteStatus, site

Function = Callable[[Context[Website]], Awaitable[Any]]


def page() -> ConfigMap:
    return ConfigMap(data={"index.html": "hi"})


async def apply(ctx: Context[Website]) -> WebsiteStatus:
    ctx.apply(page())  # type: ignore[unused-coroutine]
    return WebsiteStatus(1)


async def condition(ctx: Context[Website]) -> None:
    if ctx.get(Secret, "token"):  # type: ignore[truthy-bool]
        return


async def patch(ctx: Context[Website]) -> None:
    ctx.patch(Secret, "token", {"data": {}})  # type: ignore[unused-coroutine]


async def returned(ctx: Context[Website]) -> Any:
    return ctx.delete(Secret, "token")


async def one_of_two(ctx: Context[Website]) -> None:
    await ctx.apply(page())
    ctx.apply(Secret())  # type: ignore[unused-coroutine]


def operator_of(function: Callable[[Context[Website]], Any]) -> Operator:
    operator = Operator("websites")
    operator.needs(Secret, "get", "delete", "patch")
    operator.reconcile(Website, owns=[ConfigMap, Secret])(function)
    return operator


@pytest.mark.parametrize("function", [apply, condition, patch, returned, one_of_two], ids=lambda each: each.__name__)
def test_what_is_not_awaited_is_named_with_its_line(function: Function, recwarn: pytest.WarningsRecorder) -> None:
    verb = {"condition": "get", "returned": "delete", "one_of_two": "apply"}.get(function.__name__, function.__name__)
    rig = drive(operator_of(function), [site()], raises=False)
    line = function.__code__.co_firstlineno + (2 if function is one_of_two else 1)
    assert isinstance(rig.failures[0], ConfigurationError)
    assert str(rig.failures[0]) == (
        f"'websites.example.com' did not await ctx.{verb}(…) in line {line} of test_awaiting.py, so that nothing of it"
        " was done: write `await` before it, in a plain function `ctx.run(…)` around it"
    )
    assert rig.get(Website, "home").status.ready_replicas == 0
    assert not [each for each in recwarn if "never awaited" in str(each.message)]


def test_a_plain_function_that_does_not_wait_is_told_so() -> None:
    def function(ctx: Context[Website]) -> None:
        ctx.apply(page())  # type: ignore[unused-coroutine]

    rig = drive(operator_of(function), [site()], raises=False)
    assert "in a plain function `ctx.run(…)` around it" in str(rig.failures[0])


def test_a_clean_up_that_does_not_await_keeps_the_finalizer() -> None:
    async def nothing(ctx: Context[Website]) -> None: ...

    operator = operator_of(nothing)

    @operator._reconcilers[0].finalize
    async def gone(ctx: Context[Website]) -> None:
        ctx.delete(Secret, "token")  # type: ignore[unused-coroutine]

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.settle()

    rig = drive(operator, [site(), Secret("token")], story, raises=False)
    assert rig.find(Website, "home") is not None
    assert "did not await ctx.delete(…)" in str(rig.failures[0])


async def gathered(ctx: Context[Website]) -> None:
    await asyncio.gather(ctx.apply(page()), ctx.apply(Secret()))


async def as_task(ctx: Context[Website]) -> None:
    await asyncio.create_task(ctx.apply(page()))


async def in_group(ctx: Context[Website]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.apply(page()))


async def later(ctx: Context[Website]) -> None:
    call = ctx.apply(page())
    await ctx.get(Secret, "token")
    await asyncio.wait_for(call, 5)


async def cancelled_before_it_began(ctx: Context[Website]) -> None:
    await ctx.apply(page())
    task = asyncio.create_task(ctx.apply(Secret()))
    task.cancel()
    await asyncio.wait([task])


def plain(ctx: Context[Website]) -> None:
    ctx.run(ctx.apply(page()))


def handed_back(ctx: Context[Website]) -> Any:
    ctx.run(ctx.apply(page()))
    return ctx.get(Secret, "token")


@pytest.mark.parametrize(
    "function", [gathered, as_task, in_group, later, cancelled_before_it_began, plain, handed_back]
)
def test_it_may_be_awaited_in_any_way(function: Any) -> None:
    rig = drive(operator_of(function), [site()])
    assert rig.get(ConfigMap, "home").data == {"index.html": "hi"}


def test_a_task_that_nobody_awaits_ends_with_the_reconcile_as_ever() -> None:
    tasks = list[asyncio.Task[Any]]()

    async def function(ctx: Context[Website]) -> None:
        tasks.append(asyncio.create_task(ctx.get(Secret, "token")))

    drive(operator_of(function), [site()])


@pytest.mark.parametrize("forgets", [False, True])
def test_a_reconcile_that_goes_on_for_long_remembers_what_it_did_not_await_alone(forgets: bool) -> None:
    remembered = list[int]()

    async def function(ctx: Context[Website]) -> None:
        if forgets:
            ctx.delete(Secret, "token")  # type: ignore[unused-coroutine]
        for _ in range(3 * FORGOTTEN):
            await ctx.get(Secret, "token")
        remembered.append(len(ctx._calls))

    rig = drive(operator_of(function), [site()], raises=False)
    assert max(remembered) < FORGOTTEN
    assert ["did not await ctx.delete(…)" in str(each) for each in rig.failures[:1]] == [True] * forgets


def test_an_error_of_the_function_is_not_hidden_by_what_it_did_not_await() -> None:
    async def function(ctx: Context[Website]) -> None:
        call = ctx.apply(page())
        try:
            raise RuntimeError("full")
        finally:
            call.close()

    with pytest.raises(RuntimeError, match="full"):
        drive(operator_of(function), [site()])


async def test_mocks_of_a_context_are_awaited() -> None:
    ctx = create_autospec(Context, instance=True)
    await ctx.apply(page())
    ctx.apply.assert_awaited_once()


# -- what is awaited, and cancelled ------------------------------------------------


async def shared_and_cancelled(ctx: Context[Website]) -> None:
    shared = asyncio.ensure_future(asyncio.sleep(60))
    shared.cancel()
    await shared  # the line that fails


def test_a_cancelled_task_that_a_reconcile_awaits_is_its_failure(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        rig = drive(operator_of(shared_and_cancelled), [site()], raises=False)
    error = rig.failures[0]
    assert str(error) == "something that the function awaited was cancelled: CancelledError()"
    assert "await shared  # the line that fails" in "".join(traceback.format_exception(error))
    assert [reason for _, reason, _ in rig.events][:1] == ["ReconcileFailed"]
    assert "the line that fails" in caplog.text


def test_it_comes_out_of_drive_for_controllers_of_other_objects_too() -> None:
    operator = operator_of(functools.partial(shared_and_cancelled))
    with pytest.raises(RuntimeError, match="was cancelled"):
        drive(operator, [site()])
