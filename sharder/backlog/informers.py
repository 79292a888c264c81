"""The leader's three informers per resource: stranded, draining, unassigned.

Does: hold just the objects that have to move, filtered by the API server; at
rest all three are empty.  What has no shard is watched in the ring's namespaces
alone where these are few: elsewhere nothing has one either, and each change of it
would be sent here (but for what owners without a namespace control, which is the
ring's wherever it is).  Refuses: to watch objects at large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from sharder.backlog.objects import ItemKey, RingResource, Sharing
from sharder.backlog.scope import Members, RingScope
from sharder.cache.namespaces import excluded_by_name
from sharder.core.membership import Membership
from sharder.core.ringspec import Role
from sharder.core.selectors import LabelSelector
from sharder.core.summary import Pending
from shardsdk.errors import ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, Reflector
from shardsdk.kube.selectors import Selector, absent, differs, exists, join, not_in
from shardsdk.kube.store import Key, Store
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import SlimObject

_BY_SHARD = "shard"
#: A ring of more namespaces watches all there are, for a watch is a connection.
MAX_NAMESPACES: Final = 4
#: How often a list is made at least where watching is not permitted, though the sync period is longer, or off.
MAX_RELIST_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Filter:
    """What an informer shows: what the API server selects in `namespaces` (`None`: in all).

    Of that, what is in `scope` (`None`: all of it).
    """

    selector: Selector
    namespaces: tuple[str, ...] | None = None
    scope: LabelSelector | None = None


class FilteredInformer:
    """Lists and watches one resource; begun anew as a whole when its filter changes, but for namespaces that stay.

    `reflect(selector, namespace)` makes what keeps a store.  `on_synced()` is told when what was begun is complete.
    """

    def __init__(
        self, reflect: Callable[[Selector, str | None], Reflector[SlimObject]], on_synced: Callable[[], None]
    ) -> None:
        #: What it was begun with; `None`: it does not run.
        self.filter: Filter | None = None
        self._reflect = reflect
        self._on_synced = on_synced
        #: By namespace, or one for all of them under `None`.
        self._watches: dict[str | None, tuple[Reflector[SlimObject], asyncio.Task[None]]] = {}

    @property
    def _reflectors(self) -> list[Reflector[SlimObject]]:
        return [reflector for reflector, _ in self._watches.values()]

    @property
    def synced(self) -> bool:
        """Whether what it selects has been listed completely; a stopped one never is."""
        return self.filter is not None and all(each.synced.is_set() for each in self._reflectors)

    @property
    def failure(self) -> ShardingError | None:
        """Why it cannot be watched at present."""
        for each, _ in self._watches.values():
            if each.failure is not None:
                return each.failure
        return None

    def get(self, namespace: str, name: str) -> SlimObject | None:
        """The object as last seen, if it holds it."""
        store = self._store_of(namespace)
        return store.get(namespace, name) if store is not None else None

    def values(self) -> Iterator[SlimObject]:
        """The objects that it holds."""
        return iter([obj for each in self._reflectors for obj in each.store])

    def shards(self) -> set[str]:
        """The shards that the objects are labelled with."""
        return {shard for each in self._reflectors for shard in each.store.index_values(_BY_SHARD)}

    def of_shard(self, shard: str) -> Iterator[SlimObject]:
        """The objects labelled with `shard`, to be gone through before anything changes."""
        return (obj for each in self._reflectors for obj in each.store.each(_BY_SHARD, shard))

    def leave(self, namespace: str) -> list[SlimObject]:
        """Hold the objects of a namespace no longer, which has left the scope; they are told of as they change."""
        store = self._store_of(namespace)
        left = [obj for obj in store or () if obj.metadata.namespace == namespace]
        for obj in left:
            assert store is not None
            store.drop(Key(namespace, obj.metadata.name))
        return left

    def __len__(self) -> int:
        return sum(len(each.store) for each, _ in self._watches.values())

    @property
    def watches(self) -> int:
        """How many it takes."""
        return len(self._watches)

    def begin(self, tasks: asyncio.TaskGroup, wanted: Filter) -> None:
        """Begin, or begin anew; the initial events of what is begun are exactly what is selected now."""
        before = self.filter
        if before is None or (before.selector, before.scope) != (wanted.selector, wanted.scope):
            self.stop()
        self.filter = wanted
        namespaces: tuple[str | None, ...] = (None,) if wanted.namespaces is None else wanted.namespaces
        for namespace in self._watches.keys() - set(namespaces):
            self._end(namespace)
        for namespace in namespaces:
            if namespace not in self._watches:
                reflector = self._reflect(wanted.selector, namespace)
                self._watches[namespace] = reflector, tasks.create_task(self._watch(reflector))
        if self.synced:
            self._on_synced()  # nothing was begun, and what was waited for may have ended

    def restart(self) -> None:
        """List and watch anew; what it holds stays until the list shows that it is gone."""
        for each in self._reflectors:
            each.restart()

    def stop(self) -> None:
        """Watch nothing and hold nothing."""
        for namespace in list(self._watches):
            self._end(namespace)
        self.filter = None

    def _store_of(self, namespace: str) -> Store[SlimObject] | None:
        watch = self._watches.get(namespace) or self._watches.get(None)
        return watch[0].store if watch is not None else None

    def _end(self, namespace: str | None) -> None:
        _, task = self._watches.pop(namespace)
        task.cancel()

    async def _watch(self, reflector: Reflector[SlimObject]) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reflector.run())
            await reflector.synced.wait()
            if self.synced:
                self._on_synced()


OnEvent = Callable[[int, Pending, Delta[SlimObject]], None]


class Informers:
    """The informers of one ring's resources, by number and kind.

    `on_event(number, kind, delta)` is told of every event, `on_synced()` whenever one is complete,
    `on_failing()` when one cannot be watched.
    """

    def __init__(
        self,
        scope: RingScope,
        members: Members,
        api: Api,
        *,
        clock: Clock,
        rng: Random,
        sync_period_seconds: float,
        on_event: OnEvent,
        on_synced: Callable[[], None],
        on_failing: Callable[[], None],
    ) -> None:
        self._scope = scope
        self._members = members
        self._api = api
        self._clock = clock
        self._rng = rng
        self._sync_period_seconds = sync_period_seconds
        self._on_event = on_event
        self._on_synced = on_synced
        self._on_failing = on_failing
        self._tasks: asyncio.TaskGroup | None = None
        self._each: dict[tuple[int, Pending], FilteredInformer] = {}
        self.set_scope(scope)

    def _kinds(self, number: int) -> Iterator[Pending]:
        of_ring = self._scope.resources[number]
        yield Pending.STRANDED
        if of_ring.role is Role.MAIN:
            yield Pending.DRAINING
        if not of_ring.removed and (
            of_ring.subject.role is Role.MAIN or self._scope.ring.spec.watch_unassigned_controlled
        ):
            yield Pending.UNASSIGNED

    def _make(self, number: int, kind: Pending) -> FilteredInformer:
        resource, shard = self._scope.resources[number].subject.resource, self._scope.labels.shard
        sharing = Sharing(self._scope.labels)

        def keep(obj: SlimObject) -> bool:
            scope, of_ring = self._scope, self._scope.resources[number]
            if kind is Pending.UNASSIGNED:
                return scope.is_ours(of_ring, obj.metadata)
            return of_ring.concerns(obj.metadata)

        def shards_of(obj: SlimObject) -> tuple[str, ...]:
            value = obj.metadata.label(shard)
            return (value,) if value is not None else ()

        def reflect(selector: Selector, namespace: str | None) -> Reflector[SlimObject]:
            return Reflector(
                self._api, resource, namespace=namespace, selector=selector, model=SlimObject, metadata_only=True,
                keep=keep, transform=sharing.share,
                handler=lambda delta: self._on_event(number, kind, delta), on_failing=self._on_failing,
                name="/".join(filter(None, (self._scope.name, resource.plural, kind, namespace))),
                clock=self._clock, rng=self._rng, indexes={_BY_SHARD: shards_of},
                relist_seconds=min(self._sync_period_seconds, MAX_RELIST_SECONDS),
            )  # fmt: skip

        return FilteredInformer(reflect, self._on_synced)

    # -- running -----------------------------------------------------------

    async def run(self) -> None:
        """List and watch until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            self.follow()
            await asyncio.Event().wait()

    def set_scope(self, scope: RingScope) -> None:
        """Show the resources of `scope` from now on; those that stay are neither listed nor watched anew."""
        self._scope = scope
        wanted = [(number, kind) for number in scope.resources for kind in self._kinds(number)]
        for each in self._each.keys() - set(wanted):
            self._each.pop(each).stop()
        for number, kind in wanted:
            if (number, kind) not in self._each:
                self._each[number, kind] = self._make(number, kind)
        self.follow()

    def follow(self) -> None:
        """Begin, renew and end informers as the ring's shards and resources want it."""
        for (number, kind), informer in self._each.items() if self._tasks is not None else ():
            assert self._tasks is not None
            wanted = self._filter(number, kind)
            if wanted is None:
                informer.stop()
            elif wanted != informer.filter:
                informer.begin(self._tasks, wanted)

    def _filter(self, number: int, kind: Pending) -> Filter | None:
        labels, membership, ring = self._scope.labels, self._members.membership, self._scope.ring
        if kind is Pending.DRAINING:
            return Filter(select_draining(labels))
        if not membership.available:
            # Nothing can be placed, and both others would hold every object there is.
            return None
        if kind is Pending.STRANDED:
            return Filter(select_stranded(labels, membership))
        if not self._scope.resources[number].subject.resource.namespaced:
            return Filter(select_unassigned(labels, ()), scope=ring.namespace_selector)
        if self._scope.resources[number].subject.owners_stay:
            return Filter(select_unassigned(labels, ()))
        namespaces = self._scope.namespaces()
        if namespaces is not None and len(namespaces) <= MAX_NAMESPACES:
            return Filter(select_unassigned(labels, ()), namespaces)
        return Filter(select_unassigned(labels, excluded_by_name(ring) or ()), scope=ring.namespace_selector)

    def restart(self) -> None:
        """List and watch anew: an API server may hang, and say nothing of it."""
        for informer in self._each.values():
            informer.restart()

    def leave(self, namespace: str) -> Iterator[ItemKey]:
        """Hold the unassigned objects of a namespace no longer, which has left the scope; yields them."""
        for (number, kind), informer in self._each.items():
            leaves = kind is Pending.UNASSIGNED and not self._scope.resources[number].subject.owners_stay
            for obj in informer.leave(namespace) if leaves else ():
                yield ItemKey(number, namespace, obj.metadata.name)

    # -- what they hold ----------------------------------------------------

    def get(self, number: int, kind: Pending) -> FilteredInformer | None:
        """One of them; `None`: that resource has none of this kind."""
        return self._each.get((number, kind))

    def of(self, kind: Pending) -> Iterator[tuple[int, FilteredInformer]]:
        """Those of one kind, each with the number of its resource."""
        return ((number, informer) for (number, each), informer in self._each.items() if each is kind)

    def count(self, kind: Pending) -> int:
        """How many objects those of `kind` hold."""
        return sum(len(informer) for (_, each), informer in self._each.items() if each is kind)

    def __len__(self) -> int:
        return sum(map(len, self._each.values()))

    @property
    def watches_beside(self) -> int:
        """Watches beside one for each: those of single namespaces."""
        return sum(max(informer.watches - 1, 0) for informer in self._each.values())

    def find(self, key: ItemKey) -> SlimObject | None:
        """The object as they show it; `None`: none of them holds it."""
        for kind in (Pending.STRANDED, Pending.UNASSIGNED, Pending.DRAINING):
            informer = self._each.get((key.resource, kind))
            if informer is not None and (obj := informer.get(key.namespace, key.name)) is not None:
                return obj
        return None

    def stranded_shards(self) -> set[str]:
        """The shards that are not available and have objects."""
        return {shard for _, informer in self.of(Pending.STRANDED) for shard in informer.shards()}

    def failures(self) -> Iterator[tuple[RingResource, Pending, ShardingError]]:
        """Those that cannot watch at present, and why."""
        for (number, kind), informer in self._each.items():
            if informer.failure is not None:
                yield self._scope.resources[number], kind, informer.failure


def select_unassigned(labels: RingLabels, excluded_namespaces: tuple[str, ...]) -> Selector:
    """Objects without a shard; namespaces that never belong to the ring are cut by the API server."""
    fields = join(*(differs("metadata.namespace", namespace) for namespace in excluded_namespaces))
    return Selector(labels=absent(labels.shard), fields=fields)


def select_draining(labels: RingLabels) -> Selector:
    """Objects that their shard is asked to let go; a drain label on what nobody has waits for nobody."""
    return Selector(labels=join(exists(labels.shard), exists(labels.drain)))


def select_stranded(labels: RingLabels, membership: Membership) -> Selector:
    """Objects labelled with a shard that is not available; the ring must have an available one.

    Names that two leases claim, and shards whose Lease keeps the sharder from them, count as available here: their
    objects stay.
    """
    # `notin` alone would match objects without the label too.
    alive = membership.available | membership.untouched
    return Selector(labels=join(exists(labels.shard), not_in(labels.shard, alive)))
