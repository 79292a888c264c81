"""Rates: so many at once, then so many a second; or once in so many seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from shardsdk.errors import ConfigurationError
from shardsdk.kube.clock import Clock


class TokenBucket:
    """`burst` tokens at once, then `per_second` (`None`: no limit); full at first.  Reads no clock."""

    __slots__ = ("_burst", "_free_at", "_per_second")

    def __init__(self, per_second: float | None, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._free_at = float("-inf")

    def seconds_until_token(self, now: float) -> float:
        """How long until there is one."""
        return max(self._free_at - now, 0.0)

    def take(self, now: float) -> float:
        """Take one, from the future if need be; seconds until it is there."""
        if self._per_second is None:
            return 0.0
        free_at = max(self._free_at, now - (self._burst - 1) / self._per_second)
        self._free_at = free_at + 1 / self._per_second
        return max(free_at - now, 0.0)

    def give_back(self) -> None:
        """The one that was taken last was not used."""
        if self._per_second is not None:
            self._free_at -= 1 / self._per_second


class AtMostEvery:
    """What comes again and again passes once in so many seconds, as for what is told of it.  Reads no clock."""

    __slots__ = ("_passed_at", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        #: Only while it counts: what is gone leaves nothing here.
        self._passed_at: dict[Hashable, float] = {}

    def passes(self, now: float, about: Hashable = None) -> bool:
        """Whether it is time again, which whoever asks makes use of; each `about` has a time of its own."""
        if now - self._passed_at.get(about, float("-inf")) < self._seconds:
            return False
        lately = {each: at for each, at in self._passed_at.items() if now - at < self._seconds}
        self._passed_at = {**lately, about: now}
        return True


class Pace:
    """Requests in the order they came, as client-go's `qps` and `burst` have it.

    `qps` of `None` or below zero means no limit, and is right almost always:
    the API server's own priority and fairness knows better what it can take.

    Only the first in the line has a token on the way: whoever gives up leaves the
    line, and costs those behind it nothing.
    """

    __slots__ = ("_bucket", "_clock", "_line")

    def __init__(self, clock: Clock, *, qps: float | None = None, burst: int = 1) -> None:
        if qps == 0 or burst < 1:
            raise ConfigurationError(f"qps {qps} and burst {burst} would let no request pass; use qps -1 for no limit")
        self._clock = clock
        self._bucket = TokenBucket(qps if qps is not None and qps > 0 else None, burst)
        self._line = asyncio.Lock()

    async def wait(self) -> None:
        """Return when the next request may be sent."""
        async with self._line:
            if (pause := self._bucket.take(self._clock.monotonic())) > 0:
                try:
                    await self._clock.sleep(pause)
                except asyncio.CancelledError:
                    self._bucket.give_back()
                    raise
