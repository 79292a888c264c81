"""Time, as everything else in this project gets it: no other module looks at a clock, so that simulations bring theirs.

`monotonic()` means something on this machine, in this boot, and nowhere else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from shardsdk.kube.lapses import MACHINE, Lapses

#: CLOCK_BOOTTIME goes on while the machine is suspended, which it then knows of.  A
#: hypervisor that stops a virtual machine may stop this clock as well; what was
#: missed so is found by comparison with the API server's (shardsdk.kube.lapses).
_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """What tells the time and lets time pass."""

    def monotonic(self) -> float:
        """Seconds that never go back; time spent suspended counts where the system offers it."""
        ...

    def now(self) -> datetime:
        """Wall clock, aware, in UTC; for people and for timestamps in objects, never for decisions."""
        ...

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Wait; zero or less only gives other tasks a turn."""
        ...


class SystemClock:
    """The clock of this machine."""

    __slots__ = ()

    @property
    def lapses(self) -> Lapses:
        """What it has missed while a hypervisor had stopped it."""
        return MACHINE

    def monotonic(self) -> float:
        """Seconds since boot, suspended time included on Linux."""
        return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)

    def now(self) -> datetime:
        """Wall clock in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait on the running event loop."""
        await asyncio.sleep(max(seconds, 0.0))
