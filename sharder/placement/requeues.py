"""Looking again, from time to time, at what no event brings back.

Does: enqueue what was put off (an owner without a shard, a hold that was not there
yet, an owner whose last move was about to end), read what its shard has let go
and no watch has shown since, and have those lend their place on that have had it
for too long.  Refuses: to enqueue everything while a queue is there; what was put
off comes all the same.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from sharder.backlog.backlog import Backlog
from sharder.placement.families import Families
from sharder.placement.resync import Resync
from sharder.placement.transit import Transit
from shardsdk.kube.clock import Clock

#: How long objects wait that could not be placed, before all of them are looked at again.
REQUEUE_SECONDS: Final = (1.0, 8.0)
#: How long the watch of unassigned objects may take to show one that its shard has let go; then it is read.
UNSEEN_SECONDS: Final = 1.0
#: Objects that were put off and are looked at again at once while others wait; each may cost a read.
MAX_DEFERRED: Final = 100


class Requeues:
    """Enqueues again what one ring's backlog has and nobody has placed."""

    def __init__(self, backlog: Backlog, families: Families, transit: Transit, resync: Resync, clock: Clock) -> None:
        self._backlog = backlog
        self._families = families
        self._transit = transit
        self._resync = resync
        self._clock = clock
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Requeue until cancelled."""
        self._backlog.when_changed.append(self._changed.set)
        try:
            await self._look_again()
        finally:
            self._backlog.when_changed.remove(self._changed.set)

    async def _look_again(self) -> None:
        backlog, clock = self._backlog, self._clock
        pause = REQUEUE_SECONDS[0]
        due = clock.monotonic() + pause
        while True:
            await self._pause()
            now = clock.monotonic()
            self._families.look(settled=self._resync.settled)
            self._transit.look(lambda key: backlog.informers.find(key) is not None)
            for key in self._transit.unseen_since(now - UNSEEN_SECONDS):
                backlog.enqueue_to_read(key)
            if len(backlog.queue):
                backlog.enqueue_deferred(MAX_DEFERRED)
            elif now >= due:
                pause = REQUEUE_SECONDS[0] if backlog.take_news() else min(2 * pause, REQUEUE_SECONDS[1])
                due = now + pause
                await backlog.enqueue_again()

    async def _pause(self) -> None:
        """A short pause; at rest first until something changes, or a long one has passed."""
        if self._resync.settled and not len(self._backlog.queue) and not len(self._transit):
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(REQUEUE_SECONDS[1] - REQUEUE_SECONDS[0]):
                    await self._changed.wait()
        await self._clock.sleep(REQUEUE_SECONDS[0])
