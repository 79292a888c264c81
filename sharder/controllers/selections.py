"""The leader's three watches per resource: stranded, draining, unassigned.

Does: hold just the objects that have to move, filtered by the API server; at
rest all three are empty.  Refuses: to watch objects at large.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from sharder.controllers.polling import Poll
from sharder.controllers.seen import SeenObject
from sharder.core.membership import Membership
from shardsdk.errors import ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, Reflector
from shardsdk.kube.selectors import Selector, absent, differs, exists, join, not_in
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import Resource

Wanted = Callable[[SeenObject], bool]

_BY_SHARD = "shard"


class Kind(StrEnum):
    """Which objects a selection shows."""

    UNASSIGNED = "unassigned"
    STRANDED = "stranded"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Source:
    """Where the selections of one resource come from; `wanted` says which objects they hold."""

    api: Api
    resource: Resource
    labels: RingLabels
    clock: Clock
    rng: Random
    sync_period_seconds: float

    def watch(
        self, selector: Selector, wanted: Wanted, handler: Callable[[Delta[SeenObject]], None], name: str
    ) -> Reflector[SeenObject]:
        """What keeps a selection current."""
        return Reflector(
            self.api, self.resource, selector=selector, model=SeenObject, metadata_only=True,
            keep=wanted, handler=handler, name=name, clock=self.clock, rng=self.rng,
            indexes={_BY_SHARD: self.shards_of},
        )  # fmt: skip

    def shards_of(self, obj: SeenObject) -> tuple[str, ...]:
        """The shard that an object is labelled with, if it is."""
        shard = obj.metadata.label(self.labels.shard)
        return (shard,) if shard is not None else ()

    def poll(self, reflector: Reflector[SeenObject], selector: Selector, wanted: Wanted) -> Poll:
        """What does so where `reflector` may not watch."""

        def pages() -> AsyncIterator[list[SeenObject]]:
            return self.api.pages(self.resource, selector=selector, model=SeenObject, metadata_only=True)

        return Poll(reflector, pages, wanted, clock=self.clock, sync_period_seconds=self.sync_period_seconds)


class Selection:
    """One watch of one resource; renewed as a whole when what it selects changes.

    `on_event(kind, delta)` is told of every event, `on_synced()` of each first
    complete list.  Without the right to watch, lists at intervals do instead.
    """

    def __init__(
        self,
        source: Source,
        kind: Kind,
        wanted: Wanted,
        *,
        name: str,
        on_event: Callable[[Kind, Delta[SeenObject]], None],
        on_synced: Callable[[], None],
    ) -> None:
        self.kind = kind
        self._source = source
        self._wanted = wanted
        self._name = name
        self._on_event = on_event
        self._on_synced = on_synced
        self._reflector: Reflector[SeenObject] | None = None
        self._poll: Poll | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def synced(self) -> bool:
        """Whether the present selection has been listed completely; a stopped one never is."""
        if self._poll is not None and self._poll.needed():
            return self._poll.objects is not None
        return self._reflector is not None and self._reflector.synced.is_set()

    @property
    def running(self) -> bool:
        """Whether it is watched at all."""
        return self._reflector is not None

    @property
    def failure(self) -> ShardingError | None:
        """Why it cannot be watched at present."""
        return self._reflector.failure if self._reflector is not None else None

    def get(self, namespace: str, name: str) -> SeenObject | None:
        """The object as last seen, if the selection holds it."""
        if (polled := self._polled()) is not None:
            return polled.get((namespace, name))
        return self._reflector.store.get(namespace, name) if self._reflector is not None else None

    def values(self) -> Iterator[SeenObject]:
        """The objects that it holds."""
        if (polled := self._polled()) is not None:
            return iter(list(polled.values()))
        return iter(list(self._reflector.store) if self._reflector is not None else ())

    def shards(self) -> set[str]:
        """The shards that the objects are labelled with."""
        if (polled := self._polled()) is not None:
            return {shard for obj in polled.values() for shard in self._source.shards_of(obj)}
        return set(self._reflector.store.index_values(_BY_SHARD)) if self._reflector is not None else set()

    def of_shard(self, shard: str) -> list[SeenObject]:
        """The objects labelled with `shard`."""
        if (polled := self._polled()) is not None:
            return [obj for obj in polled.values() if shard in self._source.shards_of(obj)]
        return self._reflector.store.by_index(_BY_SHARD, shard) if self._reflector is not None else []

    def leave(self, namespace: str) -> list[SeenObject]:
        """Hold the objects of a namespace no longer, which has left the scope; they are told of as they change."""
        left = [obj for obj in self.values() if obj.metadata.namespace == namespace]
        for obj in left:
            if self._poll is not None and self._poll.objects is not None:
                self._poll.objects.pop((namespace, obj.metadata.name), None)
            if self._reflector is not None:
                self._reflector.store.drop(Key(namespace, obj.metadata.name))
        return left

    def __len__(self) -> int:
        if (polled := self._polled()) is not None:
            return len(polled)
        return len(self._reflector.store) if self._reflector is not None else 0

    def _polled(self) -> Mapping[tuple[str, str], SeenObject] | None:
        return self._poll.objects if self._poll is not None and self._poll.needed() else None

    def renew(self, tasks: asyncio.TaskGroup, selector: Selector) -> None:
        """Begin anew with `selector`; its initial events are exactly what matches now."""
        self.stop()
        self._reflector = self._source.watch(selector, self._wanted, self._handle, self._name)
        self._poll = self._source.poll(self._reflector, selector, self._wanted)
        self._task = tasks.create_task(self._watch(self._reflector, self._poll))

    def restart(self) -> None:
        """List and watch anew; what it holds stays until the list shows that it is gone."""
        if self._reflector is not None:
            self._reflector.restart()

    def stop(self) -> None:
        """Watch nothing and hold nothing."""
        if self._task is not None:
            self._task.cancel()
        self._reflector = self._poll = self._task = None

    async def _watch(self, reflector: Reflector[SeenObject], poll: Poll) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reflector.run())
            tasks.create_task(poll.run(self._handle, self._on_synced))
            await reflector.synced.wait()
            self._on_synced()

    def _handle(self, delta: Delta[SeenObject]) -> None:
        self._on_event(self.kind, delta)


def select_unassigned(labels: RingLabels, excluded_namespaces: tuple[str, ...]) -> Selector:
    """Objects without a shard; namespaces that never belong to the ring are cut by the API server."""
    fields = join(*(differs("metadata.namespace", namespace) for namespace in excluded_namespaces))
    return Selector(labels=absent(labels.shard), fields=fields)


def select_draining(labels: RingLabels) -> Selector:
    """Objects that their shard is asked to let go; a drain label on what nobody has waits for nobody."""
    return Selector(labels=join(exists(labels.shard), exists(labels.drain)))


def select_stranded(labels: RingLabels, membership: Membership) -> Selector:
    """Objects labelled with a shard that is not available; the ring must have an available one.

    Names that two leases claim count as available here: their objects stay.
    """
    # `notin` alone would match objects without the label too.
    alive = membership.available | membership.ambiguous
    return Selector(labels=join(exists(labels.shard), not_in(labels.shard, alive)))
