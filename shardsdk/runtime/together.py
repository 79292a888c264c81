"""Parts of a process that live and die together.

The first part to end decides: one that ended as asked waits for the others, one
that failed stops them in order, one that raised (a lease is lost) has them
cancelled, because nothing may be left of the process when its time is over.

Does: run, stop, cancel.  Refuses: to restart anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from shardsdk.runtime.process import ExitCode

#: How long parts that were cancelled because another one raised may take to end.
CANCEL_SECONDS: Final = 2.0


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
        await asyncio.wait([running])
        raise
    finally:
        asked.cancel()


async def run_together(
    parts: Sequence[Coroutine[Any, Any, ExitCode]],
    background: Sequence[Coroutine[Any, Any, object]],
    *,
    stopping: asyncio.Event,
    stuck: Callable[[], None],
) -> ExitCode:
    """Run `parts` until all have ended, above `background`, which must not end before them.

    `stuck` is called when a part that was cancelled does not end.

    Raises: what a part raises first.
    """
    below = [asyncio.create_task(each) for each in background]
    above = [asyncio.create_task(each) for each in parts]
    try:
        await asyncio.wait([*above, *below], return_when=asyncio.FIRST_COMPLETED)
        code = _judge(above, below)
        if code is not ExitCode.OK:
            stopping.set()
        rest = [part for part in above if not part.done()]
        while rest:
            _, unfinished = await asyncio.wait(rest, return_when=asyncio.FIRST_COMPLETED)
            rest = list(unfinished)
            code = _judge(above, ()) if code is ExitCode.OK else code
        return code
    finally:
        await _cancel(above, stuck)
        await _cancel(below, stuck)


def _judge(above: Sequence[asyncio.Task[ExitCode]], below: Sequence[asyncio.Task[object]]) -> ExitCode:
    """The worst that those which have ended say.  Raises: what one has raised."""
    codes = [part.result() for part in above if part.done()]
    for each in below:
        if each.done():
            each.result()
            codes.append(ExitCode.FAILED)
    return max(codes, default=ExitCode.OK)


async def _cancel(tasks: Sequence[asyncio.Task[Any]], stuck: Callable[[], None]) -> None:
    running = [task for task in tasks if not task.done()]
    if not running:
        return
    for task in running:
        task.cancel()
    _, left = await asyncio.wait(running, timeout=CANCEL_SECONDS)
    if left:
        stuck()
