"""Placement of one ring's objects, under one leadership.

Data flows one way: informers and resync -> backlog -> reconciler, or hand-over of
owners with children -> label writer.  Nobody here holds a reference back to whom
it works for; what informers show reaches the others as events of the backlog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from sharder.backlog.backlog import Backlog
from sharder.backlog.scope import Members, RingScope
from sharder.core.membership import Membership
from sharder.core.ringspec import Role
from sharder.core.summary import Pending
from sharder.placement.expectations import Expectations
from sharder.placement.families import Families
from sharder.placement.followers import Followers
from sharder.placement.handlers import EventHandler
from sharder.placement.handover import Handovers
from sharder.placement.label_writer import LabelWriter
from sharder.placement.reading import Reader
from sharder.placement.reconciler import Reconciler
from sharder.placement.requeues import Requeues
from sharder.placement.resync import Resync
from sharder.placement.transit import Transit
from sharder.takeover.controller import TakeoverController
from sharder.takeover.leadership import Leadership


@dataclass(frozen=True, slots=True)
class Pace:
    """How much of one ring is done at once, and how often; seconds."""

    concurrent_moves: int
    sync_period_seconds: float
    settle_after_seconds: float


@dataclass(frozen=True, slots=True)
class Ground:
    """What stays of a ring while it is edited; `expectations` are those of its resources, by number."""

    scope: RingScope
    members: Members
    backlog: Backlog
    expectations: Mapping[int, Expectations]


class Placement:
    """Placement of one ring; `run` it until the ring changes or leadership ends."""

    def __init__(self, leadership: Leadership, pace: Pace, ground: Ground, takeover: TakeoverController) -> None:
        api, clock = leadership.api, leadership.clock
        self.scope = scope = ground.scope
        self._members = members = ground.members
        self.backlog = backlog = ground.backlog
        self._families = families = Families(scope, members, api, clock=clock, rng=leadership.rng)
        self._transit = transit = Transit(
            pace.concurrent_moves, clock, backlog.enqueue_admitted,
            ready=lambda number: not scope.resources[number].controls_others or families.ready,
            paced=lambda number: scope.resources[number].controls_others,
            resources=sum(each.role is Role.MAIN for each in scope.resources.values()),
        )  # fmt: skip
        families.when_complete.append(transit.admit)
        self.writer = writer = LabelWriter(
            scope.name, scope.labels, members, leadership, takeover,
            concurrent_writes=pace.concurrent_moves, waiting=backlog.waiting,
        )  # fmt: skip
        followers = Followers(api, clock)
        self._handovers = handovers = Handovers(
            scope, members, api, takeover,
            backlog=backlog, families=families, transit=transit, writer=writer, followers=followers,
            expectations=ground.expectations, clock=clock,
        )  # fmt: skip
        self.resync = resync = Resync(
            scope, members, api,
            backlog=backlog, transit=transit, refusals=writer.refusals, counters=leadership.counters, clock=clock,
            sync_period_seconds=pace.sync_period_seconds, settle_after_seconds=pace.settle_after_seconds,
            when_settled=(backlog.settle, handovers.compact),
        )  # fmt: skip
        self._reconciler = Reconciler(
            scope, members, Reader(api, clock, workers=pace.concurrent_moves),
            backlog=backlog, families=families, transit=transit, writer=writer,
            handovers=handovers, followers=followers, resync=resync,
        )  # fmt: skip
        self._requeues = Requeues(backlog, families, transit, resync, clock)
        self._handler = EventHandler(scope, members, backlog, transit=transit, resync=resync)
        self._workers = pace.concurrent_moves
        writer.refusals.when_over.append(self._retry_refused)
        #: Shards whose leases were acquired and whose objects have not been enqueued since.
        self._acquired: set[str] = set()
        self._changed = asyncio.Event()

    @property
    def membership(self) -> Membership:
        """By which objects are placed now."""
        return self._members.membership

    def membership_changed(self) -> None:
        """Place by the newest membership from now on."""
        self._changed.set()

    def take_from(self, shard: str) -> None:
        """Objects may be taken away from `shard` from now on: its fence is open before they are enqueued."""
        self._acquired.add(shard)
        self._changed.set()

    def restart_watches(self) -> None:
        """Begin every watch anew: an API server may hang, and say nothing of it."""
        self.backlog.informers.restart()
        self._families.restart()

    def namespace_changed(self, namespace: str, *, gone: bool = False) -> None:
        """A namespace came into the ring's scope or left it; `gone`: it was deleted, and before it all that it had."""
        if not gone:
            self.backlog.unsettled_namespaces.add(namespace)
        if not self.scope.covers(namespace):
            for key in self.backlog.leave(namespace):
                self._transit.leave(key)
        self.backlog.informers.follow()
        if not gone:  # else there is nothing to go through, and the rest stays as it is
            self.resync.namespace_changed(namespace)

    async def run(self) -> None:
        """Place until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._workers):
                tasks.create_task(self._reconciler.run())
            for part in (self._handovers, self._families, self.resync, self._requeues):
                tasks.create_task(part.run())
            await self._follow_changes()

    async def _follow_changes(self) -> None:
        # All that is known already is news to everything here.
        self._adopt(Membership())
        # What the placement before this one had not come to, or what came while there was none.
        for namespace in sorted(self.backlog.unsettled_namespaces):
            self.namespace_changed(namespace)
        unsubscribe = self.backlog.subscribe(self._handler)
        try:
            await self._enqueue_all()
            while True:
                await self._changed.wait()
                self._changed.clear()
                if not self._members.adopted:
                    # First the membership is adopted, then objects are enqueued: none is decided by the old one.
                    self._adopt(self._members.membership)
                    await self._enqueue_all()
                acquired, self._acquired = self._acquired, set()
                for shard in sorted(acquired):
                    await self.backlog.enqueue_shard(shard)
                    self._handovers.retry()
        finally:
            unsubscribe()

    async def _enqueue_all(self) -> None:
        await self.backlog.enqueue_all(Pending.UNASSIGNED, Pending.STRANDED)
        self._handovers.retry()

    def _retry_refused(self) -> None:
        self.backlog.retry_refused()
        self._handovers.retry()

    def _adopt(self, old: Membership) -> None:
        """Place by the newest membership, instead of `old`."""
        self._members.membership = new = self._members.newest
        self.backlog.informers.follow()
        self._families.set_membership()
        self._transit.set_shards(new.available)
        self._handler.look_at_drains()
        self.resync.follow(old, new)
