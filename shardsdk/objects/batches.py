"""Writes in growing batches, so that what fails for all is tried once, not a hundred times.

    made = await slow_start_batch([partial(context.api.create, PODS, body) for body in bodies])

Calls run side by side, 1, then 2, 4, 8, … of them, until the first batch in which
one fails; the next reconcile sees what is there.
Source: client-go users' slowStartBatch (kubernetes/pkg/controller/replicaset).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

R = TypeVar("R")

#: More calls at once do not help: one connection pool and one event loop serve them all.
MAX_BATCH: Final = 64


async def slow_start_batch(calls: Sequence[Callable[[], Awaitable[R]]]) -> list[R]:
    """Call all of `calls`, one at first and then twice as many each time (up to `MAX_BATCH`).

    Gives the answers in the order of `calls`.

    Raises: the first error of a batch, once every call of that batch has ended;
    a note on it says how many calls had succeeded.  No further batch is begun.
    Cancelled, it cancels the batch that runs and waits for it.
    """
    answers: list[R] = []
    size = 1
    while len(answers) < len(calls):
        batch = [asyncio.create_task(_made(call)) for call in calls[len(answers) : len(answers) + size]]
        try:
            await asyncio.wait(batch)
        except asyncio.CancelledError:
            for each in batch:
                each.cancel()
            await asyncio.wait(batch)
            raise
        _raise_first(batch, len(answers), len(calls))
        answers += [each.result() for each in batch]
        size = min(2 * size, MAX_BATCH)
    return answers


async def _made(call: Callable[[], Awaitable[R]]) -> R:
    """Also what `call` raises before there is something to await is the error of one call of the batch."""
    return await call()


def _raise_first(batch: Sequence[asyncio.Future[R]], before: int, wanted: int) -> None:
    failures = [error for each in batch if (error := each.exception()) is not None]
    if failures:
        made = before + len(batch) - len(failures)
        failures[0].add_note(f"{made} of {wanted} calls had succeeded when this one failed")
        raise failures[0]
