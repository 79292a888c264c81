"""A backup tool puts Leases of shards back to what they said a while ago: of living shards, and of some that are gone.

That of a living shard costs it its lease, and nothing else, also where it says that the shard had left it: who takes it
over waits for as long as the shard may count on it.  One that is gone is there again as if it had renewed just now.
"""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Final

from shardsdk.kube.store import Key
from shardsdk.protocol.labels import LEASE_RING_LABEL, SHARDER_HOLDER
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES
from tests.simulation.server import Service
from tests.simulation.storage import Author, Doc, Version
from tests.simulation.users import Users

USER: Final = Author("user")
#: How many durations of a lease a backup is old at most.
OLDEST_LEASES: Final = 6.0
#: How often one of them is put back alone.
ONE_SHARE: Final = 0.7
#: How many Leases are put back that were deleted before, which gives them another uid.
ANEW_SHARE: Final = 0.4


class Backups:
    """Carries out the action of that name."""

    def __init__(self, users: Users) -> None:
        self._world = users.world

    def restore_leases(self, rng: Random) -> None:
        """One or all of them."""
        world = self._world
        if world.server.service is not Service.UP:
            return
        since = world.now - rng.uniform(0.1, OLDEST_LEASES) * world.timings.lease
        backup = self._backup_of(since)
        keys = sorted(backup)
        if keys and rng.random() < ONE_SHARE:
            keys = [rng.choice(keys)]
        for key in keys:
            self._put_back(backup[key], anew=rng.random() < ANEW_SHARE)

    def _backup_of(self, moment: float) -> dict[Key, Version]:
        """What each Lease of a shard said at that moment that is worth to be put back."""
        number = self._world.restores.number_at(moment)
        found: dict[Key, Version] = {}
        for commit in self._world.storage.since(LEASES, 0):
            if commit.number > number:
                break
            if commit.after is not None and commit.after.label(LEASE_RING_LABEL) is not None:
                found[commit.key] = commit.after
            else:
                found.pop(commit.key, None)
        return {key: version for key, version in found.items() if self._may_be_put_back(version)}

    def _may_be_put_back(self, version: Version) -> bool:
        """Whether whoever reads it can tell that it is an older copy, or it says of a living shard what is so."""
        was: Lease = version.decode(Lease)
        current = self._world.storage.get(LEASES, version.key)
        if current is None:
            return was.held_by_shard
        now: Lease = current.decode(Lease)
        if not now.held_by_shard:
            return was.held_by_shard
        if not was.held_by_shard:
            fewer = (was.spec.lease_transitions or 0) < (now.spec.lease_transitions or 0)
            # One that was deleted since counts from 0 again, but was acquired since, too.
            return fewer or str(was.spec.renew_time) < str(now.spec.acquire_time)
        # What a ring by ranges is told of a living shard is what that holds, or another may be named for it.
        return was.held_ranges == now.held_ranges

    def _put_back(self, backup: Version, *, anew: bool) -> None:
        world, current = self._world, self._world.storage.get(LEASES, backup.key)
        doc: Doc = deepcopy(backup.doc)
        if current is not None and (not anew or doc["spec"].get("holderIdentity") == SHARDER_HOLDER):
            world.note(f"a backup tool writes the lease of {backup.key.name} over")
            world.storage.replace(LEASES, current, doc, USER)
            return
        world.note(f"a backup tool makes the lease of {backup.key.name} anew")
        if current is not None:
            world.storage.delete(LEASES, backup.key, USER, {})
        meta = doc["metadata"]
        for name in ("uid", "resourceVersion", "creationTimestamp", "generation"):
            meta.pop(name, None)
        world.storage.create(LEASES, doc, USER)
