"""What must happen in the end where rings assign by ranges, and what must not happen although it could.

Each point of the space is some shard's, its shard has reconciled what lies there,
and no range is taken from a shard that is there while nothing has changed: neither
in an outage, nor by another leader, nor by a shard that is silent for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from sharder.core.cutting import UNEVEN
from sharder.core.rangestatus import loads_by_namespace
from sharder.ranges.weights import EVENINGS_SECONDS, UNTOLD
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES, NAMESPACES, SlimMeta
from shardsdk.protocol.ranges import RING_ASSIGNMENTS, SPACE, HashBy, Named, point_of, read_counts
from tests.simulation.liveness import Liveness
from tests.simulation.network import CALM
from tests.simulation.ranges.holdings import Holdings, read_named, short
from tests.simulation.server import Service
from tests.simulation.storage import Commit, Version
from tests.simulation.vocabulary import HASHES, MAIN_OF, RECONCILED, RINGS

if TYPE_CHECKING:
    from tests.simulation.world import World


def _counts(lease: Lease) -> dict[int, float]:
    return read_counts(lease.metadata.annotations) if lease.held_by_shard else {}


#: Points that are looked at once a second, beside those of the namespaces.
LOOKED_AT: Final = tuple(range(0, SPACE, SPACE // 16))


class RangeLiveness(Liveness):
    """The rules about time of one run; inherited for what leases say, and for how long anything may take."""

    def __init__(self, world: World, holdings: Holdings) -> None:
        super().__init__(world)
        self._holdings = holdings
        #: For how long each ring was as it should be while nothing hindered its leader, in seconds.
        self._rested = dict.fromkeys(RINGS, 0.0)
        #: Until when ranges may move for evenness, since somebody changed what lies where, or who is named there.
        self._uneven_until = 0.0
        #: What shards have told of what lies where, by points.
        self._told_ever: dict[int, float] = {}
        #: When each shard's lease ends, if it is not renewed.
        self._ends: dict[str, float] = {}

    # -- nothing moves ---------------------------------------------------------

    def on_commit(self, commit: Commit) -> None:
        """Find out whether a range was taken from a shard although nothing had changed."""
        if commit.resource == LEASES:
            super().on_commit(commit)
            if commit.after is not None:
                lease = commit.after.decode(Lease)
                self._told_ever |= _counts(lease)
                if commit.before is None or commit.before.doc.get("spec") != commit.after.doc.get("spec"):
                    self._ends[commit.key.name] = self.world.now + lease.duration_seconds
            if commit.author.name == "user":
                self.disturb()
        elif commit.resource == RING_ASSIGNMENTS:
            if commit.author.name == "user":
                self.edited()
            elif commit.before is not None and commit.after is not None:
                self._check_taken(commit.author.name, commit.before, commit.after)

    def _check_taken(self, author: str, before: Version, after: Version) -> None:
        was, now, ring = read_named(before), read_named(after), before.key.name
        if was is None or now is None or was == now:
            return
        names = sorted(was.shards.keys() | now.shards.keys())
        told = "; ".join(f"{name} {short(now.of(name))}" for name in names)
        self.world.note(f"{author} assigns ring {ring}: {told}")
        self.world.stats.handovers += 1
        taken = {name: was.of(name) - now.of(name) for name in self.staying(ring) if not self._has_ended(name)}
        if any(taken.values()):
            self.world.stats.drains += 1
            late = self._rested[ring] > self.grace and self.world.now > self._uneven_until
            if late and not self._is_uneven(ring, was):
                told = "; ".join(f"{short(ranges)} from {name}" for name, ranges in taken.items() if ranges)
                self.world.checkers.violate("nothing moves", f"{author} takes {told} of ring {ring}")
        self._rested[ring] = 0.0

    def _has_ended(self, shard: str) -> bool:
        """Whether a shard has left its lease for a while, which is over: what it has named may go, it holds nothing."""
        running = any(each.name == shard and each.running for each in self.world.shards)
        return not running and self.world.now > self._ends[shard]

    def _is_uneven(self, ring: str, named: Named) -> bool:
        """Whether a shard has more than its part, by what shards tell now, or have told ever: then ranges may move."""
        if HASHES[ring] is HashBy.UID:
            return False
        told = {point: count for lease in self._leases(ring) for point, count in _counts(lease).items()}
        return any(
            loads_by_namespace(named, self.available(ring), self._weigh(ring, counts)).fullest[1] > UNEVEN
            for counts in (told, self._told_ever)
        )

    def _weigh(self, ring: str, counts: Mapping[int, float]) -> dict[str, float]:
        """What lies in the namespaces of a ring; one in which nothing lies counts, too."""
        names = [version.key.name for version in self.world.storage.objects(NAMESPACES)]
        covered = [name for name in names if self.world.covering.covers(ring, name)]
        return {name: counts.get(point_of(name), UNTOLD) for name in covered}

    def disturb(self) -> None:
        """Who is there has changed: ranges may move."""
        super().disturb()
        self._rested = dict.fromkeys(RINGS, 0.0)

    def set_back(self) -> None:
        """The store was set back: everything counts from now on, and an old assignment may be uneven."""
        super().set_back()
        self.edited()

    def edited(self) -> None:
        """Who is named has changed: once that is mended, ranges may move for evenness, now or when they next may."""
        self.disturb()
        self._uneven_until = self.world.now + EVENINGS_SECONDS + self.bound

    def shard_of(self, ring: RingLabels, version: Version) -> str | None:
        """Who holds the point of an object, whoever is named there; `None`: nobody, or several."""
        metadata = SlimMeta(namespace=version.key.namespace, uid=version.uid)
        return self._holdings.holder(ring.ring, HASHES[ring.ring].point(metadata))

    # -- once a second -----------------------------------------------------------

    def tick(self) -> None:
        """Look at each point, and at the leases in the sharder's name."""
        bad: dict[tuple[str, str], str] = {}
        leader = self.world.leader
        calm = leader is not None and leader.ready and leader.link.trouble is CALM and not leader.link.cut
        for ring in RINGS:
            wrong = list(self._wrong_with(ring))
            if calm and not wrong and self.world.server.service is Service.UP:
                self._rested[ring] += 1.0
            if any(each.name in self._alone(ring) for each in self.world.working_shards(ring)):
                bad |= {(ring, what): f"ring {ring}: {what}" for what in self._nobodys(ring)}
                bad |= {(ring, each): f"lease {each} stays in the sharder's name" for each in self.taken(ring)}
        self.judge(bad)

    def _alone(self, ring: str) -> frozenset[str]:
        """Shards that hold their leases while no other of their name does."""
        available = self.available(ring)
        return frozenset(each for each in available if self.world.names.twin(each) not in available)

    def _nobodys(self, ring: str) -> Iterator[str]:
        """Points that no process has which runs and holds its lease: of two of one name the other one has nothing."""
        holds = self.world.checkers.is_holder
        working = {each.name for each in self.world.working_shards(ring) if holds(each.name, each.identity)}
        stuck = self._holdings.held(self.world.poison.hung_shard)
        for point in (*LOOKED_AT, *map(point_of, self.world.namespaces)):
            if self._holdings.owner(ring, point) not in working and point not in stuck:
                yield f"{point:016x} is nobody's"

    def _wrong_with(self, ring: str) -> Iterator[str]:
        """What has yet to come about of what the sharder and the shards want."""
        named, available = self._holdings.named(ring), self.available(ring)
        if named is None:
            yield f"ring {ring} has no assignment"
            return
        hung = self.world.poison.hung_shard
        # What it is to give away, and never will: another may wait for that alone.
        kept = hung in available and bool(self._holdings.held(hung) - named.of(hung))
        # Nor do those get anything whose name another has, and what one of them has stays its own.
        kept = kept or self._alone(ring) != available
        if nobodys := named.nobodys - self._holdings.held(hung):
            yield f"{short(nobodys)} of ring {ring} is nobody's"
        for shard in sorted(named.shards.keys() - available):
            yield f"{shard} is named for {short(named.of(shard))}, and is not there"
        for shard in sorted(available):
            held = self._holdings.held(shard)
            if shard == hung:
                continue  # it may keep what it has
            if shard not in named.shards and not kept:
                yield f"{shard} is named for nothing"
            elif held != named.of(shard):
                yield f"{shard} holds {short(held)}, and is named for {short(named.of(shard))}"

    # -- in the end ----------------------------------------------------------------

    def settled(self) -> list[str]:
        """What is not as it has to be once everything has calmed down."""
        wrong = [what for ring in RINGS for what in self._wrong_with(ring)]
        for ring, main in MAIN_OF.items():
            for version in self.world.storage.objects(main):
                excused = self.world.poison.excuses(version)
                if not excused and self.world.in_scope(RINGS[ring], version.key.namespace):
                    wrong += self._wrong_with_object(ring, version)
        return [*wrong, *self._missing_pieces(), *self._wrong_with_status()]

    def _wrong_with_object(self, ring: str, version: Version) -> Iterator[str]:
        """Whether the process that has an object has reconciled it as it is."""
        what, metadata = f"{MAIN_OF[ring].plural} {version.key}", version.doc["metadata"]
        if metadata.get("deletionTimestamp"):
            yield f"{what} is still being deleted"
        place = self._holdings.place(version.uid)
        shard = self._holdings.owner(ring, place[1]) if place is not None else None
        by, _, generation = (metadata.get("annotations") or {}).get(RECONCILED, "").rpartition("/")
        if shard is None or not self.world.checkers.is_holder(shard, by):
            yield f"{what} is {shard}'s, and was reconciled by {by or 'nobody'}"
        elif generation != str(metadata["generation"]):
            yield f"{what} was reconciled as it was at generation {generation}, not {metadata['generation']}"
