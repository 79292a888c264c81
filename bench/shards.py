"""Shards that acknowledge at once and do nothing else, so that the sharder is what is measured.

They speak the wire contract and no more: a lease, and a watch on objects that
carry their label and the drain label.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bench.load import CONFIGMAPS
from sharder.core.hashring import HashRing
from sharder.core.keys import main_key
from shardsdk.errors import ShardingError
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.reflector import Delta, EventKind, Reflector
from shardsdk.kube.selectors import Selector, equals, exists, join
from shardsdk.protocol.labels import FENCED_ANNOTATION, LEASE_RING_LABEL, RingLabels, parse_ring_name
from shardsdk.protocol.leases import render_micro_time
from shardsdk.protocol.objects import LEASES, PartialObject, Resource


@dataclass(slots=True)
class Shard:
    """A shard that holds its lease and acknowledges drains of one resource."""

    api: Client
    ring: str
    name: str
    namespace: str
    lease_seconds: int = 15
    fenced: bool = True
    resource: Resource = CONFIGMAPS
    renewed_at: float = 0.0
    _task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Create the lease and keep it."""
        labels = parse_ring_name(self.ring)
        now = render_micro_time(SystemClock().now())
        annotations = {FENCED_ANNOTATION: now} if self.fenced else {}
        metadata = {"name": self.name, "labels": {LEASE_RING_LABEL: self.ring}, "annotations": annotations}
        spec = {
            "holderIdentity": self.name,
            "leaseDurationSeconds": self.lease_seconds,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        }
        body = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata, "spec": spec}
        self._task = asyncio.create_task(self._run(labels))
        await self.api.create(LEASES, body, self.namespace)
        self.renewed_at = time.monotonic()

    def crash(self) -> float:
        """Stop at once; returns the moment of the last renewal."""
        assert self._task is not None
        self._task.cancel()
        return self.renewed_at

    async def release(self) -> None:
        """Leave in order."""
        self.crash()
        await self._write({"holderIdentity": "", "leaseDurationSeconds": 1})

    async def _run(self, labels: RingLabels) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._renew())
            drained: asyncio.Queue[PartialObject] = asyncio.Queue()
            selector = Selector(labels=join(equals(labels.shard, self.name), exists(labels.drain)))

            def on_delta(delta: Delta[PartialObject]) -> None:
                if delta.kind is not EventKind.DELETED:
                    drained.put_nowait(delta.object)

            reflector = Reflector(
                self.api, self.resource, selector=selector, handler=on_delta, clock=SystemClock(), rng=random.Random()
            )
            tasks.create_task(reflector.run())
            for _ in range(16):
                tasks.create_task(self._acknowledge(labels, drained))

    async def _acknowledge(self, labels: RingLabels, drained: asyncio.Queue[PartialObject]) -> None:
        while True:
            meta = (await drained.get()).metadata
            body = {
                "metadata": {
                    "resourceVersion": meta.resource_version,
                    "labels": {labels.shard: None, labels.drain: None},
                }
            }
            try:
                await self.api.patch(self.resource, meta.name, meta.namespace, body)
            except ShardingError:
                continue  # changed meanwhile: its next event comes

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self.lease_seconds / 7.5)
            now = render_micro_time(SystemClock().now())
            await self._write({"renewTime": now}, {FENCED_ANNOTATION: now} if self.fenced else {})
            self.renewed_at = time.monotonic()

    async def _write(self, spec: dict[str, Any], annotations: dict[str, str] | None = None) -> None:
        body = {"metadata": {"annotations": annotations or {}}, "spec": spec}
        await self.api.patch(LEASES, self.name, self.namespace, body)


@dataclass(slots=True)
class Owners:
    """Who owns how many objects, as a watch shows it."""

    api: Client
    ring: str
    namespace: str | None
    counts: Counter[str] = field(default_factory=Counter)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Watch until cancelled."""
        label = parse_ring_name(self.ring).shard

        def on_delta(delta: Delta[PartialObject]) -> None:
            if delta.old is not None and delta.kind is not EventKind.ADDED:
                self.counts[delta.old.metadata.label(label) or ""] -= 1
            if delta.kind is not EventKind.DELETED:
                after = delta.object.metadata.label(label) or ""
                self.counts[after] += 1
            self.changed.set()

        reflector = Reflector(
            self.api, CONFIGMAPS, namespace=self.namespace, handler=on_delta,
            clock=SystemClock(), rng=random.Random(),
        )  # fmt: skip
        await reflector.run()

    async def until(self, done: Any, timeout_seconds: float = 120.0) -> None:
        """Wait until `done(counts)`.  Raises: TimeoutError."""
        async with asyncio.timeout(timeout_seconds):
            while not done(self.counts):
                self.changed.clear()
                await self.changed.wait()


async def due_to(joins: str, api: Client, ring: str, shards: Iterable[str]) -> int:
    """How many ConfigMaps of a ring move once `joins` has come to its `shards`."""
    places, placed = HashRing([*shards, joins]), Selector(labels=exists(parse_ring_name(ring).shard))
    return sum(
        [
            places.owner(main_key("", "ConfigMap", each.metadata.namespace or "", each.metadata.name)) == joins
            async for page in api.pages(CONFIGMAPS, selector=placed)
            for each in page
        ]
    )
