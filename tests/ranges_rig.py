"""Shards of a ring by ranges in virtual time, each a process of its own, and an observer who sees all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any

import msgspec

from shardsdk.errors import LeaseLost
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.labels import LEASE_RING_LABEL, SHARDER_HOLDER
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import (
    HELD_RANGES_ANNOTATION,
    NOWHERE,
    RING_ASSIGNMENTS,
    SPACE,
    HashBy,
    HashRanges,
    Named,
    render_assignment,
)
from shardsdk.ranges.holder import RangeHolder
from shardsdk.ranges.parts import Changes
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.processes import Process, ProcessState
from shardsdk.testing.virtual import VirtualClock
from tests.lease_rig import NAMESPACE, RING, connecting, lease_in

LOW, HIGH = HashRanges.of((0, SPACE // 2)), HashRanges.of((SPACE // 2, SPACE))


class Member:
    """One shard: its lease and its holder, and work that takes a while to end."""

    def __init__(self, world: RangesWorld, name: str, seed: int, instance: str = "") -> None:
        self.name, self.instance = name, instance or f"{name}-{seed}"
        self.rng = Random(seed)
        self.process = Process(name)
        self.api = MemoryApi(world.server, world.clock, delay=self._delay)
        self.keeper_api = MemoryApi(world.server, world.clock, delay=self._keeper_delay)
        #: How long work that runs takes to end, in seconds.
        self.ends_in = 0.0
        #: Requests take up to so long.
        self.slowness = 0.005
        #: And those of the lease's keeper.
        self.keeper_slowness = 0.005
        #: Where work runs, by the side of what the holder says.
        self.running = NOWHERE
        self.changes: list[Changes] = []
        #: The namespace of each object that it has cached.
        self.objects: list[str] = []
        self.lease = ShardLease(
            connecting(self.keeper_api), RING, name, NAMESPACE, instance=self.instance, threaded=False,
            fenced=True, ranges=True, clock=world.clock, rng=self.rng, timings=LeaseTimings(),
        )  # fmt: skip
        self.holder = RangeHolder(
            self.api, self.lease, HashBy.NAMESPACE, ended=self._end, on_change=self._on_change,
            namespaces=lambda: self.objects, clock=world.clock, rng=self.rng,
        )  # fmt: skip

    def _delay(self) -> float:
        return self.rng.uniform(0.0005, self.slowness)

    def _keeper_delay(self) -> float:
        return self.rng.uniform(0.0005, self.keeper_slowness)

    def _on_change(self, changes: Changes) -> None:
        self.changes.append(changes)
        self.running |= changes.gained

    async def _end(self, ranges: HashRanges) -> None:
        await asyncio.sleep(self.ends_in)
        self.running -= ranges

    async def run(self) -> None:
        try:
            async with self.lease:
                await self.holder.run()
        except LeaseLost:
            self.running = NOWHERE

    def owns(self) -> HashRanges:
        """Where it may write this moment: where its work runs, as long as its fence is open."""
        alive = self.process.state is not ProcessState.KILLED
        return self.running if alive and self.lease.fence.remaining() > 0 else NOWHERE


class RangesWorld:
    """The API server, the shards, and whoever writes the assignment: the test."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.server = MemoryServer()
        self.members: list[Member] = []

    def start(self, name: str, instance: str = "") -> Member:
        """A process of a shard; it goes on with the lease of a dead one whose `instance` it is given."""
        member = Member(self, name, len(self.members) + 1, instance)
        self.members.append(member)
        member.process.start(member.run())
        return member

    def name(self, shards: Mapping[str, HashRanges]) -> None:
        """Write the assignment, whatever anybody holds."""
        self.write(msgspec.to_builtins(render_assignment(Named(HashBy.NAMESPACE, dict(shards)))))

    def write(self, spec: Any) -> None:
        body = {"metadata": {"name": RING}, "spec": spec}
        if self.server.find(RING_ASSIGNMENTS, RING) is None:
            self.server.create(RING_ASSIGNMENTS, body)
        else:
            self.server.patch(RING_ASSIGNMENTS, RING, None, {"spec": spec})

    def held(self, name: str) -> HashRanges:
        """What the shard's lease says."""
        lease = lease_in(self.server, name)
        return NOWHERE if lease is None else lease.held_ranges or NOWHERE

    def take_over(self, name: str) -> None:
        """Acquire a shard's lease, which has run out, as the sharder does."""
        metadata = {"annotations": {HELD_RANGES_ANNOTATION: None}}
        spec = {"holderIdentity": SHARDER_HOLDER, "leaseDurationSeconds": 30}
        self.server.patch(LEASES, name, NAMESPACE, {"metadata": metadata, "spec": spec})

    def add_lease(self, name: str, held: HashRanges) -> None:
        """Somebody else's lease, which says so."""
        metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "labels": {LEASE_RING_LABEL: RING}}
        metadata["annotations"] = {HELD_RANGES_ANNOTATION: str(held)}
        spec = {"holderIdentity": name, "leaseDurationSeconds": 15}
        self.server.create(LEASES, {"metadata": metadata, "spec": spec})

    async def until(self, condition: Any, seconds: float = 120.0) -> float:
        """Let time pass until `condition()` holds; how long it took."""
        began = self.clock.monotonic()
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)
        return self.clock.monotonic() - began

    def find_two_owners(self) -> str | None:
        """Two shards that may work on one point this moment."""
        before: dict[str, HashRanges] = {}
        for member in self.members:
            mine = member.owns()
            for name, theirs in before.items():
                if mine & theirs:
                    return f"{self.clock.monotonic():.3f}: {name} and {member.name} both have {mine & theirs}"
            before[member.name] = mine
        return None

    @contextmanager
    def never_two_owners(self) -> Iterator[None]:
        """Look after each change of the API server's objects, and every few milliseconds."""
        found: list[str] = []

        async def watch() -> None:
            while True:
                if (two := self.find_two_owners()) is not None:
                    found.append(two)
                await asyncio.sleep(0.003)

        watching = asyncio.get_running_loop().create_task(watch())
        try:
            yield
        finally:
            watching.cancel()
        assert not found, found[0]
