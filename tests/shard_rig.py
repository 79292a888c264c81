"""A shard without lease and process: caches, drains and a reconciler on an API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from shardsdk.protocol.labels import DRAIN_VALUE, parse_ring_name
from shardsdk.protocol.objects import PartialObject, Resource
from shardsdk.runtime.cache import Cache
from shardsdk.runtime.context import Context
from shardsdk.runtime.controller import Outcome
from shardsdk.runtime.identity import ShardIdentity
from shardsdk.runtime.metrics import Metrics
from shardsdk.runtime.predicates import Predicate, always
from shardsdk.runtime.queue import RateLimit
from shardsdk.runtime.sharded import ShardedReconciler, ShardedResource
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
RING = parse_ring_name("example")
ME = ShardIdentity(RING, "shard-1")

Reconcile = Callable[[Context[PartialObject]], Awaitable[Outcome | None]]


@dataclass
class Hold:
    """A lease that is held as long as the test says."""

    seconds: float = 10.0
    name: str = "shard-1"

    def remaining(self) -> float:
        return self.seconds


@dataclass
class Rig:
    """Everything a test wants to look at."""

    clock: VirtualClock
    server: MemoryServer = field(default_factory=MemoryServer)
    hold: Hold = field(default_factory=Hold)
    metrics: Metrics = field(default_factory=Metrics)
    reconciled: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.api = MemoryApi(self.server, self.clock, fence=self.hold)

    # -- the world ----------------------------------------------------------

    def secret(self, name: str, shard: str | None = "shard-1", **more: Any) -> dict[str, Any]:
        labels = {} if shard is None else {RING.shard: shard}
        metadata = {"name": name, "namespace": "default", "labels": labels, **more}
        return self.server.create(SECRETS, {"metadata": metadata})

    def child(self, owner: str, name: str, shard: str = "shard-1") -> dict[str, Any]:
        """A config map that `owner` controls, as another shard or the sharder left it."""
        uid = self.server.get(SECRETS, owner, "default")["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "Secret", "name": owner, "uid": uid, "controller": True}
        labels = {RING.shard: shard}
        metadata = {"name": name, "namespace": "default", "labels": labels, "ownerReferences": [reference]}
        return self.server.create(CONFIGMAPS, {"metadata": metadata})

    def relabel(self, resource: Resource, name: str, **labels: str | None) -> None:
        """Set `shard=` or `drain=` by hand; `None` removes."""
        wanted = {{"shard": RING.shard, "drain": RING.drain}[key]: value for key, value in labels.items()}
        self.server.patch(resource, name, "default", {"metadata": {"labels": wanted}})

    def drain(self, name: str) -> None:
        self.relabel(SECRETS, name, drain=DRAIN_VALUE)

    def labels(self, name: str, resource: Resource = SECRETS) -> dict[str, str]:
        labels: dict[str, str] = self.server.get(resource, name, "default")["metadata"].get("labels") or {}
        return labels

    def counter(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"shardsdk_{name}", {"resource": "secrets"})

    # -- the shard -----------------------------------------------------------

    @asynccontextmanager
    async def shard(
        self,
        reconcile: Reconcile | None = None,
        *,
        owns: bool = True,
        also: Reconcile | None = None,
        predicate: Predicate = always,
        concurrency: int = 4,
        drain_timeout_seconds: float | None = None,
    ) -> AsyncIterator[ShardedReconciler[PartialObject]]:
        """Run a shard with one controller (or two: `also`) on secrets, which owns config maps."""

        async def note(context: Context[PartialObject]) -> Outcome | None:
            self.reconciled.append(context.request.name)
            return await reconcile(context) if reconcile else None

        def cache(resource: Resource) -> Cache[PartialObject]:
            return Cache(self.api, resource, clock=self.clock, rng=Random(1), selector=ME.selector())

        main, children = cache(SECRETS), cache(CONFIGMAPS)
        resource = ShardedResource(
            ME, main, self.api, clock=self.clock, drain_timeout_seconds=drain_timeout_seconds, metrics=self.metrics
        )
        owned = [(children, always)] if owns else []
        reconcilers = [
            ShardedReconciler(
                name, resource, function, self.hold, children=owned, predicate=predicate, concurrency=concurrency,
                rate_limit=RateLimit(base_seconds=1, per_second=None), clock=self.clock, rng=Random(1),
            )
            for name, function in (("first", note), ("second", also)) if function is not None
        ]  # fmt: skip
        self.main, self.children, self.resource = main, children, resource
        parts = [main.run(), children.run(), resource.drains.run(), *(reconciler.run() for reconciler in reconcilers)]
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            yield reconcilers[0]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
