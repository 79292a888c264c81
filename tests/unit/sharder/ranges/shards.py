"""Shards that follow the protocol of ranges and nothing else, and what notices two of them at work on one range.

They are written against the contract alone, as an implementation in another language would be.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec

from shardsdk.errors import ConfigurationError
from shardsdk.protocol.labels import LEAVING_ANNOTATION
from shardsdk.protocol.leases import Lease, render_micro_time
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import (
    HELD_RANGES_ANNOTATION,
    NAMESPACE_COUNTS_ANNOTATION,
    NOWHERE,
    RING_ASSIGNMENTS,
    HashRanges,
    RingAssignmentSpec,
    parse_assignment,
    render_counts,
)
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.virtual import VirtualClock
from tests.unit.sharder.placement.stage import RING, SHARDS, lease


@dataclass
class Workers:
    """Who works on what, at every moment."""

    working: dict[str, HashRanges] = field(default_factory=dict)
    #: Each time that two worked on one range.
    overlaps: list[str] = field(default_factory=list)

    def set(self, shard: str, ranges: HashRanges) -> None:
        """`shard` works on this from now on."""
        self.working[shard] = ranges
        for other, theirs in self.working.items():
            if other != shard and theirs & ranges:
                self.overlaps.append(f"{shard} and {other} on {theirs & ranges}")

    def covered(self) -> HashRanges:
        """What anybody works on."""
        return HashRanges.union(self.working.values())


class RangedShard:
    """One shard; it needs `drain_seconds` to end what runs in a range that it loses."""

    def __init__(
        self, name: str, server: MemoryServer, clock: VirtualClock, workers: Workers, *, drain_seconds: float = 0.3
    ) -> None:
        self.name = name
        self._server = server
        self._clock = clock
        self._workers = workers
        self._drain_seconds = drain_seconds
        self._held = NOWHERE
        self._working = NOWHERE
        self.frozen = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._renewed = 0.0
        self._leaving = False
        #: It renews its lease, and learns nothing of the assignment.
        self.deaf = False
        #: What its lease says besides from the next renewal on that it holds, and it does not work on.
        self.claims = ""

    def start(self) -> None:
        """Take the lease, and work."""
        body = lease(self._clock, self.name)
        body["metadata"].setdefault("annotations", {})[HELD_RANGES_ANNOTATION] = ""
        if self._server.find(LEASES, self.name, SHARDS) is None:
            self._server.create(LEASES, body, SHARDS)
        else:
            self._server.patch(LEASES, self.name, SHARDS, {"metadata": body["metadata"], "spec": body["spec"]})
        self._task = asyncio.create_task(self._run())

    def crash(self) -> None:
        """Stop without a word; what it worked on, its fence ends."""
        assert self._task is not None
        self._task.cancel()
        self._workers.set(self.name, NOWHERE)

    async def leave(self) -> None:
        """Stop in order: end what runs, then give the lease back."""
        assert self._task is not None
        self._task.cancel()
        self._workers.set(self.name, NOWHERE)
        body = {
            "metadata": {"annotations": {HELD_RANGES_ANNOTATION: None}},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
        }
        self._server.patch(LEASES, self.name, SHARDS, body)

    def leave_soon(self) -> None:
        """Say that it is about to leave, with this renewal and all that follow."""
        self._leaving = True
        self._write({"renewTime": render_micro_time(self._clock.now())})

    def report(self, counts: dict[str, int]) -> None:
        """Say how many objects there are in these namespaces."""
        said = {NAMESPACE_COUNTS_ANNOTATION: render_counts(counts)}
        self._server.patch(LEASES, self.name, SHARDS, {"metadata": {"annotations": said}})

    async def _run(self) -> None:
        self._renewed = self._clock.monotonic()
        while True:
            await self._sleep(0.1)
            if self._mine().holder != self.name:
                self._workers.set(self.name, NOWHERE)
                return
            await self._follow()

    async def _sleep(self, seconds: float) -> None:
        """And go on renewing."""
        until = self._clock.monotonic() + seconds
        while (left := until - self._clock.monotonic()) > 0:
            await asyncio.sleep(min(left, 0.1))
            if self._clock.monotonic() - self._renewed >= 2 and self._mine().holder == self.name:
                self._renewed = self._clock.monotonic()
                self._write({"renewTime": render_micro_time(self._clock.now())})

    async def _follow(self) -> None:
        named = self._named()
        if named is None:
            return  # gone, or nonsense: keep what is held, take nothing
        lost = self._working - named
        if lost:
            self._working -= lost
            await self._sleep(self._drain_seconds)
            self._workers.set(self.name, self._working)
            self._hold(self._held & named)
        elif named - self._held:
            self._hold(self._held | named)
            await asyncio.sleep(0.05)
            again = self._named()
            if again is None or self._held - again or self._others() & self._held:
                self._hold(self._working)
            else:
                self._working = self._held
                self._workers.set(self.name, self._working)
        elif self._held - named:
            self._hold(self._held & named)

    def _hold(self, ranges: HashRanges) -> None:
        self._held = ranges
        self._write({})

    def _write(self, spec: dict[str, str]) -> None:
        said = {HELD_RANGES_ANNOTATION: ",".join(filter(None, (str(self._held), self.claims)))}
        if self._leaving and "renewTime" in spec:
            said[LEAVING_ANNOTATION] = spec["renewTime"]
        body = {"metadata": {"annotations": said}, "spec": spec}
        self._server.patch(LEASES, self.name, SHARDS, body)

    def _named(self) -> HashRanges | None:
        found = None if self.deaf else self._server.find(RING_ASSIGNMENTS, RING)
        try:
            spec = msgspec.convert((found or {}).get("spec"), RingAssignmentSpec)
            return parse_assignment(spec).of(self.name)
        except (msgspec.ValidationError, ConfigurationError):
            return None

    def _mine(self) -> Lease:
        return msgspec.convert(self._server.find(LEASES, self.name, SHARDS), Lease)

    def _others(self) -> HashRanges:
        leases = (msgspec.convert(each, Lease) for each in self._server.select(LEASES))
        return HashRanges.union(each.held_ranges or NOWHERE for each in leases if _holds(each, self.name))


def _holds(other: Lease, name: str) -> bool:
    return other.held_by_shard and other.metadata.name != name
