"""Timers of one process, which stand still while its machine does, and have as much left when that goes on.

What others do for the process (the API server, the network) has timers of no process, and goes on.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Any, cast

from shardsdk.testing.processes import _CURRENT

if TYPE_CHECKING:
    from shardsdk.testing.processes import Process


class StoppedTimers:
    """Takes them off the running loop as it is made."""

    def __init__(self, process: Process) -> None:
        # Of a virtual loop (shardsdk.testing.virtual): a heap of when, which of all, and the timer.
        self._loop = cast("Any", asyncio.get_running_loop())
        scheduled = self._loop._scheduled
        self._held = [entry for entry in scheduled if entry[2]._context.get(_CURRENT) is process]
        if self._held:
            for _, _, timer in self._held:
                self._loop._timers_cancelled -= timer._cancelled
                timer._scheduled = False
            scheduled[:] = [entry for entry in scheduled if entry[2]._scheduled]
            heapq.heapify(scheduled)

    def go_on(self, seconds: float) -> None:
        """It has been so long; those that were cancelled meanwhile are left out."""
        for when, number, timer in self._held:
            if not timer._cancelled:
                timer._when, timer._scheduled = when + seconds, True
                heapq.heappush(self._loop._scheduled, (timer._when, number, timer))
        self._held = []
