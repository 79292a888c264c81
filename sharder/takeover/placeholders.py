"""Leases that the leader makes for names that have none.

Objects may carry the name of a shard that has no Lease: it was deleted, or the objects came back from a backup without
it.  Before anything moves off such a name a shard has to be kept from starting under it, wherever it may start.
Source: docs/decisions/0047-placeholders-say-what-they-are.md.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Final

from sharder.cache.rings import RingSnapshot
from sharder.core.takeover import Limits, hold_seconds
from sharder.takeover.lease_client import CLOSED_SECONDS, LeaseWriter
from sharder.takeover.records import Record, Records
from shardsdk.kube.clock import Clock
from shardsdk.kube.pace import AtMostEvery

log = logging.getLogger(__name__)

#: Names that have placeholders for the objects of one namespace, about, before further ones wait.
MAX_NAMES: Final = 64
#: Before a name that has to wait is looked at again.
CROWDED_SECONDS: Final = 10.0
#: For so long what was counted counts, with what was made since.
COUNTED_SECONDS: Final = 1.0
#: Objects of one name by whose namespaces it is counted.
MAX_COUNTED: Final = 16
#: A name counts for so long after the last of its objects was seen.  Its placeholder stays while some kind of objects
#: cannot be read, for it may have some of those.
SEEN_SECONDS: Final = 180.0
#: So many placeholders of a ring do not count any more, about; while there are more, all do.
MAX_UNSEEN: Final = 512
#: Between two lines about one ring's crowds.
TOLD_SECONDS: Final = 60.0


#: The namespace of each object that carries a name.
Where = Callable[[str], Iterable[str]]


def nowhere(_: str) -> Iterable[str]:
    """Whoever assigns by other means than labels of objects lets nobody make names up."""
    return ()


class Placeholders:
    """Makes the placeholders of one ring through `writer`, and remembers its holds on them in `records`.

    Who may write objects in a namespace may label them with as many names as they like, and each Lease is one more that
    is judged with all others: of those that are found `where` such objects are, few have one at a time.
    Source: docs/decisions/0078-few-placeholders-for-one-namespace.md.
    """

    def __init__(self, ring: str, writer: LeaseWriter, records: Records, limits: Limits, clock: Clock) -> None:
        self._ring = ring
        self._writer = writer
        self._records = records
        self._limits = limits
        self._clock = clock
        self.where: Where = nowhere
        #: Of each name that has a placeholder, where its objects were when any were seen last, and when that was.
        self._made_for: dict[str, tuple[frozenset[str], float]] = {}
        self._names_in: Counter[str] = Counter()
        self._counts, self._tells = AtMostEvery(COUNTED_SECONDS), AtMostEvery(TOLD_SECONDS)

    def lack(self, snapshot: RingSnapshot, shard: str) -> bool:
        """Whether a shard of this name might start, by what is seen, and find no lease that somebody holds."""
        return not all(map(self._writer.is_closed, _open_namespaces(snapshot, shard)))

    def has_to_wait(self, snapshot: RingSnapshot, shard: str) -> bool:
        """Whether there are too many where the objects of this name are for one more; not if a shard has had it."""
        if not all(gone.placeholder for gone in snapshot.vanished_named(shard)):
            return False
        now = self._clock.monotonic()
        if self._counts.passes(now):
            self._count(snapshot, now)
        place = None
        # Each of them: whoever may write in a namespace that is full can put any number there before others' objects.
        for place in self.where(shard):
            if self._names_in[place] < MAX_NAMES:
                return False
        if place is None:
            return False
        if self._tells.passes(now):
            log.warning(
                "objects of one namespace carry the names of very many shards that were never seen: they wait in turn",
                extra={"ring": self._ring, "namespace": place, "shard": shard},
            )
        return True

    def _count(self, snapshot: RingSnapshot, now: float) -> None:
        names = {name for (_, name), seen in snapshot.leases.items() if seen.lease.placeholder}
        names |= {key[1] for key in self._records if key not in snapshot.leases and self._records.of(key).held}
        for name in self._made_for.keys() - names:
            del self._made_for[name]
        for name in names:
            self._note(name, now)
        seen = [places for places, seen_at in self._made_for.values() if now - seen_at < SEEN_SECONDS]
        if len(self._made_for) - len(seen) > MAX_UNSEEN:
            seen = [places for places, _ in self._made_for.values()]
        self._names_in = Counter(chain.from_iterable(seen))

    def _note(self, name: str, now: float) -> frozenset[str]:
        if places := frozenset(islice(self.where(name), MAX_COUNTED)):
            self._made_for[name] = places, now
        return places

    async def create(self, snapshot: RingSnapshot, shard: str) -> bool:
        """Create a lease in our name wherever the shard might start; False: it was faster, or can start nowhere."""
        created = await self._create(_open_namespaces(snapshot, shard), shard)
        if created and shard not in self._made_for:
            self._names_in.update(self._note(shard, self._clock.monotonic()))
        return created

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
