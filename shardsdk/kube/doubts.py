"""Holds that are doubted, since the clock may have missed some time, and what a hold owes to the one before it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar

from shardsdk.errors import FenceClosed, LeaseLost
from shardsdk.kube.api import Fence
from shardsdk.kube.clock import Clock
from shardsdk.kube.lapses import lapses_of

R = TypeVar("R")

#: How often it is looked whether a doubted fence is open again.
DOUBT_SECONDS: Final = 0.02


class FenceDoubted(FenceClosed):
    """The fence is shut only because the clock may have missed some time; a renewal, due at once, will tell."""


def is_doubted(fence: Fence) -> bool:
    """Whether a fence that is shut may be open again in a moment; one that does not say (`doubted`) may not."""
    return bool(getattr(fence, "doubted", False))


def ask_fence(fence: Fence) -> tuple[float, bool]:
    """How many seconds a fence leaves, and whether one that leaves too few may be open again in a moment."""
    # Around the answer: a renewal may have ended the doubt before it, or time that the clock missed begun one.
    doubted = is_doubted(fence)
    remaining = fence.remaining()
    return remaining, doubted or is_doubted(fence)


async def past_doubts(attempt: Callable[[float], Awaitable[R]], clock: Clock, seconds: float) -> R:
    """What `attempt` returns, made again for so many seconds while a doubted fence keeps it from being sent.

    It is given how many of them are left.  Raises: FenceDoubted after that; what else `attempt` raises.
    """
    until = clock.monotonic() + seconds
    while True:
        try:
            return await attempt(max(until - clock.monotonic(), 0.0))
        except FenceDoubted:  # nothing was sent
            if clock.monotonic() + DOUBT_SECONDS >= until:
                raise
            await clock.sleep(DOUBT_SECONDS)


def owed_until(fences: Iterable[Fence]) -> float:
    """Until when a write may be executed that a process before this one had sent under the same lease.

    On the clock's `monotonic`; minus infinity: none may.  A fence that goes on with what another process held says it.
    """
    return max((float(getattr(each, "owed_until", -math.inf)) for each in fences), default=-math.inf)


async def past_owed(fences: Iterable[Fence], clock: Clock) -> None:
    """Wait until no such write can be executed any more."""
    until = owed_until(fences)
    while (left := until - clock.monotonic()) > 0:
        await clock.sleep(left)


def check_open(fence: Fence, otherwise: str) -> None:
    """Raises: FenceDoubted when the fence may be open again in a moment, LeaseLost when it is shut for good."""
    remaining, doubted = ask_fence(fence)
    if remaining <= 0:
        if doubted:
            raise FenceDoubted(f"{fence.name} has yet to be confirmed: {otherwise} now")
        raise LeaseLost(f"{fence.name} is not held any more: {otherwise}")


async def end_in_doubt(fence: Fence, clock: Clock, end: Callable[[], object], again: Callable[[], object]) -> None:
    """Call `end` while a hold has run out by what the clock is found to have missed, `again` once that is dispelled.

    By then another may work on the same.  Whether one does the next renewal tells, which is due at once; what goes
    on until it is answered could write nothing, but would be at work beside that other.  Both are called again and
    again, since a renewal may leave part of the doubt.  Runs until cancelled.
    """
    missed = asyncio.Event()
    missed.set()  # it may have been before
    unsubscribe = lapses_of(clock).subscribe_here(missed.set)
    try:
        while True:
            await missed.wait()
            missed.clear()
            ended = False
            while True:
                left, doubted = ask_fence(fence)
                if left > 0:
                    ended = False
                    again()
                elif doubted:
                    ended = True
                    end()
                if not doubted and not ended:
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(left, DOUBT_SECONDS)):
                        await missed.wait()
                missed.clear()
    finally:
        unsubscribe()
