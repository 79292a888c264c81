"""Many objects when a shard joins: how long writes wait for a connection, what another ring and users notice."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.load import CONFIGMAPS, Usage, measure, patches
from bench.shards import Owners, Shard
from bench.watched import WATCHED, Look, read_looks
from localcluster import ControlPlane
from localcluster.installation import Installation, SharderTimings
from sharder.core.hashring import HashRing
from sharder.core.keys import main_key
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.reflector import Delta, Reflector
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import CLUSTERRINGS, NAMESPACES, PartialObject

#: The ring whose objects move, and one of the same leader that has nothing to do with it; their namespaces, too.
RING: Final = "join"
OTHER: Final = "other"
#: A namespace of no ring.
USERS: Final = "users"
#: How long the machine is looked at at rest, and the sharder's memory after the ring is settled.
REST_SECONDS: Final = 10.0
AFTER_SECONDS: Final = 5.0
#: Connections of the plain clients that patch as many objects as the sharder does at once.
PATCHING: Final = 48
MOST_PATCHED: Final = 5_000
#: Pause between two objects of one user.
PAUSE_SECONDS: Final = 0.05

Say = Callable[..., None]


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] = []


class _Ring(msgspec.Struct, frozen=True):
    status: _Status = _Status()

    @property
    def settled(self) -> bool:
        return any(each.type == "Settled" and each.status == "True" for each in self.status.conditions)


@dataclass(slots=True)
class Users:
    """Who makes objects one after the other: in a namespace of no ring, and of the other ring.

    `plain` and `named`: seconds until the API server had answered.  A third user makes objects without
    a name in the other ring, which the leader's watch places (see `Placements`).
    """

    api: Client
    prefix: str
    plain: list[float] = field(default_factory=list)
    named: list[float] = field(default_factory=list)

    async def until(self, ended: asyncio.Task[None]) -> None:
        """Make objects until `ended`, and wait until they have their shards."""
        making = [asyncio.create_task(each) for each in (self._plain(), self._named(), self._unnamed())]
        await asyncio.wait([ended, *making], return_when=asyncio.FIRST_COMPLETED)
        for task in making:
            task.cancel()
        for result in await asyncio.gather(*making, return_exceptions=True):
            if not isinstance(result, asyncio.CancelledError):
                raise AssertionError("a user's create failed") from result
        await ended

    async def _plain(self) -> None:
        while True:
            await self._make(USERS, {"name": f"{self.prefix}-{len(self.plain)}"}, self.plain)

    async def _named(self) -> None:
        while True:
            await self._make(OTHER, {"name": f"{self.prefix}-{len(self.named)}"}, self.named)

    async def _unnamed(self) -> None:
        while True:
            await self._make(OTHER, {"generateName": f"{self.prefix}-"}, [])

    async def _make(self, namespace: str, metadata: dict[str, str], seconds: list[float]) -> None:
        began = time.monotonic()
        await self.api.create(CONFIGMAPS, {"metadata": metadata}, namespace)
        seconds.append(time.monotonic() - began)
        await asyncio.sleep(PAUSE_SECONDS)


class Placements:
    """How long objects of the other ring had no shard that were made without one, as a watch shows it."""

    def __init__(self, api: Client) -> None:
        #: When each was shown without a shard that has none yet, by name; and for how long others had none.
        self._unplaced: dict[str, float] = {}
        self.placed: list[float] = []
        self._label = parse_ring_name(OTHER).shard
        self._reflector = Reflector(
            api, CONFIGMAPS, namespace=OTHER, handler=self._tell, clock=SystemClock(), rng=random.Random()
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._reflector.run()

    def _tell(self, delta: Delta[PartialObject]) -> None:
        meta = delta.object.metadata
        if delta.old is None and meta.label(self._label) is None:
            self._unplaced[meta.name] = time.monotonic()
        elif meta.label(self._label) is not None and meta.name in self._unplaced:
            self.placed.append(time.monotonic() - self._unplaced.pop(meta.name))

    def since(self, began: int) -> list[float]:
        """Seconds of all but the first `began`, and of those that still have no shard."""
        now = time.monotonic()
        return [*self.placed[began:], *(now - shown for shown in self._unplaced.values())]


@dataclass(slots=True)
class Scene:
    """What is measured on."""

    installation: Installation
    api: Client
    using: Client
    owners: Owners
    placements: Placements
    looks: Path
    say: Say

    @property
    def usage(self) -> Usage:
        """What the sharder has used."""
        (replica,) = self.installation.sharders.values()
        return Usage.of(replica.process.pid)

    async def use(self, prefix: str, until: Any) -> tuple[Users, list[float], list[Look]]:
        """Have users make objects until `until` is done: what they saw, and what the leader wrote down."""
        began, before = time.monotonic(), len(self.placements.placed)
        users = Users(self.using, prefix)
        await users.until(asyncio.ensure_future(until))
        return users, self.placements.since(before), read_looks(self.looks, began, time.monotonic())

    async def settled(self) -> None:
        """Wait until the ring is settled."""
        async with asyncio.timeout(180):
            while not (await self.api.get(CLUSTERRINGS, RING, model=_Ring)).settled:
                await asyncio.sleep(0.5)


async def joining_many(objects: int, say: Say) -> None:
    """`objects` ConfigMaps on two shards; a third joins."""
    print(f"{objects} ConfigMaps on two shards, a third joins", flush=True)
    timings = SharderTimings(lease_duration=15, renew_deadline=10, retry_period=2, staleness=10)
    async with AsyncExitStack() as stack:
        looks = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "looks"
        plane = await stack.enter_async_context(ControlPlane())
        installation = await stack.enter_async_context(Installation(plane, timings, sharder_module="bench.watched"))
        access = await load_access(str(plane.admin_kubeconfig))
        api, watching, using = [await stack.enter_async_context(Client(access)) for _ in range(3)]
        for name in (RING, OTHER, USERS):
            await api.create(NAMESPACES, {"metadata": {"name": name}})
        for name in (RING, OTHER):
            selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
            resources = [{"group": "", "resource": "configmaps"}]
            await installation.ring(name, {"resources": resources, "namespaceSelector": selector})
        shards = [Shard(watching, RING, name, "default") for name in ("one", "two", "three")]
        shards.append(Shard(watching, OTHER, "theirs", "default"))
        for shard in (shards[0], shards[1], shards[3]):
            await shard.start()
        await _create(api, objects)
        # Now, so that it has gone through all of them before its memory is looked at.
        await installation.start_sharder("sharder-1", environment={WATCHED: str(looks)})
        await installation.leader()
        owners, placements = Owners(watching, RING, RING), Placements(watching)
        watches = [asyncio.create_task(each.run()) for each in (owners, placements)]
        await owners.until(lambda counts: counts["one"] + counts["two"] >= objects)
        await _measure(Scene(installation, api, using, owners, placements, looks, say), shards[2], objects)
        for watch in watches:
            watch.cancel()
        for shard in shards:
            shard.crash()


async def _create(api: Client, objects: int) -> None:
    label, ring = parse_ring_name(RING).shard, HashRing(["one", "two"])

    def create(name: str) -> Callable[[], Any]:
        labels = {label: ring.owner(_key(name))}
        return lambda: api.create(CONFIGMAPS, {"metadata": {"name": name, "labels": labels}}, RING)

    await measure(create(f"object-{number}") for number in range(objects))


def _key(name: str) -> str:
    return main_key("", "ConfigMap", RING, name)


async def _measure(scene: Scene, joins: Shard, objects: int) -> None:
    await scene.settled()
    rest, placed_at_rest, _ = await scene.use("rest", asyncio.sleep(REST_SECONDS))
    ring = HashRing(["one", "two", "three"])
    moving = sum(ring.owner(_key(f"object-{number}")) == "three" for number in range(objects))
    before, began = scene.usage, time.perf_counter()
    await joins.start()
    moved = scene.owners.until(lambda counts: counts["three"] >= moving, timeout_seconds=600)
    busy, placed, looks = await scene.use("busy", moved)
    seconds, after = time.perf_counter() - began, scene.usage
    await scene.settled()
    await asyncio.sleep(AFTER_SECONDS)
    later = scene.usage
    patching = measure(patches(scene.api, RING, "object", min(objects, MOST_PATCHED)), PATCHING)
    raw, _, _ = await scene.use("raw", patching)
    say = scene.say
    say("join: objects moved", moving, "")
    say("join: rate", moving / seconds, "objects/s")
    say("join: CPU per move", (after.cpu_seconds - before.cpu_seconds) * 1000 / max(moving, 1), "ms")
    say("join: a write waits for a connection, longest", max(look.write_waited for look in looks), "s")
    say("join: the leader's loop is late, most", max(look.loop_late for look in looks), "s")
    say("join: another ring's object is placed after, p99", _p99(placed), "s", f"[{_p99(placed_at_rest):.3f} at rest]")
    say("join: … longest", max(placed), "s", f"[{len(placed)} objects]")
    beside = f"[{_p99(rest.named) * 1000:.0f} at rest, {_p99(raw.named) * 1000:.0f} beside {PATCHING} plain clients]"
    say("join: a user's create in another ring, p99", _p99(busy.named) * 1000, "ms", beside)
    beside = f"[{_p99(rest.plain) * 1000:.0f} at rest, {_p99(raw.plain) * 1000:.0f} beside {PATCHING} plain clients]"
    say("join: a user's create in no ring, p99", _p99(busy.plain) * 1000, "ms", beside)
    say("join: memory before", before.resident_mib, "MiB")
    say("join: memory at the end", after.resident_mib, "MiB")
    say("join: memory once settled", later.resident_mib, "MiB", f"[{later.resident_mib - before.resident_mib:+.1f}]")


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]
