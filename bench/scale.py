"""Many objects, namespaces, shards and rings: what rest, a pass over all, and a shard that joins and leaves cost.

One ring of three shards has the objects, in many namespaces; other rings share the other shards and stand by.
Each figure has its limit from the same run: rest without objects, a plain client that lists them all, and plain
clients that patch them.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from bench.load import CONFIGMAPS, Usage, creates, measure
from bench.shards import Owners, Shard, due_to
from bench.users import USERS, Seen, Users, p99, settled
from bench.watched import WATCHED, Look, read_looks
from localcluster import ControlPlane
from localcluster.installation import Installation, SharderTimings
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import NAMESPACES

RING: Final = "scale"
#: Where users make objects of another ring; its ring has the same name.
OTHER: Final = "scale-1"
#: Who takes part in the large ring, and who joins it and leaves it.
SHARDS: Final = ("one", "two", "three")
JOINS: Final = "four"
PATCHING: Final = 48
MOST_PATCHED: Final = 5_000
AFTER_SECONDS: Final = 5.0
#: How long users are looked at while nothing moves.
QUIET_SECONDS: Final = 10.0

Say = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is; `rest_seconds`: how long rest is looked at."""

    objects: int
    namespaces: int
    rest_seconds: float
    shards: int
    rings: int

    def namespace(self, number: int) -> str:
        """Where object `number` is."""
        return f"team-{number % self.namespaces}"


@dataclass(slots=True)
class Scene:
    """What is measured on."""

    size: Size
    installation: Installation
    api: Client
    kubeconfig: Path
    owners: Owners
    looks: Path
    say: Say

    @property
    def usage(self) -> Usage:
        """What the sharder has used."""
        (replica,) = self.installation.sharders.values()
        return Usage.of(replica.process.pid)

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of what the sharder says of a metric."""
        (replica,) = self.installation.sharders.values()
        families = text_string_to_metric_families(await self.installation.metrics(replica))
        samples = (each for family in families for each in family.samples if each.name == name)
        return sum(each.value for each in samples if labels.items() <= each.labels.items())

    async def until_passed(self, timeout_seconds: float = 600.0) -> None:
        """Wait until this process has gone through all objects of the ring.  Raises: TimeoutError."""
        async with asyncio.timeout(timeout_seconds):
            while not await self.metric("controller_sharding_resync_duration_seconds_count", ringName=RING):
                await asyncio.sleep(0.1)

    async def use(self, prefix: str, until: Any) -> tuple[Seen, list[Look]]:
        """Have users make objects until `until` is done: what they saw, and what the leader wrote down."""
        began = time.monotonic()
        seen = await Users(self.kubeconfig, prefix, OTHER).until(until)
        return seen, read_looks(self.looks, began, time.monotonic())


async def scaling(size: Size, say: Say) -> None:
    """Measure all of it."""
    print(
        f"{size.objects} ConfigMaps in {size.namespaces} namespaces, {size.shards} shards, {size.rings} rings",
        flush=True,
    )
    timings = SharderTimings(lease_duration=15, renew_deadline=10, retry_period=2, staleness=10)
    async with AsyncExitStack() as stack:
        looks = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "looks"
        plane = await stack.enter_async_context(ControlPlane())
        installation = await stack.enter_async_context(Installation(plane, timings, sharder_module="bench.watched"))
        access = await load_access(str(plane.admin_kubeconfig))
        api, watching = [await stack.enter_async_context(Client(access)) for _ in range(2)]
        await _declare(installation, api, size)
        shards = await _start_shards(watching, size)
        owners = Owners(watching, RING, None)
        watch = asyncio.create_task(owners.run())
        await installation.start_sharder("sharder-1", environment={WATCHED: str(looks)})
        await installation.leader()
        await _measure(Scene(size, installation, api, plane.admin_kubeconfig, owners, looks, say), watching)
        watch.cancel()
        for shard in shards:
            shard.crash()


async def _declare(installation: Installation, api: Client, size: Size) -> None:
    resources = [{"group": "", "resource": "configmaps"}]
    for number in range(size.rings):
        name = f"{RING}-{number}" if number else RING
        await installation.ring(name, {"resources": resources, "namespaceSelector": {"matchLabels": {"bench": name}}})
    named = [(USERS, {}), (OTHER, {"bench": OTHER})]
    named += [(f"team-{number}", {"bench": RING}) for number in range(size.namespaces)]

    def create(name: str, labels: dict[str, str]) -> Callable[[], Any]:
        return lambda: api.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})

    await measure(create(name, labels) for name, labels in named)


async def _start_shards(api: Client, size: Size) -> list[Shard]:
    shards = [Shard(api, RING, name, "default") for name in SHARDS]
    for number in range(max(size.shards - len(SHARDS), 1)):
        ring = f"{RING}-{1 + number % (size.rings - 1)}"
        shards.append(Shard(api, ring, f"other-{number}", "default"))
    for shard in shards:
        await shard.start()
    return shards


async def _measure(scene: Scene, watching: Client) -> None:
    await settled(scene.api, RING)
    empty = await _rest(scene, "without objects", "")
    await _create(scene)
    await scene.owners.until(lambda counts: sum(counts[name] for name in SHARDS) >= scene.size.objects)
    await settled(scene.api, RING)
    await _rest(scene, f"with {scene.size.objects} objects", f"[{empty:.1f} without any]")
    await _pass(scene)
    quiet, _ = await scene.use("quiet", asyncio.sleep(min(scene.size.rest_seconds, QUIET_SECONDS)))
    joins = Shard(watching, RING, JOINS, "default")
    expected = await due_to(JOINS, scene.api, RING, SHARDS)
    await _move(scene, "a shard joins", quiet, joins.start, lambda counts: counts[JOINS] >= expected)
    await _move(scene, "a shard leaves", quiet, joins.release, lambda counts: counts[JOINS] == 0)


async def _rest(scene: Scene, when: str, limit: str) -> float:
    """Returns the leader's CPU in thousandths of a core."""
    before, asked = scene.usage, await scene.metric("controller_sharding_api_requests_total")
    # What rest costs can only be measured by resting.
    await asyncio.sleep(scene.size.rest_seconds)
    after, asked_after = scene.usage, await scene.metric("controller_sharding_api_requests_total")
    minutes = scene.size.rest_seconds / 60
    millicores = (after.cpu_seconds - before.cpu_seconds) / scene.size.rest_seconds * 1000
    scene.say(f"rest {when}: CPU", millicores, "millicores", limit)
    scene.say(f"rest {when}: requests", (asked_after - asked) / minutes, "/min")
    scene.say(f"rest {when}: resident memory", after.resident_mib, "MiB")
    return millicores


async def _create(scene: Scene) -> None:
    def create(number: int) -> Callable[[], Any]:
        body = {"metadata": {"name": f"object-{number}"}}
        return lambda: scene.api.create(CONFIGMAPS, body, scene.size.namespace(number))

    raw = await measure(creates(scene.api, USERS, "raw", min(scene.size.objects, MOST_PATCHED)))
    before = scene.usage
    made = await measure(create(number) for number in range(scene.size.objects))
    scene.say("creates through the ring", made.rate, "/s", f"[{raw.rate:.0f} raw]")
    cpu = (scene.usage.cpu_seconds - before.cpu_seconds) * 1000 / scene.size.objects
    scene.say("creates through the ring: CPU of each", cpu, "ms")


async def _pass(scene: Scene) -> None:
    """A sharder that starts goes through all objects once."""
    (replica,) = scene.installation.sharders.values()
    began = time.perf_counter()
    async for _ in scene.api.pages(CONFIGMAPS):
        pass
    listed = time.perf_counter() - began
    await replica.process.stop()
    began = time.perf_counter()
    replica.process.start()
    await scene.installation.ready(replica)
    await scene.until_passed()
    say = scene.say
    say("a sharder starts, and has gone through all after", time.perf_counter() - began, "s")
    seconds = await scene.metric("controller_sharding_resync_duration_seconds_sum", ringName=RING)
    count = await scene.metric("controller_sharding_resync_objects", ringName=RING)
    say("… the pass itself", seconds, "s", f"[{listed:.1f} s to list them with a plain client]")
    say("… objects that it looked at", count, "")
    say("… CPU since its start, of each object", scene.usage.cpu_seconds * 1000 / max(count, 1), "ms")
    await settled(scene.api, RING)


async def _move(scene: Scene, name: str, quiet: Seen, change: Callable[[], Any], ended: Callable[[Any], bool]) -> None:
    before, counted = scene.usage, scene.owners.counts.copy()
    peak = _Peak(scene)

    async def moving() -> None:
        await change()
        await scene.owners.until(ended, timeout_seconds=1800)

    async with peak:
        busy, looks = await scene.use(name.replace(" ", "-"), moving())
        after = scene.usage
        await settled(scene.api, RING, timeout_seconds=1800)
    moved = abs(scene.owners.counts[JOINS] - counted[JOINS])
    await asyncio.sleep(AFTER_SECONDS)
    raw = await measure(_patches(scene), PATCHING)
    say = scene.say
    say(f"{name}: objects moved", moved, "")
    say(f"{name}: rate", moved / busy.lasted, "objects/s", f"[{raw.rate:.0f} raw patches/s]")
    say(f"{name}: CPU per move", (after.cpu_seconds - before.cpu_seconds) * 1000 / max(moved, 1), "ms")
    say(f"{name}: memory, most", peak.mib, "MiB", f"[{peak.mib - before.resident_mib:+.1f}]")
    say(f"{name}: memory once settled", scene.usage.resident_mib, "MiB")
    say(f"{name}: the leader's loop is late, most", max(look.loop_late for look in looks), "s")
    for where, times, resting in (("another ring", busy.named, quiet.named), ("no ring", busy.plain, quiet.plain)):
        say(f"{name}: a user's create in {where}, p99", p99(times) * 1000, "ms", f"[{p99(resting) * 1000:.0f} at rest]")


class _Peak:
    """The most memory that the sharder had while within."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.mib = scene.usage.resident_mib

    async def __aenter__(self) -> _Peak:
        self._task = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        self.mib = max(self.mib, self._scene.usage.resident_mib)

    async def _look(self) -> None:
        while True:
            self.mib = max(self.mib, self._scene.usage.resident_mib)
            await asyncio.sleep(0.25)


def _patches(scene: Scene) -> list[Callable[[], Any]]:
    """Small merge patches of some of the objects, as the sharder's are."""
    label = parse_ring_name(RING).drain + "-bench"

    def patch(number: int) -> Callable[[], Any]:
        body = {"metadata": {"annotations": {label: str(time.monotonic())}}}
        return lambda: scene.api.patch(CONFIGMAPS, f"object-{number}", scene.size.namespace(number), body)

    return [patch(number) for number in range(min(scene.size.objects, MOST_PATCHED))]
