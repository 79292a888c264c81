"""Notices when something of a ring changes, so that it is read again then and not otherwise.

Does: hold one watch for each source, of metadata alone, and say how much there is
to read again.  Refuses: to keep objects, and to follow what the caller may not
watch; that is told, for the caller to read at intervals instead.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, cast

from sharder.kubectl.outcome import Unread, unread
from shardsdk.errors import ApiError, Forbidden, ShardingError
from shardsdk.kube.api import PARTIAL, Api, WatchEvent, WatchKind
from shardsdk.kube.backoff import Backoff
from shardsdk.kube.clock import Clock
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, Resource

#: Pause before asking again for something that may not even be listed; rights are granted now and then.
FORBIDDEN_SECONDS: Final = 30.0

_EVERYTHING: Final = Selector()


class News(IntEnum):
    """How much there is to read again."""

    NOTHING = 0
    #: Leases were renewed, and nothing else about them.
    RENEWAL = 1
    CHANGE = 2


@dataclass(frozen=True, slots=True)
class Source:
    """What one watch follows; `namespace` None: all of them."""

    resource: Resource
    namespace: str | None = None
    selector: Selector = _EVERYTHING


class Follower:
    """Follows what it is aimed at until it is closed.

    A watch that begins, or begins anew, counts as a change: what happened before
    it is not known.  So reading after `take` and then waiting misses nothing.
    """

    def __init__(self, api: Api, clock: Clock, rng: random.Random) -> None:
        self._api = api
        self._clock = clock
        self._rng = rng
        self._tasks: dict[Source, asyncio.Task[None]] = {}
        self._leases: dict[tuple[Source, str, str], object] = {}
        self._news = News.NOTHING
        self._arrived = asyncio.Event()
        self._refused: dict[Source, Unread] = {}

    @property
    def refused(self) -> tuple[Unread, ...]:
        """What may be listed and not watched."""
        return tuple(self._refused[source] for source in self._tasks if source in self._refused)

    def aim(self, sources: Iterable[Source]) -> None:
        """Follow exactly these."""
        wanted = dict.fromkeys(sources)
        for source in self._tasks.keys() - wanted.keys():
            self._tasks.pop(source).cancel()
        for source in wanted:
            if source not in self._tasks:
                self._tasks[source] = asyncio.create_task(self._follow(source), name=f"watch of {source.resource}")

    def take(self) -> News:
        """What there is to read again, which is then forgotten."""
        news, self._news = self._news, News.NOTHING
        self._arrived.clear()
        return news

    async def wait(self, least: News, seconds: float | None) -> None:
        """Wait for news of at least that weight, at most `seconds`.  Raises: what ended a watch for good."""
        pause = None if seconds is None else asyncio.create_task(self._clock.sleep(seconds))
        arrival: asyncio.Task[Any] = asyncio.create_task(self._arrival(least))
        waiting = [arrival, *self._tasks.values(), *([pause] if pause else [])]
        try:
            # A watch goes on for ever, unless it was refused or has met a bug.
            while not arrival.done() and not (pause and pause.done()):
                open_ones = [task for task in waiting if not task.done()]
                await asyncio.wait(open_ones, return_when=asyncio.FIRST_COMPLETED)
                for task in self._tasks.values():
                    if task.done() and not task.cancelled():
                        task.result()
                if self.refused and pause is None:
                    return
        finally:
            arrival.cancel()
            if pause is not None:
                pause.cancel()

    async def close(self) -> None:
        """End every watch."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _arrival(self, least: News) -> None:
        while self._news < least:
            await self._arrived.wait()
            if self._news < least:
                self._arrived.clear()

    def _note(self, news: News) -> None:
        self._news = max(self._news, news)
        self._arrived.set()

    async def _follow(self, source: Source) -> None:
        """Watch it again and again; returns when that is not permitted."""
        backoff = Backoff(self._rng)
        version: str | None = None
        while True:
            try:
                if version is None:
                    version = await self._begin(source)
                    self._note(News.CHANGE)
            except Forbidden as error:
                if source.resource == CLUSTERRINGS:
                    # Whoever names a ring may have the right to get it alone.
                    self._refuse(source, error)
                    return
                # It cannot be read either, as the reader says.
                await self._clock.sleep(FORBIDDEN_SECONDS)
                continue
            except ShardingError:
                # Whoever reads now sees what is wrong.
                self._note(News.CHANGE)
                await self._clock.sleep(backoff.next())
                continue
            try:
                async for event in self._watch(source, version):
                    version = event.resource_version
                    backoff.reset()
                    if event.kind is not WatchKind.BOOKMARK:
                        self._note(self._weigh(source, event))
            except Forbidden as error:
                self._refuse(source, error)
                return
            except ShardingError as error:
                if isinstance(error, ApiError):
                    version = None
                self._note(News.CHANGE)
            await self._clock.sleep(backoff.next())

    def _refuse(self, source: Source, error: Forbidden) -> None:
        self._refused[source] = unread(str(source.resource.group_resource), error)

    async def _begin(self, source: Source) -> str:
        """The version from which to watch; of leases, also how they are now."""
        versions: list[str] = []
        whole = source.resource == LEASES
        pages = self._api.pages(
            source.resource, source.namespace, selector=source.selector, limit=500 if whole else 1,
            model=Lease if whole else PARTIAL, metadata_only=not whole, on_version=versions.append,
        )  # fmt: skip
        async with aclosing(cast("AsyncGenerator[list[Any]]", pages)) as read:
            async for page in read:
                if not whole:
                    break
                for lease in page:
                    self._leases[_key(source, lease)] = lasting(lease)
        return versions[0]

    def _watch(self, source: Source, version: str) -> Any:
        whole = source.resource == LEASES
        return self._api.watch(
            source.resource, source.namespace, selector=source.selector, resource_version=version,
            model=Lease if whole else PARTIAL, metadata_only=not whole,
        )  # fmt: skip

    def _weigh(self, source: Source, event: WatchEvent[Any]) -> News:
        if not isinstance(event.object, Lease):
            return News.CHANGE
        key = _key(source, event.object)
        now = None if event.kind is WatchKind.DELETED else lasting(event.object)
        known, self._leases[key] = self._leases.get(key), now
        return News.RENEWAL if now is not None and now == known else News.CHANGE


def _key(source: Source, lease: Lease) -> tuple[Source, str, str]:
    return source, lease.metadata.namespace, lease.metadata.name


def lasting(lease: Lease) -> object:
    """What people look at, but for the time of the last renewal."""
    meta, spec = lease.metadata, lease.spec
    held = (spec.holder_identity, spec.lease_duration_seconds, spec.acquire_time, spec.lease_transitions)
    return meta.namespace, meta.name, meta.labels, meta.annotations, meta.deletion_timestamp, held
