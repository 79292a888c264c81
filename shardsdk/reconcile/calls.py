"""Calls of the user's functions, and the calls that those make of their context: whether they were awaited.

A call that nobody awaits does nothing, and says so to nobody: the reconcile would be a success all the same, and a
clean-up done.

Guarantees (tests/unit/shardsdk/operator/test_awaiting.py): a function that has returned has awaited all that it has
called of its context, or handed it to a task that has begun it; else it has failed.  What is awaited
are coroutines like any other.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from shardsdk.errors import ConfigurationError
from shardsdk.queueing.raised import cancelled_inside

if TYPE_CHECKING:
    from shardsdk.reconcile.context import Context

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


#: After so many calls those that were awaited are forgotten: a reconcile may go on for days.
FORGOTTEN: Final = 256
#: A call that is to be awaited, and the file and the line that it was made in.
Made = tuple["CoroutineType[Any, Any, Any]", str, int]


def noted(method: F) -> F:
    """Have an async method of a context note in its `_calls` where it was called."""

    @functools.wraps(method)
    def call(context: Context[Any], *arguments: Any, **named: Any) -> Any:
        made, caller = method(context, *arguments, **named), sys._getframe(1)
        if len(context._calls) % FORGOTTEN == FORGOTTEN - 1:  # not whenever there are so many: they may all be waiting
            context._calls[:] = _not_begun(context._calls)
        context._calls.append((made, caller.f_code.co_filename, caller.f_lineno))
        return made

    return cast("F", _marked(call))


async def returned_by(context: Context[Any], call: Awaitable[R]) -> R:
    """What a function of the user's returns, which was called with `context`.

    Raises: what it raises, RuntimeError when something that it awaited was cancelled, and ConfigurationError when it
    has not awaited what it has called of its context.
    """
    try:
        returned = await call
    except asyncio.CancelledError as error:
        if (failure := cancelled_inside(error)) is None:
            raise
        raise failure from error
    if context._calls and _not_begun(context._calls):
        await asyncio.sleep(0)  # a task that was started for one begins now; it ends with the reconcile
        if forgotten := _not_begun(context._calls):
            raise _unawaited(context.controller, forgotten)
    return returned


def _not_begun(calls: Collection[Made]) -> list[Made]:
    return [each for each in calls if inspect.getcoroutinestate(each[0]) == inspect.CORO_CREATED]


def _unawaited(controller: str, forgotten: Collection[Made]) -> ConfigurationError:
    for call, _, _ in forgotten:
        call.close()  # else Python warns of it as well, and names a line of the SDK's
    named = ", ".join(f"ctx.{call.__name__}(…) in line {line} of {Path(file).name}" for call, file, line in forgotten)
    return ConfigurationError(
        f"{controller!r} did not await {named}, so that nothing of it was done: write `await` before it, in a plain"
        " function `ctx.run(…)` around it"
    )


def _marked(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same, which calls itself async: so mocks that are made after its class have it awaited."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(call)
    call._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return call
