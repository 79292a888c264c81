"""What has to be placed, of one ring: what informers show, what a resync found, and since when.

Does: enqueue objects, each once however often it is told of, hand them out with
what was last seen of them, and say which shards that are not available have
objects still.

Refuses: to decide, to write, and to know who works on what it hands out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, Final, Protocol

from sharder.backlog.informers import FilteredInformer, Informers
from sharder.backlog.objects import ItemKey, newest_first, slim
from sharder.backlog.scope import Members, RingScope
from sharder.backlog.waiting import WaitingSince
from sharder.core.summary import Pending
from shardsdk.errors import Gone
from shardsdk.kube.api import Api
from shardsdk.kube.backoff import double
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.kube.selectors import Selector, equals
from shardsdk.protocol.labels import is_label_name
from shardsdk.protocol.objects import SlimObject
from shardsdk.queueing.queue import Priority, RateLimit, WorkQueue

#: How long an object waits after a failure, at first and at most.
RETRY_SECONDS: Final = (0.05, 10.0)
#: The same where the API server refuses the patch until somebody changes something, the object or what refuses it.
REFUSED_SECONDS: Final = (1.0, 60.0)
#: Objects enqueued before other tasks get a turn.
TURN_OBJECTS: Final = 500


class Handler(Protocol):
    """Whoever is told what the informers show, after the backlog has taken it in."""

    def on_event(self, key: ItemKey, kind: Pending, obj: SlimObject, *, gone: bool) -> None:
        """An object came into an informer or changed there; `gone`: it left it."""

    def on_synced(self) -> None:
        """An informer is complete."""


class Backlog:
    """The objects of one ring that have to be placed."""

    def __init__(
        self,
        scope: RingScope,
        members: Members,
        api: Api,
        *,
        clock: Clock,
        rng: Random,
        sync_period_seconds: float,
    ) -> None:
        self._scope = scope
        self._members = members
        self._api = api
        self._clock = clock
        self.labels = scope.labels
        self._handlers: list[Handler] = []
        #: Told whenever what waits, or what is known of it, may have changed; often, so be quick.
        self.when_changed: list[Callable[[], None]] = []
        self.queue: WorkQueue[ItemKey] = WorkQueue(
            clock, name=f"placement/{scope.name}", rate_limit=RateLimit(*RETRY_SECONDS, per_second=None)
        )
        self.informers = Informers(
            scope, members, api, clock=clock, rng=rng, sync_period_seconds=sync_period_seconds,
            on_event=self._on_event, on_synced=self._on_synced, on_failing=self._on_failing,
        )  # fmt: skip
        #: How often an API server did not know where a watch was.
        self.lost_positions: int = 0
        self.waiting = WaitingSince(clock)
        #: Since when objects drain, those that have been draining longest first.
        self.drains_since: dict[ItemKey, float] = {}
        #: Namespaces that came into the ring's scope or left it since everything was where it should be.
        self.unsettled_namespaces: set[str] = set()
        #: What no informer need hold: found by a resync, or given a place to drain.
        self._found: dict[ItemKey, SlimObject] = {}
        #: Let go by their shards, and shown by no informer since.
        self._to_read: set[ItemKey] = set()
        #: Handed out although no informer shows them, and not placed yet: whoever puts one off gets it read.
        self._unshown: set[ItemKey] = set()
        self._deferred: dict[ItemKey, None] = {}
        #: Refused when they were looked at last; the queue has each of them come again by itself.
        self._refused: set[ItemKey] = set()
        self._has_news = False

    async def run(self) -> None:
        """Keep the informers until cancelled."""
        try:
            await self.informers.run()
        finally:
            await self.queue.shut_down()

    def set_scope(self, scope: RingScope) -> None:
        """The ring has been edited: keep what concerns the resources that stay, and forget all about the others."""
        self._scope = scope
        self.informers.set_scope(scope)
        self.waiting.keep(lambda key: key.resource in scope.resources)
        known: dict[ItemKey, Any]
        for known in (self.drains_since, self._found, self._deferred):
            for key in [key for key in known if key.resource not in scope.resources]:
                del known[key]
        self._to_read = {key for key in self._to_read if key.resource in scope.resources}
        self._unshown = {key for key in self._unshown if key.resource in scope.resources}
        self._refused = {key for key in self._refused if key.resource in scope.resources}

    def subscribe(self, handler: Handler) -> Callable[[], None]:
        """Tell `handler` what the informers show, beginning with what they show already; returns the undo."""
        self._handlers.append(handler)
        for kind in Pending:
            for number, informer in self.informers.of(kind):
                for obj in informer.values():
                    handler.on_event(ItemKey(number, obj.metadata.namespace, obj.metadata.name), kind, obj, gone=False)
        handler.on_synced()
        return lambda: self._handlers.remove(handler)

    # -- enqueuing -----------------------------------------------------------

    def enqueue(self, key: ItemKey, priority: Priority = Priority.FRESH) -> None:
        """Have an object looked at that an informer holds."""
        self.waiting.begin(key)
        self.queue.add(key, priority)
        self._tell_changed()

    def enqueue_found(self, key: ItemKey, obj: SlimObject, priority: Priority = Priority.BULK) -> None:
        """Have an object looked at that no informer need hold."""
        self._found[key] = SlimObject(slim(obj.metadata, self._scope.labels))
        self.enqueue(key, priority)

    def enqueue_admitted(self, key: ItemKey, obj: SlimObject) -> None:
        """Have an object looked at again that may be drained now."""
        self.enqueue_found(key, obj, Priority.FRESH)

    def enqueue_to_read(self, key: ItemKey) -> None:
        """Have an object read and looked at that its shard has let go."""
        self._to_read.add(key)
        self.queue.add(key)

    async def enqueue_all(self, *kinds: Pending) -> None:
        """Have everything looked at again that the informers of these kinds hold."""
        for kind in kinds:
            await self._enqueue(kind, FilteredInformer.values, Priority.BULK)

    async def enqueue_shard(self, shard: str) -> None:
        """Have everything looked at that `shard` has, which is gone."""
        await self._enqueue(Pending.STRANDED, lambda informer: newest_first(informer.of_shard(shard)))

    async def _enqueue(
        self,
        kind: Pending,
        objects: Callable[[FilteredInformer], Iterable[SlimObject]],
        priority: Priority = Priority.FRESH,
        *,
        refused: bool = True,
    ) -> None:
        for number, informer in list(self.informers.of(kind)):
            for count, obj in enumerate(objects(informer), start=1):
                key = ItemKey(number, obj.metadata.namespace, obj.metadata.name)
                if refused or key not in self._refused:
                    self.enqueue(key, priority)
                if count % TURN_OBJECTS == 0:
                    await asyncio.sleep(0)

    def requeue_after(self, key: ItemKey, seconds: float) -> None:
        """Have an object looked at again that could not be placed, later than the last time."""
        self.queue.add_rate_limited(key, Priority.BULK, at_least_seconds=seconds)

    def requeue_refused(self, key: ItemKey) -> None:
        """Have an object looked at again whose patch was refused: ever less often, unless something happens to it."""
        self._refused.add(key)
        self.requeue_after(key, double(REFUSED_SECONDS[0], self.queue.requeues(key), REFUSED_SECONDS[1]))

    def retry_refused(self) -> None:
        """Have everything looked at again that was refused: something of it is refused no more."""
        for key in self._refused:
            self.queue.add(key, Priority.BULK)

    def defer(self, key: ItemKey) -> None:
        """Have an object looked at again, some time, that no event brings back."""
        self._deferred[key] = None
        self._tell_changed()

    # -- taking --------------------------------------------------------------

    def take(self, key: ItemKey) -> tuple[SlimObject | None, bool]:
        """The object as it was last seen (`None`: not at all), and whether it has to be read, whatever was seen."""
        found, shown = self._found.pop(key, None), self.informers.find(key)
        to_read = key in self._to_read or (shown is None and found is None and key in self._unshown)
        self._to_read.discard(key)
        self._refused.discard(key)
        if shown is not None:
            self._unshown.discard(key)
        elif found is not None or to_read:
            self._unshown.add(key)
        return shown or found, to_read

    def end(self, key: ItemKey) -> None:
        """An object has been placed, need not be, or is gone."""
        self.waiting.end(key)
        self._unshown.discard(key)

    def leave_to_informers(self, key: ItemKey) -> None:
        """An object has been changed so that an informer shows it from now on."""
        self._unshown.discard(key)

    def enqueue_deferred(self, most: int) -> None:
        """Have some of those looked at that were deferred."""
        for key in list(self._deferred)[:most]:
            del self._deferred[key]
            self.queue.add(key, Priority.BULK)

    async def enqueue_again(self) -> None:
        """Have everything looked at that the informers hold and that waits to be placed; also what was deferred.

        But for what was refused: that comes by itself, and would be refused again.
        """
        self._deferred.clear()
        for kind in (Pending.UNASSIGNED, Pending.STRANDED):
            await self._enqueue(kind, FilteredInformer.values, Priority.BULK, refused=False)
        # What waited for a place, and was gone with its shard before an informer showed it, is put off no more.
        self._unshown.intersection_update(self.queue.items())
        # An informer that begins anew tells of nothing that left it.
        if len(self.waiting) > len(self.informers):
            self.waiting.keep(lambda key: self.informers.find(key) is not None)

    def take_news(self) -> bool:
        """Whether something came that has to be placed since this was asked last."""
        news, self._has_news = self._has_news, False
        return news

    def leave(self, namespace: str) -> list[ItemKey]:
        """Hold nothing unassigned of a namespace any more, which has left the ring's scope; returns what was held."""
        left = list(self.informers.leave(namespace))
        for key in left:
            self.end(key)
        return left

    def settle(self) -> None:
        """Everything is where it should be: let go of the room that a mass move has taken, for dicts keep it."""
        self.unsettled_namespaces.clear()
        self.waiting.compact()
        self._found, self._to_read, self._unshown = dict(self._found), set(self._to_read), set(self._unshown)
        self.drains_since = dict(self.drains_since)

    # -- what is left --------------------------------------------------------

    @property
    def found(self) -> int:
        """How many objects wait that no informer need hold."""
        return len(self._found)

    def is_empty_of(self, shard: str) -> bool | None:
        """Whether no object is seen that carries the label of `shard`, which is not available; `None`: not known."""
        stranded = [informer for _, informer in self.informers.of(Pending.STRANDED)]
        if any(True for _ in self.namespaces_of(shard)):
            return False
        gone = shard not in self._members.membership.available and self._members.adopted
        return True if gone and all(informer.synced for informer in stranded) else None

    def namespaces_of(self, shard: str) -> Iterator[str]:
        """The namespace of each object that carries the label of `shard`, which is not available; at once, or not."""
        stranded = (informer for _, informer in self.informers.of(Pending.STRANDED))
        return (obj.metadata.namespace for informer in stranded for obj in informer.of_shard(shard))

    async def confirm_empty_of(self, shard: str) -> bool:
        """A consistent read of every resource: does no object of ours carry the label of `shard`?"""
        if not is_label_name(shard):
            return True  # no object can, and an API server refuses a selector that asks for it
        selector = Selector(labels=equals(self._scope.labels.shard, shard))
        for resource in self._scope.resources.values():
            pages = self._api.pages(resource.subject.resource, selector=selector, model=SlimObject, metadata_only=True)
            async for page in pages:
                if any(resource.concerns(obj.metadata) for obj in page):
                    return False
        return True

    # -- events --------------------------------------------------------------

    def _tell_changed(self) -> None:
        for tell in tuple(self.when_changed):
            tell()

    def _on_event(self, number: int, kind: Pending, delta: Delta[SlimObject]) -> None:
        obj, gone = delta.object, delta.kind is EventKind.DELETED
        key = ItemKey(number, obj.metadata.namespace, obj.metadata.name)
        if kind is Pending.DRAINING and gone:
            self.drains_since.pop(key, None)
        elif kind is Pending.DRAINING:
            self.drains_since.setdefault(key, self._clock.monotonic())
        elif gone:
            self.end(key)
        else:
            self._has_news = True
            self.enqueue(key)
        for handler in tuple(self._handlers):
            handler.on_event(key, kind, obj, gone=gone)
        self._tell_changed()

    def _on_failing(self) -> None:
        self.lost_positions += any(isinstance(error, Gone) for _, _, error in self.informers.failures())
        self._tell_changed()

    def _on_synced(self) -> None:
        for handler in tuple(self._handlers):
            handler.on_synced()
        self._tell_changed()
