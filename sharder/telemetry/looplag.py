"""How late the event loop is: what every answer of the webhook waits on top of its own work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shardsdk.kube.clock import Clock

#: Often enough to catch a page that is decoded in one go, rare enough to cost nothing.
INTERVAL_SECONDS: Final = 0.25


async def measure_loop_lag(
    observe: Callable[[float], None], clock: Clock, interval_seconds: float = INTERVAL_SECONDS
) -> None:
    """Tell `observe`, for ever, by how many seconds the loop woke this task too late.

    Time that the machine spent suspended counts as well.
    """
    while True:
        due = clock.monotonic() + interval_seconds
        await clock.sleep(interval_seconds)
        observe(max(clock.monotonic() - due, 0.0))
