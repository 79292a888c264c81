"""What a handover by ranges costs, beside one by labels on the same objects: a shard joins, leaves, is killed.

Real shards of the SDK, which reconcile by writing down when; a sharder; an API server that filters watches.
"""

from __future__ import annotations

import asyncio
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.load import CONFIGMAPS, Usage, measure
from bench.noting import NOTES
from localcluster import ControlPlane
from localcluster.installation import Installation, SharderTimings
from shardsdk.errors import NotFound
from shardsdk.kube.access import load_access
from shardsdk.kube.api import RawRequest
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.reflector import Delta, Reflector
from shardsdk.kube.selectors import Selector, absent, differs, equals, exists, join
from shardsdk.protocol.labels import LEASE_RING_LABEL, parse_ring_name
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.namespaces import LEFT_OUT
from shardsdk.protocol.objects import LEASES, NAMESPACES, PartialObject
from shardsdk.protocol.ranges import RING_ASSIGNMENTS, HashBy, Named, named_by, point_of

RING: Final = "handover"
SHARDS: Final = ("one", "two", "three")
JOINS: Final = "four"
WAYS: Final = ("Labels", "Ranges")
MOST_RAW: Final = 2_000
#: So often users create objects that the ring covers and others, one after the other, so many of each.  Where there are
#: few, chance is all that is measured, however often.
ROUNDS: Final = 10
FEW_ROUNDS: Final = 2
MOST_IN_ROUND: Final = 200
#: Where no ring covers anything.
OUTSIDE: Final = "kube-system"
LOOK_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 600.0
_PATCHED: Final = re.compile(
    r'^apiserver_request_total\{.*resource="(?:configmaps|ringassignments)".*verb="(?:PATCH|POST|PUT)".*\} (\S+)$',
    re.MULTILINE,
)

#: What a ring covers that does not say.
_COVERED: Final = join(*(differs("metadata.namespace", each) for each in sorted(LEFT_OUT)))

Say = Callable[..., None]
Key = tuple[str, str]


@dataclass(slots=True)
class Notes:
    """What one shard has written down: when it began each object last, and first since `forget`."""

    path: Path
    first: dict[Key, float] = field(default_factory=dict)
    _read: int = 0

    def look(self) -> None:
        """Read what is new."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode().splitlines():
            began, namespace, name = line.split(" ")
            self.first.setdefault((namespace, name), float(began))

    def forget(self) -> None:
        """Count from now on."""
        self.look()
        self.first.clear()


@dataclass(slots=True)
class Scene:
    """What is measured on, one way of assigning."""

    way: str
    installation: Installation
    api: Client
    folder: Path
    objects: int
    say: Say
    notes: dict[str, Notes] = field(default_factory=dict)
    #: By which shards reach the API server, if not as everybody does.
    kubeconfigs: dict[str, Path] = field(default_factory=dict)
    #: When nobody was named any more for a range that a shard had, by the watch.
    revoked: list[tuple[float, Named]] = field(default_factory=list)
    #: Changes of what shards say in their Leases that they hold.
    held: int = 0

    @property
    def usage(self) -> Usage:
        """What the sharder has used."""
        (replica,) = self.installation.sharders.values()
        return Usage.of(replica.process.pid)

    async def start(self, *names: str) -> None:
        """Start shards, each a process."""
        for name in names:
            self.notes[name] = Notes(self.folder / f"{self.way}-{name}")
            await self.installation.start_shard(
                name,
                module="bench.noting",
                arguments=["--ring", RING],
                kubeconfig=self.kubeconfigs.get(name, self.installation.plane.admin_kubeconfig),
                environment={NOTES: str(self.notes[name].path)},
            )

    @contextmanager
    def shards_standing_still(self) -> Iterator[None]:
        """Have shards do nothing: what they do with objects takes of the same cores."""
        for shard in self.installation.shards.values():
            shard.pause()
        try:
            yield
        finally:
            for shard in self.installation.shards.values():
                shard.resume()

    def forget(self) -> None:
        """Count from now on."""
        for notes in self.notes.values():
            notes.forget()

    async def keys(self) -> dict[Key, PartialObject]:
        """All objects of the ring."""
        return {
            (each.metadata.namespace or "", each.metadata.name): each
            async for page in self.api.pages(CONFIGMAPS)
            for each in page
            if each.metadata.namespace and each.metadata.namespace.startswith("team-")
        }

    async def owners(self, wanted: Iterable[str], gone: Iterable[str]) -> dict[Key, str]:
        """Whose each object is, once each of `wanted` has some, nobody of `gone` has, and nothing is on its way."""
        if self.way == "Labels":
            labels = parse_ring_name(RING)
            has = [equals(labels.shard, name) for name in wanted]
            hasnt = [absent(labels.shard), exists(labels.drain), *(equals(labels.shard, name) for name in gone)]
            if not all([await self._any(each) for each in has]) or any([await self._any(each) for each in hasnt]):
                return {}
            return {key: each.metadata.label(labels.shard) or "" for key, each in (await self.keys()).items()}
        try:
            named = named_by(await self.api.get(RING_ASSIGNMENTS, RING, model=dict), HashBy.NAMESPACE)
        except NotFound:
            return {}
        if named.nobodys or not set(wanted) <= set(named.shards) or set(gone) & set(named.shards):
            return {}
        return {key: named.shard_at(point_of(key[0])) or "" for key in await self.keys()}

    async def _any(self, labels: str) -> bool:
        """Whether anything is selected by these; a look that costs the same however much there is."""
        async for page in self.api.pages(CONFIGMAPS, selector=Selector(labels, _COVERED), limit=1):
            return bool(page)
        return False

    async def until_owned(self, wanted: Iterable[str], gone: Iterable[str] = ()) -> dict[Key, str]:
        """Wait until each of `wanted` has objects, nobody of `gone` has, and nothing is on its way.

        Raises: ComponentFailed when one of `wanted` has ended, which loses its lease when the machine is too busy.
        """
        wanted = list(wanted)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                if owners := await self.owners(wanted, gone):
                    return owners
                for shard in (self.installation.shards[name] for name in wanted):
                    if not shard.running:
                        raise shard.failure("ended")
                await asyncio.sleep(LOOK_SECONDS)

    async def until_begun(self, owners: dict[Key, str], which: Iterable[Key]) -> list[float]:
        """Wait until the owner of each of these has begun it since `forget`; when."""
        waiting, moments = set(which), []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while waiting:
                for notes in self.notes.values():
                    notes.look()
                begun = {key: self.notes[owners[key]].first.get(key) for key in waiting}
                moments += [at for at in begun.values() if at is not None]
                waiting = {key for key, at in begun.items() if at is None}
                await asyncio.sleep(LOOK_SECONDS)
        return moments

    async def writes(self) -> float:
        """Writes of objects and of the assignment that the API server has answered, and of held ranges."""
        metrics = (await self.api.exchange(RawRequest("GET", "/metrics"))).decode()
        return sum(float(value) for value in _PATCHED.findall(metrics)) + self.held

    def on_assignment(self, delta: Delta[dict[str, Any]]) -> None:
        """Note who is named."""
        self.revoked.append((time.monotonic(), named_by(delta.object, HashBy.NAMESPACE)))

    def on_lease(self, delta: Delta[Lease]) -> None:
        """Count changes of held ranges."""
        before = delta.old.held_ranges if delta.old else None
        self.held += before is not None and before != delta.object.held_ranges


async def handing_over(objects: int, say: Say) -> None:
    """Measure both ways."""
    for way in WAYS:
        print(f"{way}: {objects} ConfigMaps on three shards of the SDK; a fourth joins, leaves, and one is killed")
        await _one_way(way, objects, say)


async def _one_way(way: str, objects: int, say: Say) -> None:
    timings = SharderTimings(lease_duration=15, renew_deadline=10, retry_period=2, staleness=10)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plane = await stack.enter_async_context(ControlPlane(feature_gates={"ShardedListAndWatch": True}))
        installation = await stack.enter_async_context(Installation(plane, timings))
        api = await stack.enter_async_context(Client(await load_access(str(plane.admin_kubeconfig))))
        namespaces = [f"team-{number}" for number in range(max(objects // 100, 16))]
        for name in namespaces:
            await api.create(NAMESPACES, {"metadata": {"name": name}})
        scene = Scene(way, installation, api, folder, objects, say)
        raw = await measure(_creates(api, "raw", min(objects, MOST_RAW), namespaces))
        spec: dict[str, Any] = {"resources": [{"group": "", "resource": "configmaps"}]}
        if way == "Ranges":
            spec |= {"assignment": "Ranges", "hashBy": "Namespace"}
        await installation.ring(RING, spec)
        await installation.start_sharder("sharder-1")
        await installation.leader()
        watches = [asyncio.create_task(each.run()) for each in _watches(scene)]
        await scene.start(*SHARDS)
        await scene.until_owned(SHARDS)
        await _measure(scene, raw.rate, namespaces)
        for watch in watches:
            watch.cancel()


def _creates(api: Client, prefix: str, count: int, namespaces: Sequence[str]) -> list[Callable[[], Any]]:
    """Creates of so many ConfigMaps, spread over the namespaces."""

    def create(number: int) -> Callable[[], Any]:
        body = {"metadata": {"name": f"{prefix}-{number}"}}
        return lambda: api.create(CONFIGMAPS, body, namespaces[number % len(namespaces)])

    return [create(number) for number in range(count)]


def _watches(scene: Scene) -> list[Reflector[Any]]:
    if scene.way == "Labels":
        return []
    ours = Selector(equals(LEASE_RING_LABEL, RING))
    clock, rng = SystemClock(), random.Random()
    return [
        Reflector(scene.api, RING_ASSIGNMENTS, model=dict, handler=scene.on_assignment, clock=clock, rng=rng),
        Reflector(scene.api, LEASES, selector=ours, model=Lease, handler=scene.on_lease, clock=clock, rng=rng),
    ]


async def _measure(scene: Scene, raw: float, namespaces: Sequence[str]) -> None:
    say, way = scene.say, scene.way.lower()
    empty = scene.usage
    say(f"{way}: sharder's memory before", empty.resident_mib, "MiB")

    made = await measure(_creates(scene.api, "object", scene.objects, namespaces))
    say(f"{way}: creates", made.rate, "/s", f"[{raw:.0f} without the ring: {made.rate / raw:.2f}]")
    owners = await scene.until_owned(SHARDS)
    await scene.until_begun(owners, owners)
    full, began = scene.usage, time.monotonic()
    await scene.keys()
    say(f"{way}: a plain client lists all objects in", time.monotonic() - began, "s")
    say(f"{way}: sharder's CPU, of each object", (full.cpu_seconds - empty.cpu_seconds) * 1000 / scene.objects, "ms")
    say(f"{way}: sharder's memory with all objects", full.resident_mib, "MiB")
    await _creating(scene, namespaces)
    owners = await scene.until_owned(SHARDS)
    await _changing(scene, "a shard joins", owners, scene.start(JOINS), [*SHARDS, JOINS])
    owners = await scene.until_owned([*SHARDS, JOINS])
    await _changing(scene, "a shard leaves", owners, _stop(scene), SHARDS, gone=JOINS)
    owners = await scene.until_owned(SHARDS)
    victim = SHARDS[0]
    await _changing(
        scene, "a shard is killed", owners, scene.installation.shards[victim].kill(), SHARDS[1:], gone=victim
    )


async def _creating(scene: Scene, namespaces: Sequence[str]) -> None:
    """What the ring costs users who create: as many objects in it and outside of it, while no shard works."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    count = min(scene.objects, MOST_IN_ROUND)
    for turn in range(ROUNDS if count == MOST_IN_ROUND else FEW_ROUNDS):
        with scene.shards_standing_still():  # for a moment, so that nobody loses a lease
            for covered in (True, False) if turn % 2 else (False, True):
                place = namespaces[0] if covered else OUTSIDE
                rates[covered].append((await measure(_creates(scene.api, f"turn-{turn}", count, [place]))).rate)
        owners = await scene.until_owned(SHARDS)
        made = [key for key in owners if key[1].startswith(f"turn-{turn}-")]
        await scene.until_begun(owners, made)
        await measure([partial(scene.api.delete, CONFIGMAPS, name, namespace) for namespace, name in made])
    inside, outside = (statistics.median(rates[covered]) for covered in (True, False))
    ratio = inside / outside
    scene.say(f"{scene.way.lower()}: creates in the ring, of those outside", ratio, "", f"[{outside:.0f}/s outside]")


async def _stop(scene: Scene) -> None:
    await scene.installation.shards[JOINS].stop()


async def _changing(
    scene: Scene, what: str, before: dict[Key, str], change: Any, wanted: Iterable[str], *, gone: str = ""
) -> None:
    """Make a change, and wait until each object that moves was begun by its new owner."""
    versions = {key: each.metadata.resource_version for key, each in (await scene.keys()).items()}
    scene.forget()
    scene.revoked.clear()
    writes, cpu = await scene.writes(), scene.usage.cpu_seconds
    began = time.monotonic()
    await change
    owners = await scene.until_owned(wanted, [gone] if gone else [])
    moved = [key for key, owner in owners.items() if before.get(key) != owner]
    moments = await scene.until_begun(owners, moved)
    after = await scene.keys()
    say, name = scene.say, f"{scene.way.lower()}: {what}"
    say(f"{name}: objects moved", len(moved), "")
    say(f"{name}: last of them is reconciled after", max(moments, default=began) - began, "s")
    say(f"{name}: writes", await scene.writes() - writes, "", "[of objects, the assignment, held ranges]")
    changed = sum(versions.get(key) != each.metadata.resource_version for key, each in after.items())
    say(f"{name}: objects written", changed, "")
    say(f"{name}: sharder's CPU", (scene.usage.cpu_seconds - cpu) * 1000, "ms")
    if not gone and scene.way == "Ranges":
        say(f"{name}: without an owner, longest", _unowned(scene, moved), "s")


def _unowned(scene: Scene, moved: list[Key]) -> float:
    """Seconds from the moment at which nobody was named for an object until its new owner began with it."""
    longest = 0.0
    for key in moved:
        point = point_of(key[0])
        left = next((at for at, named in scene.revoked if named.shard_at(point) is None), None)
        begun = next((at for notes in scene.notes.values() if (at := notes.first.get(key)) is not None), None)
        if left is not None and begun is not None:
            longest = max(longest, begun - left)
    return longest
