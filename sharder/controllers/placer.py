"""Placement of one ring's objects, under one leadership.

Does: feed what the three watches and the resync show to workers, which take the
one decision and write one conditional patch.  An object that is taken away from
a shard moves under the hold on that shard's lease.

Refuses: to keep objects that need not move, and to write what it has not seen
in the version that it writes against.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from sharder.controllers.families import Families
from sharder.controllers.groups import GroupMover
from sharder.controllers.labelwriter import Authority, LabelWriter
from sharder.controllers.namespaces import excluded_by_name
from sharder.controllers.news import News
from sharder.controllers.resync import Resync
from sharder.controllers.seen import ItemKey, Placed, SeenMeta, SeenObject, newest_first, seen
from sharder.controllers.selections import (
    Kind,
    Selection,
    Source,
    select_draining,
    select_stranded,
    select_unassigned,
)
from sharder.controllers.surroundings import Surroundings
from sharder.controllers.sweeping import Sweep
from sharder.controllers.transit import Transit
from sharder.controllers.waitingsince import WaitingSince
from sharder.controllers.worker import Worker
from sharder.core.keys import controlled_key, resource_key
from sharder.core.membership import Membership
from sharder.core.ringspec import ResolvedRing, Role
from shardsdk.errors import ShardingError
from shardsdk.kube.selectors import Selector, equals
from shardsdk.runtime.queue import Priority, RateLimit, WorkQueue

#: How long an object waits after a failure, at first and at most.
RETRY_SECONDS: Final = (0.05, 10.0)
#: Objects offered before other tasks get a turn.
TURN_OBJECTS: Final = 500
#: Misplaced objects held at most while they wait; the resync leaves out what is more, and comes again.
MAX_MISPLACED: Final = 10_000


class Placer:
    """Placement of one ring; `run` it until the ring changes or leadership ends."""

    def __init__(self, around: Surroundings, ring: ResolvedRing, retired: tuple[Placed, ...] = ()) -> None:
        self.ring = ring
        self.labels = ring.spec.labels
        self.name = ring.spec.name
        self.around = around
        self.membership = Membership()
        self.placed = tuple(Placed(subject) for subject in ring.subjects()) + retired
        #: Since when objects drain, those that have been draining longest first.
        self.drains_since: dict[ItemKey, float] = {}
        self.waiting = WaitingSince(around.clock)
        self._misplaced: dict[ItemKey, SeenObject] = {}
        #: Let go by their shards, and shown by no watch since.
        self._unseen: set[ItemKey] = set()
        self.queue: WorkQueue[ItemKey] = WorkQueue(
            around.clock, name=f"placement/{self.name}", rate_limit=RateLimit(*RETRY_SECONDS, per_second=None)
        )
        #: The watches, by resource (index) and kind.
        self.selections: dict[tuple[int, Kind], Selection] = {}
        self._acquired: set[str] = set()
        self._changed = asyncio.Event()
        self._membership_wanted = Membership()
        self.writer = LabelWriter(
            around.api, self.name, self.labels, self, Authority(around.leader, around.confirmed, around.holds),
            concurrent_writes=around.concurrent_moves, waiting=self.waiting, counters=around.counters,
            clock=around.clock,
        )  # fmt: skip
        self.families = Families(self)
        self.transit = Transit(
            around.concurrent_moves, around.clock, self._may_drain,
            ready=lambda index: not self.placed[index].grouped or self.families.ready,
            paced=lambda index: self.placed[index].grouped,
            resources=sum(each.subject.role is Role.MAIN for each in self.placed),
        )  # fmt: skip
        self.groups = GroupMover(self)
        self.sweep = Sweep(self)
        self._news = News(self)
        self.resync = Resync(self)
        for index in range(len(self.placed)):
            self._make_selections(index)

    # -- set-up ----------------------------------------------------------

    def _make_selections(self, index: int) -> None:
        placed = self.placed[index]
        around = self.around
        source = Source(
            around.api, placed.subject.resource, self.labels, around.clock, around.rng, around.sync_period_seconds
        )  # fmt: skip
        kinds = [Kind.STRANDED, Kind.DRAINING]
        watch_controlled = self.ring.spec.watch_unassigned_controlled
        if not placed.retired and (placed.subject.role is Role.MAIN or watch_controlled):
            kinds.append(Kind.UNASSIGNED)
        for kind in kinds:
            if kind is Kind.DRAINING and placed.subject.role is Role.CONTROLLED:
                continue

            def wanted(obj: SeenObject, kind: Kind = kind) -> bool:
                if kind is Kind.UNASSIGNED:
                    return self.is_ours(placed, obj.metadata)
                return placed.retired or self.key_of(placed, obj.metadata) is not None

            self.selections[index, kind] = Selection(
                source, kind, wanted, name=f"{self.name}/{placed.subject.resource.plural}/{kind}",
                on_event=lambda kind, delta, index=index: self._news.on_event(index, kind, delta),  # type: ignore[misc]
                on_synced=self._news.on_synced,
            )  # fmt: skip

    def in_scope(self, meta: SeenMeta) -> bool:
        """Whether the object's namespace belongs to the ring."""
        return self.around.scope.covers(self.ring, meta.namespace)

    def is_ours(self, placed: Placed, meta: SeenMeta) -> bool:
        """Whether the ring has a key for the object, and its namespace in scope."""
        if not self.in_scope(meta):
            return False
        return placed.subject.role is Role.MAIN or self.key_of(placed, meta) is not None

    def key_of(self, placed: Placed, meta: SeenMeta) -> str | None:
        """The ring key of an object; `None`: nothing in the ring controls it."""
        subject = placed.subject
        if subject.role is Role.MAIN:
            return resource_key(subject.resource, meta.namespace, meta.name)
        return controlled_key(meta.controller, meta.namespace, subject.main.resource)

    # -- running ---------------------------------------------------------

    def set_membership(self, membership: Membership) -> None:
        """Place by `membership` from now on."""
        if membership != self._membership_wanted:
            self._membership_wanted = membership
            self._changed.set()

    async def run(self) -> None:
        """Place until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                worker = Worker(self)
                for _ in range(self.around.concurrent_moves):
                    tasks.create_task(worker.run())
                tasks.create_task(self.groups.run())
                tasks.create_task(self.families.run())
                tasks.create_task(self.resync.run())
                tasks.create_task(self.sweep.run())
                for index, _ in enumerate(self.placed):
                    if (draining := self.selections.get((index, Kind.DRAINING))) is not None:
                        draining.renew(tasks, select_draining(self.labels))
                await self._follow_changes(tasks)
        finally:
            await self.queue.shut_down()

    async def _follow_changes(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._membership_wanted != self.membership:
                self._follow(tasks, self._membership_wanted)
                await self.offer_all(Kind.UNASSIGNED, Kind.STRANDED)
                self.groups.retry()
            acquired, self._acquired = self._acquired, set()
            for shard in sorted(acquired):
                await self._offer(Kind.STRANDED, lambda selection, shard=shard: newest_first(selection.of_shard(shard)))  # type: ignore[misc]
                self.groups.retry()

    def _follow(self, tasks: asyncio.TaskGroup, new: Membership) -> None:
        old, self.membership = self.membership, new
        excluded = excluded_by_name(self.ring) or ()
        alive_before, alive = old.available | old.ambiguous, new.available | new.ambiguous
        for (index, kind), selection in self.selections.items():
            namespaced = self.placed[index].subject.resource.namespaced
            if kind is Kind.DRAINING:
                continue
            if not new.available:
                # Nothing can be placed, and both selections would be every object there is.
                selection.stop()
            elif kind is Kind.STRANDED and (alive != alive_before or not selection.running):
                selection.renew(tasks, select_stranded(self.labels, new))
            elif kind is Kind.UNASSIGNED and not selection.running:
                selection.renew(tasks, select_unassigned(self.labels, excluded if namespaced else ()))
        self.families.set_membership()
        self.transit.set_shards(new.available)
        self._news.look_at_drains()
        self.resync.follow(old, new)

    def restart_watches(self) -> None:
        """Begin every watch anew: an API server may hang, and say nothing of it."""
        for selection in self.selections.values():
            selection.restart()
        self.families.restart()

    def namespace_changed(self, namespace: str) -> None:
        """A namespace came into the ring's scope or left it."""
        if not self.around.scope.covers(self.ring, namespace):
            for (index, kind), selection in self.selections.items():
                for obj in selection.leave(namespace) if kind is Kind.UNASSIGNED else ():
                    key = ItemKey(index, namespace, obj.metadata.name)
                    self.waiting.end(key)
                    self.transit.leave(key)
        self.resync.namespace_changed(namespace)

    # -- what others ask -------------------------------------------------

    def selection(self, index: int, kind: Kind) -> Selection | None:
        """One of the watches; `None`: that resource has none of this kind."""
        return self.selections.get((index, kind))

    def count(self, kind: Kind) -> int:
        """How many objects the selections of `kind` hold."""
        return sum(len(selection) for (_, each), selection in self.selections.items() if each is kind)

    def failures(self) -> Iterator[tuple[Placed, Kind, ShardingError]]:
        """Selections that cannot be watched at present."""
        for (index, kind), selection in self.selections.items():
            if selection.failure is not None:
                yield self.placed[index], kind, selection.failure

    @property
    def owners_leave(self) -> bool:
        """Whether objects leave, with their resource, that may control others."""
        return any(each.retired and each.subject.role is Role.MAIN for each in self.placed)

    def unwatched(self, index: int) -> bool:
        """Whether unassigned objects of this resource show in a resync only."""
        return (index, Kind.UNASSIGNED) not in self.selections

    def work_left(self, shard: str) -> bool | None:
        """Whether objects are seen that carry the label of `shard`, which is not available."""
        known = True
        for (_, kind), selection in self.selections.items():
            if kind is not Kind.STRANDED:
                continue
            if shard in selection.shards():
                return True
            known &= selection.synced
        followed = shard not in self.membership.available and self.membership == self._membership_wanted
        return False if known and followed else None

    async def confirm_empty(self, shard: str) -> bool:
        """A consistent read of every resource: does no object of ours carry the label of `shard`?"""
        selector = Selector(labels=equals(self.labels.shard, shard))
        for placed in self.placed:
            pages = self.around.api.pages(
                placed.subject.resource, selector=selector, model=SeenObject, metadata_only=True
            )
            async for page in pages:
                # A child that was orphaned keeps its label, and is nobody's business any more.
                if any(placed.retired or self.key_of(placed, obj.metadata) is not None for obj in page):
                    return False
        return True

    def stranded_shards(self) -> set[str]:
        """The shards that are not available and have objects."""
        stranded = (selection for (_, kind), selection in self.selections.items() if kind is Kind.STRANDED)
        return {shard for selection in stranded for shard in selection.shards()}

    def hold_acquired(self, shard: str) -> None:
        """Objects may be taken away from `shard` from now on."""
        self._acquired.add(shard)
        self._changed.set()

    # -- feeding ---------------------------------------------------------

    def offer(self, index: int, obj: SeenObject, priority: Priority = Priority.FRESH) -> None:
        """Have an object looked at that one of the watches holds."""
        key = ItemKey(index, obj.metadata.namespace, obj.metadata.name)
        self.waiting.begin(key)
        self.queue.add(key, priority)

    @property
    def misplaced(self) -> int:
        """How many objects wait that a resync came across."""
        return len(self._misplaced) + self.transit.waiting

    def offer_misplaced(self, index: int, obj: SeenObject) -> bool:
        """Have an object looked at that a resync came across; False: there are too many, and it is left out."""
        if self.misplaced >= MAX_MISPLACED:
            return False
        key = ItemKey(index, obj.metadata.namespace, obj.metadata.name)
        self._misplaced[key] = obj
        self.waiting.begin(key)
        self.queue.add(key, Priority.BULK)
        return True

    def _may_drain(self, key: ItemKey, obj: SeenObject) -> None:
        self._misplaced[key] = obj
        self.queue.add(key)

    def read_unseen(self, key: ItemKey) -> None:
        """Have an object read and looked at that its shard has let go."""
        self._unseen.add(key)
        self.queue.add(key)

    async def offer_all(self, *kinds: Kind) -> None:
        """Have everything looked at again that the selections of these kinds hold."""
        for kind in kinds:
            await self._offer(kind, Selection.values, Priority.BULK)

    async def _offer(
        self, kind: Kind, objects: Callable[[Selection], Iterable[SeenObject]], priority: Priority = Priority.FRESH
    ) -> None:
        for (index, each), selection in self.selections.items():
            for count, obj in enumerate(objects(selection) if each is kind else (), start=1):
                self.offer(index, obj, priority)
                if count % TURN_OBJECTS == 0:
                    await asyncio.sleep(0)

    def compact(self) -> None:
        """Let go of the room that a mass move has taken: a dict keeps what it had at its largest."""
        self.waiting.compact()
        self._misplaced, self._unseen = dict(self._misplaced), set(self._unseen)
        self.drains_since = dict(self.drains_since)
        self.groups.compact()

    def forget_unseen(self) -> None:
        """Forget since when objects wait that no selection holds: one that begins anew tells of nothing."""
        if len(self.waiting) > sum(map(len, self.selections.values())):
            self.waiting.keep(lambda key: self.held(key) is not None)

    # -- what workers and groups use --------------------------------------

    def held(self, key: ItemKey) -> SeenObject | None:
        """The object as the watches show it; `None`: none of them holds it."""
        for kind in (Kind.STRANDED, Kind.UNASSIGNED, Kind.DRAINING):
            selection = self.selections.get((key.resource, kind))
            if selection is not None and (obj := selection.get(key.namespace, key.name)) is not None:
                return obj
        return None

    def take_latest(self, key: ItemKey) -> SeenObject | None:
        """The object as last seen, by a watch or by the resync that came across it."""
        found = self._misplaced.pop(key, None)
        if 2 * self.misplaced < MAX_MISPLACED:
            self.resync.has_room()
        return self.held(key) or found

    def take_unseen(self, key: ItemKey) -> bool:
        """Whether the object has to be read, whatever the watches show; asked once."""
        found = key in self._unseen
        self._unseen.discard(key)
        return found

    def again(self, key: ItemKey, seconds: float) -> None:
        """Have an object looked at again, later."""
        self.queue.add_rate_limited(key, Priority.BULK, at_least_seconds=seconds)

    async def read_again(self, placed: Placed, key: ItemKey) -> SeenObject | None:
        """The object as a consistent read shows it; `None`: it is gone."""
        found = await self.around.api.find(placed.subject.resource, key.name, key.namespace or None)
        return seen(found) if found is not None else None
