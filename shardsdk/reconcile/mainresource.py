"""A main resource: what all controllers of it share, and, of a shard, how its objects are given away, and go unasked.

Unsharded work (by the elected leader, or on every replica) reconciles every
object; nothing is given away and nothing handed over, so there are no drains and
no waiting for children of owners that arrive.  That is all the difference.
"""

from __future__ import annotations

import asyncio
from typing import Final, Generic, Protocol, TypeVar

from shardsdk.cache.cache import Cache
from shardsdk.cache.identity import Identity, ShardIdentity
from shardsdk.cache.objects import Request
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock
from shardsdk.kube.doubts import owed_until
from shardsdk.protocol.verdict import Verdict
from shardsdk.queueing.metrics import Metrics, ShardMetrics
from shardsdk.reconcile.departures import Departures
from shardsdk.reconcile.drains import Drains
from shardsdk.reconcile.inflight import InFlight

T = TypeVar("T")


class Works(Protocol):
    """A controller of the resource."""

    @property
    def waiting(self) -> int:
        """How many owners wait for their children."""
        ...

    @property
    def held_back(self) -> int:
        """How many owners are not reconciled because a child of theirs cannot be read."""
        ...

    def cancel(self, request: Request) -> bool:
        """Cancel the reconcile of the object that runs; `False`: none does."""
        ...


class MainResource(Generic[T]):
    """A main resource: its cache, the client for it, what is being reconciled, and of `shard` its drains.

    Where ranges of hashes are assigned, there are none: `shardsdk.reconcile.ending` waits for a whole range.

    `shard` None: nobody shards the resource, and every object is reconciled.  All
    controllers of the resource share this: a drain waits for every one of them,
    and cancels their reconciles after `drain_timeout_seconds` (`None`: never).
    `fence` is the shard's, which says what it owes to a dead process.
    """

    def __init__(
        self,
        cache: Cache[T],
        api: Api,
        shard: Identity | None = None,
        fence: Fence | None = None,
        *,
        clock: Clock,
        drain_timeout_seconds: float | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.cache = cache
        self.api = api
        self.shard = shard
        self.drain_timeout_seconds: float | None = drain_timeout_seconds
        self.metrics: Final[ShardMetrics | None] = (
            metrics.shard(str(cache.resource.group_resource)) if metrics else None
        )
        self.inflight: Final = InFlight()
        self._controllers: list[Works] = []
        self._stopped = asyncio.Event()
        self.drains: Final[Drains | None] = (
            Drains(
                shard,
                cache,
                self.inflight,
                api,
                clock=clock,
                owed_until=owed_until([fence] if fence else []),
                cancel=self.cancel,
                cancel_after_seconds=drain_timeout_seconds,
                metrics=self.metrics,
            )
            if isinstance(shard, ShardIdentity)
            else None
        )
        self._departures: Final[Departures | None] = (
            Departures(shard, cache, self.inflight, api, clock=clock, cancel=self.cancel)
            if isinstance(shard, ShardIdentity)
            else None
        )
        if self.metrics:
            self.metrics.held_back_owners.set_function(lambda: sum(each.held_back for each in self._controllers))
            if shard is not None:
                self.metrics.waiting_owners.set_function(lambda: sum(each.waiting for each in self._controllers))

    async def run(self) -> None:
        """Give away what is asked for, and look after what goes unasked, until cancelled, or until stopped and done."""
        if self.drains is None or self._departures is None:
            await self._stopped.wait()
            return
        async with asyncio.TaskGroup() as group:
            departures = group.create_task(self._departures.run(), name="departures")
            await self.drains.run()
            departures.cancel()

    async def stop(self) -> None:
        """Begin to give away nothing more; `run` returns once what has begun has ended."""
        self._stopped.set()
        if self.drains is not None:
            await self.drains.stop()

    def add(self, controller: Works) -> None:
        """A controller works on the resource, too."""
        self._controllers.append(controller)

    def judge(self, thing: object) -> Verdict:
        """What is done with an object."""
        if self.drains is not None:
            return self.drains.judge(thing)
        return Verdict.RECONCILE if self.shard is None else self.shard.judge(thing)

    def cancel(self, request: Request) -> None:
        """Cancel every reconcile of the object that runs."""
        for controller in self._controllers:
            controller.cancel(request)


class Unfenced:
    """The fence of work that needs no lease: always open."""

    name = "no lease"

    def remaining(self) -> float:
        """For ever."""
        return float("inf")
