"""One replica of the sharder, without its servers: caches, views, and the controllers while it leads.

Every replica keeps the caches warm.  Controllers run under the leadership's
fence, and begin once the caches are in; a replica that loses the leadership stops
them and stands by again.  Ports and files are sharder.service's.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

from sharder.backlog.objects import RingResource
from sharder.cache.reinstalled import Reinstalled
from sharder.cache.rings import LeaseKey, RingCache
from sharder.cache.subscribers import Change
from sharder.core.cutting import cut
from sharder.core.decisions import Decision
from sharder.core.ringspec import AssignBy
from sharder.core.selectors import LabelSelector
from sharder.core.shards import State
from sharder.core.summary import Pending, Summary
from sharder.core.takeover import Limits
from sharder.placement.labels import LabelAssignment
from sharder.placement.placement import Pace
from sharder.ranges.assignment import RangeAssignment
from sharder.rings.assignment import Assign
from sharder.rings.deps import DRAIN_ALARM_SECONDS, RingSettings, WebhookSettings
from sharder.rings.leader import Leader
from sharder.rings.other_leaders import OtherLeaders
from sharder.takeover.alarm import Detection
from sharder.takeover.fences import CommitProof, Gate
from sharder.takeover.leadership import Leadership
from sharder.takeover.silence import Liveness
from sharder.takeover.witness import Witness
from sharder.tasks import end
from sharder.telemetry import Metrics
from sharder.webhook.app import OUTCOMES
from shardsdk.errors import LeaseLost, ShardingError
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock
from shardsdk.kube.fencing import Unconfirmed
from shardsdk.lease.election import LeaderElector, Recorder
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.labels import LEADER_LABEL, LEADS_SHARDER, SHARDER_SERVICE_ACCOUNT, SYSTEM_NAMESPACE

log = logging.getLogger(__name__)

#: What a leader that stops gives the writes under way, and after them the leases that it gives back.
FINISH_SECONDS: Final = 1.0
#: Leases worked on side by side, of all rings.
TAKEOVERS_AT_ONCE: Final = 8
#: Rings whose webhook configuration and status are worked on side by side.
REPORTS_AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """How a replica works; `sync_period_seconds` 0: no periodic resync.

    `settle_after_seconds`: when every replica knows of a change of membership, for the last resync after it
    (`None`: when one that does not would count as stale).
    """

    timings: LeaseTimings = field(default_factory=LeaseTimings)
    lease_namespace: str = SYSTEM_NAMESPACE
    lease_name: str = SHARDER_SERVICE_ACCOUNT
    identity: str | None = None
    concurrent_moves: int = 100
    sync_period_seconds: float = 300.0
    staleness_seconds: float = 10.0
    settle_after_seconds: float | None = None
    drain_alarm_seconds: float = DRAIN_ALARM_SECONDS
    default_scope: LabelSelector | None = None
    takeover: Limits = field(default_factory=Limits)


class Replica:
    """Caches on every replica, controllers on the leader.

    `webhook` None: objects are placed by the leader's watches alone.  `on_settled(ring)` is told
    when everything has moved that had to.
    """

    def __init__(
        self,
        api: Api,
        settings: ReplicaSettings,
        *,
        metrics: Metrics,
        recorder: Recorder,
        webhook: WebhookSettings | None,
        clock: Clock,
        rng: Random,
        on_settled: Callable[[str], object] = lambda ring: None,
    ) -> None:
        self._on_settled = on_settled
        self._api = api
        self._settings = settings
        self._metrics = metrics
        self._recorder = recorder
        self._webhook = webhook
        self._clock = clock
        self._rng = rng
        self._leader: Leader | None = None
        self._candidacy: asyncio.Task[None] | None = None
        self._resigned = False
        self.cache = RingCache(
            api, clock=clock, rng=rng,
            staleness_seconds=settings.staleness_seconds, default_scope=settings.default_scope,
            on_lease=lambda version: self._witness.seen(version),
        )  # fmt: skip
        self._proof = CommitProof(clock, settings.timings.retry_period, lambda: self.cache.leases_known_until)
        self._witness = Witness(
            api, self._proof, clock=clock, retry_seconds=settings.timings.retry_period,
            leading=lambda: self.elector.is_leader,
        )  # fmt: skip
        self._detection = Detection(self.cache, self._proof, recorder, show=metrics.crash_detection_suspended)
        self.elector = LeaderElector(
            api, namespace=settings.lease_namespace, name=settings.lease_name, identity=settings.identity,
            timings=settings.timings, clock=clock, rng=rng, on_renewed=self._detection.renewed, recorder=recorder,
            labels={LEADER_LABEL: LEADS_SHARDER},
        )  # fmt: skip

    def webhook_changed(self) -> None:
        """What webhook configurations are made from has changed: the CA that they trust, the sharder's account."""
        if self._leader is not None:
            self._leader.webhook_changed()

    async def run(self) -> None:
        """Keep caches and stand for election until cancelled; then hand the leadership over."""
        # From the start: an alert sees no missing series, and this replica may never come to lead.
        self._metrics.leading(self._settings.lease_name, False)
        async with asyncio.TaskGroup() as tasks:
            caches, witness = (tasks.create_task(part.run()) for part in (self.cache, self._witness))
            liveness = tasks.create_task(Liveness(self.cache, self._proof, self._clock).run())
            reinstalled = tasks.create_task(Reinstalled(self._api, self.cache, self._clock).run())
            await self.cache.ring_informer.synced.wait()
            await self.cache.lease_informer.synced.wait()
            unsubscribe = self.cache.subscribe(self._count)
            for ring in self.cache.all():
                self._count(ring.name, Change.RING)  # it came before anybody listened
            self._candidacy = tasks.create_task(self._stand_for_election())
            try:
                if self._resigned:
                    self._candidacy.cancel()
                await caches
            finally:
                await end(self._candidacy)
                unsubscribe()
                caches.cancel()
                witness.cancel()
                liveness.cancel()
                reinstalled.cancel()

    async def resign(self) -> None:
        """Hand the leadership over, and lead no more; the webhook's caches are kept until `run` is cancelled."""
        self._resigned = True
        await end(self._candidacy)

    async def _stand_for_election(self) -> None:
        while True:
            try:
                await self.elector.run(self._lead)
            except LeaseLost as error:
                log.warning("leadership lost; standing by", extra={"error": str(error)})
            except ShardingError:
                raise
            except Exception:
                # The webhook goes on answering, and another replica may lead.
                log.exception("controllers failed; standing by")
                await self._clock.sleep(self._settings.timings.retry_period)
            finally:
                self._metrics.leading(self._settings.lease_name, False)

    async def _lead(self, leader: Fence) -> None:
        log.info("leading", extra={"lease": self._settings.lease_name})
        self._metrics.leading(self._settings.lease_name, True)
        # What only the lead allows is conditional on what was seen, or repeated by the next leader: no harm if late.
        # What is moved under the lease of a shard also has that fence, and is confirmed; so is what moves as a group.
        gate = Gate(leader)
        self._leader = leads = self._build(Unconfirmed(gate), gate)
        leading = asyncio.ensure_future(leads.run())
        self._metrics.before_scrape.append(self._show)
        try:
            await asyncio.wait((leading,))
            leading.result()
        finally:
            await self._stop_leading(leading, gate, leads)
            self._metrics.before_scrape.remove(self._show)
            self._leader = None
            self._detection.forget()

    async def _stop_leading(self, leading: asyncio.Future[None], gate: Gate, leads: Leader) -> None:
        """End the controllers; if nobody else leads yet, in order, so that nobody has to wait for what they held."""
        gate.shut = True
        settled = False
        with suppress(TimeoutError):
            if self.elector.is_leader:
                # What has been sent would else count as under way until its time at the API server is over.
                async with asyncio.timeout(FINISH_SECONDS):
                    await self._api.writes_settled()
                settled = True
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
        with suppress(TimeoutError):
            if settled:
                gate.shut = False
                async with asyncio.timeout(FINISH_SECONDS):
                    await leads.give_all_back()

    def _build(self, leader: Fence, confirmed: Fence) -> Leader:
        settings = self._settings
        settle_after = settings.settle_after_seconds
        pace = Pace(
            concurrent_moves=settings.concurrent_moves,
            sync_period_seconds=settings.sync_period_seconds or float("inf"),
            settle_after_seconds=settings.staleness_seconds if settle_after is None else settle_after,
        )
        assign: dict[AssignBy, Assign] = {
            AssignBy.LABELS: functools.partial(LabelAssignment, pace=pace),
            AssignBy.RANGES: functools.partial(RangeAssignment, cache=self.cache, cut=cut),
        }
        of_rings = RingSettings(
            settings.takeover, assign, self._webhook, settings.drain_alarm_seconds,
            takeovers=asyncio.Semaphore(TAKEOVERS_AT_ONCE), reports=asyncio.Semaphore(REPORTS_AT_ONCE),
        )  # fmt: skip
        leadership = Leadership(
            self._api, leader, confirmed, _Counters(self._metrics, self.cache), self._clock, self._rng
        )
        others = OtherLeaders(
            self._api, settings.lease_namespace, settings.lease_name,
            clock=self._clock, show=self._metrics.other_leaders.set,
        )  # fmt: skip
        return Leader(
            leadership, self.cache, of_rings, others,
            proof=self._proof, recorder=self._recorder, on_settled=self._on_settled,
        )  # fmt: skip

    def _show(self) -> None:
        """Have the metrics say how the rings are; asked for when somebody reads them."""
        for ring, summary, states in self._leader.states() if self._leader is not None else ():
            if self.cache.get(ring) is not None:
                self._show_ring(ring, summary, states)

    def _show_ring(self, ring: str, summary: Summary, states: Mapping[LeaseKey, State]) -> None:
        for resource in self._metrics.resources_of(ring) | {resource for _, resource in summary.counts}:
            # One that the ring lists no longer has none; else its last number would stay.
            gauges = self._metrics.resource(ring, resource)
            gauges.unassigned.set(summary.counts.get((Pending.UNASSIGNED, resource), 0))
            gauges.stranded.set(summary.counts.get((Pending.STRANDED, resource), 0))
            gauges.draining.set(summary.counts.get((Pending.DRAINING, resource), 0))
        of_ring = self._metrics.ring(ring)
        of_ring.oldest_drain_age.set(summary.oldest_drain.seconds if summary.oldest_drain is not None else 0.0)
        of_ring.ranges_in_transit.set(summary.ranges.in_transit if summary.ranges is not None else 0)
        of_ring.unheld_ranges.set(summary.ranges.unheld if summary.ranges is not None else 0)
        of_ring.overlapping_ranges.set(summary.ranges.overlaps if summary.ranges is not None else 0)
        of_ring.fullest_shard.set(summary.ranges.fullest if summary.ranges is not None else 0)
        of_ring.set_shards(states.values())

    def _count(self, ring: str, what: int) -> None:
        if not what & (Change.MEMBERSHIP | Change.RING):
            return  # a lease: nothing is counted, and no snapshot is made of the ring at each renewal
        gone = self.cache.get(ring) is None
        if what & Change.MEMBERSHIP and not gone:
            self._metrics.ring(ring).calculations.inc()
        if what & Change.RING and not gone:
            self._metrics.webhook_expected(ring, OUTCOMES)
        elif what & Change.RING:
            self._metrics.forget_ring(ring)


class _Counters:
    """Placement's counts, as metrics; what ends after its ring is gone is not counted."""

    def __init__(self, metrics: Metrics, cache: RingCache) -> None:
        self._metrics = metrics
        self._cache = cache

    def _is_gone(self, ring: str) -> bool:
        return self._cache.get(ring) is None

    def labelled(self, ring: str, resource: RingResource, decision: Decision, seconds: float) -> None:
        """An object changed hands `seconds` after it was first seen to need it."""
        if self._is_gone(ring):
            return
        of_resource = self._metrics.resource(ring, resource.subject.resource.group_resource)
        match decision:
            case Decision.DRAIN:
                of_resource.drains.inc()
            case Decision.ASSIGN:
                of_resource.movements.inc()
                self._metrics.ring(ring).assign_latency.observe(seconds)
            case _:
                of_resource.movements.inc()
                self._metrics.ring(ring).move_latency.observe(seconds)

    def conditions(self, ring: str, conditions: Mapping[str, bool | None]) -> None:
        """Which conditions hold."""
        if self._is_gone(ring):
            return
        self._metrics.ring_conditions(ring, conditions)

    def took_over(self, ring: str) -> None:
        """The lease of a shard was acquired."""
        if self._is_gone(ring):
            return
        self._metrics.ring(ring).takeovers.inc()

    def resynced(self, ring: str, objects: int, seconds: float) -> None:
        """A resync has gone through everything."""
        if self._is_gone(ring):
            return
        of_ring = self._metrics.ring(ring)
        of_ring.resync_duration.observe(seconds)
        of_ring.resync_objects.set(objects)
