"""How long each object waits for what it is owed, counted while nothing hinders its own ring.

Looks once a second at every object, whatever else happens in the world: a
fault that makes each handover take a minute shows here, and so does one object
that stops all others.  What hinders a ring is the trouble of its own shards, of
the sharder's leader and of the API server, and what comes of that; another
ring's troubles, users and objects that cannot be written do not excuse it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from sharder.core.observed import UNSEEN_SECONDS
from shardsdk.kube.sessions import REQUEST_SECONDS
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import SHARDER_HOLDER, SHARDER_SERVICE_ACCOUNT, SYSTEM_NAMESPACE, RingLabels
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.processes import ProcessState
from tests.simulation.collecting import owner_uid
from tests.simulation.network import CALM
from tests.simulation.server import Service
from tests.simulation.storage import Commit, Version
from tests.simulation.vocabulary import PIECES, RATES, RING_OF, RING_OF_KIND, RINGS, Doing

if TYPE_CHECKING:
    from tests.simulation.replicas import ReplicaProcess
    from tests.simulation.world import AnyShard, World

#: The lease that the sharder's replicas stand for election with.
LEADERS_LEASE: Final = Key(SYSTEM_NAMESPACE, SHARDER_SERVICE_ACCOUNT)
#: Reconciles that a shard of either kind has under way at most.
SLOTS: Final = 3
#: How long a lease of 15 s is left alone that was given back because nothing moved; see the settings of replicas.
BARRED_SECONDS: Final = 60.0


class Wait(Enum):
    """What an object waits for; the value is how it is told of."""

    SHARD = "is unassigned"
    MOVE = "is stranded"
    ACKNOWLEDGEMENT = "is draining"
    RELEASE = "is out of the ring's scope, and still on a shard"
    RECONCILE = "is not reconciled"
    TAKEOVER = "is on a shard that is gone"
    LEASE = "stays in the sharder's name"
    HOLD = "is named, and not held"


#: What waits (a uid, or a lease's name), on which shard, for what.
Waiting = tuple[str, str | None, Wait]


@dataclass(slots=True)
class Waits:
    """The waits of one run."""

    world: World
    #: Until when each ring is hindered.
    _hindered: dict[str, float] = field(default_factory=dict)
    #: Until when the sharder is, and so every ring: no leader, one in trouble, or no API server.
    sharder_hindered: float = 0.0
    #: Since when something waits.
    _since: dict[Waiting, float] = field(default_factory=dict)
    #: Since when an object was to be reconciled by the shard that has it.
    _awaits: dict[str, float] = field(default_factory=dict)
    #: Reconciles under way, of each object by process and of each process; one that is killed never ends its own.
    _running: dict[str, dict[str, int]] = field(default_factory=dict)
    _busy: dict[str, int] = field(default_factory=dict)
    _ended_at: dict[str, float] = field(default_factory=dict)
    _told: set[Waiting] = field(default_factory=set)
    #: Until when nothing is taken from a shard whose lease the sharder gave back because nothing moved any more.
    _barred: dict[str, float] = field(default_factory=dict)

    def hinder(self, ring: str | None, seconds: float = 0.0) -> None:
        """Something hinders a ring (`None`: all of them) from now on for so long."""
        until = self.world.now + seconds
        if ring is None:
            self.sharder_hindered = max(self.sharder_hindered, until)
        for name in RINGS if ring is None else (ring,):
            self._hindered[name] = max(self._hindered.get(name, 0.0), until)

    def bound(self, wait: Wait) -> float:
        """The longest that anything may wait, in seconds; see the figures that were measured."""
        lease = self.world.timings.lease
        # One whose lease a leader has never seen is waited for as long as the longest lease lasts.
        longer = {Wait.TAKEOVER: 2 * lease, Wait.LEASE: 4 * lease, Wait.MOVE: UNSEEN_SECONDS}
        return 2 * lease + longer.get(wait, 0.0) + 5.0

    # -- events ------------------------------------------------------------

    def on_commit(self, commit: Commit) -> None:
        """An object that is given to a shard, or changed, has to be reconciled there."""
        ring = RING_OF.get(commit.resource)
        after, before = commit.after, commit.before
        if commit.resource == LEASES and commit.key == LEADERS_LEASE and _holder(before) != _holder(after):
            self.hinder(None)
        if commit.resource == LEASES and _holder(before) == SHARDER_HOLDER and _holder(after) == "":
            self._given_back(commit.key.name)
        if ring is None or commit.resource == PIECES:
            return
        if after is None or after.label(ring.shard) is None or after.label(ring.drain) is not None:
            self._awaits.pop(commit.latest.uid, None)
        elif (
            before is None
            or before.label(ring.shard) != after.label(ring.shard)
            or before.label(ring.drain) is not None
            or before.doc["metadata"]["generation"] != after.doc["metadata"]["generation"]
        ):
            self._awaits[after.uid] = self.world.now

    def set_back(self, changed: Mapping[str, Version], vanished: Iterable[str], seconds: float) -> None:
        """The store was set back: what there is now counts once nobody has to find that out any more."""
        self._since.clear()
        self.hinder(None, seconds)
        for uid in vanished:
            self._awaits.pop(uid, None)
        for uid, version in changed.items():
            ring = RING_OF_KIND[version.doc["kind"]]
            self._awaits.pop(uid, None)
            if version.label(ring.shard) is not None and version.label(ring.drain) is None:
                self._awaits[uid] = self.world.now

    def _given_back(self, shard: str) -> None:
        """With objects left nothing had moved for too long, and the sharder leaves its shard time to come back."""
        for versions in (self.world.index.mains, self.world.index.pieces):
            if any(each.label(RING_OF_KIND[each.doc["kind"]].shard) == shard for each in versions.values()):
                seconds = BARRED_SECONDS * self.world.timings.scale / RATES[0]
                self._barred[shard] = self.world.now + seconds

    def began(self, doing: Doing) -> None:
        """A reconcile begins."""
        self._busy[doing.process] = self._busy.get(doing.process, 0) + 1
        running = self._running.setdefault(doing.uid, {})
        running[doing.process] = running.get(doing.process, 0) + 1
        main = self.world.index.mains.get(doing.uid)
        if main is not None and main.label(RING_OF[doing.resource].shard) == doing.shard:
            self._awaits.pop(doing.uid, None)

    def ended(self, doing: Doing) -> None:
        """A reconcile has ended, somehow."""
        self._ended_at[doing.uid] = self.world.now
        self._busy[doing.process] -= 1
        running = self._running[doing.uid]
        running[doing.process] -= 1
        if not running[doing.process]:
            del running[doing.process]

    # -- once a second -------------------------------------------------------

    def tick(self) -> None:
        """Look at everything."""
        world = self.world
        leader = world.leader
        if world.server.service is not Service.UP:
            self.hinder(None, REQUEST_SECONDS)
        if leader is None or not leader.ready:
            self.hinder(None)
        elif _troubled(leader):
            self.hinder(None, REQUEST_SECONDS)
        waiting: dict[Waiting, float] = {}
        for name, ring in RINGS.items():
            processes = [shard for shard in world.shards if shard.ring is ring]
            if any(_troubled(process) for process in processes):
                self.hinder(name, REQUEST_SECONDS)
            shards = self._by_name(processes)
            working = frozenset(shard.name for shard in world.working_shards(name))
            for key in self._look(ring, shards, working):
                since = waiting[key] = self._since.get(key, world.now)
                self._judge(key, since, name)
        self._since = waiting

    def _by_name(self, processes: Iterable[AnyShard]) -> dict[str, AnyShard]:
        """The process of each shard; of several the one that holds the lease, since the others do no work."""
        shards: dict[str, AnyShard] = {}
        for process in processes:
            if process.name not in shards or self.world.checkers.is_holder(process.name, process.identity):
                shards[process.name] = process
        return shards

    def _judge(self, key: Waiting, since: float, ring: str) -> None:
        what, where, wait = key
        waited = self.world.now - max(since, self._hindered.get(ring, 0.0))
        waited = min(waited, self.world.now - self._barred_until(key))
        if wait is Wait.ACKNOWLEDGEMENT:
            waited = min(waited, self.world.now - self._ended_at.get(what, 0.0))
        waits = self.world.stats.waits
        if waited > waits.get(wait.name, 0.0):
            waits[wait.name] = waited
        if waited > self.bound(wait) and key not in self._told:
            self._told.add(key)
            self.world.checkers.violate(
                "waits no longer than it must", f"{what} ({where}) {wait.value} for {waited:.1f} s"
            )

    def _barred_until(self, key: Waiting) -> float:
        """Until when what something waits for is not taken from its shard; an owner goes after its children."""
        what, where, wait = key
        if not self._barred or wait not in (Wait.MOVE, Wait.SHARD):
            return 0.0
        children = self.world.index.children(what).values() if wait is Wait.SHARD else ()
        names = {where, *(each.label(RING_OF[PIECES].shard) for each in children)}
        return max(self._barred.get(name or "", 0.0) for name in names)

    def _look(self, ring: RingLabels, shards: Mapping[str, AnyShard], working: frozenset[str]) -> Iterator[Waiting]:
        if not working:
            return
        yield from self._look_at_objects(ring, shards, working)
        for name in self.world.liveness.taken(ring.ring) if not self.world.poison.any else ():
            yield name, None, Wait.LEASE

    def _look_at_objects(
        self, ring: RingLabels, shards: Mapping[str, AnyShard], working: frozenset[str]
    ) -> Iterator[Waiting]:
        world = self.world
        for versions in (world.index.mains, world.index.pieces):
            for uid, version in versions.items():
                if RING_OF_KIND[version.doc["kind"]] is ring:
                    if (
                        version.label(ring.shard) in working
                        and version.label(ring.drain) is None
                        and uid not in self._awaits
                        and world.in_scope(ring, version.key.namespace)
                    ):
                        continue  # as nearly always
                    wait = self._wait_of(ring, version, working, shards)
                    if wait is not None:
                        yield uid, version.label(ring.shard), wait

    def _wait_of(
        self,
        ring: RingLabels,
        version: Version,
        working: frozenset[str],
        shards: Mapping[str, AnyShard],
    ) -> Wait | None:
        label, uid = version.label(ring.shard), version.uid
        main = version.doc["kind"] != PIECES.kind
        if (not main and owner_uid(version) is None) or self.world.poison.excuses(version):
            return None
        in_scope = self.world.in_scope(ring, version.key.namespace)
        if label is None:
            return Wait.SHARD if in_scope else None
        if label not in self.world.liveness.available(ring.ring):
            return Wait.MOVE
        if label not in working:
            return Wait.TAKEOVER if label not in shards else None
        if main and version.label(ring.drain) is not None:
            return None if shards[label].identity in self._running.get(uid, ()) else Wait.ACKNOWLEDGEMENT
        if not in_scope:
            return Wait.RELEASE
        if main and uid in self._awaits and not self._is_full(shards[label]):
            return Wait.RECONCILE
        return None

    def is_busy(self, shard: AnyShard) -> bool:
        """Whether any of its reconciles runs."""
        return self._busy.get(shard.identity, 0) > 0

    def _is_full(self, shard: AnyShard) -> bool:
        return self._busy.get(shard.identity, 0) >= SLOTS


def _holder(lease: Version | None) -> str | None:
    return lease.doc["spec"].get("holderIdentity") if lease is not None else None


def _troubled(who: AnyShard | ReplicaProcess) -> bool:
    return who.process.state is ProcessState.PAUSED or who.link.cut or who.link.trouble is not CALM
