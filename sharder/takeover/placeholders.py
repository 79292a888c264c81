"""Leases that the leader makes for names that have none.

Objects may carry the name of a shard that has no Lease: it was deleted, or the objects came back from a backup without
it.  Before anything moves off such a name a shard has to be kept from starting under it, wherever it may start.
Source: docs/decisions/0047-placeholders-say-what-they-are.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from sharder.cache.rings import RingSnapshot
from sharder.core.takeover import Limits, hold_seconds
from sharder.takeover.lease_client import CLOSED_SECONDS, LeaseWriter
from sharder.takeover.records import Record, Records


class Placeholders:
    """Makes the placeholders of one ring through `writer`, and remembers its holds on them in `records`."""

    def __init__(self, ring: str, writer: LeaseWriter, records: Records, limits: Limits) -> None:
        self._ring = ring
        self._writer = writer
        self._records = records
        self._limits = limits

    def lack(self, snapshot: RingSnapshot, shard: str) -> bool:
        """Whether a shard of this name might start, by what is seen, and find no lease that somebody holds."""
        return not all(map(self._writer.is_closed, _open_namespaces(snapshot, shard)))

    async def create(self, snapshot: RingSnapshot, shard: str) -> bool:
        """Create a lease in our name wherever the shard might start; False: it was faster, or can start nowhere."""
        return await self._create(_open_namespaces(snapshot, shard), shard)

    async def complete(self, snapshot: RingSnapshot, shard: str) -> None:
        """Create what could not be created yet, and what lacks since the ring has shards in more namespaces."""
        await self._create([each for each in _open_namespaces(snapshot, shard) if self._is_due(each, shard)], shard)

    def _is_due(self, namespace: str, shard: str) -> bool:
        record = self._records.get((namespace, shard))
        created = record is not None and record.held  # and not seen yet
        # Asked again before that is too long ago to count.
        return not created and not self._writer.is_closed(namespace, CLOSED_SECONDS / 2)

    async def _create(self, namespaces: Iterable[str], shard: str) -> bool:
        """What was created before an error stays, and is no hold by itself: the others lack."""
        created: list[Record] = []
        seconds = hold_seconds(None, self._limits)
        for namespace in namespaces:
            record = self._records.of((namespace, shard))
            async with record.lock:
                # Whoever handles another lease of the name may have been faster.
                if record.held or await self._writer.create(record, self._ring, namespace, shard, seconds):
                    created.append(record)
            if record.refused is not None:
                for each in created:  # what we made elsewhere is no hold on what the shard has
                    each.drop()
                return False
        return bool(created)


def _open_namespaces(snapshot: RingSnapshot, shard: str) -> list[str]:
    """Where a shard of this name might start, as far as there is no lease of that name.

    Where a shard had its lease, it starts again.  A name that never had one may belong to a shard anywhere: where the
    ring's leases are, or its own was.
    """
    if any(not seen.lease.placeholder for seen in snapshot.leases_named(shard)):
        return []
    anywhere = {namespace for namespace, _ in snapshot.leases}
    anywhere |= {gone.namespace for gone in snapshot.vanished_named(shard)}
    return sorted(each for each in anywhere if (each, shard) not in snapshot.leases)
