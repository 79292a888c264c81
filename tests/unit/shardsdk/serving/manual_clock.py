"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    def __init__(self, elapsed: float = 0.0) -> None:
        self._elapsed = elapsed
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._slept = asyncio.Event()

    def monotonic(self) -> float:
        return self._elapsed

    def now(self) -> datetime:
        return START + timedelta(seconds=self._elapsed)

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), woken))
        self._slept.set()
        await woken

    async def asleep(self) -> None:
        """Return once somebody waits for this clock: whatever ran has come to rest."""
        while not self._sleepers:
            self._slept.clear()
            await self._slept.wait()

    def jump(self, span: timedelta) -> None:
        """Let time pass without waking anyone before the end."""
        self._elapsed += span.total_seconds()
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)

    async def pass_by(self, span: timedelta) -> None:
        """Let time pass, then wait until everything that woke up rests again."""
        await self.asleep()
        self.jump(span)
        await self.asleep()
