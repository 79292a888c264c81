"""Everything of one ring on the leader, from the moment that there is such a ring until there is none.

Four things run side by side, because none may hold up another: the takeover of the
shards' leases, the assignment of objects (`assignment`), looking up what was taken off the ring, and the
reconciles of what surrounds the ring.  The order within one reconcile is all in `_reconcile` and `_provide`:

- What the ring lists is written into its status before any object gets a label:
  before placement begins by it, and before the webhook is called for it.
- What is new on the list waits with that until the sharder may label it (`granted`), so that of a mistake nothing is
  left once it is corrected.
- The webhook configuration is not applied by half of a ring: while somebody cannot
  say what some resource is, one that is there stays as it is.
- Another sharder's configuration goes after ours is in force for all that is listed: objects are not left without a
  webhook.  Of a ring that cannot be used it goes with ours.
- What was taken off the ring is placed as far as it is known; nothing waits for the API server to say more.
- The status is written last, and says what has failed before; a failure is tried again.
- A ring that is gone is forgotten when its webhook configuration is.
- Of a ring by ranges nothing is written down, labelled or brought to the webhook: nobody touches its objects.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec.structs import replace

from sharder.backlog.scope import Wanted
from sharder.cache.rings import RingCache, RingSnapshot
from sharder.cache.subscribers import Change
from sharder.core.granted import granted_part, unwritten
from sharder.core.rights import MissingRule
from sharder.core.ringspec import AssignBy, ResolvedRing, as_shards_know, unsuited
from sharder.core.summary import SHARED, Summary
from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS
from sharder.rings.deps import RingDeps
from sharder.rings.granted import find_in_force
from sharder.rings.overdue import OverdueBefore, ShardsBefore
from sharder.rings.permissions import (
    DENIED_SECONDS,
    RULES_OF_RANGES,
    PermissionsCheck,
    rules_of_labels,
)
from sharder.rings.removed_resources import RemovedResources
from sharder.rings.status import StatusWriter
from sharder.rings.unread import LOOK_SECONDS, Unread
from sharder.rings.webhook_configuration import RingWebhook
from sharder.takeover.controller import TakeoverController
from sharder.tasks import end
from shardsdk.errors import FenceClosed, NotFound, RetryRule, ShardingError
from shardsdk.kube.reflector import Delta
from shardsdk.protocol.objects import NAMESPACES, GroupResource, PartialObject, SlimMeta
from shardsdk.queueing.queue import Priority, RateLimit, WorkQueue

log = logging.getLogger(__name__)

#: How often what people see is looked at while much changes.
SUMMARY_SECONDS: Final = 1.0


class RingController:
    """One ring; `run` it until the ring is gone, and what was made for it, or leadership ends."""

    def __init__(self, name: str, deps: RingDeps, cache: RingCache) -> None:
        self.name = name
        self._deps = deps
        self._cache = cache
        lead, settings = deps.leadership, deps.settings
        self.takeover = TakeoverController(
            name, lead.api, cache, leader=lead.fence, proof=deps.proof, clock=lead.clock,
            limits=settings.limits, at_once=settings.takeovers,
            on_takeover=functools.partial(lead.counters.took_over, name),
        )  # fmt: skip
        ring = cache.get(name)
        #: Taken for labels while nobody knows; a ring that turns out to assign otherwise gets another controller.
        self._assign_by = ring.resolved.spec.assign_by if ring is not None and ring.resolved else AssignBy.LABELS
        self._assignment = settings.assign[self._assign_by](name, lead, deps.namespaces, self.takeover)
        self._status = StatusWriter(name, lead, deps.recorder, drain_alarm_seconds=settings.drain_alarm_seconds)
        status = ring.obj.status_dict if ring is not None else {}
        self._overdue = OverdueBefore(status, lead.clock, settings.drain_alarm_seconds)
        self._shards_before = ShardsBefore(status, lead.clock)
        self._removed = RemovedResources(
            name, lead.api, self._status.write,
            clock=lead.clock, slots=deps.lookups, when_found=self.enqueue,
        )  # fmt: skip
        self._webhook = RingWebhook(name, lead, settings.webhook, deps.configurations, deps.recorder)
        self._api = lead.api
        self._permissions = PermissionsCheck(name, lead.api, lead.clock)
        self._unread = Unread(lead.clock)
        self._queue: WorkQueue[str] = WorkQueue(lead.clock, name=f"rings/{name}", rate_limit=RateLimit(0.1, 30.0, None))
        #: What was found last, as far as people see it.
        self._outline: Any = None
        self._was_settled = False
        self._lost_positions = 0
        #: Since when that is so of which the log said that the ring was settled; `None`: it is to say it anew.
        self._told_settled: tuple[float | None] | None = None
        #: How many leases the ring had when the cache told of it last.
        self._leases = len(ring.leases) if ring is not None else 0
        #: What the ring lists and is not in force yet, for want of rights.
        self._waiting: tuple[GroupResource, ...] = ()
        self._changed = asyncio.Event()
        self._assignment.when_changed.append(self._changed.set)
        self.takeover.records.when_changed.append(self._changed.set)
        #: Set when the ring is gone, and so is what was made for it.
        self._gone = asyncio.Event()

    # -- what happens to the ring --------------------------------------------

    def enqueue(self) -> None:
        """Reconcile the ring."""
        self._queue.add(self.name)

    def on_change(self, what: int) -> None:
        """The cache tells of the ring."""
        ring = self._cache.get(self.name)
        before, self._leases = self._leases, len(ring.leases) if ring is not None else 0
        if what & (Change.RING | Change.MEMBERSHIP):
            self.enqueue()
            self.takeover.enqueue_all()
            self._assignment.membership_changed()
        elif self._leases != before:
            # Renewals come all the time, also while a status that could not be written waits to be tried again; what
            # they change shows as MEMBERSHIP.
            self.enqueue()
        if what & Change.RING:
            self._stop_placing_another()

    def on_namespace(self, name: str, before: SlimMeta | None, after: SlimMeta | None) -> None:
        """A namespace came, changed its labels or went."""
        self._assignment.namespace_changed(name, before, after)

    def on_configuration(self, delta: Delta[PartialObject]) -> None:
        """The ring's webhook configuration, or another sharder's for it, has changed."""
        pause = self._webhook.on_event(delta)
        if pause is not None:
            self._queue.add_after(self.name, pause)

    def restart_watches(self) -> None:
        """Begin every watch anew: an API server may hang, and say nothing of it."""
        self._assignment.restart_watches()

    # -- for people ----------------------------------------------------------

    def summarize(self) -> Summary:
        """What the ring waits for."""
        summary, records = self._assignment.summarize(), self.takeover.records
        shared = [*self._cache.unheard]
        if (failure := self._deps.namespaces.reflector.failure) is not None:
            shared.append((NAMESPACES.group_resource, failure))
        if (failure := self._deps.configurations.failure) is not None and self._deps.settings.webhook is not None:
            shared.append((WEBHOOK_CONFIGURATIONS.group_resource, failure))
        failures = *summary.failures, *((resource, SHARED, error) for resource, error in shared)
        summary = replace(
            summary, failures=failures,
            taken=records.taken, not_acquired=records.not_acquired, abandoned=records.abandoned,
            remarks=records.remarks, waiting=self._waiting,
        )  # fmt: skip
        ring = self._cache.get(self.name)
        return self._shards_before.apply(self._overdue.apply(summary), ring.leases.values() if ring is not None else ())

    async def _follow_changes(self) -> None:
        """Look whenever something has changed, soon after; at rest nothing is looked at."""
        failure = ""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                at_rest, failure = self._look(), ""
            except Exception as error:
                if failure != (failure := repr(error)):
                    log.exception("state of a ring not summed up", extra={"ring": self.name})
                at_rest = False
            if not at_rest:
                self._changed.set()  # also what only time changes, as the age of a drain
            await self._deps.leadership.clock.sleep(SUMMARY_SECONDS)

    def _look(self) -> bool:
        """Tell people what they should know of what has been found; whether that stays as it is until told of."""
        summary = self.summarize()
        outline = summary.outline(self._deps.settings.drain_alarm_seconds)
        if outline != self._outline:
            self._outline = outline
            self.enqueue()
        if summary.not_served or summary.lost_positions != self._lost_positions:
            self._lost_positions = summary.lost_positions
            self._cache.resolve_again(self.name)
        ring = self._cache.get(self.name)
        if ring is not None and (refused := self._assignment.take_refused()) is not None:
            self._status.tell_refused(ring, refused, self._permissions.denied)
        if ring is not None and summary.ranges is not None:
            self._status.tell_dropped(ring, summary.ranges.dropped)
            self._status.tell_contested(ring, summary.ranges.contested)
        if summary.settled and not self._was_settled:
            self._deps.on_settled(self.name)
        self._was_settled = summary.settled
        self._tell_settled(summary)
        return summary.at_rest

    def _tell_settled(self, summary: Summary) -> None:
        """Once after each resync that there was something to do for: objects that only come and go are no news."""
        if summary.settled and not summary.waiting:
            if self._told_settled != (summary.clean_since,):
                log.info("ring settled", extra={"ring": self.name})
            self._told_settled = (summary.clean_since,)
        elif summary.waiting or summary.clean_since is None:
            self._told_settled = None

    # -- running -------------------------------------------------------------

    async def run(self) -> None:
        """Follow the ring until it is gone."""
        self.enqueue()
        parts = (
            self.takeover.run, self._run_reconciles, self._removed.run, self._assignment.run, self._follow_changes,
            self._gone.wait,
        )  # fmt: skip
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(run()) for run in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            try:
                for task in tasks:
                    await end(task)
            finally:
                for task in tasks:  # the lead may end while a ring that is gone does
                    task.cancel()

    async def _run_reconciles(self) -> None:
        try:
            await self._queue.process(self._reconcile_next, self._failed)
        finally:
            await self._queue.shut_down()

    def _failed(self, name: str, error: Exception) -> None:
        if not isinstance(error, ShardingError):
            log.error("ring not reconciled, will retry", extra={"ring": name}, exc_info=error)
            self._queue.add_rate_limited(name)
            return
        log.warning("ring not reconciled, will retry", extra={"ring": name, "error": str(error)})
        if error.retry is not RetryRule.NEVER or isinstance(error, NotFound):
            self._queue.add_rate_limited(name)
        else:
            self._queue.add_after(name, DENIED_SECONDS, Priority.BULK)

    # -- one reconcile -------------------------------------------------------

    async def _reconcile_next(self, name: str) -> None:
        async with self._deps.settings.reports:
            await self._reconcile()

    async def _reconcile(self) -> None:
        ring = self._cache.get(self.name)
        if ring is None:
            # Garbage collection would do, but it may take half a minute to know of a new CRD's objects.
            await self._webhook.remove()
            self._gone.set()
            return
        if ring.resolved is not None and ring.resolved.spec.assign_by is not self._assign_by:
            self._gone.set()
            return
        try:
            failure = await self._provide(ring)
        except FenceClosed:
            raise
        except ShardingError as error:
            await self._show(ring, str(error))
            raise
        await self._show(ring, " | ".join(filter(None, (self._deps.others.words, failure))) or None)

    async def _provide(self, ring: RingSnapshot) -> str | None:
        """Have the ring's objects assigned as it asks for; returns what is wrong besides."""
        if ring.invalid is not None:
            await self._webhook.remove()
            return await self._remove_rival(ring)
        if ring.resolved is None:
            return None
        if self._assign_by is AssignBy.RANGES:
            return await self._provide_ranges(ring, ring.resolved)
        return await self._provide_labels(ring, ring.resolved)

    async def _provide_ranges(self, ring: RingSnapshot, resolved: ResolvedRing) -> str | None:
        self._place(resolved, Wanted(as_shards_know(resolved, ring.obj.status_dict.get("namespaceSelector")), ()))
        async with self._asking_for(RULES_OF_RANGES):
            await self._webhook.remove()  # of another ring of that name
            failure = await self._remove_rival(ring)
        return failure or self._assignment.summarize().trouble or unsuited(resolved)

    async def _provide_labels(self, ring: RingSnapshot, resolved: ResolvedRing) -> str | None:
        """Have the ring's resources written down, placed, and brought to the webhook."""
        granted = await self._granted_part(ring, resolved)
        removed = await self._removed.record(ring.obj.status_dict, granted, self._assignment.removed_clean)
        self._place(resolved, Wanted(granted, removed, self._removed.were_main))
        resources = (*resolved.subjects(), *(each.subject for each in removed))
        async with self._asking_for(rules_of_labels(each.resource.group_resource for each in resources)):
            return await self._provide_webhook(ring, granted)

    async def _provide_webhook(self, ring: RingSnapshot, granted: ResolvedRing) -> str | None:
        """Have the webhook called for what the ring lists, by nobody's configuration but ours."""
        exists = self._webhook.exists
        if ring.unanswered and exists is None:
            self._queue.add_after(self.name, LOOK_SECONDS)
        elif not ring.unanswered or not exists:
            # One that is there may name more than can be looked up at present.
            pause = await self._webhook.apply(granted)
            if pause is not None:
                self._queue.add_after(self.name, pause)
        failure = self._webhook.trouble or self._deps.watch_count.judge(
            self.name, self._assignment.summarize().watches_beside
        )
        if not (self._waiting or ring.unanswered) and self._webhook.trouble is None:
            # Else ours does not cover all that another sharder's does.
            failure = await self._remove_rival(ring) or failure
        return failure or self._assignment.summarize().trouble

    @asynccontextmanager
    async def _asking_for(self, rules: tuple[MissingRule, ...]) -> AsyncIterator[None]:
        """Find out at the end which rights are missing, also where an error ends it: the status tells of both."""
        failure: ShardingError | None = None
        try:
            yield
        except ShardingError as error:
            failure = error
        again = await self._permissions.check(rules, forbidden=self.summarize().forbidden)
        self._queue.add_after(self.name, again, Priority.BULK)
        if failure is not None:
            raise failure

    async def _remove_rival(self, ring: RingSnapshot) -> str | None:
        """Remove what another sharder has made for the ring; returns why it is there again."""
        rival = await self._deps.configurations.others.remove(self.name, ring.uid)
        if rival is None:
            return None
        failure, seconds = rival
        self._queue.add_after(self.name, seconds)
        return failure

    async def _granted_part(self, ring: RingSnapshot, resolved: ResolvedRing) -> ResolvedRing:
        """The ring without what waits for rights; that is not written down, placed or brought to the webhook."""
        written = self._removed.written(ring.obj.status_dict, resolved.spec.uid)
        denied = await self._permissions.denied_on(unwritten(resolved, written))
        in_force = await find_in_force(self._api, resolved, written, denied)
        granted = granted_part(resolved, in_force, denied)
        waiting = unwritten(resolved, [each.resource.group_resource for each in granted.subjects()])
        if waiting != self._waiting:
            self._changed.set()
        self._waiting = waiting
        return granted

    def _place(self, resolved: ResolvedRing, wanted: Wanted) -> None:
        ring = self._cache.get(self.name)
        if ring is not None and ring.resolved == resolved:  # else it has been edited meanwhile, and is in the queue
            self._assignment.place(wanted)

    def _stop_placing_another(self) -> None:
        """Place nothing of a ring that is gone, cannot be used, or is another of that name.

        While an edited one is not written down yet, that is placed which was.
        """
        ring, wanted = self._cache.get(self.name), self._assignment.wanted
        resolved = ring.resolved if ring is not None else None
        if wanted is not None and (resolved is None or resolved.spec.uid != wanted.ring.spec.uid):
            self._assignment.place(None)

    async def _show(self, provided: RingSnapshot, failure: str | None) -> None:
        ring = self._cache.get(self.name)
        if ring is None or ring.resolved != provided.resolved:
            return  # it has been edited meanwhile, and is in the queue
        summary = self.summarize()
        failures = self._unread.look(summary.failures, self._permissions.denied)
        if self._unread.any:
            self._queue.add_after(self.name, LOOK_SECONDS, Priority.BULK)
        uncounted = dict.fromkeys(self._removed.unknown, -1)
        summary = replace(summary, leaving=uncounted | summary.leaving, failures=failures)
        pause = await self._status.show(ring, summary, failure, self._permissions.denied)
        if pause is not None:
            self._queue.add_after(self.name, pause, Priority.BULK)
