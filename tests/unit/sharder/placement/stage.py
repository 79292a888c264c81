"""A sharder's controllers on an API server in memory, in virtual time; leases and objects are written by the test."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from sharder.core.hashring import HashRing
from sharder.core.keys import resource_key
from sharder.replica import Replica, ReplicaSettings
from sharder.rings.deps import WebhookSettings
from sharder.telemetry.metrics import Metrics
from shardsdk.kube.api import Operation
from shardsdk.kube.clock import Clock
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.labels import (
    ENDED_ANNOTATION,
    FENCED_ANNOTATION,
    INSTANCE_ANNOTATION,
    LEASE_RING_LABEL,
    LEAVING_ANNOTATION,
    MAIN_RESOURCES_ANNOTATION,
    RingLabels,
    parse_ring_name,
)
from shardsdk.protocol.leases import (
    Lease,
    render_failure,
    render_instance,
    render_main_resources,
    render_micro_time,
)
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, NAMESPACES, GroupResource, Resource
from shardsdk.testing.memory import MemoryServer, Object
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock

OWNERS: Final = Resource("example.org", "v1", "owners", "Owner")
CHILDREN: Final = Resource("", "v1", "configmaps", "ConfigMap")
#: What a ring of owners without children lists.
ALONE: Final = {"group": OWNERS.group, "resource": OWNERS.plural}
RING: Final = "ring"
LABELS: Final[RingLabels] = parse_ring_name(RING)
SHARDS: Final = "shards"
#: Fast enough for tests that say nothing else.
SETTINGS: Final = ReplicaSettings(timings=LeaseTimings(15, 10, 2), identity="sharder-a", concurrent_moves=8)


@dataclass(frozen=True)
class Notes:
    """Takes Events and keeps them, as (reason, message)."""

    taken: list[tuple[str, str]] = field(default_factory=list)

    def event(self, regarding: Any, event_type: Any, reason: str, message: str) -> None:
        self.taken.append((reason, message))

    def of(self, reason: str) -> list[str]:
        """The messages of the Events with that reason."""
        return [message for each, message in self.taken if each == reason]


def ring(*resources: Any, name: str = RING, **spec: Any) -> Object:
    """A ClusterRing of `resources`; owners with children, if none are named."""
    listed = resources or (
        {"group": OWNERS.group, "resource": OWNERS.plural, "controlledResources": [{"resource": CHILDREN.plural}]},
    )
    return {"metadata": {"name": name}, "spec": {"resources": list(listed), **spec}}


def lease(
    clock: Clock,
    shard: str,
    *,
    fenced: bool = True,
    duration: int = 15,
    holder: str | None = None,
    mains: Iterable[GroupResource] = (),
    instance: str | None = None,
    leaving: bool = False,
) -> Object:
    """A shard's lease, renewed now by its `clock`; `mains`: what it says that it reconciles as main."""
    now = render_micro_time(clock.now())
    said = {FENCED_ANNOTATION: now} if fenced else {}
    if mains:
        said[MAIN_RESOURCES_ANNOTATION] = render_main_resources(mains, now)
    if mains or instance is not None:
        said[INSTANCE_ANNOTATION] = render_instance(shard if instance is None else instance, now)
    if leaving:
        said[LEAVING_ANNOTATION] = now
    return {
        "metadata": {"name": shard, "labels": {LEASE_RING_LABEL: RING}, "annotations": said},
        "spec": {
            "holderIdentity": shard if holder is None else holder,
            "leaseDurationSeconds": duration,
            "acquireTime": now,
            "renewTime": now,
        },
    }


def thing(name: str, *, shard: str | None = None, draining: bool = False, owner: Object | None = None) -> Object:
    """An object; of a controlled one `owner` is what controls it."""
    labels = {LABELS.shard: shard} if shard else {}
    if draining:
        labels[LABELS.drain] = "true"
    metadata: Object = {"name": name, "labels": labels}
    if owner is not None:
        meta = owner["metadata"]
        metadata["ownerReferences"] = [
            {"apiVersion": OWNERS.api_version, "kind": OWNERS.kind, "name": meta["name"], "uid": meta["uid"],
             "controller": True}
        ]  # fmt: skip
    return {"metadata": metadata}


def names_on(
    shard: str, *shards: str, count: int = 1, resource: Resource = OWNERS, namespace: str = "default"
) -> list[str]:
    """Names of objects whose place is `shard` while `shards` are the ring."""
    hashes = HashRing(shards)
    names = (f"{resource.kind.lower()}-{number}" for number in itertools.count())
    mine = (name for name in names if hashes.owner(resource_key(resource, namespace, name)) == shard)
    return list(itertools.islice(mine, count))


@dataclass
class Stage:
    """The API server, one sharder's connection to it, and hands to write with."""

    clock: VirtualClock
    server: MemoryServer
    api: MemoryApi
    shards: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    events: Notes = field(default_factory=Notes)

    def label(self, resource: Resource, name: str, namespace: str = "default") -> str | None:
        """The shard label of an object now."""
        found = self.server.find(resource, name, namespace)
        assert found is not None
        value: str | None = (found["metadata"].get("labels") or {}).get(LABELS.shard)
        return value

    def draining(self, resource: Resource, name: str, namespace: str = "default") -> bool:
        """Whether an object carries the drain label."""
        found = self.server.find(resource, name, namespace)
        assert found is not None
        return LABELS.drain in (found["metadata"].get("labels") or {})

    def holder(self, shard: str, namespace: str = SHARDS) -> str | None:
        """Who holds a lease now; None: it does not exist."""
        found = self.server.find(LEASES, shard, namespace)
        return None if found is None else str(found["spec"]["holderIdentity"])

    def create(self, resource: Resource, body: Object, namespace: str | None = "default") -> Object:
        """Create an object."""
        return self.server.create(resource, body, namespace)

    def set_up(self, made: Object, *shards: str) -> None:
        """Create a ring, and start shards of it."""
        self.create(CLUSTERRINGS, made, None)
        for shard in shards:
            self.start(shard)

    def start(self, shard: str, namespace: str = SHARDS, **options: Any) -> None:
        """Let a shard hold its lease and acknowledge drains."""
        body = lease(self.clock, shard, **options)
        if self.server.find(LEASES, shard, namespace) is None:
            self.server.create(LEASES, body, namespace)
        else:
            self._patch_lease(shard, namespace, body)
        self.shards[shard] = asyncio.create_task(self._live(shard, namespace))

    def crash(self, shard: str) -> None:
        """Let a shard stop without a word."""
        self.shards.pop(shard).cancel()

    def release(self, shard: str, *, failed: bool = False) -> None:
        """Let a shard leave in order; `failed`: because of a failure, as it says."""
        self.crash(shard)
        now = render_micro_time(self.clock.now())
        said = {ENDED_ANNOTATION: render_failure(now)} if failed else {}
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now}
        self.server.patch(LEASES, shard, SHARDS, {"metadata": {"annotations": said}, "spec": spec})

    def leave_in_grace(self, shard: str, seconds: int) -> None:
        """Let a shard leave its lease to its next process."""
        self.crash(shard)
        self._patch_lease(shard, SHARDS, lease(self.clock, shard, duration=seconds, instance=""))

    def leave_soon(self, shard: str) -> None:
        """Let a shard say that it is about to leave; it goes on with all but what would be new."""
        self._patch_lease(shard, SHARDS, self._renewed(shard, SHARDS, leaving=True))

    async def _live(self, shard: str, namespace: str) -> None:
        while True:
            await asyncio.sleep(2)
            if self.holder(shard, namespace) != shard:
                return
            self._patch_lease(shard, namespace, self._renewed(shard, namespace))

    def _renewed(self, shard: str, namespace: str, *, leaving: bool = False) -> Object:
        before = msgspec.convert(self.server.find(LEASES, shard, namespace), Lease)
        renewed = lease(
            self.clock, shard, fenced=before.fenced, mains=before.main_resources, instance=before.instance,
            leaving=leaving or before.leaving,
        )  # fmt: skip
        return renewed | {"spec": {"renewTime": renewed["spec"]["renewTime"]}}

    def _patch_lease(self, shard: str, namespace: str, body: Object) -> None:
        changes = {"metadata": {"annotations": body["metadata"]["annotations"]}, "spec": body["spec"]}
        self.server.patch(LEASES, shard, namespace, changes)

    def acknowledge(self, name: str, namespace: str = "default") -> None:
        """Take both labels off an owner, as its shard does."""
        gone = {"metadata": {"labels": {LABELS.shard: None, LABELS.drain: None}}}
        self.server.patch(OWNERS, name, namespace, gone)

    async def until(self, true: Callable[[], bool], *, seconds: float = 120.0, every: float = 0.05) -> float:
        """Wait for something to become true; returns how long it took."""
        began = self.clock.monotonic()
        while not true():
            assert self.clock.monotonic() - began < seconds, "it did not happen"
            await self.clock.sleep(every)
        return self.clock.monotonic() - began

    async def until_settled(self) -> None:
        """Wait until the ring says that every object is where it should be."""
        await self.until(lambda: self.condition("Settled") == "True")

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time go by."""
        await self.clock.sleep(seconds)

    def patches(self, resource: Resource) -> int:
        """How many patches of a resource's objects the sharder has sent."""
        return sum(1 for verb, plural, _ in self.api.writes if verb == "patch" and plural == resource.plural)

    def condition(self, kind: str, name: str = RING) -> str | None:
        """The status of one of the ring's conditions; None: not written yet."""
        return self.said(kind, name).get("status")

    def message(self, kind: str, name: str = RING) -> str:
        """What one of the ring's conditions says; empty: not written yet."""
        return str(self.said(kind, name).get("message", ""))

    def said(self, kind: str, name: str = RING) -> Object:
        """One of the ring's conditions; empty: not written yet."""
        listed = (self.server.find(CLUSTERRINGS, name) or {}).get("status", {}).get("conditions", [])
        return next((each for each in listed if each["type"] == kind), {})


class SlowApi(MemoryApi):
    """A connection on which writes to some resources take their time to reach the API server, by plural."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.slow: dict[str, float] = {}

    async def _serve(self, execute: Any, *rest: Any) -> None:
        operation: Operation[Any] | None = execute.args[0] if isinstance(execute, partial) else None
        if operation is not None and operation.writes:
            await asyncio.sleep(self.slow.get(operation.resource.plural, 0.0))
        await super()._serve(execute, *rest)


def make_stage(clock: VirtualClock, *, api: type[MemoryApi] = MemoryApi) -> Stage:
    """An API server with two namespaces, and a connection."""
    server = MemoryServer()
    for name in ("default", SHARDS, "sharding-system"):
        server.create(NAMESPACES, {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}})
    return Stage(clock, server, api(server, clock, served=(OWNERS, CHILDREN)))


@asynccontextmanager
async def leading(
    stage: Stage, settings: ReplicaSettings = SETTINGS, webhook: WebhookSettings | None = None
) -> AsyncIterator[Replica]:
    """A replica that leads, until the block is left."""
    replica = make_replica(stage, settings, webhook)
    async with running(stage, replica.run()) as task:
        await stage.until(lambda: replica.elector.is_leader or task.done())
        yield replica


@asynccontextmanager
async def running(stage: Stage, work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Have `work` go on until the block is left, and the stage's shards as well."""
    task = asyncio.create_task(work)
    try:
        yield task
        if task.done():
            task.result()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        for shard in stage.shards.values():
            shard.cancel()


def make_replica(
    stage: Stage,
    settings: ReplicaSettings = SETTINGS,
    webhook: WebhookSettings | None = None,
    *,
    clock: Clock | None = None,
) -> Replica:
    """A replica with this stage's connection, and its clock if it has no other, not started."""
    return Replica(
        stage.api, settings, metrics=Metrics.create(CollectorRegistry()), recorder=stage.events, webhook=webhook,
        clock=clock or stage.clock, rng=Random(7),
    )  # fmt: skip


def scrape(replica: Replica, family: Gauge) -> list[float]:
    """The values of a gauge as somebody reads them who asks the replica now."""
    replica._metrics.prepare_scrape()
    return [sample.value for each in family.collect() for sample in each.samples]


def later(clock: VirtualClock, seconds: float) -> str:
    """A MicroTime `seconds` from now."""
    return render_micro_time(clock.now() + timedelta(seconds=seconds))
