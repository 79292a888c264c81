"""Settling: the wait until what was written can no longer be executed, in common for all who wait.

Whoever waits alone for slow writes keeps those waiting who are next in line; and to wait
for each by itself costs as much as there are waiting, at every answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

#: While one pass goes on, the next begins so much later: whoever comes meanwhile waits in common.
GATHER_SECONDS: Final = 0.1


class Settling:
    """Calls back those who wait for this shard's writes; `run` it.

    `settle()` is `Api.writes_settled`: it waits for the writes that were sent before it is called.
    """

    def __init__(self, settle: Callable[[], Awaitable[None]]) -> None:
        self._settle = settle
        self._joined: list[Callable[[], object]] = []
        self._news = asyncio.Event()

    def join(self, then: Callable[[], object]) -> None:
        """Call `then` once every write sent by now is answered, or can no longer be executed."""
        # With the next pass: one that is under way may have begun before the last of them was sent.
        self._joined.append(then)
        self._news.set()

    async def run(self) -> None:
        """Call back until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._news.wait()
                self._news.clear()
                joined, self._joined = self._joined, []
                passing = group.create_task(self._pass(joined))
                await asyncio.wait([passing], timeout=GATHER_SECONDS)

    async def _pass(self, joined: list[Callable[[], object]]) -> None:
        await self._settle()
        for then in joined:
            then()
