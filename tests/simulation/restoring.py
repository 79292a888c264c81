"""etcd is set back to a backup: storage, and what the checkers know of it, forget together what came later.

The API server is down meanwhile, as its operators are told.  Sometimes they
also do the rest (docs/operations.md): versions go on far above those of before,
and everybody is started anew.  Mostly sharder and shards run on, and foreign
shards alone are restarted, since nothing in them notices.

What is judged goes on.  Holds of before are respected by nobody who knows the
restored leases only, so until the last of them has run out an object may be in
two hands; from then on never.  What must happen in the end counts from when
watches that wait for versions of the future are given up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from shardsdk.kube.api import SILENCE_SECONDS
from shardsdk.kube.sessions import REQUEST_SECONDS
from shardsdk.kube.store import Key
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES
from tests.simulation.foreign import ForeignShard
from tests.simulation.server import Service
from tests.simulation.storage import Commit, Version
from tests.simulation.vocabulary import FAMILY, RATES, RING_OF_KIND

if TYPE_CHECKING:
    from tests.simulation.collecting import Collector
    from tests.simulation.world import World

#: How many lease durations a backup is old, and how many the API server is away while it is put back.
AGE_LEASES: Final = (0.5, 3.0)
AWAY_LEASES: Final = (0.1, 0.8)
#: How often versions go on above those of before, as the manual says, and by how much.
RAISED_SHARE: Final = 0.3
RAISED_BY: Final = 1_000_000


class Restores:
    """Takes backups all the time, and puts one back."""

    def __init__(self, world: World, collector: Collector) -> None:
        self._world = world
        self._collector = collector
        #: When the store was at which version, at each write; moments alone that it can be left at.
        self._times: list[float] = []
        self._numbers: list[int] = []
        #: Which of them is being put back, by how much versions are raised, and since when the API server is down.
        self._pending: tuple[int, int, float] | None = None

    def on_commit(self, commit: Commit) -> None:
        """Everything is a backup, but for what only somebody's mending afterwards makes right."""
        if not self._world.poison.pending:
            self._times.append(self._world.now)
            self._numbers.append(commit.number)

    def number_at(self, moment: float) -> int:
        """At which version the store was at a moment."""
        at = bisect_right(self._times, moment) - 1
        return self._numbers[at] if at >= 0 else 0

    def begin(self, rng: Random) -> None:
        """Stop the API server, to put back a backup before it starts again."""
        world = self._world
        at = bisect_right(self._times, world.now - rng.uniform(*AGE_LEASES) * world.timings.lease) - 1
        raised_by = RAISED_BY if rng.random() < RAISED_SHARE else 0
        if at < 0 or world.server.service is not Service.UP:
            return
        self._pending = at, raised_by, world.now
        world.outage(Service.DOWN, rng.uniform(*AWAY_LEASES) * world.timings.lease)

    def finish(self) -> None:
        """The API server is about to start: if a backup is to be put back, it finds that."""
        if self._pending is None:
            return
        (at, raised_by, down_since), self._pending = self._pending, None
        taken_at, number = self._times[at], self._numbers[at]
        del self._times[at + 1 :], self._numbers[at + 1 :]
        self._put_back(number, raised_by, taken_at, down_since)

    def _put_back(self, number: int, raised_by: int, taken_at: float, down_since: float) -> None:
        world = self._world
        lost = world.storage.number - number
        world.note(f"--- etcd is what it was {world.now - taken_at:.1f} s ago, at version {number}; {lost} writes lost")
        world.mark("etcd restored, versions raised" if raised_by else "etcd restored")
        mains, pieces = dict(world.index.mains), dict(world.index.pieces)
        leases = {version.key: version for version in map(world.names.lease, world.storage.objects(LEASES))}
        commits = world.storage.set_back(number, raised_by=raised_by)
        self._set_leases_back(leases, [world.names.commit(each) for each in commits if each.resource == LEASES])
        self._set_objects_back(mains | pieces, taken_at)
        lease = max(world.timings.lease, world.plan.shard_timings.lease)
        world.checkers.unsure_until(down_since + lease / RATES[0])
        ring = world.storage.demand(CLUSTERRINGS, Key("", FAMILY.ring))
        world.works_listed = bool(ring.doc["spec"]["resources"])
        self._count_from_now(mains, REQUEST_SECONDS if raised_by else SILENCE_SECONDS + REQUEST_SECONDS)
        self._collector.look_again()
        for shard in list(world.shards):
            if raised_by or isinstance(shard, ForeignShard):
                world.shard_exited(shard)
        for replica in list(world.replicas) if raised_by else ():
            replica.kill()
            world.later(1.0, partial(world.start_replica, replica.name))

    def _set_leases_back(self, before: dict[Key, Version], commits: Sequence[Commit]) -> None:
        """What changed is said again, as it was written last; a lease that is the same counts on."""
        checkers = self._world.checkers
        said = map(self._world.names.commit, self._world.storage.since(LEASES, 0))
        written = {commit.key: commit for commit in said if _says_something(commit)}
        there = set()
        for commit in commits:
            if checkers.is_shards(commit):
                there.add(commit.key.name)
                if before.get(commit.key) is not commit.after:
                    checkers.set_back_lease(written[commit.key])
        for key in before:
            if key.name not in there:
                checkers.forget_lease(key.name)

    def _set_objects_back(self, before: dict[str, Version], taken_at: float) -> None:
        world = self._world
        for uid, version in (world.index.mains | world.index.pieces).items():
            ring, was = RING_OF_KIND[version.doc["kind"]], before.get(uid)
            if was is None or was.label(ring.shard) != version.label(ring.shard):
                world.ownership.set_back(uid)
            world.checkers.set_back(was, version, ring, taken_at)
        world.checkers.strays.set_back()

    def _count_from_now(self, before: dict[str, Version], seconds: float) -> None:
        world, now = self._world, self._world.index.mains
        changed = {uid: version for uid, version in now.items() if before.get(uid) is not version}
        world.liveness.set_back()
        world.waits.set_back(changed, before.keys() - now.keys(), seconds)
        world.calm_from(world.now + seconds)


def _says_something(commit: Commit) -> bool:
    """Whether a write of a lease is more than one of its labels."""
    if commit.before is None or commit.after is None:
        return True
    return bool(commit.before.doc.get("spec") != commit.after.doc.get("spec"))
