"""Settling: the wait until what was written can no longer be executed, in common for all who wait.

Whoever waits alone for slow writes keeps those waiting who are next in line; and to wait
for each by itself costs as much as there are waiting, at every answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from shardsdk.cache.identity import Identity
from shardsdk.kube.clock import Clock
from shardsdk.kube.pace import AtMostEvery
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import Resource
from shardsdk.queueing.raised import describe

log: Final = logger_of(__name__)

#: While one pass goes on, the next begins so much later, times the passes that go on: whoever comes meanwhile waits in
#: common.  Every write that is answered wakes each of them, and behind one that hangs none of them ends.
GATHER_SECONDS: Final = 0.1
#: When those whose pass has failed wait anew, and how often that is told.
AGAIN_SECONDS: Final = 1.0
TELL_SECONDS: Final = 60.0


class Settling:
    """Calls back those who wait for this shard's writes; `run` it.

    `settle()` is `Api.writes_settled`: it waits for the writes that were sent before it is called.  Should it fail,
    those who wait do so anew, and the line that tells it names `shard` and `resource`.
    """

    def __init__(
        self, settle: Callable[[], Awaitable[None]], clock: Clock, shard: Identity, resource: Resource
    ) -> None:
        self._settle = settle
        self._clock = clock
        self._shard = shard
        self._resource = resource
        self._joined: list[Callable[[], object]] = []
        self._news = asyncio.Event()
        self._failures = AtMostEvery(TELL_SECONDS)

    def join(self, then: Callable[[], object]) -> None:
        """Call `then` once every write sent by now is answered, or can no longer be executed."""
        # With the next pass: one that is under way may have begun before the last of them was sent.
        self._joined.append(then)
        self._news.set()

    async def run(self) -> None:
        """Call back until cancelled."""
        passes = set[asyncio.Task[None]]()
        async with asyncio.TaskGroup() as group:
            while True:
                await self._news.wait()
                self._news.clear()
                joined, self._joined = self._joined, []
                passing = group.create_task(self._pass(joined))
                passes = {passing, *(each for each in passes if not each.done())}
                await asyncio.wait([passing], timeout=GATHER_SECONDS * len(passes))

    async def _pass(self, joined: list[Callable[[], object]]) -> None:
        try:
            await self._settle()
        except (Exception, asyncio.CancelledError) as error:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            # What was cancelled is something that it awaited.  Nobody else asks for those who have joined.
            self._tell(error)
            await self._clock.sleep(AGAIN_SECONDS)
            self._joined += joined
            self._news.set()
            return
        for then in joined:
            then()

    def _tell(self, error: BaseException) -> None:
        if self._failures.passes(self._clock.monotonic()):
            ring, resource = self._shard.ring.ring, str(self._resource.group_resource)
            where = {"ring": ring, "shard": self._shard.shard, "resource": resource, "error": describe(error)}
            log.error("Writes could not be waited for; trying again", extra=where, exc_info=error)
