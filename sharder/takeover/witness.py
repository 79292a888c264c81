"""Proof of time while another leads: the commits that shards make when they renew their leases.

A renewal that this replica's watch shows was made after the version that a
consistent read has seen, so after that read was begun, if its own version is
higher.  So it lies between two moments of this replica's clock, as a renewal of
its own would; see `sharder.core.proven_time`.  Whoever has stood by therefore need not
begin to count when it begins to lead.

Does: ask for the present version now and then, and note the renewals that are
newer.  Refuses: to say anything while this replica leads, whose own renewals
prove more, and to count what is merely read: an API server may answer reads
while it takes no writes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from sharder.cache.freshness import SHARD_LEASES
from sharder.core.proven_time import Reading, surely_before
from sharder.takeover.fences import CommitProof
from shardsdk.errors import ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.lapses import lapses_of
from shardsdk.protocol.objects import LEASES

#: Readings per retry period of the leader.  A gap lasts from one reading to the renewal after the next.
PER_PERIOD: Final = 2
#: Readings remembered that no renewal has followed yet.
MAX_READINGS: Final = 8


class Witness:
    """Notes what others commit in `proof`, unless `leading()`; `run` it, and tell it of every lease that is `seen`."""

    def __init__(
        self, api: Api, proof: CommitProof, *, clock: Clock, retry_seconds: float, leading: Callable[[], bool]
    ) -> None:
        self._api = api
        self._proof = proof
        self._clock = clock
        self._lapses = lapses_of(clock)
        self._every_seconds = retry_seconds / PER_PERIOD
        self._leading = leading
        self._readings: deque[Reading] = deque(maxlen=MAX_READINGS)

    async def run(self) -> None:
        """Read versions until cancelled."""
        while True:
            await self._clock.sleep(self._every_seconds)
            if self._leading():
                self._readings.clear()
            elif (reading := await self._read()) is not None:
                self._readings.append(reading)

    def seen(self, version: str) -> None:
        """The watch shows a lease in this version."""
        if self._leading() or not version.isdecimal():
            return
        before = surely_before(self._readings, int(version))
        if before is not None:
            sent_at = before.sent_at - (self._lapses.seconds - before.missed)
            self._proof.witnessed(sent_at, self._clock.monotonic())
            self._readings = deque((each for each in self._readings if each.sent_at > before.sent_at), MAX_READINGS)

    async def _read(self) -> Reading | None:
        """The version of the store, by a consistent list of at most one lease; `None`: there was no answer in time."""
        sent_at, missed, versions = self._clock.monotonic(), self._lapses.seconds, list[str]()
        try:
            async with asyncio.timeout(2 * self._every_seconds):
                async for _ in self._api.pages(LEASES, selector=SHARD_LEASES, limit=1, on_version=versions.append):
                    break
        except (ShardingError, TimeoutError):
            return None
        return Reading(sent_at, int(versions[0]), missed) if versions and versions[0].isdecimal() else None
