"""Two shards, late watches and an owner that is moved again and again: nobody works beside another, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import kopf
import pytest
from kopf._cogs.structs.references import Resource as KopfResource
from kopf._core.engines.indexing import OperatorIndexers

from shardsdk.cache.identity import ShardIdentity
from shardsdk.contrib import kopf_drains
from shardsdk.contrib.kopf_gate import Gate
from shardsdk.protocol.objects import Resource
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.virtual import VirtualClock, run_virtual
from tests.shard_rig import CONFIGMAPS, RING, SECRETS
from tests.unit.shardsdk.contrib.test_kopf_gate import CHILDREN, MAIN, Rig

OWNER_AT_V2 = KopfResource("", "v2", "secrets", kind="Secret", namespaced=True)
CHILD_NAMES = ("one", "two", "three")
SHARDS = ("shard-1", "shard-2")


class World:
    """The API server, a sharder's moves, and who works on what."""

    def __init__(self, clock: VirtualClock, rng: Random) -> None:
        self.clock = clock
        self.rng = rng
        self.server = MemoryServer()
        #: The shards at work on each object: one entry for each handler and daemon.
        self.at_work: dict[str, list[str]] = {}
        #: Of each object, what was processed last: by whom, at which resourceVersion.
        self.processed: dict[str, tuple[str, int]] = {}
        self.faults: list[str] = []
        #: Whether handlers fail now and then.
        self.failing = True

    def begin(self, name: str, shard: str) -> None:
        working = self.at_work.setdefault(name, [])
        if not set(working) <= {shard}:
            self.faults.append(f"{shard} begins with {name}, where {working} are at work")
        working.append(shard)

    def end(self, name: str, shard: str) -> None:
        self.at_work[name].remove(shard)

    def body(self, resource: Resource, name: str) -> dict[str, Any]:
        return self.server.get(resource, name, "default")

    def shard_of(self, resource: Resource, name: str) -> str | None:
        shard: str | None = (self.body(resource, name)["metadata"].get("labels") or {}).get(RING.shard)
        return shard

    def label(self, resource: Resource, name: str, **labels: str | None) -> None:
        wanted = {{"shard": RING.shard, "drain": RING.drain}[key]: value for key, value in labels.items()}
        self.server.patch(resource, name, "default", {"metadata": {"labels": wanted}})

    async def pause(self, seconds: float) -> None:
        await self.clock.sleep(self.rng.uniform(0, seconds))

    def child(self, name: str) -> None:
        """Make a child as a handler of the owner does, on the owner's shard."""
        owner = self.body(SECRETS, "owner")["metadata"]
        reference = {"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": owner["uid"], "controller": True}
        labels = {RING.shard: owner["labels"][RING.shard]}
        metadata = {"name": name, "namespace": "default", "labels": labels, "ownerReferences": [reference]}
        self.server.create(CONFIGMAPS, {"metadata": metadata})

    async def move(self, shard: str) -> None:
        """As the sharder does: the owner is asked back, its children go first."""
        self.label(SECRETS, "owner", drain="true")
        if self.rng.random() < 0.3:
            await self.pause(20)
            if self.shard_of(SECRETS, "owner") is not None:
                self.label(SECRETS, "owner", drain=None)
                return
        async with asyncio.timeout(600):  # the longest handlers and daemons take half a minute
            while self.shard_of(SECRETS, "owner") is not None:
                await self.clock.sleep(0.1)
        assert not any(self.at_work.values()), f"given away while {self.at_work} are at work"
        for child in self.server.select(CONFIGMAPS):
            await self.pause(2)
            self.label(CONFIGMAPS, child["metadata"]["name"], shard=shard)
        await self.pause(2)
        self.label(SECRETS, "owner", shard=shard)


class Operator(Rig):
    """A shard: the gate between watches as kopf's, one task for each object, and handlers that begin daemons."""

    def __init__(self, world: World, shard: str) -> None:
        super().__init__(world.clock)
        self.world = world
        self.shard = shard
        self.server = self.api.server = world.server
        identity = ShardIdentity(RING, shard)
        self.selector = identity.selector()
        self.gate = Gate(
            self.process, identity, self.api, self.lease, settle=self.api.writes_settled,
            main=[SECRETS], controlled=[CONFIGMAPS], memories=self.memories, clock=world.clock,
        )  # fmt: skip
        self.tasks: list[asyncio.Task[None]] = []
        self.begin(self.watch(MAIN, 2), self.watch(OWNER_AT_V2, 10), self.watch(CHILDREN, 5))

    def begin(self, *works: Any) -> None:
        self.tasks += [asyncio.create_task(work) for work in works]

    async def watch(self, resource: KopfResource, lag: float) -> None:
        queues: dict[str, tuple[asyncio.Queue[Any], asyncio.Event]] = {}
        ours = SECRETS if resource.plural == "secrets" else CONFIGMAPS
        seen = 0
        while True:
            await self.world.pause(lag)
            for change in self.server.changes(ours, seen):
                seen = change.version
                if (event := change.seen_by(None, self.selector)) is None:
                    continue
                uid = event[1]["metadata"]["uid"]
                if uid not in queues:
                    queues[uid] = asyncio.Queue(), asyncio.Event()
                    self.begin(self.work(resource, *queues[uid]))
                queue, pressure = queues[uid]
                pressure.set()
                queue.put_nowait((event[0].value, event[1]))

    async def work(self, resource: KopfResource, queue: asyncio.Queue[Any], pressure: asyncio.Event) -> None:
        while True:
            kind, body = await queue.get()
            if queue.empty():
                pressure.clear()
            await self.gate(
                resource=resource, raw_event={"type": kind, "object": body}, memories=self.memories,
                settings=kopf.OperatorSettings(), indexers=OperatorIndexers(), stream_pressure=pressure,
            )  # fmt: skip

    async def process(self, **event: Any) -> str | None:
        kind, body = event["raw_event"]["type"], event["raw_event"]["object"]
        name, version = body["metadata"]["name"], int(body["metadata"]["resourceVersion"])
        assert kind != "DELETED", "nothing is deleted"
        self.world.begin(name, self.shard)
        await self.world.pause(8)
        memory = await self.memories.recall(body)
        if not memory.daemons_memory.running_daemons:
            self.world.begin(name, self.shard)
            daemon = await self.daemon(body, lasts=self.world.rng.uniform(0, 8))
            daemon.add_done_callback(lambda _: self.world.end(name, self.shard))
        await self.world.pause(8)
        if self.world.failing and self.world.rng.random() < 0.15:
            await self.retry_later(body, event["stream_pressure"])
        elif version >= self.world.processed.get(name, ("", 0))[1]:
            self.world.processed[name] = (self.shard, version)
        self.world.end(name, self.shard)
        return None

    async def retry_later(self, body: dict[str, Any], pressure: asyncio.Event) -> None:
        """As kopf does after a handler that failed: it waits for news of the object, or touches it in the end."""
        try:
            async with asyncio.timeout(60):
                await pressure.wait()
        except TimeoutError:
            at = {"kopf.zalando.org/touch-dummy": str(self.clock.monotonic())}
            resource = SECRETS if body["kind"] == "Secret" else CONFIGMAPS
            name = body["metadata"]["name"]
            self.server.patch(resource, name, "default", {"metadata": {"annotations": at}})


async def play(clock: VirtualClock, rng: Random) -> None:
    world = World(clock, rng)
    secret = {"name": "owner", "namespace": "default", "labels": {RING.shard: "shard-1"}}
    world.server.create(SECRETS, {"metadata": secret})
    operators = [Operator(world, shard) for shard in SHARDS]
    unmade = list(CHILD_NAMES)

    def change() -> None:
        children = [each["metadata"]["name"] for each in world.server.select(CONFIGMAPS)]
        if unmade and world.shard_of(SECRETS, "owner") is not None and rng.random() < 0.5:
            world.child(unmade.pop())
        elif children and rng.random() < 0.7:
            annotations = {"at": str(clock.monotonic())}
            world.server.patch(CONFIGMAPS, rng.choice(children), "default", {"metadata": {"annotations": annotations}})

    changing = asyncio.create_task(_again(world, change))
    for _ in range(6):
        await world.pause(30)
        await world.move(rng.choice(SHARDS))
    changing.cancel()
    world.failing = False
    await clock.sleep(300)
    assert world.faults == []
    failed = [task.exception() for each in operators for task in each.tasks if task.done()]
    assert failed == []
    shard = world.shard_of(SECRETS, "owner")
    for child in world.server.select(CONFIGMAPS):
        name, version = child["metadata"]["name"], int(child["metadata"]["resourceVersion"])
        assert world.processed[name] == (shard, version)
        assert world.at_work[name] == [shard], "its daemon"
    assert world.at_work["owner"] == [shard]
    for each in operators:
        for task in each.tasks:
            task.cancel()


async def _again(world: World, change: Callable[[], None]) -> None:
    while True:
        await world.pause(4)
        change()


@pytest.mark.parametrize("seed", [*range(60), 1138, 1461])
def test_handlers_and_daemons_of_a_family_are_on_one_shard_at_a_time(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        # Children have turns in most drains.
        monkeypatch.setattr(kopf_drains, "PATIENCE_SECONDS", 1.0)
    run_virtual(lambda clock: play(clock, Random(seed)))
