"""Whether the caches of rings and leases show what the API server has.

Does: list both every few seconds, compare, and have a watch begin anew that is
behind.  A watch proves nothing by being open: an API server may hang, and one
whose etcd came back from a backup accepts the position that a watch had before
and tells it nothing of what lies below.

Refuses: to restart a watch for news that are merely on their way.  What a list
shows otherwise has to be so the next time too, and the cache the same as before.
Nor while it lists anew: where initial events do not come, that takes its time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from sharder.cache.ringobject import RingObject
from shardsdk.errors import ShardingError, StreamInterrupted
from shardsdk.kube.api import PARTIAL, Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.pace import AtMostEvery
from shardsdk.kube.reading import STREAM_SILENCE_SECONDS
from shardsdk.kube.reflector import Reflector
from shardsdk.kube.selectors import Selector, exists
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, GroupResource, Resource

log = logging.getLogger(__name__)

#: The leases of all rings' shards.
SHARD_LEASES: Final = Selector(labels=exists(LEASE_RING_LABEL))

#: Between two lines about leases, or rings, that are not what their watch shows.
TELL_SECONDS: Final = 60.0
#: After so many rounds without anything, what should have come does not.
SILENT_ROUNDS: Final = 4
#: A watch that has told nothing for so many rounds, though it had to, does not work, whatever it says.
UNHEARD_ROUNDS: Final = 12
#: A list that is made anew is left alone for so long, in which it falls back to pages if initial events do not come.
LISTING_SECONDS: Final = 2 * STREAM_SILENCE_SECONDS

#: How often whoever waits until something is heard looks whether it was.
LOOK_SECONDS: Final = 0.25

Versions = Mapping[Key, str]


def still_behind(before: Versions, cached: Versions, listed: Versions) -> Versions:
    """What the cache has otherwise than the list (empty: it does not have it), of it what it had so `before` too."""
    return {key: was for key, was in differing(cached, listed).items() if before.get(key) == was}


def differing(cached: Versions, listed: Versions) -> Versions:
    """What the cache says of everything that the list says otherwise; empty: nothing."""
    return {key: cached.get(key, "") for key in cached.keys() | listed.keys() if cached.get(key) != listed.get(key)}


class Confirmation:
    """Compares both caches with lists; `run` it as long as they are kept."""

    def __init__(
        self, api: Api, rings: Reflector[RingObject], leases: Reflector[Lease], *, clock: Clock, every_seconds: float
    ) -> None:
        self._api = api
        self._rings = rings
        self._leases = leases
        self._clock = clock
        self._every_seconds = every_seconds
        #: When the cache of rings was last found to be right, and that of leases.
        self.rings_at: float = clock.monotonic()
        self.leases_at: float = float("-inf")
        #: When the last list of each was complete.
        self._listed_at: dict[Resource, float] = {}
        #: What of the leases the last list showed otherwise, as the cache had it.
        self._differed: Versions = {}
        self._restarts, self._news = AtMostEvery(2 * every_seconds), AtMostEvery(TELL_SECONDS)
        #: Until when the lists are left alone that were begun anew, by the name of their watch.
        self._left_alone: dict[str, float] = {}
        #: Told when the watch of leases begins anew: whatever else hung on the same API server hangs as well.
        self.when_behind: list[Callable[[], None]] = []

    @property
    def stale(self) -> bool:
        """Whether nothing was heard of leases or rings for too long."""
        deadline = self._clock.monotonic() - 2 * self._every_seconds
        return self._rings_heard_at < deadline or self._leases_heard_at < deadline

    async def until_heard(self, most_seconds: float) -> None:
        """Return once something was heard of both lately, or after so long."""
        ends_at = self._clock.monotonic() + most_seconds
        while self.stale and self._clock.monotonic() < ends_at:  # what time makes stale no event tells
            await self._clock.sleep(LOOK_SECONDS)

    @property
    def unheard(self) -> tuple[tuple[GroupResource, ShardingError], ...]:
        """Of leases and rings, what cannot be followed just now, and why."""
        leases_at = self._leases_heard_at if self._any_held() else float("inf")
        each = ((self._leases, leases_at), (self._rings, self._rings_heard_at))
        failures = ((watch.resource.group_resource, self._failure(watch, at)) for watch, at in each)
        return tuple((resource, failure) for resource, failure in failures if failure is not None)

    @property
    def leases_known_until(self) -> float:
        """Until when the cache has what shards make of their leases: now, unless nothing was heard for too long."""
        now = self._clock.monotonic()
        return now if self._leases_heard_at >= now - 2 * self._every_seconds else self._leases_heard_at

    @property
    def _rings_heard_at(self) -> float:
        return max(self.rings_at, self._rings.fresh_at)

    @property
    def _leases_heard_at(self) -> float:
        return max(self.leases_at, self._leases.fresh_at)

    def _failure(self, watch: Reflector[Any], heard_at: float) -> ShardingError | None:
        now = self._clock.monotonic()
        if watch.failure is None and heard_at < now - UNHEARD_ROUNDS * self._every_seconds:
            listed = self._listed_at.get(watch.resource, float("-inf")) >= now - SILENT_ROUNDS * self._every_seconds
            why = "lists show what its watch does not tell" if listed else "neither watches nor lists are answered"
            return StreamInterrupted(f"{watch.name}: {why}")
        return watch.failure

    def _any_held(self) -> bool:
        return any(lease.held_by_shard for lease in self._leases.store)

    async def run(self) -> None:
        """Compare until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for look in (self._notice_silence, self._compare_leases, self._compare_rings):
                tasks.create_task(self._repeat(look))

    async def _repeat(self, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._clock.sleep(self._every_seconds)
            await look()

    def relist_leases(self, why: str) -> None:
        """The cache of leases cannot be right: list them anew, unless that was done a moment ago."""
        failure = self._leases.failure
        if self._list_leases_anew() and self._is_news(self._leases):
            extra = {"why": why, "error": str(failure or "")}
            log.warning("leases are not what their watch shows; listing them anew", extra=extra)

    def _list_leases_anew(self) -> bool:
        if self._is_listing(self._leases) or not self._restarts.passes(self._clock.monotonic()):
            return False
        self._differed = {}
        self._restart(self._leases)
        for tell in tuple(self.when_behind):
            tell()
        return True

    def _is_listing(self, watch: Reflector[Any]) -> bool:
        """Whether a list is under way, and may come to its end yet."""
        if not watch.synced.is_set():
            return True
        return watch.position is None and self._clock.monotonic() < self._left_alone.get(watch.name, 0.0)

    def _restart(self, watch: Reflector[Any]) -> None:
        self._left_alone[watch.name] = self._clock.monotonic() + LISTING_SECONDS
        watch.restart()

    def _is_news(self, watch: Reflector[Any]) -> bool:
        return self._news.passes(self._clock.monotonic(), watch.name)

    async def _notice_silence(self) -> None:
        # Shards renew: where none is heard, and no list shows that there was nothing to hear, the watch hangs.
        silent_since = self._clock.monotonic() - SILENT_ROUNDS * self._every_seconds
        if self._any_held() and self._leases_heard_at < silent_since:
            self._list_leases_anew()

    async def _compare_leases(self) -> None:
        started = self._clock.monotonic()
        listed = await self._list(LEASES, SHARD_LEASES, Lease)
        if listed is None or not self._leases.synced.is_set():
            return
        cached = _versions(self._leases.store)
        behind = still_behind(self._differed, cached, listed)
        self._differed = differing(cached, listed)
        if not self._differed:
            self.leases_at = started
        if behind:
            key = min(behind)
            self.relist_leases(f"{len(behind)} are otherwise, as {key.namespace}/{key.name}")

    async def _compare_rings(self) -> None:
        # A ring watch may be quiet for a minute and still be well, so its silence proves
        # nothing; a list of the few rings there are tells whether it is behind.
        started = self._clock.monotonic()
        listed = await self._list(CLUSTERRINGS, Selector(), PARTIAL)
        if listed is None:
            return
        behind = differing(_versions(self._rings.store), listed)
        if not behind:
            self.rings_at = started
        elif self.rings_at < started - 2 * self._every_seconds and not self._is_listing(self._rings):
            if self._is_news(self._rings):
                extra = {"ring": min(behind).name, "error": str(self._rings.failure or "")}
                log.warning("rings are not what their watch shows; listing them anew", extra=extra)
            self._restart(self._rings)

    async def _list(self, resource: Resource, selector: Selector, model: type[Any]) -> Versions | None:
        """The versions of all that there is, by a consistent list; `None`: there was no answer in time.

        What does not fit the watch's model is left out as it is there.
        """
        listed: dict[Key, str] = {}
        try:
            async with asyncio.timeout(2 * self._every_seconds):
                async for page in self._api.pages(resource, selector=selector, model=model):
                    listed.update(_versions(page))
        except (ShardingError, TimeoutError):
            # The lists under way are answered no better, perhaps: who answers next may be another API server.
            self._left_alone.clear()
            return None
        self._listed_at[resource] = self._clock.monotonic()
        return listed


def _versions(things: Any) -> dict[Key, str]:
    return {Key(each.metadata.namespace or "", each.metadata.name): _version(each) for each in things}


def _version(thing: Any) -> str:
    """A lease's with its renewal: a store that was set back gives versions a second time."""
    version = str(thing.metadata.resource_version)
    return f"{version} of {thing.spec.renew_time}" if isinstance(thing, Lease) else version
