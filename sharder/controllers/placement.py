"""Leader's part: one placer per ring, begun, renewed and ended as rings change.

Does: connect placers with membership, namespaces and the leases' side, and sum
up for people what each ring waits for.  Refuses: to place anything before the
caches are in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sharder.controllers.namespaces import Namespaces, excluded_by_name
from sharder.controllers.placer import Placer
from sharder.controllers.registry import Change, Registry
from sharder.controllers.seen import Placed, SeenMeta
from sharder.controllers.selections import Kind
from sharder.controllers.surroundings import Surroundings
from sharder.core.ringspec import ResolvedMain, Role, Subject
from shardsdk.errors import ShardingError
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import GroupResource, Resource

log = logging.getLogger(__name__)

#: How often the sums are looked at that people see.
SUMMARY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class OldestDrain:
    """The drain that has waited longest for its acknowledgement."""

    resource: GroupResource
    namespace: str
    name: str
    shard: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Summary:
    """What a ring waits for; `counts` per kind of selection and resource."""

    settled: bool = False
    counts: dict[tuple[Kind, GroupResource], int] = field(default_factory=dict)
    oldest_drain: OldestDrain | None = None
    failures: tuple[tuple[GroupResource, Kind, ShardingError], ...] = ()
    retired_clean: frozenset[GroupResource] = frozenset()

    def count(self, kind: Kind) -> int:
        """Objects of one kind over all resources."""
        return sum(number for (each, _), number in self.counts.items() if each is kind)


@dataclass(slots=True)
class _Running:
    placer: Placer
    task: asyncio.Task[None]
    retired: tuple[Placed, ...]


class PlacementController:
    """The placers of all rings.

    `retired_of(ring)` names resources that the ring listed once and whose
    objects may still be labelled, each with whether it was controlled.
    """

    def __init__(
        self,
        registry: Registry,
        namespaces: Namespaces,
        *,
        make_surroundings: Callable[[], Surroundings],
        retired_of: Callable[[str], tuple[Placed, ...] | None],
        on_summary: Callable[[str, Summary], None],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._registry = registry
        self._namespaces = namespaces
        self._make_surroundings = make_surroundings
        self._retired_of = retired_of
        self._on_summary = on_summary
        self._running: dict[str, _Running] = {}
        self._dirty: set[str] = set()
        self._wake = asyncio.Event()

    # -- the leases' side asks ---------------------------------------------

    def work_left(self, ring: str, shard: str) -> bool | None:
        """Whether objects are seen that carry the shard's label; `None` while not known."""
        running = self._running.get(ring)
        return running.placer.work_left(shard) if running is not None else None

    async def confirm_empty(self, ring: str, shard: str) -> bool:
        """A consistent read: does no object carry the shard's label any more?"""
        running = self._running.get(ring)
        return running is not None and await running.placer.confirm_empty(shard)

    def hold_acquired(self, ring: str, shard: str) -> None:
        """The shard's objects may be moved from now on."""
        if (running := self._running.get(ring)) is not None:
            running.placer.hold_acquired(shard)

    def stranded_shards(self, ring: str) -> set[str]:
        """Shards of the ring that are not available and have objects."""
        running = self._running.get(ring)
        return running.placer.stranded_shards() if running is not None else set()

    # -- running -----------------------------------------------------------

    async def run(self) -> None:
        """Place until cancelled."""
        unsubscribe = self._registry.subscribe(self._on_change)
        try:
            await self._namespaces.reflector.synced.wait()
            self._dirty.update(entry.name for entry in self._registry.entries())
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._summarize())
                self._wake.set()
                while True:
                    await self._wake.wait()
                    self._wake.clear()
                    dirty, self._dirty = self._dirty, set()
                    for ring in sorted(dirty):
                        self._follow(tasks, ring)
        finally:
            unsubscribe()

    def refresh(self, ring: str) -> None:
        """The ring, or what it has retired, may have changed."""
        self._dirty.add(ring)
        self._wake.set()

    def _on_change(self, ring: str, what: int) -> None:
        if what & Change.RING:
            self.refresh(ring)
        elif what & Change.MEMBERSHIP and (running := self._running.get(ring)) is not None:
            entry = self._registry.entry(ring)
            if entry is not None:
                running.placer.set_membership(entry.membership)

    def on_namespace(self, name: str, before: SeenMeta | None, after: SeenMeta | None) -> None:
        """A namespace came, changed its labels or went."""
        for running in self._running.values():
            ring = running.placer.ring
            if excluded_by_name(ring) is not None:
                continue
            if self._namespaces.covered(ring, before) != self._namespaces.covered(ring, after):
                running.placer.resync.namespace_changed(name)

    def _follow(self, tasks: asyncio.TaskGroup, ring: str) -> None:
        entry = self._registry.entry(ring)
        running = self._running.get(ring)
        resolved = entry.resolved if entry is not None else None
        retired = self._retired_of(ring) if resolved is not None else ()
        if resolved is None or retired is None:
            self._stop(ring)
            return
        if running is not None and running.placer.ring == resolved and running.retired == retired:
            return
        self._stop(ring)
        placer = Placer(self._make_surroundings(), resolved, retired)
        assert entry is not None
        placer.set_membership(entry.membership)
        self._running[ring] = _Running(placer, tasks.create_task(placer.run()), retired)

    def _stop(self, ring: str) -> None:
        running = self._running.pop(ring, None)
        if running is not None:
            running.task.cancel()
            self._on_summary(ring, Summary())

    # -- for people --------------------------------------------------------

    async def _summarize(self) -> None:
        while True:
            for ring, running in self._running.items():
                self._on_summary(ring, summarize(running.placer))
            await self._clock.sleep(SUMMARY_SECONDS)


def summarize(placer: Placer) -> Summary:
    """What the placer's ring waits for."""
    counts: dict[tuple[Kind, GroupResource], int] = {}
    oldest: OldestDrain | None = None
    now = placer.around.clock.monotonic()
    for index, placed in enumerate(placer.placed):
        group_resource = placed.subject.resource.group_resource
        for kind in Kind:
            selection = placer.selection(index, kind)
            if selection is not None:
                counts[kind, group_resource] = len(selection)
        draining = placer.selection(index, Kind.DRAINING)
        for obj in draining.values() if draining is not None else ():
            meta = obj.metadata
            seconds = now - placer.drains_since.get((index, meta.uid), now)
            if oldest is None or seconds > oldest.seconds:
                shard = meta.label(placer.labels.shard) or ""
                oldest = OldestDrain(group_resource, meta.namespace, meta.name, shard, seconds)
    failures = tuple((placed.subject.resource.group_resource, kind, error) for placed, kind, error in placer.failures())
    clean = frozenset(placed.subject.resource.group_resource for placed in placer.resync.retired_clean)
    return Summary(placer.resync.settled, counts, oldest, failures, clean)


def retire(resource: Resource, *, controlled: bool) -> Placed:
    """A resource that the ring lists no longer, as placement sees it."""
    main = ResolvedMain(resource)
    return Placed(Subject(Role.CONTROLLED if controlled else Role.MAIN, resource, main), retired=True)
