"""Leases in virtual time: one API server, and processes that want a lease of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from shardsdk.errors import LeaseLost
from shardsdk.kube.api import Api
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock

NAMESPACE = "default"
SHARD = "shard-a"
RING = "example"


def lease_in(server: MemoryServer, name: str, namespace: str = NAMESPACE) -> Lease | None:
    """The lease as peers decode it; `None`: there is none."""
    found = server.find(LEASES, name, namespace)
    return None if found is None else msgspec.convert(found, Lease)


class Rig:
    """An API server's leases, and one client connection for each process."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.server = MemoryServer()
        self._made = 0

    def api(self) -> MemoryApi:
        return MemoryApi(self.server, self.clock)

    def shard(
        self, api: MemoryApi | None = None, *, instance: str = "uid-1", name: str = SHARD, **options: Any
    ) -> ShardLease:
        self._made += 1
        return ShardLease(
            connecting(api or self.api()),
            RING,
            name,
            NAMESPACE,
            instance=instance,
            threaded=False,
            rng=random.Random(self._made),
            **{"clock": self.clock, "timings": LeaseTimings(), **options},
        )

    def lease(self, name: str = SHARD) -> Lease | None:
        return lease_in(self.server, name)

    def holder(self, name: str = SHARD) -> str | None:
        lease = self.lease(name)
        return None if lease is None else lease.holder

    def meddle(self, body: dict[str, Any], name: str = SHARD) -> None:
        self.server.patch(LEASES, name, NAMESPACE, body)

    async def until(self, condition: Callable[[], bool], seconds: float = 120.0) -> float:
        """Let time pass until `condition` holds; how long it took."""
        began = self.clock.monotonic()
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)
        return self.clock.monotonic() - began


def connecting(api: MemoryApi) -> Callable[[], Any]:
    """What a ShardLease takes to open its keeper's connection."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Api]:
        yield api

    return connect


async def stay(lease: ShardLease) -> None:
    """Enter the lease, and work under it for ever."""
    async with lease:
        await asyncio.Event().wait()


async def lose(lease: ShardLease, work: Callable[[], Awaitable[object]]) -> str:
    """Do `work` under the lease, then wait; what `LeaseLost` says in the end."""
    try:
        async with lease:
            await work()
            await asyncio.Event().wait()
    except LeaseLost as lost:
        return str(lost)
    raise AssertionError("the lease was not lost")
