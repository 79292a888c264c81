"""Delays: what comes back to a queue later, the soonest first."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

from shardsdk.queueing.item import Priority

K = TypeVar("K", bound=Hashable)

#: Entries of delays that were brought forward stay in the heap until there are
#: as many of them as valid ones and this many on top.
_STALE_ALLOWED: Final = 64


class Delays(Generic[K]):
    """Items that come later, the soonest first; each item at most once."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
        self._valid: dict[K, tuple[float, int, Priority]] = {}
        self._count = 0

    def put(self, item: K, moment: float, priority: Priority) -> bool:
        """Schedule `item`, or bring it forward; True when it is now the soonest of all."""
        before = self._valid.get(item)
        if before is not None:
            priority = min(priority, before[2])
            if before[0] <= moment:
                self._valid[item] = (before[0], before[1], priority)
                return False
        soonest = self.first()
        self._count += 1
        self._valid[item] = (moment, self._count, priority)
        heapq.heappush(self._heap, (moment, self._count, item))
        if len(self._heap) > 2 * len(self._valid) + _STALE_ALLOWED:
            self._heap = [(due, count, delayed) for delayed, (due, count, _) in self._valid.items()]
            heapq.heapify(self._heap)
        return soonest is None or moment < soonest

    def drop(self, item: K, moment: float) -> None:
        """Take `item` back, if it is due at just that moment."""
        valid = self._valid.get(item)
        if valid is not None and valid[0] == moment:
            del self._valid[item]

    def __iter__(self) -> Iterator[K]:
        return iter(self._valid)

    def get(self, item: K) -> tuple[float, Priority] | None:
        """When `item` is due, and its priority."""
        found = self._valid.get(item)
        return None if found is None else (found[0], found[2])

    def first(self) -> float | None:
        """When the soonest item is due; `None` when there is none."""
        while self._heap:
            moment, count, item = self._heap[0]
            valid = self._valid.get(item)
            if valid is not None and valid[1] == count:
                return moment
            heapq.heappop(self._heap)  # was brought forward
        return None

    def pop(self) -> tuple[K, Priority]:
        """Take the soonest item; call `first` before."""
        _, _, item = heapq.heappop(self._heap)
        return item, self._valid.pop(item)[2]
