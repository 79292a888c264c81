"""A step that is taken once for everybody who waits for it.

Does: let who asks while the step is under way wait for the next one, so that
what it finds out was found out after they asked.  Refuses: to say whether it
succeeded; the step notes that in what it was given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class Coalesced(Generic[T]):
    """`step(items)` for at most `most` items at once, never two steps at a time."""

    def __init__(self, step: Callable[[list[T]], Awaitable[None]], *, most: int) -> None:
        self._step = step
        self._most = most
        self._lock = asyncio.Lock()
        #: By identity: an item waits at most once.
        self._waiting: dict[int, T] = {}

    @property
    def idle(self) -> bool:
        """Whether no step is under way, and nothing waits for one."""
        return not self._waiting and not self._lock.locked()

    async def join(self, item: T) -> None:
        """Return once a step has ended that began after this call and had `item` among its own.

        Raises: what the step raised, to one of those it was taken for.
        """
        self._waiting[id(item)] = item
        try:
            async with self._lock:
                if id(item) in self._waiting:
                    await self._step(self._take(item))
        finally:
            self._waiting.pop(id(item), None)

    def _take(self, first: T) -> list[T]:
        del self._waiting[id(first)]
        taken = [first]
        for each in list(self._waiting.values())[: self._most - 1]:
            del self._waiting[id(each)]
            taken.append(each)
        return taken


class CoalescedPer(Generic[K, T]):
    """A `Coalesced` for each key: what is of one waits for nothing that is of another."""

    def __init__(self, step: Callable[[list[T]], Awaitable[None]], *, most: int) -> None:
        self._step = step
        self._most = most
        self._by_key: dict[K, Coalesced[T]] = {}

    async def join(self, key: K, item: T) -> None:
        """As `Coalesced.join`, with those that have the same key."""
        coalesced = self._by_key.setdefault(key, Coalesced(self._step, most=self._most))
        try:
            await coalesced.join(item)
        finally:
            # Names of shards that are gone come and go for ever.
            if coalesced.idle and self._by_key.get(key) is coalesced:
                del self._by_key[key]
