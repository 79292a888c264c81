"""Places for the label writes of one ring: so many for all, a few for a resource that does not answer.

Does: bound the writes under way, and keep a resource whose writes run into
their deadline (its admission webhook hangs, say) from taking the places of all
others.  Refuses: to let anybody wait for one of those few places.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from sharder.backlog.objects import RingResource
from sharder.core.ringspec import Role
from shardsdk.errors import RetryRule, ShardingError
from shardsdk.kube.clock import Clock

#: How long one label patch may take.  A family waits for those of its children, so they get less.
WRITE_SECONDS: Final = {Role.CONTROLLED: 5.0, Role.MAIN: 30.0}
#: Writes under way at once.  Each is one more that users' requests wait for in the API server, and with fewer
#: there it answers sooner: 12 move as many objects as 48 do, and 24 are enough where an answer takes 30 ms.
MAX_WRITES: Final = 24
#: A write that fails after so long makes its resource suspected, until one succeeds.
SLOW_SECONDS: Final = 2.0
#: Writes under way at once to a resource that is suspected.
MAX_SUSPECTED: Final = 4


class Crowded(ShardingError):
    """The resource does not answer, and others try already whether it does again; nothing was sent."""

    retry = RetryRule.BACKOFF


class Slots:
    """`async with slots.of(resource)` around each write."""

    def __init__(self, number: int, clock: Clock) -> None:
        self._all = asyncio.Semaphore(number)
        self._suspected: dict[RingResource, asyncio.Semaphore] = {}
        self._clock = clock

    def crowded(self, resource: RingResource) -> bool:
        """Whether there is no place for a write to this resource, and none to wait for."""
        few = self._suspected.get(resource)
        return few is not None and few.locked()

    @asynccontextmanager
    async def of(self, resource: RingResource) -> AsyncIterator[None]:
        """Hold a place.  Raises: Crowded."""
        place = await self._acquire(resource)
        began = self._clock.monotonic()
        try:
            yield
            self._suspected.pop(resource, None)
        except ShardingError as error:
            if error.retry is not RetryRule.BACKOFF:
                self._suspected.pop(resource, None)
            elif self._clock.monotonic() - began >= SLOW_SECONDS:
                self._suspected.setdefault(resource, asyncio.Semaphore(MAX_SUSPECTED))
            raise
        finally:
            place.release()

    async def _acquire(self, resource: RingResource) -> asyncio.Semaphore:
        while True:
            few = self._suspected.get(resource)
            if few is not None and few.locked():
                raise Crowded(f"{resource.subject.resource.group_resource}: its writes are not answered")
            place = few or self._all
            await place.acquire()
            if self._suspected.get(resource) is few:
                return place
            place.release()
