"""The handover barrier: an owner that has just arrived waits until the cache holds all of its children.

The watches of owners and of children do not keep each other's order.  An owner
that another shard gave away may therefore be seen before its children are, and
whoever reconciled it then would make them a second time.

    owner arrives ──> waits ──> one consistent list of the children, begun
                                after the arrival ──> the cache has caught up
                                with everything listed ──> owner may pass

Does: serve all owners that wait by one list.  Refuses: to put what it listed
into the cache itself, because a child deleted meanwhile would stay there for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from shardsdk.errors import ShardingError, StreamInterrupted
from shardsdk.kube.backoff import Backoff
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta
from shardsdk.protocol.objects import GroupResource
from shardsdk.runtime.cache import Cache
from shardsdk.runtime.objects import Request, is_at_least, metadata_of, request_of
from shardsdk.runtime.queue import Priority

log: Final = logging.getLogger(__name__)

#: A cache that is so far behind has lost its watch; it will list anew, and so do we.
CATCH_UP_SECONDS: Final = 30.0
#: Lists take no more than this share of the time: after one, we wait four times
#: as long as it took, and more owners share the next.
LIST_SHARE: Final = 0.2
#: And there are no more than twenty a second, however quick they are.
LIST_PAUSE_SECONDS: Final = 0.05


class Barrier:
    """Lets an owner pass once its children are known; `run` it next to the caches.

    `wake(owner, priority)` is called for each owner that may pass now, `settle`
    waits for our own writes, `on_list` counts lists.  With `hands_over` False
    nobody else works on owners: one waits only when a write for it is in doubt.
    """

    def __init__(
        self,
        children: Sequence[Cache[Any]],
        *,
        wake: Callable[[Request, Priority], None],
        settle: Callable[[], Awaitable[None]],
        clock: Clock,
        rng: Random,
        hands_over: bool = True,
        on_list: Callable[[], None] | None = None,
    ) -> None:
        self._children = children
        self._hands_over = hands_over
        self._wake = wake
        self._settle = settle
        self._clock = clock
        self._backoff = Backoff(rng)
        self._on_list = on_list
        #: Owners that may pass, each with the uid that it had then.
        self._passed: dict[Request, str] = {}
        self._waiting: dict[Request, _Arrival] = {}
        #: Whether a write of ours may have made a child without our knowing.
        self._doubtful = False
        self._arrivals = asyncio.Event()
        self._catch_up: _CatchUp | None = None

    def arrived(self, owner: Request, uid: str, priority: Priority = Priority.FRESH) -> None:
        """`owner` has just come: it waits, even if it passed before, and is woken when it may pass."""
        self._wait(owner, _Arrival(uid, priority, wake=True))

    def doubt(self, owner: Request, uid: str) -> None:
        """A write for `owner` had no answer: it waits until that write can no longer be executed, then for a list."""
        self._doubtful = True
        self._wait(owner, _Arrival(uid, Priority.FRESH, wake=False))

    def passes(self, owner: Request, uid: str) -> bool:
        """Whether `owner` may be reconciled; if not it waits from now on, and is woken."""
        if not self._children or self._passed.get(owner) == uid:
            return True
        waiting = self._waiting.get(owner)
        if waiting is None and not self._hands_over:
            return True
        if waiting is not None and waiting.uid == uid:
            waiting.wake = True
        else:
            self.arrived(owner, uid)
        return False

    def left(self, owner: Request) -> None:
        """`owner` is gone from this shard."""
        self._passed.pop(owner, None)
        self._waiting.pop(owner, None)

    @property
    def waiting(self) -> int:
        """How many owners wait."""
        return len(self._waiting)

    def observe(self, cache: Cache[Any], delta: Delta[Any]) -> None:
        """Take note of a change that the cache of children shows now."""
        if self._catch_up is not None:
            self._catch_up.observe(cache, delta)

    async def run(self) -> None:
        """Serve waiting owners until cancelled."""
        while True:
            await self._arrivals.wait()
            self._arrivals.clear()
            if not self._waiting:
                continue
            try:
                # Before settling: who falls into doubt meanwhile has another write to wait for.
                batch = dict(self._waiting)
                if self._doubtful:
                    self._doubtful = False
                    await self._settle()
                pause = max(await self._learn_children() * (1 / LIST_SHARE - 1), LIST_PAUSE_SECONDS)
            except ShardingError as error:
                log.warning("Children could not be listed; their owners wait", extra={"error": str(error)})
                self._arrivals.set()
                pause = self._backoff.next()
            else:
                self._backoff.reset()
                self._let_pass(batch)
            await self._clock.sleep(pause)

    def _wait(self, owner: Request, arrival: _Arrival) -> None:
        if not self._children:
            return
        self._passed.pop(owner, None)
        before = self._waiting.get(owner)
        if before is not None:
            arrival.priority = min(arrival.priority, before.priority)
            arrival.wake = arrival.wake or before.wake
        self._waiting[owner] = arrival
        self._arrivals.set()

    def _let_pass(self, batch: dict[Request, _Arrival]) -> None:
        for owner, arrival in batch.items():
            # Whoever left meanwhile is not waiting; whoever came back waits for the next list.
            if self._waiting.get(owner) is arrival:
                del self._waiting[owner]
                if self._hands_over:
                    self._passed[owner] = arrival.uid
                if arrival.wake:
                    self._wake(owner, arrival.priority)

    async def _learn_children(self) -> float:
        """List all children consistently and wait until the caches show what was listed.

        Returns the seconds that listing took.

        Raises: StreamInterrupted and whatever a list may raise.
        """
        if self._on_list:
            self._on_list()
        begun = self._clock.monotonic()
        self._catch_up = missing = _CatchUp()
        try:
            await missing.list(self._children)
            seconds = self._clock.monotonic() - begun
            await missing.wait()
        finally:
            self._catch_up = None
        return seconds


async def catch_up(caches: Sequence[Cache[Any]]) -> None:
    """List what `caches` select, consistently, and wait until they show it.

    Raises: StreamInterrupted and whatever a list may raise.
    """
    missing = _CatchUp()
    with ExitStack() as listening:
        for cache in caches:
            listening.callback(cache.listen(partial(missing.observe, cache)))
        await missing.list(caches)
        await missing.wait()


@dataclass(slots=True)
class _Arrival:
    """An owner that waits; by its identity one arrival is told from the next."""

    uid: str
    priority: Priority
    wake: bool


class _CatchUp:
    """What caches still have to show of one list."""

    def __init__(self) -> None:
        self._missing: dict[tuple[GroupResource, Request], str] = {}
        self._complete = asyncio.Event()

    async def list(self, caches: Sequence[Cache[Any]]) -> None:
        """Expect everything that `caches` select now.  Raises: StreamInterrupted and whatever a list may raise."""
        for cache in caches:
            async for listed in cache.stream_metadata():
                for thing in listed:
                    self._expect(cache, request_of(thing), thing.metadata.resource_version)

    def _expect(self, cache: Cache[Any], request: Request, version: str) -> None:
        """`request` was listed at `version`."""
        if not cache.has_seen(request, version):
            self._missing[cache.resource.group_resource, request] = version

    def observe(self, cache: Cache[Any], delta: Delta[Any]) -> None:
        """The cache shows a change."""
        seen = (cache.resource.group_resource, request_of(delta.object))
        wanted = self._missing.get(seen)
        if wanted is not None and is_at_least(metadata_of(delta.object).resource_version, wanted):
            del self._missing[seen]
            if not self._missing:
                self._complete.set()

    async def wait(self) -> None:
        """Return when nothing is missing any more.  Raises: StreamInterrupted when that takes too long."""
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while self._missing:
                    self._complete.clear()
                    await self._complete.wait()
        except TimeoutError as error:
            raise StreamInterrupted(f"the cache is more than {CATCH_UP_SECONDS:.0f} s behind") from error
