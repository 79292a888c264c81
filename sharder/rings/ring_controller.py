"""Everything of one ring on the leader, from the moment that there is such a ring until there is none.

What a ring is made of lives as long as it does: its backlog, with informers, drain
ages and expectations, whatever is edited.  Placement is made anew with each edit.

The order of things matters, and all of it is in `_follow`:
- What the ring lists is written into its status before any object gets a label (`RingReporter.retired`).
- A new placement begins only when the old one has ended and nothing that it has sent can be
  executed any more; else the two could move parts of one family to different shards.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from sharder.backlog.backlog import Backlog
from sharder.backlog.objects import Placed
from sharder.backlog.scope import Members, RingScope
from sharder.cache.namespaces import excluded_by_name
from sharder.cache.rings import Registry
from sharder.cache.subscribers import Change
from sharder.core.ringspec import ResolvedRing
from sharder.placement.expectations import Past
from sharder.placement.placement import Ground, Placement
from sharder.rings.deps import RingDeps
from sharder.rings.reporter import RingReporter
from sharder.rings.summary import Summary, summarize
from sharder.takeover.controller import TakeoverController
from shardsdk.kube.turns import FLOW
from shardsdk.protocol.objects import SlimMeta

log = logging.getLogger(__name__)

#: Pause before a ring is begun anew whose placement ended with an error.
RESTART_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is placed: the ring as it is resolved, and what it listed once and whose objects may be labelled still."""

    ring: ResolvedRing
    retired: tuple[Placed, ...]


class RingController:
    """One ring; `run` it until the ring is gone, and what was made for it, or leadership ends."""

    def __init__(self, name: str, deps: RingDeps, registry: Registry) -> None:
        self.name = name
        self._deps = deps
        self._lead = lead = deps.leadership
        self._registry = registry
        self.reporter = RingReporter(name, deps, registry)
        self.reporter.when_recorded.append(self._refresh)
        self.takeover = TakeoverController(
            name, lead.api, registry, leader=lead.fence, proof=deps.proof, clock=lead.clock,
            limits=deps.settings.limits, at_once=deps.settings.takeovers,
            on_takeover=functools.partial(lead.counters.took_over, name),
        )  # fmt: skip
        self.takeover.when_ready.append(self._set_membership)
        self.takeover.when_acquired.append(self._take_from)
        self._ground: Ground | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._placed: Wanted | None = None
        self._placement: Placement | None = None
        self._placing: asyncio.Task[None] | None = None
        self._failed = False
        self._wake = asyncio.Event()
        self._wake.set()

    # -- what happens to the ring --------------------------------------------

    def _refresh(self) -> None:
        """The ring, or what it has retired, may have changed."""
        self._wake.set()

    def on_change(self, what: int) -> None:
        """The registry tells of the ring."""
        self.reporter.on_change(what)
        if what & (Change.RING | Change.MEMBERSHIP):
            self.takeover.enqueue_all()
            self._set_membership()
        if what & Change.RING:
            self._refresh()

    def on_namespace(self, name: str, before: SlimMeta | None, after: SlimMeta | None) -> None:
        """A namespace came, changed its labels or went."""
        if self._placement is None or self._placed is None:
            return
        ring, namespaces = self._placed.ring, self._deps.namespaces
        if excluded_by_name(ring) is None and namespaces.covered(ring, before) != namespaces.covered(ring, after):
            self._placement.namespace_changed(name)

    def restart_watches(self) -> None:
        """Begin every watch anew: an API server may hang, and say nothing of it."""
        if self._placement is not None:
            self._placement.restart_watches()

    def _take_from(self, shard: str) -> None:
        # A placement that begins later looks at everything anyway.
        if self._placement is not None:
            self._placement.take_from(shard)

    def _set_membership(self) -> None:
        if self._ground is None:
            return
        self._ground.members.newest = self.takeover.membership
        if self._placement is not None:
            self._placement.membership_changed()

    # -- for people ----------------------------------------------------------

    def look(self, now: float) -> Summary:
        """Sum up what the ring waits for, and tell its people what they should know of that."""
        if self._placement is None:
            return Summary()
        summary = summarize(self._placement, now)
        self.reporter.on_summary(summary)
        if (refused := self._placement.writer.refusals.take(now)) is not None:
            self.reporter.on_refused(refused)
        return summary

    # -- running -------------------------------------------------------------

    async def run(self) -> None:
        """Follow the ring until it is gone."""
        tasks = [asyncio.create_task(part.run()) for part in (self.takeover, self.reporter)]
        # What is placed waits for turns among its own; a lease or a status does not wait behind ten thousand objects.
        FLOW.set(self.name)
        for task in tasks:
            task.add_done_callback(lambda _: self._wake.set())
        try:
            await self._deps.namespaces.reflector.synced.wait()
            while self._registry.entry(self.name) is not None or not self.reporter.cleaned:
                await self._wake.wait()
                self._wake.clear()
                for task in tasks:
                    if task.done():
                        task.result()
                try:
                    await self._follow()
                except Exception:
                    log.exception("ring not placed", extra={"ring": self.name})
        finally:
            for task in tasks:
                await _end(task)
            await self._end_placement()
            await self._forget()

    async def _follow(self) -> None:
        """Have that placed which is wanted now."""
        wanted = self._want()
        if wanted == self._placed and not self._failed:
            return
        await self._end_placement()
        if self._failed:
            self._failed = False
            await self._forget()
            await self._lead.clock.sleep(RESTART_SECONDS)
        elif wanted is None or (self._ground is not None and self._ground.scope.ring.spec.uid != wanted.ring.spec.uid):
            await self._forget()
        await self._lead.api.writes_settled()
        if wanted is not None and wanted == self._want():
            self._begin(wanted)
        else:
            self._wake.set()

    def _want(self) -> Wanted | None:
        entry = self._registry.entry(self.name)
        if entry is None or entry.resolved is None:
            return None
        retired = self.reporter.retired
        if retired is not None:
            return Wanted(entry.resolved, retired)
        same = self._placed is not None and self._placed.ring.spec.uid == entry.resolved.spec.uid
        return self._placed if same else None

    def _begin(self, wanted: Wanted) -> None:
        lead, deps = self._lead, self._deps
        before = self._ground
        scope = RingScope(wanted.ring, wanted.retired, deps.namespaces, before.scope if before is not None else None)
        if before is None:
            members = Members()
            backlog = Backlog(
                scope, members, lead.api,
                clock=lead.clock, rng=lead.rng, sync_period_seconds=deps.settings.pace.sync_period_seconds,
            )  # fmt: skip
            self._keeping = asyncio.create_task(self._guard(backlog.run))
            self.takeover.set_backlog(backlog)
            known: dict[int, Past] = {}
        else:
            members, backlog, known = before.members, before.backlog, dict(before.expectations)
            backlog.set_scope(scope)
        expectations = {number: known.get(number) or Past() for number in scope.placed}
        self._ground = Ground(scope, members, backlog, expectations)
        self._set_membership()
        self._placed, self._placement = wanted, Placement(lead, deps.settings.pace, self._ground, self.takeover)
        self._placing = asyncio.create_task(self._guard(self._placement.run))

    async def _guard(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something, and have everything of the ring begun anew when it fails."""
        try:
            await run()
        except Exception:
            log.exception("placement of a ring failed, begins anew", extra={"ring": self.name})
            # Nothing that is held still counts: what has failed may have been what kept it.
            self._ground = self._placement = None
            self.takeover.set_backlog(None)
            self._failed = True
            self._wake.set()

    async def _end_placement(self) -> None:
        if self._placement is not None or self._placed is not None:
            self.reporter.on_summary(Summary())
        self._placed = self._placement = None
        task, self._placing = self._placing, None
        await _end(task)

    async def _forget(self) -> None:
        self._ground = None
        self.takeover.set_backlog(None)
        task, self._keeping = self._keeping, None
        await _end(task)


async def _end(task: asyncio.Task[None] | None) -> None:
    """Cancel it, and wait until it has ended."""
    if task is not None:
        task.cancel()
        await asyncio.wait((task,))
