"""Owners with a child each when a shard joins: how long nobody has them, and what users notice meanwhile."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.load import CONFIGMAPS, Usage, measure
from bench.replicas import FAMILY, SECRETS
from bench.shards import Shard
from bench.users import USERS, Users, p99
from localcluster import ControlPlane
from localcluster.installation import Installation, SharderTimings
from sharder.core.hashring import HashRing
from sharder.core.keys import main_key
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.reflector import Delta, EventKind, Reflector
from shardsdk.protocol.labels import RingLabels, parse_ring_name
from shardsdk.protocol.objects import NAMESPACES, PartialObject

RING: Final = "families"
NAMESPACE: Final = "bench"
#: How long users are looked at while nothing moves.
REST_SECONDS: Final = 10.0
#: How long the sharder's memory is looked at after the last object has moved.
AFTER_SECONDS: Final = 20.0

Say = Callable[..., None]


@dataclass(slots=True)
class Story:
    """Who has each owner, as a watch shows it: how long nobody had it, how many at once."""

    labels: RingLabels
    owners: dict[str, str] = field(default_factory=dict)
    unowned: dict[str, float] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)
    most_unowned: int = 0
    most_in_transit: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, delta: Delta[PartialObject]) -> None:
        """One change of one owner."""
        meta = delta.object.metadata
        shard, now = meta.label(self.labels.shard), time.perf_counter()
        drains = meta.label(self.labels.drain) is not None and delta.kind is not EventKind.DELETED
        (self.draining.add if drains else self.draining.discard)(meta.name)
        if shard is not None:
            self.owners[meta.name] = shard
            if meta.name in self.unowned:
                self.seconds.append(now - self.unowned.pop(meta.name))
        elif meta.name in self.owners:
            self.unowned.setdefault(meta.name, now)
        self.most_unowned = max(self.most_unowned, len(self.unowned))
        self.most_in_transit = max(self.most_in_transit, len(self.unowned) + len(self.draining))
        self.changed.set()

    async def until(self, done: Callable[[], bool], timeout_seconds: float = 600.0) -> None:
        """Wait for it.  Raises: TimeoutError."""
        async with asyncio.timeout(timeout_seconds):
            while not done():
                self.changed.clear()
                await self.changed.wait()


async def joining(objects: int, rest_seconds: float, say: Say) -> None:
    """`objects` owners on two shards; a third joins.  `rest_seconds`: how long rest is looked at, at most."""
    print(f"{objects} Secrets with a ConfigMap each on two shards, a third joins", flush=True)
    timings = SharderTimings(lease_duration=15, renew_deadline=10, retry_period=2, staleness=10)
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(ControlPlane())
        installation = await stack.enter_async_context(Installation(plane, timings))
        access = await load_access(str(plane.admin_kubeconfig))
        api, watching = [await stack.enter_async_context(Client(access)) for _ in range(2)]
        for name in (NAMESPACE, USERS):
            await api.create(NAMESPACES, {"metadata": {"name": name}})
        selector = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
        await installation.ring(RING, {"resources": [FAMILY], "namespaceSelector": selector})
        await installation.start_sharder("sharder-1")
        await installation.leader()
        story = Story(parse_ring_name(RING))
        reflector = Reflector(
            watching, SECRETS, namespace=NAMESPACE, handler=story.tell, clock=SystemClock(), rng=random.Random()
        )
        watch = asyncio.create_task(reflector.run())
        shards = [Shard(watching, RING, name, "default", resource=SECRETS) for name in ("one", "two", "three")]
        for shard in shards[:2]:
            await shard.start()
        await _create(api, story, objects)
        await _move(installation, plane.admin_kubeconfig, story, shards[2], rest_seconds, say)
        watch.cancel()
        for shard in shards:
            shard.crash()


async def _create(api: Client, story: Story, objects: int) -> None:
    label = story.labels.shard
    ring = HashRing(["one", "two"])

    def family(number: int) -> Callable[[], Awaitable[Any]]:
        async def create() -> None:
            name = f"owner-{number}"
            labels = {label: ring.owner(main_key("", "Secret", NAMESPACE, name))}
            owner = await api.create(SECRETS, {"metadata": {"name": name, "labels": labels}}, NAMESPACE)
            reference = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": owner.metadata.uid}
            metadata = {"name": f"{name}-0", "labels": labels, "ownerReferences": [{**reference, "controller": True}]}
            await api.create(CONFIGMAPS, {"metadata": metadata}, NAMESPACE)

        return create

    await measure(family(number) for number in range(objects))
    await story.until(lambda: len(story.owners) == objects)


async def _move(
    installation: Installation, kubeconfig: Path, story: Story, joins: Shard, rest_seconds: float, say: Say
) -> None:
    (replica,) = installation.sharders.values()
    rest = await Users(kubeconfig, "rest").until(asyncio.sleep(min(REST_SECONDS, rest_seconds)))
    before = Usage.of(replica.process.pid)
    ring = HashRing(["one", "two", "three"])
    moving = [name for name in story.owners if ring.owner(main_key("", "Secret", NAMESPACE, name)) == "three"]

    async def join() -> None:
        await joins.start()
        await story.until(lambda: all(story.owners[name] == "three" for name in moving))

    busy = await Users(kubeconfig, "busy").until(join())
    after = Usage.of(replica.process.pid)
    await asyncio.sleep(min(AFTER_SECONDS, rest_seconds))
    later = Usage.of(replica.process.pid)
    times = sorted(story.seconds) or [0.0]
    say("families: objects moved", len(moving), "")
    say("families: rate", len(moving) / busy.lasted, "objects/s")
    say("families: without an owner, median", times[len(times) // 2], "s")
    say("families: without an owner, p99", times[int(len(times) * 0.99)], "s")
    say("families: without an owner, longest", times[-1], "s")
    say("families: without an owner at once, most", story.most_unowned, "")
    say("families: in transit at once, most", story.most_in_transit, "")
    say("families: CPU per move", (after.cpu_seconds - before.cpu_seconds) * 1000 / max(len(moving), 1), "ms")
    say("families: a user's create, p99", p99(busy.plain) * 1000, "ms", f"[{p99(rest.plain) * 1000:.1f} at rest]")
    say("families: memory before", before.resident_mib, "MiB")
    say("families: memory at the end", after.resident_mib, "MiB")
    say("families: memory later", later.resident_mib, "MiB")
