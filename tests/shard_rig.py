"""A shard without lease and process: caches, drains and a reconciler on an API server in memory."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from shardsdk.cache.cache import Cache
from shardsdk.cache.identity import ShardIdentity
from shardsdk.kube.api import PARTIAL
from shardsdk.protocol.labels import DRAIN_VALUE, parse_ring_name
from shardsdk.protocol.objects import PartialObject, Resource
from shardsdk.queueing.metrics import Metrics
from shardsdk.queueing.predicates import Predicate, always
from shardsdk.queueing.queue import RateLimit
from shardsdk.queueing.workers import Outcome
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.controller import Controller
from shardsdk.reconcile.mainresource import MainResource
from shardsdk.testing.memory import EVERYTHING, Change, MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
RING = parse_ring_name("example")
ME = ShardIdentity(RING, "shard-1")

Reconcile = Callable[[Context[PartialObject]], Awaitable[Outcome | None]]


def stubborn(gate: asyncio.Event) -> Reconcile:
    """A reconcile that goes on until the gate opens, however often it is cancelled."""

    async def reconcile(context: Context[PartialObject]) -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    return reconcile


@dataclass
class Hold:
    """A lease that is held as long as the test says."""

    seconds: float = 10.0
    name: str = "shard-1"
    #: Until when writes of a dead process may be executed, on the clock's `monotonic`.
    owed_until: float = -math.inf

    def remaining(self) -> float:
        return self.seconds


class Lag:
    """News of one resource come so many seconds late; those of others at once."""

    def __init__(self, rig: Rig, resource: Resource, seconds: float) -> None:
        self.seconds = seconds
        self._clock = rig.clock
        self._real = rig.server.changes
        self._resource = resource
        self._happened: dict[int, float] = {}
        rig.server.listeners.append(self._note)
        rig.server.changes = self._late  # type: ignore[method-assign]

    def _note(self, change: Change) -> None:
        self._happened[change.version] = self._clock.monotonic()

    def _late(self, resource: Resource, since: int) -> list[Change]:
        changes = self._real(resource, since)
        if resource != self._resource:
            return changes
        now = self._clock.monotonic()
        return [change for change in changes if self._happened.get(change.version, 0.0) + self.seconds <= now]


async def come_back_unseen(rig: Rig, owner: str, children: Lag, *, old: str, new: str) -> None:
    """An owner that was given away returns, and no event has told that it had left; others made `new` instead of `old`.

    What becomes of its children is told later.
    """
    children.seconds = 1000
    rig.server.delete(CONFIGMAPS, old, "default")
    rig.child(owner, new)
    rig.relabel(SECRETS, owner, shard="shard-1")
    rig.main._reflectors[None].restart()  # as after a broken watch: a list, which shows no leaving
    await rig.clock.sleep(10)
    children.seconds = 0
    rig.nudge(CONFIGMAPS)
    await rig.clock.sleep(60)


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

    def child(self, owner: str, name: str, shard: str = "shard-1", **more: Any) -> dict[str, Any]:
        """A config map that `owner` controls, as another shard or the sharder left it; `more` is its content."""
        uid = self.server.get(SECRETS, owner, "default")["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "Secret", "name": owner, "uid": uid, "controller": True}
        labels = {RING.shard: shard}
        metadata = {"name": name, "namespace": "default", "labels": labels, "ownerReferences": [reference]}
        return self.server.create(CONFIGMAPS, {"metadata": metadata, **more})

    def relabel(self, resource: Resource, name: str, **labels: str | None) -> None:
        """Set `shard=` or `drain=` by hand; `None` removes."""
        wanted = {{"shard": RING.shard, "drain": RING.drain}[key]: value for key, value in labels.items()}
        self.server.patch(resource, name, "default", {"metadata": {"labels": wanted}})

    def drain(self, name: str) -> None:
        self.relabel(SECRETS, name, drain=DRAIN_VALUE)

    def labels(self, name: str, resource: Resource = SECRETS) -> dict[str, str]:
        labels: dict[str, str] = self.server.get(resource, name, "default")["metadata"].get("labels") or {}
        return labels

    def nudge(self, resource: Resource) -> None:
        """Have watches of `resource` look for news: something else of it changes."""
        name = f"nudge-{self.server.version}"
        self.server.create(resource, {"metadata": {"name": name, "namespace": "elsewhere"}})

    def counter(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"shardsdk_{name}", {"resource": "secrets"})

    # -- the shard -----------------------------------------------------------

    @asynccontextmanager
    async def shard(
        self,
        reconcile: Reconcile | None = None,
        *,
        of: Resource = SECRETS,
        owns: bool = True,
        also: Reconcile | None = None,
        predicate: Predicate = always,
        child_predicate: Predicate = always,
        concurrency: int = 4,
        drain_timeout_seconds: float | None = None,
        filtered: bool = True,
        models: Mapping[Resource, Any] | None = None,
        cached: Mapping[Resource, Mapping[str, Any]] | None = None,
        listed: bool = False,
    ) -> AsyncIterator[Controller[PartialObject]]:
        """Run a shard with one controller (or two: `also`) on secrets, or what `of` says, which owns config maps.

        `models` of the resources (by default metadata alone), and what else their caches are told (`cached`).
        `listed`: the ring lists config maps, so the sharder may be about to label those that it has not labelled yet.
        """

        async def note(context: Context[PartialObject]) -> Outcome | None:
            self.reconciled.append(context.request.name)
            return await reconcile(context) if reconcile else None

        def cache(resource: Resource) -> Cache[Any]:
            selector = ME.selector() if filtered else EVERYTHING
            model = (models or {}).get(resource, PARTIAL)
            options = (cached or {}).get(resource, {})
            return Cache(self.api, resource, clock=self.clock, rng=Random(1), selector=selector, model=model, **options)

        main, children = cache(of), cache(CONFIGMAPS)
        resource = MainResource(
            main, self.api, ME, self.hold, clock=self.clock, drain_timeout_seconds=drain_timeout_seconds,
            metrics=self.metrics,
        )  # fmt: skip
        owned = [(children, child_predicate)] if owns else []
        controllers = [
            Controller(
                name, resource, function, self.hold, children=owned, predicate=predicate, concurrency=concurrency,
                rate_limit=RateLimit(base_seconds=1, per_second=None), clock=self.clock, rng=Random(1),
                metrics=self.metrics, unassigned=lambda cache: ME.unassigned() if listed else None,
            )
            for name, function in (("first", note), ("second", also)) if function is not None
        ]  # fmt: skip
        self.main, self.children, self.resource = main, children, resource
        parts = [main.run(), children.run(), resource.run(), *(controller.run() for controller in controllers)]
        self.tasks = tasks = [asyncio.create_task(part) for part in parts]
        try:
            yield controllers[0]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
