"""Parts of a process that live and die together.

The first part to end decides: one that ended as asked waits for the others, one
that failed stops them in order, one that raised (a lease is lost) has them
cancelled, because nothing may be left of the process when its time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from shardsdk.errors import LeaseLost
from shardsdk.process.process import ExitCode


async def until_stopped(
    part: Coroutine[Any, Any, ExitCode], stopping: asyncio.Event, begun: Callable[[], bool]
) -> ExitCode:
    """Run `part`, which ends by itself once it is told to stop; one that has not begun to work by then is cancelled."""
    asked = asyncio.create_task(stopping.wait())
    running = asyncio.create_task(part)
    try:
        await asyncio.wait([running, asked], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            if not begun():
                running.cancel()
            await asyncio.wait([running])
        return ExitCode.OK if running.cancelled() else running.result()
    except asyncio.CancelledError:
        running.cancel()
        await see_out([running])
        raise
    finally:
        asked.cancel()


async def run_together(
    parts: Sequence[Coroutine[Any, Any, ExitCode]],
    background: Sequence[Coroutine[Any, Any, object]],
    *,
    stop: Callable[[], object],
    cancel_seconds: float,
    stuck: Callable[[BaseException | None], None],
) -> ExitCode:
    """Run `parts` until all have ended, above `background`, which must not end before them.

    When one has failed, `stop` is called, which has the others end in order.  When
    one has raised, they have `cancel_seconds` to end; `stuck` is called when they
    do not, with what was raised.  That is a failure as well, if no lost lease.

    Raises: what a part raises first.
    """
    below = [asyncio.create_task(each) for each in background]
    above = [asyncio.create_task(each) for each in parts]
    failure: BaseException | None = None
    try:
        await asyncio.wait([*above, *below], return_when=asyncio.FIRST_COMPLETED)
        code = _judge(above, below)
        if code is not ExitCode.OK:
            stop()
        rest = [part for part in above if not part.done()]
        while rest:
            _, unfinished = await asyncio.wait(rest, return_when=asyncio.FIRST_COMPLETED)
            rest = list(unfinished)
            code = _judge(above, ()) if code is ExitCode.OK else code
        return code
    except BaseException as error:
        failure = error
        if isinstance(error, Exception) and not isinstance(error, LeaseLost):
            stop()
        raise
    finally:
        interrupted = [await _cancel(above, cancel_seconds), await _cancel(below, cancel_seconds)]
        if not all(each.done() for each in (*above, *below)):
            stuck(failure)
        for why in filter(None, interrupted):
            raise why


async def end(
    tasks: Sequence[asyncio.Task[Any]], grace_seconds: float, cancel_seconds: float
) -> set[asyncio.Task[Any]]:
    """Wait for `tasks`, then cancel those that have not ended; gives those that do not end at all."""
    if not tasks:
        return set()
    await asyncio.wait(tasks, timeout=grace_seconds)
    if (interrupted := await _cancel(tasks, cancel_seconds)) is not None:
        raise interrupted
    return {task for task in tasks if not task.done()}


async def see_out(tasks: Sequence[asyncio.Task[Any]], seconds: float | None = None) -> asyncio.CancelledError | None:
    """Wait until `tasks` have ended, at most for `seconds`, however often that is cancelled; gives what cancelled it.

    What works under a lease has ended before that is given up: `asyncio.run` cancels all that is left a second time.
    """
    loop, cancelled = asyncio.get_running_loop(), None
    until = None if seconds is None else loop.time() + seconds
    while left := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(left, timeout=None if until is None else until - loop.time())
        except asyncio.CancelledError as why:
            cancelled = why
        else:
            break
    return cancelled


def _judge(above: Sequence[asyncio.Task[ExitCode]], below: Sequence[asyncio.Task[object]]) -> ExitCode:
    """The worst that those which have ended say.  Raises: what one has raised."""
    codes = [part.result() for part in above if part.done()]
    for each in below:
        if each.done():
            each.result()
            codes.append(ExitCode.FAILED)
    return max(codes, default=ExitCode.OK)


async def _cancel(tasks: Sequence[asyncio.Task[Any]], seconds: float) -> asyncio.CancelledError | None:
    """Cancel what still runs, and wait for it; gives what has cancelled that."""
    for task in tasks:
        task.cancel()
    return await see_out(tasks, seconds)
