"""Looking again, from time to time, at what no event brings back.

Does: offer what was put off (an owner without a shard, a hold that was not there
yet, an owner whose last move was about to end), read what its shard has let go
and no watch has shown since, and have those lend their place on that have had it
for too long.  Refuses: to offer everything while a queue is there; what was put
off comes all the same.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sharder.controllers.seen import ItemKey
from sharder.controllers.selections import Kind
from shardsdk.runtime.queue import Priority

if TYPE_CHECKING:
    from sharder.controllers.placer import Placer

#: How long objects wait that could not be placed, before all of them are looked at again.
SWEEP_SECONDS: Final = (1.0, 8.0)
#: How long the watch of unassigned objects may take to show one that its shard has let go; then it is read.
UNSEEN_SECONDS: Final = 1.0
#: Objects that were put off and are looked at again at once while others wait; each may cost a read.
MAX_DEFERRED: Final = 100


class Sweep:
    """The sweeps over what one placer has seen and not placed."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._deferred: dict[ItemKey, None] = {}
        self._fresh = asyncio.Event()

    def has_news(self) -> None:
        """Something came that has to be placed: the next sweep is soon."""
        self._fresh.set()

    def defer(self, key: ItemKey) -> None:
        """Look at an object again that could not be decided now."""
        self._deferred[key] = None

    async def run(self) -> None:
        """Sweep until cancelled."""
        placer, clock = self._placer, self._placer.around.clock
        pause = SWEEP_SECONDS[0]
        due = clock.monotonic() + pause
        while True:
            await clock.sleep(SWEEP_SECONDS[0])
            now = clock.monotonic()
            placer.families.look()
            placer.transit.look(lambda key: placer.held(key) is not None)
            for key in placer.transit.unseen_since(now - UNSEEN_SECONDS):
                placer.read_unseen(key)
            if len(placer.queue):
                for key in list(self._deferred)[:MAX_DEFERRED]:
                    del self._deferred[key]
                    placer.queue.add(key, Priority.BULK)
            elif now >= due:
                pause = SWEEP_SECONDS[0] if self._fresh.is_set() else min(2 * pause, SWEEP_SECONDS[1])
                due = now + pause
                self._fresh.clear()
                self._deferred.clear()
                await placer.offer_all(Kind.UNASSIGNED, Kind.STRANDED)
                placer.forget_unseen()
