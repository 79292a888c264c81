"""Lines: what waits to be handed out, by priority, and whose turn it is.

Each line is first in, first out.  Turns go to fresh items, and some of them to bulk items:

- One in `BULK_SHARE` + 1 always: a burst of changes is worked off nearly undisturbed by a resync.
- One in `OVERDUE_SHARE` + 1 once the foremost bulk item has waited for `BULK_PATIENCE_SECONDS`: fresh items that keep
  all workers busy are no burst then, and an object may be waiting for its first turn of all.

Fresh items keep most of the turns in either case, and a single one waits for one bulk item at the most, however many
wait: a share of the turns it is, not a place between the fresh ones by age, which would put a resync of 100,000
overdue objects before the next change.  A bulk item has its turn by the patience and three turns for each bulk item
before it, whatever else there is to do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

from shardsdk.queueing.item import Priority

K = TypeVar("K", bound=Hashable)

#: While fresh items keep coming, one bulk item is let through after so many of them: 3 % of the turns.
BULK_SHARE: Final = 32
#: A bulk item that has waited for longer is overdue.  Bursts end sooner: 16 workers do 3,200 reconciles of 50 ms in it.
BULK_PATIENCE_SECONDS: Final = 10.0
#: While the foremost bulk item is overdue, one is let through after so many fresh ones.  Two is the least that leaves
#: those most of the turns: what they wait for each other grows by half.
OVERDUE_SHARE: Final = 2


class Lines(Generic[K]):
    """Waiting items, each once; moments are monotonic, in seconds."""

    def __init__(self) -> None:
        #: By priority the items, each with the moment it began to wait.  A bulk item that became fresh has a place in
        #: both: the end of the fresh line may be further away than the place it had.
        self._lines: tuple[OrderedDict[K, float], OrderedDict[K, float]] = (OrderedDict(), OrderedDict())
        self._in_both = 0
        self._fresh_in_a_row = 0

    def add(self, item: K, priority: Priority, moment: float) -> bool:
        """Let `item` wait since `moment`, or move up to `priority` if it waits already; whether it did not."""
        fresh, bulk = self._lines
        if item in fresh:
            return False
        since = bulk.get(item)
        if since is None:
            self._lines[priority][item] = moment
            return True
        if priority is Priority.FRESH:
            fresh[item] = since
            self._in_both += 1
        return False

    def take(self, now: float) -> tuple[K, Priority, float]:
        """Take the item whose turn it is; with its priority, and since when it has waited.  Raises: KeyError."""
        fresh, bulk = self._lines
        if not fresh or (bulk and self._fresh_in_a_row >= self._share(now)):
            self._fresh_in_a_row = 0
            item, since = bulk.popitem(last=False)
            if fresh.pop(item, None) is None:
                return item, Priority.BULK, since
            self._in_both -= 1
        else:
            self._fresh_in_a_row = self._fresh_in_a_row + 1 if bulk else 0
            item, since = fresh.popitem(last=False)
            if bulk and bulk.pop(item, None) is not None:
                self._in_both -= 1
        return item, Priority.FRESH, since

    def clear(self) -> None:
        """Let nothing wait any more."""
        for line in self._lines:
            line.clear()
        self._in_both = 0

    def get(self, item: K) -> tuple[float, Priority] | None:
        """Since when `item` has waited, and its priority."""
        for priority, line in zip(Priority, self._lines, strict=True):
            if item in line:
                return line[item], priority
        return None

    def depth(self, priority: Priority) -> int:
        """How many items of `priority` wait."""
        waiting = len(self._lines[priority])
        # Metrics are read in another thread, perhaps just as an item leaves both lines.
        return waiting if priority is Priority.FRESH else max(0, waiting - self._in_both)

    def __len__(self) -> int:
        fresh, bulk = self._lines
        return len(fresh) + len(bulk) - self._in_both

    def __iter__(self) -> Iterator[K]:
        """Each item, one in both lines twice."""
        return chain(*self._lines)

    def _share(self, now: float) -> int:
        """After how many fresh items the foremost bulk item has its turn."""
        if self._fresh_in_a_row < OVERDUE_SHARE:
            return BULK_SHARE  # not yet in either case: most turns need not look
        since = next(iter(self._lines[Priority.BULK].values()))
        return BULK_SHARE if now - since < BULK_PATIENCE_SECONDS else OVERDUE_SHARE
