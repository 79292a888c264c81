"""A limit on requests per second, as client-go's `qps` and `burst`."""

from __future__ import annotations

from shardsdk.errors import ConfigurationError
from shardsdk.kube.clock import Clock


class Pace:
    """Token bucket: `burst` requests at once, then `qps` a second, in the order they came.

    `qps` of `None` or below zero means no limit, and is right almost always:
    the API server's own priority and fairness knows better what it can take.
    """

    __slots__ = ("_burst", "_clock", "_free_at", "_qps")

    def __init__(self, clock: Clock, *, qps: float | None = None, burst: int = 1) -> None:
        if qps == 0 or burst < 1:
            raise ConfigurationError(f"qps {qps} and burst {burst} would let no request pass; use qps -1 for no limit")
        self._clock = clock
        self._qps = qps if qps is not None and qps > 0 else None
        self._burst = burst
        self._free_at = float("-inf")

    async def wait(self) -> None:
        """Return when the next request may be sent."""
        if self._qps is None:
            return
        now = self._clock.monotonic()
        self._free_at = max(self._free_at, now - (self._burst - 1) / self._qps)
        pause = self._free_at - now
        self._free_at += 1 / self._qps
        if pause > 0:
            await self._clock.sleep(pause)
