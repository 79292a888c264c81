"""How late the event loop is: what every answer of the webhook waits on top of its own work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shardsdk.kube.clock import Clock

#: Often enough that ten minutes tell the 99th percentile, rare enough to cost nothing while nothing moves.
INTERVAL_SECONDS: Final = 1.0


async def measure_loop_lag(observe: Callable[[float], None], clock: Clock) -> None:
    """Tell `observe`, for ever, by how many seconds the loop woke this task too late.

    Time that the machine spent suspended counts as well.
    """
    while True:
        due = clock.monotonic() + INTERVAL_SECONDS
        await clock.sleep(INTERVAL_SECONDS)
        observe(max(clock.monotonic() - due, 0.0))
