"""Tells the cache which shards are silent, on every replica: the webhook goes by it as well.

Refuses: to judge who is dead; the leader does, by the whole lease.
"""

from __future__ import annotations

from typing import Final

from sharder.cache.rings import RingCache, RingSnapshot
from sharder.core.liveness import SILENT_SECONDS, is_silent
from sharder.takeover.fences import CommitProof
from shardsdk.kube.clock import Clock

#: How often all shards are looked at.
LOOK_SECONDS: Final = 1.0


class Liveness:
    """Looks at the shards of every ring; `run` it."""

    def __init__(self, cache: RingCache, proof: CommitProof, clock: Clock) -> None:
        self._cache = cache
        self._proof = proof
        self._clock = clock

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            for snapshot in self._cache.all():
                self._look(snapshot)

    def _look(self, snapshot: RingSnapshot) -> None:
        silent = set[str]()
        renewed = self._clock.monotonic() - SILENT_SECONDS
        for seen in snapshot.leases.values():
            if seen.observed_at >= renewed:
                continue
            facts = seen.facts
            if is_silent(facts, seen.history, self._proof.of(facts.duration_seconds)):
                silent.add(facts.name)
        self._cache.set_silent(snapshot.name, frozenset(silent))
