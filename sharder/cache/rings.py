"""What every replica knows of rings and shards: warm caches, and views made from them.

Does: watch ClusterRings and the leases that carry the ring label, parse and
resolve rings, remember since when each lease says what it says, and hand out what
does not change any more: a view of a ring to the webhook, a snapshot of it to the
controllers.  A replica that has heard nothing for too long says so in its views.

Refuses: to write anything, and to judge who is dead; that is the leader's part.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Final

from sharder.cache.freshness import SHARD_LEASES, Confirmation
from sharder.cache.resources import NotLookedUp, Resolution, Unanswered, Unresolved, resolve_ring
from sharder.cache.ringobject import RingObject
from sharder.cache.subscribers import Change, LeaseFollower, Subscriber, tell
from sharder.cache.vanished import VanishedLeases
from sharder.core import membership as memberships
from sharder.core.liveness import is_unsteady
from sharder.core.membership import Membership
from sharder.core.observed import ObservedLease, VanishedLease, observe, vanish
from sharder.core.ringspec import InvalidRing, ResolvedRing, RingSpec, default_namespaces, parse_ring
from sharder.core.selectors import LabelSelector
from sharder.core.views import RingView
from shardsdk.errors import ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, EventKind, Reflector
from shardsdk.lease.claim import is_overdue
from shardsdk.protocol.labels import SYSTEM_NAMESPACE
from shardsdk.protocol.leases import Lease, slim_lease
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, GroupResource
from shardsdk.queueing.queue import RateLimit, WorkQueue

log = logging.getLogger(__name__)

#: A lease or ring watch silent for this long makes a replica's views stale.
STALENESS_SECONDS: Final = 10.0
#: How often a ring whose resources are not all served is looked up again.
RESOLVE_AGAIN_SECONDS: Final = 10.0
#: Rings looked up side by side: an API group that does not answer holds up its own ring only.
RESOLVERS: Final = 4

LeaseKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RingSnapshot:
    """One ring as it was at one moment: its object, what parsing and looking up made of it, and its shards.

    `resolved` is an older spec than the object's while the newest is looked up; `unresolved`: that does not succeed.
    """

    obj: RingObject
    invalid: InvalidRing | None
    resolved: ResolvedRing | None
    unserved: tuple[GroupResource, ...]
    unanswered: Unanswered
    leases: Mapping[LeaseKey, ObservedLease]
    #: By name.
    vanished: Mapping[str, tuple[VanishedLease, ...]]
    membership: Membership
    unresolved: Unresolved | None = None
    #: The leases by name, once somebody has asked.
    _named: dict[str, list[ObservedLease]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """What the ring is called."""
        return self.obj.metadata.name

    @property
    def uid(self) -> str:
        """Which ring of that name it is."""
        return self.obj.metadata.uid

    def leases_named(self, shard: str) -> Iterator[ObservedLease]:
        """The leases called `shard`, in whatever namespace."""
        if not self._named:
            for (_, name), seen in self.leases.items():
                self._named.setdefault(name, []).append(seen)
        return iter(self._named.get(shard, ()))

    def vanished_named(self, shard: str) -> Sequence[VanishedLease]:
        """The leases called `shard` that are gone."""
        return self.vanished.get(shard, ())


@dataclass(slots=True)
class _Ring:
    """A ring as events change it; `snapshot` is how others see it, `None` until somebody asks after a change.

    A snapshot copies the leases, which is some microseconds for a thousand: less than what decoding one renewal takes.
    """

    name: str
    obj: RingObject | None = None
    invalid: InvalidRing | None = None
    spec: RingSpec | None = None
    resolved: ResolvedRing | None = None
    unserved: tuple[GroupResource, ...] = ()
    unanswered: Unanswered = ()
    unresolved: Unresolved | None = None
    leases: dict[LeaseKey, ObservedLease] = field(default_factory=dict)
    vanished: VanishedLeases = field(default_factory=VanishedLeases)
    silent: frozenset[str] = frozenset()
    membership: Membership = field(default_factory=Membership)
    snapshot: RingSnapshot | None = None

    def take_snapshot(self) -> RingSnapshot | None:
        """The ring as it is now; `None`: there is no such object."""
        if self.snapshot is None and self.obj is not None:
            self.snapshot = RingSnapshot(
                self.obj, self.invalid, self.resolved, self.unserved, self.unanswered,
                MappingProxyType(dict(self.leases)), self.vanished.by_name, self.membership,
                self.unresolved,
            )  # fmt: skip
        return self.snapshot


class RingCache:
    """Rings and shards as this replica knows them; `on_lease` is told the version of every lease as it shows."""

    def __init__(
        self,
        api: Api,
        *,
        clock: Clock,
        rng: Random,
        staleness_seconds: float = STALENESS_SECONDS,
        default_scope: LabelSelector | None = None,
        on_lease: Callable[[str], None] = lambda version: None,
    ) -> None:
        self._api = api
        self._on_version = on_lease
        self._default_scope = default_scope or default_namespaces(SYSTEM_NAMESPACE)
        self._clock = clock
        self._entries: dict[str, _Ring] = {}
        self._subscribers: list[Subscriber] = []
        self._followers: list[LeaseFollower] = []
        #: Rings of the first list that have not been looked up even once, well or not.
        self._unresolved: set[str] = set()
        self._to_resolve: WorkQueue[str] = WorkQueue(
            clock, name="resolve", rate_limit=RateLimit(RESOLVE_AGAIN_SECONDS, RESOLVE_AGAIN_SECONDS, None)
        )
        self.ring_informer: Reflector[RingObject] = Reflector(
            api, CLUSTERRINGS, model=RingObject, metadata_only=False,
            handler=self._on_ring, name="rings", clock=clock, rng=rng,
        )  # fmt: skip
        self.lease_informer: Reflector[Lease] = Reflector(
            api, LEASES, selector=SHARD_LEASES, model=Lease, metadata_only=False,
            handler=self._on_lease, name="leases", clock=clock, rng=rng, transform=slim_lease,
        )  # fmt: skip
        self._confirmation = Confirmation(
            api, self.ring_informer, self.lease_informer, clock=clock, every_seconds=staleness_seconds / 2
        )
        #: Returns once this replica is not `stale`, or after so many seconds.
        self.until_heard: Final = self._confirmation.until_heard

    # -- what others read ------------------------------------------------

    @property
    def warm(self) -> bool:
        """Whether both caches are in and every ring of the first list has been looked up once."""
        return self.ring_informer.synced.is_set() and self.lease_informer.synced.is_set() and not self._unresolved

    @property
    def stale(self) -> bool:
        """Whether this replica has heard nothing of leases or rings for too long."""
        return self._confirmation.stale

    @property
    def leases_known_until(self) -> float:
        """Until when (monotonic) it knows what shards make of their leases: now, unless it hears nothing of them."""
        return self._confirmation.leases_known_until

    @property
    def unheard(self) -> tuple[tuple[GroupResource, ShardingError], ...]:
        """Of leases and rings, what cannot be followed just now, and why."""
        return self._confirmation.unheard

    def get(self, ring: str) -> RingSnapshot | None:
        """The ring called `ring` as it is now; `None` when there is no such object."""
        entry = self._entries.get(ring)
        return entry.take_snapshot() if entry is not None else None

    def all(self) -> list[RingSnapshot]:
        """All rings that exist."""
        return [ring for entry in self._entries.values() if (ring := entry.take_snapshot()) is not None]

    def view(self, ring: str) -> RingView | None:
        """An immutable view of one ring; `None` when it is unknown, refused or not resolved."""
        entry = self._entries.get(ring)
        if entry is None or entry.obj is None or entry.resolved is None:
            return None
        return RingView(resolved=entry.resolved, membership=entry.membership, stale=self.stale)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber(ring, mask of Change)` after each change; returns the undo."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def follow_leases(self, follower: LeaseFollower) -> Callable[[], None]:
        """Call `follower(ring, lease)` for each lease that says something new or is gone; returns the undo."""
        self._followers.append(follower)
        return lambda: self._followers.remove(follower)

    def when_behind(self, restart: Callable[[], None]) -> Callable[[], None]:
        """Have `restart` called whenever the watch of leases was behind and begins anew; returns the undo."""
        self._confirmation.when_behind.append(restart)
        return lambda: self._confirmation.when_behind.remove(restart)

    def relist_leases(self, why: str) -> None:
        """A write has met a lease that is not as the cache has it: list all leases anew."""
        self._confirmation.relist_leases(why)

    def set_silent(self, ring: str, silent: frozenset[str]) -> None:
        """Tell which of a ring's shards have missed renewals; to be told again as time goes by."""
        entry = self._entries.get(ring)
        if entry is None:
            return
        # Who has crashed is unsteady for minutes; only the end of that makes another membership.
        unsteady = entry.membership.unsteady and self._unsteady(entry) & entry.membership.available
        if entry.silent != silent or unsteady != entry.membership.unsteady:
            entry.silent = silent
            self._rebuild(entry)

    # -- running ---------------------------------------------------------

    async def run(self) -> None:
        """Keep the caches until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.ring_informer.run())
            tasks.create_task(self.lease_informer.run())
            tasks.create_task(self._confirmation.run())
            for _ in range(RESOLVERS):
                tasks.create_task(self._to_resolve.process(self._resolve_next, self._not_resolved))

    async def _resolve_next(self, ring: str) -> None:
        try:
            if not await self._resolve(ring):
                self._to_resolve.add_rate_limited(ring)
        finally:
            self._unresolved.discard(ring)

    def _not_resolved(self, ring: str, error: Exception) -> None:
        if isinstance(error, ShardingError):
            log.warning("ring not resolved, will retry", extra={"ring": ring, "error": str(error)})
        else:
            log.error("ring not resolved, will retry", extra={"ring": ring}, exc_info=error)
        self._to_resolve.add_rate_limited(ring)

    async def _resolve(self, ring: str) -> bool:
        """Look up a ring's resources; False: some are not served (yet), or nobody can tell."""
        entry = self._entries.get(ring)
        if entry is None or entry.spec is None:
            return True
        spec = entry.spec
        try:
            found = await resolve_ring(self._api, spec, self._default_scope, entry.resolved)
        except NotLookedUp as error:
            if entry.spec is spec:
                self._note_unresolved(entry, spec, error)
            raise
        if entry.spec is not spec:
            return True  # the newer spec is in the queue
        known = Resolution(entry.resolved or found.ring, entry.unserved, entry.unanswered)
        if found != known or entry.resolved is None or entry.unresolved is not None:
            entry.resolved, entry.unserved, entry.unanswered = found.ring, found.unserved, found.unanswered
            entry.unresolved = None
            self._tell(entry, Change.RING)
        for resource, why in found.unanswered:
            extra = {"ring": ring, "resource": str(resource), "error": why}
            log.warning("resource of a ring not looked up, will retry", extra=extra)
        return not found.unserved and not found.unanswered

    def _note_unresolved(self, entry: _Ring, spec: RingSpec, error: NotLookedUp) -> None:
        """The ring is not used as `spec` asks for, and people should know why; one that is used stays so."""
        if entry.resolved is not None and entry.resolved.spec == spec:
            return
        before = entry.unresolved
        since = before.since if before is not None and before.generation == spec.generation else self._clock.now()
        unresolved = Unresolved(spec.generation, error.unanswered, since)
        if unresolved != before:
            entry.unresolved = unresolved
            self._tell(entry, Change.RING)

    def resolve_again(self, ring: str) -> None:
        """Look up the ring's resources again."""
        self._to_resolve.add(ring)

    # -- events ----------------------------------------------------------

    def _on_ring(self, delta: Delta[RingObject]) -> None:
        name = delta.object.metadata.name
        entry = self._entries.setdefault(name, _Ring(name))
        if delta.kind is EventKind.DELETED:
            entry.obj = entry.spec = entry.resolved = entry.invalid = entry.unresolved = None
            entry.unserved = entry.unanswered = ()
            if not entry.leases:
                del self._entries[name]
            self._tell(entry, Change.RING)
            return
        entry.obj = delta.object
        try:
            spec: RingSpec | None = parse_ring(delta.object.as_dict())
            entry.invalid = None
        except InvalidRing as error:
            spec, entry.invalid = None, error
        if spec is None:
            entry.spec = entry.resolved = entry.unresolved = None
        elif entry.spec is None or spec != entry.spec:
            entry.spec = spec
            if not self.ring_informer.synced.is_set():
                self._unresolved.add(name)
            self.resolve_again(name)
        self._tell(entry, Change.RING)

    def _on_lease(self, delta: Delta[Lease]) -> None:
        lease = delta.object
        self._on_version(lease.metadata.resource_version)
        ring, old_ring = lease.ring, delta.old.ring if delta.old else None
        if delta.kind is EventKind.DELETED or (old_ring is not None and old_ring != ring):
            self._forget_lease(old_ring or ring, delta.old or lease, lease)
        if delta.kind is EventKind.DELETED or not ring:
            return
        if (entry := self._entries.get(ring)) is None:
            entry = self._entries[ring] = _Ring(ring)
        key = (lease.metadata.namespace, lease.metadata.name)
        before = entry.leases.get(key)
        known = before or entry.vanished.recall(key)
        # By two clocks that prove nothing: at worst, what others have waits for one renewal of it more, or less.
        entry.leases[key] = seen = observe(
            known, lease, self._clock.monotonic(), entry.leases.values(),
            out_of_date=is_overdue(lease, self._clock.now()),
        )  # fmt: skip
        # A renewal, and those come all the time, changes nobody's membership but that of a shard that was silent: what
        # it lets go of next, since somebody else was to have it, may be its own again by now.
        heard = lease.held_by_shard and (before is None or seen.observed_at != before.observed_at)
        was_silent = heard and lease.metadata.name in entry.silent
        if was_silent:
            entry.silent -= {lease.metadata.name}
        doubted = before is not None and seen.history.doubts != before.history.doubts
        if was_silent or doubted or before is None or not memberships.counts_the_same(before.lease, lease):
            self._rebuild(entry)
        self._tell_lease(entry, key)

    def _forget_lease(self, ring: str | None, lease: Lease, last: Lease) -> None:
        entry = self._entries.get(ring or "")
        if entry is None:
            return
        key = (lease.metadata.namespace, lease.metadata.name)
        seen = entry.leases.pop(key, None)
        if seen is not None:
            # In the version that was known: no event has told of its end, it is missing in a list.
            shown = last if last.metadata.resource_version != lease.metadata.resource_version else None
            entry.vanished.remember(key, vanish(seen, shown, self._clock.monotonic()))
        self._rebuild(entry)
        self._tell_lease(entry, key)
        if entry.obj is None and not entry.leases:
            self._entries.pop(entry.name, None)

    def _rebuild(self, entry: _Ring) -> None:
        old = entry.membership
        leases = [seen.lease for seen in entry.leases.values()]
        unrenewed = frozenset(seen.lease.metadata.name for seen in entry.leases.values() if seen.history.unrenewed)
        new = memberships.build(
            leases, {lease.metadata.name for lease in leases}, previous=old, silent=entry.silent,
            unsteady=self._unsteady(entry), unrenewed=unrenewed,
        )  # fmt: skip
        if new != old:
            entry.membership = new
            self._tell(entry, Change.MEMBERSHIP)

    def _unsteady(self, entry: _Ring) -> frozenset[str]:
        """The shards that have crashed a moment ago."""
        now = self._clock.monotonic()
        crashed = (seen for seen in entry.leases.values() if seen.history.crashed_at)
        return frozenset(seen.facts.name for seen in crashed if is_unsteady(seen.facts, seen.history, now))

    def _tell(self, entry: _Ring, what: int) -> None:
        entry.snapshot = None  # whoever is told asks for one with the change in it
        tell(self._subscribers, entry.name, what)

    def _tell_lease(self, entry: _Ring, lease: LeaseKey) -> None:
        self._tell(entry, Change.LEASES)
        tell(self._followers, entry.name, lease)
