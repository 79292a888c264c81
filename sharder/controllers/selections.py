"""The leader's three watches per resource: stranded, draining, unassigned.

Does: hold just the objects that have to move, filtered by the API server; at
rest all three are empty.  Refuses: to watch objects at large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from enum import StrEnum
from random import Random

from sharder.controllers.seen import SeenObject
from sharder.core.membership import Membership
from shardsdk.errors import ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, Reflector
from shardsdk.kube.selectors import Selector, absent, differs, exists, join, not_in
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import Resource


class Kind(StrEnum):
    """Which objects a selection shows."""

    UNASSIGNED = "unassigned"
    STRANDED = "stranded"
    DRAINING = "draining"


class Selection:
    """One watch of one resource; renewed as a whole when what it selects changes.

    `make(selector, handler)` makes its reflector.  `on_event(kind, delta)` is told
    of every event, `on_synced()` of each first complete list.
    """

    def __init__(
        self,
        make: Callable[[Selector, Callable[[Delta[SeenObject]], None]], Reflector[SeenObject]],
        kind: Kind,
        *,
        on_event: Callable[[Kind, Delta[SeenObject]], None],
        on_synced: Callable[[], None],
    ) -> None:
        self.kind = kind
        self._make = make
        self._on_event = on_event
        self._on_synced = on_synced
        self._reflector: Reflector[SeenObject] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def synced(self) -> bool:
        """Whether the present selection has been listed completely; a stopped one never is."""
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
        return self._reflector.store.get(namespace, name) if self._reflector is not None else None

    def values(self) -> Iterator[SeenObject]:
        """The objects that it holds."""
        return iter(list(self._reflector.store) if self._reflector is not None else ())

    def __len__(self) -> int:
        return len(self._reflector.store) if self._reflector is not None else 0

    def renew(self, tasks: asyncio.TaskGroup, selector: Selector) -> None:
        """Begin anew with `selector`; its initial events are exactly what matches now."""
        self.stop()
        self._reflector = self._make(selector, self._handle)
        self._task = tasks.create_task(self._watch(self._reflector))

    def stop(self) -> None:
        """Watch nothing and hold nothing."""
        if self._task is not None:
            self._task.cancel()
        self._reflector = self._task = None

    async def _watch(self, reflector: Reflector[SeenObject]) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reflector.run())
            await reflector.synced.wait()
            self._on_synced()

    def _handle(self, delta: Delta[SeenObject]) -> None:
        self._on_event(self.kind, delta)


def make_reflector(
    api: Api, resource: Resource, clock: Clock, rng: Random, name: str, wanted: Callable[[SeenObject], bool]
) -> Callable[[Selector, Callable[[Delta[SeenObject]], None]], Reflector[SeenObject]]:
    """A factory of reflectors over `resource` that differ in selector and handler only."""

    def make(selector: Selector, handler: Callable[[Delta[SeenObject]], None]) -> Reflector[SeenObject]:
        return Reflector(
            api, resource, selector=selector, model=SeenObject, metadata_only=True,
            keep=wanted, handler=handler, name=name, clock=clock, rng=rng,
        )  # fmt: skip

    return make


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
