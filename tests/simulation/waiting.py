"""How long each object waits for what it is owed, counted while nothing hinders whom it waits for.

Looks once a second at every object, whatever else happens in the world: a
fault that makes each handover take a minute shows here, and so does one object
that stops all others.  What hinders a wait is the trouble of the shards that
have its family, of the sharder's leader and of the API server, and what comes
of that; another shard's troubles, users and objects that cannot be written do
not excuse it.  That the sharder has no leader is excused, and is a wait itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from sharder.core.observed import UNSEEN_SECONDS
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import SHARDER_HOLDER, SHARDER_SERVICE_ACCOUNT, SYSTEM_NAMESPACE, RingLabels
from shardsdk.protocol.objects import LEASES
from tests.simulation.collecting import owner_uid
from tests.simulation.storage import Commit, Version
from tests.simulation.vocabulary import PIECES, RATES, RING_OF, RING_OF_KIND, RINGS, Doing

if TYPE_CHECKING:
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
    TAKEOVER = "is on a shard of which no process works"
    LEASE = "stays in the sharder's name"
    HOLD = "is named, and not held"
    OWNER = "has no owner"
    LEADER = "has no leader"


#: Waits of what has no owner meanwhile.
OWNERLESS: Final = frozenset({Wait.SHARD, Wait.MOVE, Wait.TAKEOVER, Wait.HOLD})
#: What waits (a uid, or a lease's name), on which shard, for what.
Waiting = tuple[str, str | None, Wait]
#: The wait of all that has to be placed.
LEADERSHIP: Final[Waiting] = ("the sharder", None, Wait.LEADER)


@dataclass(slots=True)
class Waits:
    """The waits of one run."""

    world: World
    #: Since when something waits, and nothing has hindered that.
    _since: dict[Waiting, float] = field(default_factory=dict)
    #: For how many seconds what has no owner has had none while nothing hindered that, whatever did in between.
    _unowned: dict[str, float] = field(default_factory=dict)
    #: Since when an object was to be reconciled by the shard that has it.
    _awaits: dict[str, float] = field(default_factory=dict)
    #: Reconciles under way, of each object by process and of each process; one that is killed never ends its own.
    _running: dict[str, dict[str, int]] = field(default_factory=dict)
    _busy: dict[str, int] = field(default_factory=dict)
    _ended_at: dict[str, float] = field(default_factory=dict)
    _told: set[Waiting] = field(default_factory=set)
    #: Until when nothing is taken from a shard whose lease the sharder gave back because nothing moved any more.
    _barred: dict[str, float] = field(default_factory=dict)

    def bound(self, wait: Wait) -> float:
        """The longest that anything may wait, in seconds; see the figures that were measured."""
        lease = self.world.timings.lease
        # One whose lease a leader has never seen is waited for as long as the longest lease lasts.
        longer = {
            Wait.TAKEOVER: lease,
            Wait.LEASE: 4 * lease,
            Wait.MOVE: UNSEEN_SECONDS,
            Wait.OWNER: 2 * lease + UNSEEN_SECONDS,
        }
        return 2 * lease + longer.get(wait, 0.0) + 5.0

    # -- events ------------------------------------------------------------

    def on_commit(self, commit: Commit) -> None:
        """An object that is given to a shard, or changed, has to be reconciled there."""
        ring = RING_OF.get(commit.resource)
        after, before = commit.after, commit.before
        if commit.resource == LEASES and commit.key == LEADERS_LEASE and _holder(before) != _holder(after):
            self.world.hindrances.elected()
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
        self._unowned.clear()
        self.world.hindrances.hinder(None, seconds)
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
        world, hindrances = self.world, self.world.hindrances
        waiting: dict[Waiting, float] = {}
        unowned: dict[str, float] = {}
        could_lead_since = hindrances.could_lead_since()
        if could_lead_since is not None:
            self._wait(waiting, LEADERSHIP, could_lead_since)
        for name, ring in RINGS.items():
            shards = self._by_name(shard for shard in world.shards if shard.ring is ring)
            holds = world.checkers.is_holder
            working = frozenset(each.name for each in world.working_shards(name) if holds(each.name, each.identity))
            for key in self._look(ring, shards, working):
                what, _, wait = key
                hindered = max(hindrances.until(name, self._concerned(ring, key)), self._barred_until(key))
                self._wait(waiting, key, hindered)
                if wait in OWNERLESS:
                    unowned[what] = self._unowned.get(what, 0.0) + (hindered < world.now)
                    self._judge((what, None, Wait.OWNER), unowned[what])
        self._since, self._unowned = waiting, unowned

    def _wait(self, waiting: dict[Waiting, float], key: Waiting, hindered: float) -> None:
        """Something waits, hindered until then; what hindered it earlier, of shards that had it, may last longer."""
        waiting[key] = max(self._since.get(key, self.world.now), hindered)
        self._judge(key, self.world.now - waiting[key])

    def _concerned(self, ring: RingLabels, key: Waiting) -> set[str] | None:
        """The shards that something waits for: those that have its family; `None`: whichever have anything."""
        uid, where, wait = key
        if wait in (Wait.LEASE, Wait.RELEASE):
            return None
        index = self.world.index
        owner = owner_uid(index.pieces[uid]) if uid in index.pieces else uid
        family = [*index.children(uid).values(), *([index.mains[owner]] if owner in index.mains else ())]
        return {where or "", *(each.label(ring.shard) or "" for each in family)}

    def _by_name(self, processes: Iterable[AnyShard]) -> dict[str, AnyShard]:
        """The process of each shard; of several the one that holds the lease, since the others do no work."""
        shards: dict[str, AnyShard] = {}
        for process in processes:
            if process.name not in shards or self.world.checkers.is_holder(process.name, process.identity):
                shards[process.name] = process
        return shards

    def _judge(self, key: Waiting, waited: float) -> None:
        what, where, wait = key
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
            return Wait.TAKEOVER
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
