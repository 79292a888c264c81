"""What must happen in the end, and what must not happen although it could: looked at once a second.

Nobody stays unassigned or stranded, no lease stays in the sharder's name, and
an object that is where it belongs stays there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from sharder.core.conditions import ConditionType
from sharder.core.hashring import HashRing
from sharder.core.keys import resource_key
from sharder.core.shards import State
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import LEASE_RING_LABEL, LEASE_STATE_LABEL, SHARDER_HOLDER, RingLabels
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, Resource
from tests.simulation.collecting import owner_uid
from tests.simulation.storage import Commit, Version
from tests.simulation.vocabulary import MAIN_OF, PIECES, RING_OF, RINGS, STRAY, key_of

if TYPE_CHECKING:
    from tests.simulation.world import World


@lru_cache(maxsize=256)
def ring_of(names: frozenset[str]) -> HashRing:
    """The hash ring of these shards, made once; the replicas of a run take theirs from here, too."""
    return HashRing(names)


@lru_cache(maxsize=4096)
def _owner(available: frozenset[str], main: Resource, key: Key) -> str | None:
    return ring_of(available).owner(resource_key(main, key.namespace, key.name))


@dataclass(slots=True)
class Liveness:
    """The rules about time of one run."""

    world: World
    #: Since when something is as it must not stay, by its ring and a name for it.
    _bad_since: dict[tuple[str, str], float] = field(default_factory=dict)
    #: Since when an object is where it belongs.
    _at_home: dict[str, float] = field(default_factory=dict)
    _available: dict[str, frozenset[str]] = field(default_factory=dict)
    #: Those of them that say that they are about to leave.
    _leaving: dict[str, frozenset[str]] = field(default_factory=dict)
    #: Shards whose leases are in the sharder's name.
    _taken: dict[str, frozenset[str]] = field(default_factory=dict)
    _told: set[tuple[str, str]] = field(default_factory=set)
    #: What is wrong with which objects, and whether anything was written since that was looked at but renewals.
    _problems: list[tuple[Version, RingLabels, str]] = field(default_factory=list)
    _written: bool = True
    _works_listed: bool = True

    @property
    def bound(self) -> float:
        """How long anything may take once nothing hinders it: a failover, a takeover from an unfenced
        shard, a barred retry after a stall, and a resync."""
        lease = self.world.timings.lease
        return 2 * lease + 3 * lease + 5 * lease + 30.0

    @property
    def grace(self) -> float:
        """How long the sharder may still act on what it knew before."""
        return 12.0 * self.world.timings.scale + 5.0

    # -- nothing moves ---------------------------------------------------------

    def on_commit(self, commit: Commit) -> None:
        """Find out whether something was moved or drained that was where it belonged."""
        if commit.resource == LEASES:
            if not _is_renewal(commit):
                self._written = True
                self._follow_leases()
            return
        self._written = True
        ring = RING_OF.get(commit.resource)
        if ring is None or commit.before is None or commit.after is None:
            return
        before, after = commit.before, commit.after
        uid, author = before.uid, commit.author.name
        drained = before.label(ring.drain) is None and after.label(ring.drain) is not None
        moved = before.label(ring.shard) not in (None, after.label(ring.shard))
        if not (drained or moved):
            return
        if drained:
            self.world.stats.drains += 1
            self.world.note(f"{author} drains {commit.resource.plural} {commit.key} on {before.label(ring.shard)}")
        since = self._at_home.pop(uid, None)
        if (
            author == "user"
            or self.world.checkers.is_tainted(uid)
            or self.home_of(ring, before) != before.label(ring.shard)
        ):
            return
        if since is not None and self.world.now - since > self.grace:
            what = f"{commit.resource.plural} {commit.key} on {before.label(ring.shard)}"
            self.world.checkers.violate("nothing moves", f"{author} {'drains' if drained else 'moves'} {what}")

    def disturb(self) -> None:
        """What belongs where has changed in a way that is not looked at here (a namespace, a ring)."""
        self.world.ownership.something_changed()
        self._at_home.clear()

    def set_back(self) -> None:
        """The store was set back: everything counts from now on."""
        self._bad_since.clear()
        self._written = True
        self.disturb()
        self._follow_leases()

    def _follow_leases(self) -> None:
        for name in RINGS:
            leases = list(self._leases(name))
            available = frozenset(lease.metadata.name for lease in leases if lease.held_by_shard)
            self._taken[name] = frozenset(each.metadata.name for each in leases if each.holder == SHARDER_HOLDER)
            leaving = frozenset(lease.metadata.name for lease in leases if lease.held_by_shard and lease.leaving)
            if (available, leaving) != (self._available.get(name), self._leaving.get(name)):
                if leaving - self._leaving.get(name, frozenset()):
                    self.world.mark("said that it is about to leave")
                self._available[name], self._leaving[name] = available, leaving
                about = f", about to leave {sorted(leaving)}" if leaving else ""
                self.world.note(f"ring {name}: available {sorted(available)}{about}")
                self.disturb()

    def _leases(self, ring: str) -> Iterator[Lease]:
        for version in map(self.world.names.lease, self.world.storage.objects(LEASES)):
            if version.label(LEASE_RING_LABEL) == ring:
                lease: Lease = version.decode(Lease)
                yield lease

    def available(self, ring: str) -> frozenset[str]:
        """Shards that hold their own leases, as the API server knows it."""
        return self._available.get(ring, frozenset())

    def staying(self, ring: str) -> frozenset[str]:
        """Those of them that are not about to leave; if all are, all."""
        available = self.available(ring)
        return available - self._leaving.get(ring, frozenset()) or available

    def is_leaving(self, ring: str, shard: str) -> bool:
        """Whether it says that it is about to leave."""
        return shard in self._leaving.get(ring, frozenset())

    def taken(self, ring: str) -> frozenset[str]:
        """Shards whose leases the sharder holds."""
        return self._taken.get(ring, frozenset())

    def shard_of(self, ring: RingLabels, version: Version) -> str | None:
        """Whose an object is; `None`: nobody's."""
        return version.label(ring.shard)

    def home_of(self, ring: RingLabels, version: Version) -> str | None:
        """Where an object belongs; `None`: nowhere, or nobody can say."""
        if version.doc["kind"] == PIECES.kind:
            main = self.world.index.mains.get(owner_uid(version) or "")
            if main is None or main.label(ring.drain) is not None:
                return None
            label = main.label(ring.shard)
            return label if label in self.available(ring.ring) else None
        if not self.world.in_scope(ring, version.key.namespace):
            return None
        return _owner(self.staying(ring.ring), MAIN_OF[ring.ring], version.key)

    # -- once a second -----------------------------------------------------------

    def tick(self) -> None:
        """Look at everything."""
        if self._written or self._works_listed != self.world.works_listed:
            self._look_at_objects()
        bad: dict[tuple[str, str], str] = {}
        for version, ring, problem in self._problems:
            if self.world.working_shards(ring.ring) and not self.world.poison.excuses(version):
                bad[ring.ring, version.uid] = problem
        for name in RINGS:
            for lease in self.taken(name):
                if self.world.working_shards(name):
                    bad[name, f"lease {lease}"] = f"lease {lease} stays in the sharder's name"
        self.judge(bad)

    def judge(self, bad: Mapping[tuple[str, str], str]) -> None:
        """What is not as it should be now, by its ring and a name, must not be so for long while nothing hinders it."""
        self._bad_since = {what: self._bad_since.get(what, self.world.now) for what in bad}
        for what, since in self._bad_since.items():
            waited = self.world.now - max(since, self.world.hindrances.until(what[0]))
            if waited > self.bound and what not in self._told:
                self._told.add(what)
                self.world.checkers.violate("in bounded time", f"{bad[what]} for {waited:.0f} s")

    def _look_at_objects(self) -> None:
        """Note where each object is; it stays so until something is written that is no renewal."""
        self._written, self._works_listed = False, self.world.works_listed
        self._problems.clear()
        for resource, ring in RING_OF.items():
            for version in self.world.storage.objects(resource):
                self._look_home(ring, version)
                if problem := self._problem(ring, version):
                    what = f"{resource.plural} {version.key} ({version.uid}) {problem}"
                    self._problems.append((version, ring, what))

    def _look_home(self, ring: RingLabels, version: Version) -> None:
        home = self.home_of(ring, version)
        if home is not None and version.label(ring.shard) == home and version.label(ring.drain) is None:
            self._at_home.setdefault(version.uid, self.world.now)
        else:
            self._at_home.pop(version.uid, None)

    def _problem(self, ring: RingLabels, version: Version) -> str:
        """What is wrong with an object's labels; empty: nothing."""
        label = version.label(ring.shard)
        if version.doc["kind"] == PIECES.kind and owner_uid(version) is None:
            return ""
        in_scope = self.world.in_scope(ring, version.key.namespace)
        if label is None:
            return "is unassigned" if in_scope else ""
        if label not in self.available(ring.ring):
            return f"is stranded on {label}"
        if version.label(ring.drain) is not None:
            return f"is draining on {label}"
        if not in_scope:
            return f"is still on {label}, out of the ring's scope"
        return ""

    # -- in the end ----------------------------------------------------------------

    def settled(self) -> list[str]:
        """What is not as it has to be once everything has calmed down."""
        wrong = []
        for resource, ring in RING_OF.items():
            for version in self.world.storage.objects(resource):
                if self.world.poison.excuses(version):
                    continue
                in_scope = self.world.in_scope(ring, version.key.namespace)
                if version.doc["metadata"].get("deletionTimestamp") and in_scope:
                    wrong.append(f"{resource.plural} {version.key} is still being deleted")
                home = self.home_of(ring, version)
                strayed = self.world.checkers.strays.excuse(version, owner_uid(version))
                if home is not None and version.label(ring.shard) != home and not strayed:
                    wrong.append(f"{resource.plural} {version.key} is on {version.label(ring.shard)}, not on {home}")
                if problem := self._problem(ring, version):
                    wrong.append(f"{resource.plural} {version.key} {problem}")
        return [*wrong, *self._missing_pieces(), *self._wrong_with_status()]

    def _wrong_with_status(self) -> Iterator[str]:
        """What rings and the leases of shards do not say although it is so, while nothing has to be mended."""
        if self.world.poison.any:
            return
        for version in self.world.storage.objects(CLUSTERRINGS):
            generation, told = version.doc["metadata"]["generation"], version.doc.get("status", {})
            conditions = {each["type"]: each for each in told.get("conditions", [])}
            for kind in ConditionType:
                said = conditions.get(kind, {})
                if (said.get("status"), said.get("observedGeneration")) != ("True", generation):
                    yield f"ring {version.key.name} does not say {kind} of generation {generation}: {said}"
        for version in self.world.storage.objects(LEASES):
            if version.label(LEASE_RING_LABEL) is not None:
                lease: Lease = version.decode(Lease)
                states = (State.READY,) if lease.held_by_shard else (State.DEAD, State.ORPHANED)
                if lease.holder == SHARDER_HOLDER:
                    yield f"lease {version.key} is in the sharder's name"
                elif version.label(LEASE_STATE_LABEL) not in states:
                    state = version.label(LEASE_STATE_LABEL)
                    yield f"lease {version.key}, of {lease.holder or 'nobody'}, is labelled {state}"

    def _missing_pieces(self) -> Iterator[str]:
        for main in self.world.storage.objects(MAIN_OF["family"]):
            if self.world.poison.excuses(main) or not self.world.in_scope(RINGS["family"], main.key.namespace):
                continue
            wanted = set(main.doc["spec"]["keys"])
            made = {key_of(each) for each in self.world.index.children(main.uid).values()}
            made = {key for key in made if not key.startswith(STRAY)}
            if wanted != made:
                yield f"works {main.key} has pieces {sorted(made)}, not {sorted(wanted)}"


def _is_renewal(commit: Commit) -> bool:
    """Whether the lease stays in whose hands, and in which ring, it is, and its holder as long as it was to."""
    if commit.before is None or commit.after is None:
        return False
    was: Lease
    now: Lease
    was, now = commit.before.decode(Lease), commit.after.decode(Lease)
    return (was.holder, was.ring, was.leaving) == (now.holder, now.ring, now.leaving)
