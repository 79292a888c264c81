"""Whether crashed shards can be told from a slow API server, and who is told when they cannot.

Does: look at the leader's renewals as they come.  When one after the other takes
so long that time counts against no lease of a ring (see sharder.core.proven_time), or
the leases of shards cannot be followed, say so in the log, in a metric and on the
ring, and again when it is over.

Refuses: to decide anything by it; that no lease runs out meanwhile is what
keeps living shards safe.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sharder.cache.rings import RingCache, RingSnapshot
from sharder.core.proven_time import are_slow, tolerated_gap
from sharder.takeover.fences import CommitProof
from shardsdk.errors import ShardingError
from shardsdk.events.recorder import EventType, Regarding
from shardsdk.lease.election import Recorder
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES

log = logging.getLogger(__name__)

SUSPENDED = "CrashDetectionSuspended"
RESUMED = "CrashDetectionResumed"


class Detection:
    """Watches over the renewals that `proof` is made of; `show(ring, suspended)` sets the metric."""

    def __init__(
        self, cache: RingCache, proof: CommitProof, recorder: Recorder, *, show: Callable[[str, bool], None]
    ) -> None:
        self._cache = cache
        self._proof = proof
        self._recorder = recorder
        self._show = show
        self._suspended: set[str] = set()

    def renewed(self, sent_at: float, answered_at: float) -> None:
        """The leader's own lease was renewed."""
        self._proof.renewed(sent_at, answered_at)
        maybe_slow = are_slow(self._proof.renewals, 0.0, self._proof.retry_seconds)
        blind = dict(self._cache.unheard).get(LEASES.group_resource) if self._cache.stale else None
        for snapshot in self._cache.all():
            # Nobody's lease is shorter than none.
            shortest = _shortest_duration(snapshot) if maybe_slow or blind is not None else None
            why = self._why(shortest, blind) if shortest is not None else None
            self._show(snapshot.name, why is not None)
            if why is not None and snapshot.name not in self._suspended:
                self._suspended.add(snapshot.name)
                self._tell(snapshot, EventType.WARNING, SUSPENDED, why)
            elif why is None and snapshot.name in self._suspended:
                self._suspended.discard(snapshot.name)
                self._tell(
                    snapshot,
                    EventType.NORMAL,
                    RESUMED,
                    "the leader renews its lease in time and hears of the shards': crashes are noticed",
                )

    def forget(self) -> None:
        """The leadership has ended: whoever leads next looks for itself."""
        self._suspended.clear()

    def _tell(self, snapshot: RingSnapshot, kind: EventType, reason: str, message: str) -> None:
        if kind is EventType.WARNING:
            log.warning("crash detection suspended", extra={"ring": snapshot.name, "why": message})
        else:
            log.info("crash detection resumed", extra={"ring": snapshot.name})
        if snapshot.obj is not None:
            self._recorder.event(Regarding.of(CLUSTERRINGS, snapshot.obj.metadata), kind, reason, message)

    def _why(self, shortest: int, blind: ShardingError | None) -> str | None:
        """Why no crash of a shard with a lease of so many seconds is noticed; `None`: it is."""
        retry = self._proof.retry_seconds
        if blind is not None:
            return (
                f"the leader hears nothing of the shards' leases: {blind}; meanwhile the objects of a shard that"
                " crashes, or leaves, wait. See the ring's conditions Ready and PermissionsGranted"
            )
        if not are_slow(self._proof.renewals, shortest, retry):
            return None
        return (
            f"the leader's renewals of its own lease come {min(self._proof.renewals.recent):.1f} s apart and more,"
            f" {tolerated_gap(shortest, retry):.1f} s are bearable for leases of {shortest} s: meanwhile no such shard"
            " counts as crashed, and the objects of those that are wait. Look into the latency of API server and etcd,"
            f" or raise leaderElection.retryPeriod (now {retry:g}s) in the sharder's configuration"
        )


def _shortest_duration(snapshot: RingSnapshot) -> int | None:
    """The shortest lease that a shard of the ring holds; `None`: none does."""
    held = (seen.facts for seen in snapshot.leases.values() if seen.lease.held_by_shard)
    return min((facts.duration_seconds for facts in held), default=None)
