"""Managers without a ring, or with more than their ring's work, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from shardsdk.errors import Forbidden, ServerError
from shardsdk.kube.api import Api, Fence, RawRequest
from shardsdk.lease.leadership import Election
from shardsdk.lease.shardlease import ShardLease
from shardsdk.process.manager import Manager, World
from shardsdk.process.process import ExitCode
from shardsdk.protocol.objects import LEASES, PartialObject, Resource
from shardsdk.rbac import Right
from shardsdk.reconcile.context import Context
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock
from tests.shard_rig import RING, SECRETS

Ctx = Context[PartialObject]
ELECTION = Election("sweeper", namespace="shards")


@dataclass
class Replica:
    """One process: its ways to the API server, and how it died."""

    clock: VirtualClock
    server: MemoryServer
    number: int
    apis: list[MemoryApi] = field(default_factory=list)
    deaths: list[int] = field(default_factory=list)
    reconciled: list[str] = field(default_factory=list)
    #: Seconds that requests and events take, as `MemoryApi` has them.
    delay: Callable[[], float] = lambda: 0.001
    lag: Callable[[], float] = lambda: 0.001
    #: What becomes of the requests of the first client that is opened: that of the caches of unsharded work.
    reading: Fault = Fault.NONE
    on_death: Callable[[], None] = lambda: None
    #: Whether its API server has just started: it knows no rules, so that it refuses everything, and is not ready.
    starting: bool = False

    def api(self, fence: Fence | None = None) -> MemoryApi:
        made = _Api(self.server, self.clock, fence=fence, delay=self.delay, lag=self.lag)
        made.replica = self
        made.on_request = self.refuse
        self.apis.append(made)
        if len(self.apis) == 1:
            self.apis[0].fault = self.reading
        return self.apis[-1]

    def refuse(self, right: Right) -> None:
        """What the API server asks RBAC for."""
        if self.starting:
            raise Forbidden(f"{right.part} is forbidden", status=403)

    def cut_off(self) -> None:
        for api in self.apis:
            api.fault = Fault.LOST

    @property
    def writes(self) -> list[tuple[str, str, str]]:
        return [write for api in self.apis for write in api.writes if write[1] not in ("leases", "events")]

    def world(self) -> World:
        @asynccontextmanager
        async def opened(fence: Fence | None = None) -> AsyncIterator[Api]:
            yield self.api(fence)

        @asynccontextmanager
        async def connect(lease: ShardLease) -> AsyncIterator[Api]:
            yield self.api(lease.fence)

        return World(
            opened, connect, self.clock, Random(self.number), threaded=False, serve=False, signals=False,
            die=self._die, open=opened,
        )  # fmt: skip

    def _die(self, code: int, why: str) -> None:
        self.deaths.append(code)
        self.on_death()

    async def note(self, context: Ctx) -> None:
        self.reconciled.append(context.request.name)

    def start(self, manager: Manager) -> asyncio.Task[ExitCode]:
        return asyncio.create_task(manager.run_async(self.world()))


class _Api(MemoryApi):
    replica: Replica

    async def exchange(self, request: RawRequest) -> bytes:
        if request.path == "/readyz" and self.replica.starting:
            raise ServerError("[-]poststarthook/rbac/bootstrap-roles failed", status=500)
        return await super().exchange(request)


@dataclass
class Cluster:
    """One API server and the replicas around it."""

    clock: VirtualClock
    server: MemoryServer = field(default_factory=MemoryServer)
    replicas: list[Replica] = field(default_factory=list)

    def replica(self) -> Replica:
        self.replicas.append(Replica(self.clock, self.server, len(self.replicas)))
        return self.replicas[-1]

    def secret(self, name: str, shard: str | None = None) -> None:
        labels = {} if shard is None else {RING.shard: shard}
        self.server.create(SECRETS, {"metadata": {"name": name, "namespace": "default", "labels": labels}})

    def holder(self, name: str = ELECTION.name) -> str:
        return str(self.server.get(LEASES, name, "shards")["spec"].get("holderIdentity") or "")

    def take(self, name: str) -> None:
        """Give a Lease to somebody else."""
        spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}
        self.server.patch(LEASES, name, "shards", {"spec": spec})

    def names(self, resource: Resource) -> list[str]:
        return [thing["metadata"]["name"] for thing in self.server.select(resource)]


def shard_of_ring(**options: Any) -> Manager:
    """A manager that is a shard, and may be more."""
    return Manager(RING.ring, shard="shard-1", namespace="shards", fenced=True, **options)
