"""Turns for the leases that are worked on at once, of all rings together.

Does: bound them, and let others have the turn while a lease waits for what is no
lease: lists of objects that hang, or writes that are under way.  Refuses: to let all
workers of one ring wait so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from sharder.cache.rings import LeaseKey

#: Leases of one ring that wait so at most; the ring's other workers go on.
MAX_ASIDE: Final = 4


class Turns:
    """Those of one ring's leases; `at_once` is shared by all rings."""

    def __init__(self, at_once: asyncio.Semaphore) -> None:
        self._at_once = at_once
        self._aside: set[LeaseKey] = set()

    @property
    def crowded(self) -> bool:
        """Whether no more of the ring's leases may step aside."""
        return len(self._aside) >= MAX_ASIDE

    @asynccontextmanager
    async def turn(self, key: LeaseKey) -> AsyncIterator[None]:
        """Have a turn for this lease; by one task at a time."""
        await self._at_once.acquire()
        try:
            yield
        finally:
            if key in self._aside:
                self._aside.discard(key)
            else:
                self._at_once.release()

    @asynccontextmanager
    async def aside(self, key: LeaseKey) -> AsyncIterator[None]:
        """Within a turn: let others have it meanwhile, and get it back; what fails meanwhile ends the turn without."""
        self._aside.add(key)
        self._at_once.release()
        yield
        await self._at_once.acquire()
        self._aside.discard(key)
