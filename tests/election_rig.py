"""Candidates for one Lease in virtual time, and who led when."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from shardsdk.events.recorder import EventType, Regarding
from shardsdk.lease.election import LeaderElector
from shardsdk.lease.hold import Hold
from shardsdk.protocol.leases import Lease
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock
from tests.lease_rig import NAMESPACE, lease_in

NAME = "my-controller"


class Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, EventType, str, str]] = []

    def event(self, regarding: Regarding, event_type: EventType, reason: str, message: str) -> None:
        assert regarding.uid
        self.events.append((f"{regarding.kind} {regarding.namespace}/{regarding.name}", event_type, reason, message))


class Candidates:
    """Candidates for one Lease, and who led when."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.server = MemoryServer()
        self.log: list[str] = []
        self.leading: list[str] = []

    def make(self, identity: str, **options: Any) -> tuple[LeaderElector, MemoryApi]:
        api = MemoryApi(self.server, self.clock)
        return self.elector(api, identity, **options), api

    def elector(self, api: MemoryApi, identity: str | None, **options: Any) -> LeaderElector:
        given = {"clock": self.clock, "rng": random.Random(len(self.log)), **options}
        return LeaderElector(api, namespace=NAMESPACE, name=NAME, identity=identity, **given)

    def lead(self, identity: str, seconds: float = 1e6) -> Callable[[Hold], Awaitable[None]]:
        async def lead(hold: Hold) -> None:
            assert hold.remaining() > 0
            self.log.append(f"{identity} leads")
            self.leading.append(identity)
            assert len(self.leading) == 1, "two leaders"
            try:
                await asyncio.sleep(seconds)
            finally:
                self.leading = [each for each in self.leading if each != identity]
                self.log.append(f"{identity} stops")

        return lead

    @property
    def lease(self) -> Lease:
        lease = lease_in(self.server, NAME)
        assert lease is not None
        return lease

    async def until(self, condition: Callable[[], bool]) -> float:
        began = self.clock.monotonic()
        async with asyncio.timeout(300):
            while not condition():
                await asyncio.sleep(0.01)
        return self.clock.monotonic() - began


@asynccontextmanager
async def running(coroutine: Any) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))
