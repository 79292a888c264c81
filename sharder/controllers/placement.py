"""Leader's part: one placement per ring, begun, renewed and ended as rings change.

Does: connect placements with membership, namespaces and the leases' side, and sum
up for people what each ring waits for.  Refuses: to place anything before the
caches are in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sharder.controllers.informers import Kind
from sharder.controllers.namespaces import Namespaces, excluded_by_name
from sharder.controllers.placer import Placement
from sharder.controllers.refusals import Refused
from sharder.controllers.registry import Registry
from sharder.controllers.seen import Placed, SeenMeta
from sharder.controllers.subscribers import Change
from sharder.controllers.surroundings import Surroundings
from sharder.core.ringspec import ResolvedMain, Role, Subject
from shardsdk.errors import ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.turns import FLOW
from shardsdk.protocol.objects import GroupResource, Resource

log = logging.getLogger(__name__)

#: How often the sums are looked at that people see.
SUMMARY_SECONDS: Final = 1.0
#: Shortest pause between two restarts of all watches: where much moves, each lists much.
RESTART_WATCHES_SECONDS: Final = 30.0
#: Pause before a placement is begun anew that ended with an error.
RESTART_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class OldestDrain:
    """The drain that has waited longest for its acknowledgement."""

    resource: GroupResource
    namespace: str
    name: str
    shard: str
    seconds: float
    retired: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """What a ring waits for; `counts` per kind of selection and resource.

    `leaving`: objects of resources that the ring lists no longer and that have its
    labels still; -1 while they have not been counted.
    """

    settled: bool = False
    counts: dict[tuple[Kind, GroupResource], int] = field(default_factory=dict)
    oldest_drain: OldestDrain | None = None
    failures: tuple[tuple[GroupResource, Kind, ShardingError], ...] = ()
    retired_clean: frozenset[GroupResource] = frozenset()
    leaving: dict[GroupResource, int] = field(default_factory=dict)

    def count(self, kind: Kind) -> int:
        """Objects of one kind over all resources."""
        return sum(number for (each, _), number in self.counts.items() if each is kind)


@dataclass(slots=True)
class _Running:
    placement: Placement
    task: asyncio.Task[None]
    retired: tuple[Placed, ...]


class PlacementController:
    """The placements of all rings.

    `retired_of(ring)` names resources that the ring listed once and whose
    objects may still be labelled, each with whether it was controlled; `None`
    while what the ring lists now has not been written down.  `on_refused` is told
    now and then which patches the API server refuses.
    """

    def __init__(
        self,
        api: Api,
        registry: Registry,
        namespaces: Namespaces,
        *,
        make_surroundings: Callable[[], Surroundings],
        retired_of: Callable[[str], tuple[Placed, ...] | None],
        on_summary: Callable[[str, Summary], None],
        on_refused: Callable[[str, Refused], None] = lambda ring, refused: None,
        clock: Clock,
    ) -> None:
        self._api = api
        self._clock = clock
        self._registry = registry
        self._namespaces = namespaces
        self._make_surroundings = make_surroundings
        self._retired_of = retired_of
        self._on_summary = on_summary
        self._on_refused = on_refused
        self._running: dict[str, _Running] = {}
        #: Placements that were told to end and have not yet; the ring's next one waits for all of them.
        self._ending: dict[str, set[asyncio.Task[None]]] = {}
        self._restarted_at = float("-inf")
        self._dirty: set[str] = set()
        self._wake = asyncio.Event()

    # -- the leases' side asks ---------------------------------------------

    def work_left(self, ring: str, shard: str) -> bool | None:
        """Whether objects are seen that carry the shard's label; `None` while not known."""
        running = self._running.get(ring)
        empty = running.placement.backlog.is_empty_of(shard) if running is not None else None
        return None if empty is None else not empty

    async def confirm_empty(self, ring: str, shard: str) -> bool:
        """A consistent read: does no object carry the shard's label any more?"""
        running = self._running.get(ring)
        return running is not None and await running.placement.backlog.confirm_empty_of(shard)

    def hold_acquired(self, ring: str, shard: str) -> None:
        """The shard's objects may be moved from now on."""
        if (running := self._running.get(ring)) is not None:
            running.placement.hold_acquired(shard)

    # -- running -----------------------------------------------------------

    async def run(self) -> None:
        """Place until cancelled."""
        unsubscribe = self._registry.subscribe(self._on_change)
        no_longer = self._registry.when_behind(self._restart_watches)
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
                        try:
                            self._follow(tasks, ring)
                        except Exception:
                            log.exception("ring not placed", extra={"ring": ring})
        finally:
            no_longer()
            unsubscribe()

    def _restart_watches(self) -> None:
        now = self._clock.monotonic()
        if now - self._restarted_at < RESTART_WATCHES_SECONDS:
            return
        self._restarted_at = now
        self._namespaces.reflector.restart()
        for running in self._running.values():
            running.placement.restart_watches()

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
                running.placement.set_membership(entry.membership)

    def on_namespace(self, name: str, before: SeenMeta | None, after: SeenMeta | None) -> None:
        """A namespace came, changed its labels or went."""
        for running in self._running.values():
            ring = running.placement.scope.ring
            if excluded_by_name(ring) is not None:
                continue
            if self._namespaces.covered(ring, before) != self._namespaces.covered(ring, after):
                running.placement.namespace_changed(name)

    def _follow(self, tasks: asyncio.TaskGroup, ring: str) -> None:
        entry = self._registry.entry(ring)
        running = self._running.get(ring)
        resolved = entry.resolved if entry is not None else None
        if entry is None or resolved is None:
            self._stop(ring)
            return
        retired = self._retired_of(ring)
        same = running is not None and running.placement.scope.ring.spec.uid == resolved.spec.uid
        if retired is None:
            if not same:
                self._stop(ring)
            return
        if running is not None and running.placement.scope.ring == resolved and running.retired == retired:
            return
        self._stop(ring)
        placement = Placement(self._make_surroundings(), resolved, retired)
        placement.set_membership(entry.membership)
        self._running[ring] = _Running(placement, tasks.create_task(self._run_placement(ring, placement)), retired)

    async def _run_placement(self, ring: str, placement: Placement) -> None:
        """Run a placement once nothing of those before it can be executed any more."""
        FLOW.set(ring)
        if before := self._ending.get(ring):
            await asyncio.wait(set(before))
        await self._api.writes_settled()
        try:
            await placement.run()
        except Exception:
            log.exception("placement of a ring failed, begins anew", extra={"ring": ring})
        if (running := self._running.get(ring)) is not None and running.placement is placement:
            del self._running[ring]
            await self._clock.sleep(RESTART_SECONDS)
            self.refresh(ring)

    def _stop(self, ring: str) -> None:
        """End the ring's placement, which may need a moment."""
        running = self._running.pop(ring, None)
        if running is None:
            return
        ending = self._ending.setdefault(ring, set())
        ending.add(running.task)
        running.task.add_done_callback(lambda task: self._ended(ring, task))
        running.task.cancel()
        self._on_summary(ring, Summary())

    def _ended(self, ring: str, task: asyncio.Task[None]) -> None:
        ending = self._ending[ring]
        ending.discard(task)
        if not ending:
            del self._ending[ring]

    # -- for people --------------------------------------------------------

    async def _summarize(self) -> None:
        while True:
            for ring, running in self._running.items():
                try:
                    self._on_summary(ring, summarize(running.placement, self._clock.monotonic()))
                    if (refused := running.placement.writer.refusals.take(self._clock.monotonic())) is not None:
                        self._on_refused(ring, refused)
                except Exception:
                    log.exception("state of a ring not summed up", extra={"ring": ring})
            await self._clock.sleep(SUMMARY_SECONDS)


def summarize(placement: Placement, now: float) -> Summary:
    """What the ring waits for."""
    placed, informers, resync = placement.scope.placed, placement.backlog.informers, placement.resync
    counts = {
        (kind, placed[number].subject.resource.group_resource): len(informer)
        for kind in Kind
        for number, informer in informers.of(kind)
    }
    failures = tuple((each.subject.resource.group_resource, kind, error) for each, kind, error in informers.failures())
    clean = frozenset(each.subject.resource.group_resource for each in resync.retired_clean)
    leaving = {
        each.subject.resource.group_resource: resync.retired_left.get(each, -1)
        for each in placed.values()
        if each.retired and each not in resync.retired_clean
    }
    return Summary(resync.settled, counts, _oldest_drain(placement, now), failures, clean, leaving)


def _oldest_drain(placement: Placement, now: float) -> OldestDrain | None:
    scope, backlog = placement.scope, placement.backlog
    for key, since in backlog.drains_since.items():
        informer = backlog.informers.get(key.resource, Kind.DRAINING)
        obj = informer.get(key.namespace, key.name) if informer is not None else None
        if obj is None:
            continue
        placed, shard = scope.placed[key.resource], obj.metadata.label(scope.labels.shard) or ""
        resource = placed.subject.resource.group_resource
        return OldestDrain(resource, key.namespace, key.name, shard, now - since, placed.retired)
    return None


def retire(resource: Resource, *, controlled: bool) -> Placed:
    """A resource that the ring lists no longer, as placement sees it."""
    main = ResolvedMain(resource)
    return Placed(Subject(Role.CONTROLLED if controlled else Role.MAIN, resource, main), retired=True)
