"""Many objects when a shard joins: how long writes wait for a connection, what another ring and users notice."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.load import CONFIGMAPS, Usage, measure, patches
from bench.shards import Owners, Shard
from bench.users import USERS, Placements, Seen, Users, p99, settled
from bench.watched import WATCHED, Look, read_looks
from localcluster import ControlPlane
from localcluster.installation import Installation, SharderTimings
from sharder.core.hashring import HashRing
from sharder.core.keys import main_key
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import NAMESPACES

#: The ring whose objects move, and one of the same leader that has nothing to do with it; their namespaces, too.
RING: Final = "join"
OTHER: Final = "other"
#: How long the machine is looked at at rest, and the sharder's memory after the ring is settled.
REST_SECONDS: Final = 10.0
AFTER_SECONDS: Final = 5.0
#: Connections of the plain clients that patch as many objects as the sharder does at once.
PATCHING: Final = 48
MOST_PATCHED: Final = 5_000

Say = Callable[..., None]


@dataclass(slots=True)
class Scene:
    """What is measured on."""

    installation: Installation
    api: Client
    kubeconfig: Path
    owners: Owners
    placements: Placements
    looks: Path
    say: Say

    @property
    def usage(self) -> Usage:
        """What the sharder has used."""
        (replica,) = self.installation.sharders.values()
        return Usage.of(replica.process.pid)

    async def use(self, prefix: str, until: Any) -> tuple[Seen, list[float], list[Look]]:
        """Have users make objects until `until` is done: what they saw, and what the leader wrote down."""
        began, before = time.monotonic(), len(self.placements.placed)
        seen = await Users(self.kubeconfig, prefix, OTHER).until(until)
        looks = read_looks(self.looks, began, time.monotonic())
        return seen, await self.placements.since(before, seen.unnamed), looks

    async def settled(self) -> None:
        """Wait until the ring is settled."""
        await settled(self.api, RING)


async def joining_many(objects: int, rest_seconds: float, say: Say) -> None:
    """`objects` ConfigMaps on two shards; a third joins.  `rest_seconds`: how long rest is looked at, at most."""
    print(f"{objects} ConfigMaps on two shards, a third joins", flush=True)
    timings = SharderTimings(lease_duration=15, renew_deadline=10, retry_period=2, staleness=10)
    async with AsyncExitStack() as stack:
        looks = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "looks"
        plane = await stack.enter_async_context(ControlPlane())
        installation = await stack.enter_async_context(Installation(plane, timings, sharder_module="bench.watched"))
        access = await load_access(str(plane.admin_kubeconfig))
        api, watching = [await stack.enter_async_context(Client(access)) for _ in range(2)]
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
        owners, placements = Owners(watching, RING, RING), Placements(watching, OTHER)
        watches = [asyncio.create_task(each.run()) for each in (owners, placements)]
        await owners.until(lambda counts: counts["one"] + counts["two"] >= objects)
        scene = Scene(installation, api, plane.admin_kubeconfig, owners, placements, looks, say)
        await _measure(scene, shards[2], objects, rest_seconds)
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


async def _measure(scene: Scene, joins: Shard, objects: int, rest_seconds: float) -> None:
    await scene.settled()
    rest, placed_at_rest, _ = await scene.use("rest", asyncio.sleep(min(REST_SECONDS, rest_seconds)))
    ring = HashRing(["one", "two", "three"])
    moving = sum(ring.owner(_key(f"object-{number}")) == "three" for number in range(objects))

    async def join() -> None:
        await joins.start()
        await scene.owners.until(lambda counts: counts["three"] >= moving, timeout_seconds=600)

    before = scene.usage
    busy, placed, looks = await scene.use("busy", join())
    after = scene.usage
    await scene.settled()
    await asyncio.sleep(min(AFTER_SECONDS, rest_seconds))
    later = scene.usage
    patching = measure(patches(scene.api, RING, "object", min(objects, MOST_PATCHED)), PATCHING)
    raw, _, _ = await scene.use("raw", patching)
    say = scene.say
    say("join: objects moved", moving, "")
    say("join: rate", moving / busy.lasted, "objects/s")
    say("join: CPU per move", (after.cpu_seconds - before.cpu_seconds) * 1000 / max(moving, 1), "ms")
    say("join: a write waits for a connection, longest", max(look.write_waited for look in looks), "s")
    say("join: the leader's loop is late, most", max(look.loop_late for look in looks), "s")
    say("join: another ring's object is placed after, p99", p99(placed), "s", f"[{p99(placed_at_rest):.3f} at rest]")
    say("join: … longest", max(placed), "s", f"[{len(placed)} objects]")
    beside = f"[{p99(rest.named) * 1000:.0f} at rest, {p99(raw.named) * 1000:.0f} beside {PATCHING} plain clients]"
    say("join: a user's create in another ring, p99", p99(busy.named) * 1000, "ms", beside)
    beside = f"[{p99(rest.plain) * 1000:.0f} at rest, {p99(raw.plain) * 1000:.0f} beside {PATCHING} plain clients]"
    say("join: a user's create in no ring, p99", p99(busy.plain) * 1000, "ms", beside)
    say("join: memory before", before.resident_mib, "MiB")
    say("join: memory at the end", after.resident_mib, "MiB")
    say("join: memory once settled", later.resident_mib, "MiB", f"[{later.resident_mib - before.resident_mib:+.1f}]")
