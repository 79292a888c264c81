"""Places for the requests of one ring: so many for all, a few for a resource that does not answer.

Does: bound the requests under way, and keep a resource whose requests run into
their deadline (its admission or conversion webhook hangs, say) from taking the places
of all others.  Refuses: to let anybody wait for one of those few places.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from sharder.core.ringspec import Role
from shardsdk.errors import RetryRule, ShardingError
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import GroupResource

#: How long one label patch may take.  A family waits for those of its children, so they get less.
WRITE_SECONDS: Final = {Role.CONTROLLED: 5.0, Role.MAIN: 30.0}
#: Writes under way at once.  Each is one more that users' requests wait for in the API server, and with fewer
#: there it answers sooner: 12 move as many objects as 48 do, and 24 are enough where an answer takes 30 ms.
MAX_WRITES: Final = 24
#: A request that fails after so long makes its resource suspected, until one succeeds.
SLOW_SECONDS: Final = 2.0
#: Requests under way at once to a resource that is suspected, at most; of few places half.
MAX_SUSPECTED: Final = 4


class Crowded(ShardingError):
    """The resource does not answer, and others try already whether it does again; nothing was sent."""

    retry = RetryRule.BACKOFF


class Slots:
    """`async with slots.of(resource)` around each request.

    `patience_seconds`: who waits for a place longer than that suspects the resource; of use where
    all places are one resource's (`None`: there is no limit).
    """

    def __init__(self, number: int, clock: Clock, *, patience_seconds: float | None = None) -> None:
        self._all = asyncio.Semaphore(number)
        self._few = max(min(MAX_SUSPECTED, number // 2), 1)
        self._suspected: dict[GroupResource, asyncio.Semaphore] = {}
        self._clock = clock
        self._patience_seconds = patience_seconds

    def crowded(self, resource: GroupResource) -> bool:
        """Whether there is no place for a request to this resource, and none to wait for."""
        few = self._suspected.get(resource)
        return few is not None and few.locked()

    @asynccontextmanager
    async def of(self, resource: GroupResource) -> AsyncIterator[None]:
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
                self._suspect(resource)
            raise
        finally:
            place.release()

    def _suspect(self, resource: GroupResource) -> None:
        self._suspected.setdefault(resource, asyncio.Semaphore(self._few))

    async def _acquire(self, resource: GroupResource) -> asyncio.Semaphore:
        while True:
            few = self._suspected.get(resource)
            if few is not None and few.locked():
                raise Crowded(f"{resource}: requests are not answered")
            place = few or self._all
            try:
                async with asyncio.timeout(self._patience_seconds):
                    await place.acquire()
            except TimeoutError:
                self._suspect(resource)
                continue
            if self._suspected.get(resource) is few:
                return place
            place.release()
