"""Managers of a ring by ranges on an API server in memory, who names them in order, and who works on what."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec

from shardsdk.cache.objects import metadata_of
from shardsdk.kube.selectors import Selector, equals
from shardsdk.lease.pod import make_uuid
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.namespaces import NAME_LABEL
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES
from shardsdk.protocol.ranges import (
    NOWHERE,
    RING_ASSIGNMENTS,
    SPACE,
    HashBy,
    HashRanges,
    Named,
    named_by,
    point_of,
    render_assignment,
)
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.spec import controller_for
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock
from shardsdk.testing.world import world_in
from tests.shard_rig import CONFIGMAPS, RING, SECRETS

#: What a sharder leaves out of rings that do not say what they cover.
LEFT_OUT = [{"key": NAME_LABEL, "operator": "NotIn", "values": ["kube-system", "sharding-system"]}]
#: Of each object: what was read of it when it was reconciled last.
Seen = dict[tuple[str, str], str]


class Stage:
    """A ring whose shards reconcile secrets, and have one config map for each."""

    def __init__(self, clock: VirtualClock, by: HashBy = HashBy.NAMESPACE) -> None:
        self.clock = clock
        self.by = by
        # Of uids that differ in their end alone the hashes lie near each other.
        self.server = MemoryServer(make_uid=lambda version: make_uuid(Random(version)))
        spec = {"assignment": "Ranges", "hashBy": by.value, "resources": [{"resource": "secrets"}]}
        says = {"namespaceSelector": {"matchExpressions": LEFT_OUT}}  # as its sharder
        self.server.create(CLUSTERRINGS, {"metadata": {"name": RING.ring}, "spec": spec})
        self.server.patch(CLUSTERRINGS, RING.ring, None, {"status": says}, subresource="status")
        self.managers: dict[str, Manager] = {}
        self.apis: dict[str, MemoryApi] = {}
        self.processes: dict[str, asyncio.Task[ExitCode]] = {}
        self.deaths: list[str] = []
        #: How long a reconcile takes, in seconds.
        self.takes = 0.0
        #: By whom each object is reconciled this moment; by its uid: one of the same name may be another shard's.
        self.running: dict[str, str] = {}
        #: (shard, namespace, name) of each reconcile, in order.
        self.reconciled: list[tuple[str, str, str]] = []
        self.seen: Seen = {}
        self.wrong: list[str] = []

    def start(self, name: str, *, lag: float = 0.001, rng: Random | None = None) -> Manager:
        rng = rng or Random(len(self.managers))
        api = MemoryApi(self.server, self.clock, lag=lambda: rng.uniform(0.0, lag), delay=lambda: rng.uniform(0, lag))
        manager = Manager(RING.ring, shard=name, namespace="shards", fenced=True)
        owns = self.by is HashBy.NAMESPACE
        spec = controller_for(SECRETS).options(concurrency=8)
        spec = spec.owns(CONFIGMAPS) if owns else spec

        async def reconcile(context: Context[Any]) -> None:
            await self._reconcile(name, context, owns)

        manager.add(spec.reconcile(reconcile))
        self.managers[name], self.apis[name] = manager, api
        self.processes[name] = asyncio.create_task(manager.run_async(world_in(api, [], Random(1))))
        return manager

    async def _reconcile(self, shard: str, context: Context[Any], owns: bool) -> None:
        key = (context.namespace, context.name)
        uid = context.metadata.uid
        if (other := self.running.get(uid)) is not None:
            self.wrong.append(f"{key} is reconciled by {shard} while {other} does")
        self.running[uid] = shard
        self.reconciled.append((shard, *key))
        try:
            children = context.children(CONFIGMAPS) if owns else []
            await asyncio.sleep(self.takes)
            if owns and not children:
                body = {"metadata": {"generateName": f"{context.name}-", "namespace": context.namespace}}
                body["metadata"]["ownerReferences"] = [context.controller_reference()]  # type: ignore[assignment]
                await context.api.create(CONFIGMAPS, body, context.namespace)
            self.seen[key] = context.metadata.resource_version
        finally:
            if self.running.get(uid) == shard:
                del self.running[uid]

    async def stop(self, name: str) -> ExitCode:
        self.managers[name].stopping.set()
        return await self.processes[name]

    # -- objects ----------------------------------------------------------------

    def secret(self, namespace: str, name: str) -> None:
        self.server.create(SECRETS, {"metadata": {"name": name, "namespace": namespace}})

    def touch(self, namespace: str, name: str) -> None:
        patch = {"metadata": {"annotations": {"touched": str(self.server.version)}}}
        self.server.patch(SECRETS, name, namespace, patch)

    def children(self, namespace: str, name: str) -> list[str]:
        uid = self.server.get(SECRETS, name, namespace)["metadata"]["uid"]
        found = self.server.select(CONFIGMAPS, namespace, Selector())
        return [each["metadata"]["name"] for each in found if each["metadata"]["ownerReferences"][0]["uid"] == uid]

    def point(self, namespace: str, name: str = "") -> int:
        """Where an object lies, or all objects of a namespace."""
        if self.by is HashBy.NAMESPACE:
            return point_of(namespace)
        return self.by.point(metadata_of(self.server.get(SECRETS, name, namespace)))

    # -- who is named -------------------------------------------------------------

    def named(self) -> Named:
        found = self.server.find(RING_ASSIGNMENTS, RING.ring)
        return Named(self.by, {}) if found is None else named_by(found, self.by)

    def write(self, named: Mapping[str, HashRanges]) -> None:
        spec = msgspec.to_builtins(render_assignment(Named(self.by, dict(named))))
        if self.server.find(RING_ASSIGNMENTS, RING.ring) is None:
            self.server.create(RING_ASSIGNMENTS, {"metadata": {"name": RING.ring}, "spec": spec})
        else:
            self.server.patch(RING_ASSIGNMENTS, RING.ring, None, {"spec": spec})

    async def assign(self, want: Mapping[str, HashRanges]) -> None:
        """Name shards as a sharder does: revoke, wait until it is off the leases, grant."""
        while True:
            stored = self.named()
            kept = {shard: ranges & want.get(shard, NOWHERE) for shard, ranges in stored.shards.items()}
            held = self._held()
            for shard, ranges in want.items():
                others = HashRanges.union(theirs for name, theirs in held.items() if name != shard)
                kept[shard] = kept.get(shard, NOWHERE) | ((ranges & stored.nobodys) - others)
            kept = {shard: ranges for shard, ranges in kept.items() if ranges}
            if kept != stored.shards:
                self.write(kept)
            if kept == {shard: ranges for shard, ranges in want.items() if ranges}:
                return
            await asyncio.sleep(0.01)

    def _held(self) -> dict[str, HashRanges]:
        found = self.server.select(LEASES, None, Selector(equals(LEASE_RING_LABEL, RING.ring)))
        leases = [msgspec.convert(each, Lease) for each in found]
        return {each.metadata.name: each.held_ranges or NOWHERE for each in leases if each.held_by_shard}

    async def share(self, *names: str) -> None:
        """Name these, each for as much of the space."""
        width = -(-SPACE // len(names))
        cuts = [min(number * width, SPACE) for number in range(len(names) + 1)]
        await self.assign({name: HashRanges.of((cuts[at], cuts[at + 1])) for at, name in enumerate(names)})

    async def until(self, condition: Any, seconds: float = 120.0) -> float:
        began = self.clock.monotonic()
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)
        return self.clock.monotonic() - began

    def settled(self) -> bool:
        """Whether every object was reconciled as it is now."""
        there = self.server.select(SECRETS, None, Selector())
        return not self.running and all(
            self.seen.get((each["metadata"]["namespace"], each["metadata"]["name"]))
            == each["metadata"]["resourceVersion"]
            for each in there
        )
