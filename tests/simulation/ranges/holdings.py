"""What leases and RingAssignments say of one run's ranges, and where its main objects lie; kept up by each write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shardsdk.errors import ConfigurationError
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import NOWHERE, RING_ASSIGNMENTS, HashRanges, Named, named_by
from tests.simulation.storage import Commit, Version
from tests.simulation.vocabulary import HASHES, MAIN_OF

if TYPE_CHECKING:
    from tests.simulation.world import World

_RING_OF_MAIN = {main.plural: ring for ring, main in MAIN_OF.items()}


class Holdings:
    """Told of each write before anybody judges it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: dict[str, HashRanges] = {}
        self._rings: dict[str, str] = {}
        self._named: dict[str, Named | None] = {}
        self._points: dict[str, tuple[str, int]] = {}
        #: What was found at a point of a ring, since what leases or assignments say has changed last.
        self._holders: dict[tuple[str, int], str | None] = {}
        self._named_at: dict[tuple[str, int], str | None] = {}

    def held(self, shard: str) -> HashRanges:
        """What the lease of `shard` says that it holds; nothing when somebody else has the lease."""
        return self._held.get(shard, NOWHERE)

    def of_ring(self, ring: str) -> dict[str, HashRanges]:
        """The same of each shard of a ring."""
        return {shard: held for shard, held in self._held.items() if self._rings.get(shard) == ring}

    def named(self, ring: str) -> Named | None:
        """Who is named for what; `None`: there is no RingAssignment, or it makes no sense."""
        return self._named.get(ring)

    def place(self, uid: str) -> tuple[str, int] | None:
        """Ring and point of a main object, also of one that is gone."""
        return self._points.get(uid)

    def holder(self, ring: str, point: int) -> str | None:
        """The one shard whose lease says that it holds a point; `None`: none, or several."""
        if (ring, point) not in self._holders:
            holders = [each for each, held in self._held.items() if self._rings.get(each) == ring and point in held]
            self._holders[ring, point] = holders[0] if len(holders) == 1 else None
        return self._holders[ring, point]

    def named_at(self, ring: str, point: int) -> str | None:
        """The shard that is named for a point; `None`: none, or nobody can tell."""
        if (ring, point) not in self._named_at:
            named = self.named(ring)
            self._named_at[ring, point] = named.shard_at(point) if named is not None else None
        return self._named_at[ring, point]

    def owner(self, ring: str, point: int) -> str | None:
        """The shard that is named for a point, and holds it while no other does."""
        shard = self.named_at(ring, point)
        return shard if shard is not None and self.holder(ring, point) == shard else None

    def rebuild(self, commits: Iterable[Commit]) -> None:
        """Begin anew with the leases and assignments that these have made; where an object lies never changes."""
        for each in (self._held, self._rings, self._named, self._holders, self._named_at):
            each.clear()
        for commit in commits:
            self.on_commit(self._world.names.commit(commit))

    def on_commit(self, commit: Commit) -> None:
        """Keep up with one write."""
        if commit.resource == LEASES:
            self._follow_lease(commit)
        elif commit.resource == RING_ASSIGNMENTS:
            self._named[commit.key.name] = None if commit.after is None else read_named(commit.after)
            self._named_at.clear()
        elif (ring := _RING_OF_MAIN.get(commit.resource.plural)) is not None and commit.before is None:
            metadata = commit.latest.decode(Lease).metadata
            self._points[metadata.uid] = ring, HASHES[ring].point(metadata)

    def _follow_lease(self, commit: Commit) -> None:
        shard, ring = commit.key.name, commit.latest.label(LEASE_RING_LABEL)
        if ring is None or commit.key != Key(self._world.namespace_of_shard(shard), shard):
            return
        if self._rings.get(shard) != ring:
            self._rings[shard] = ring
            self._holders.clear()
        before = self.held(shard)
        lease: Lease | None = commit.after.decode(Lease) if commit.after is not None else None
        holds = lease is not None and lease.held_by_shard
        self._held[shard] = (lease.held_ranges or NOWHERE) if lease is not None and holds else NOWHERE
        if self._held[shard] != before:
            self._holders.clear()
            self._world.note(f"{commit.author.name}: {shard} holds {short(self._held[shard])}")


def read_named(assignment: Version) -> Named | None:
    """Who a RingAssignment names; `None`: it makes no sense."""
    try:
        return named_by(assignment.doc, HASHES[assignment.key.name])
    except ConfigurationError:
        return None


def short(ranges: HashRanges) -> str:
    """Ranges for people, by the first digits of their bounds."""
    return ",".join(f"{start >> 48:04x}-{end >> 48:04x}" for start, end in ranges) or "nothing"
