"""Whether every object has one owner, now and at every moment before.

Everything is read from the API server as an administrator; of the project only
label names are taken over.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from localcluster import AdminError
from shardsdk.protocol.labels import LEASE_RING_LABEL, RingLabels, parse_ring_name
from tests.integration.chronicle import LEASES, Chronicle, Version
from tests.node.clusters import Cluster, Complaints, until_right

RINGS: Final = "sharding.timebertt.dev/v1alpha1/clusterrings"
SECRETS: Final = "v1/secrets"
CONFIGMAPS: Final = "v1/configmaps"
#: Complaints that one can read at once.
SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class World:
    """A ring of Secrets with their ConfigMaps in `objects`, whose shards are pods in `namespace`."""

    cluster: Cluster
    ring: str
    namespace: str
    objects: str
    pods: str

    async def settled(self, shards: int) -> Counter[str]:
        """Wait until there are so many shards and every object has one owner; returns how many each has."""
        found: Counter[str] = await until_right(lambda: self._check(shards))
        return found

    async def _check(self, shards: int) -> Counter[str]:
        admin = self.cluster.admin
        view = View(
            await self.cluster.ready_pods(self.namespace, self.pods),
            await admin.list(LEASES, self.namespace, labels=f"{LEASE_RING_LABEL}={self.ring}"),
            await admin.get(RINGS, self.ring),
            await admin.list(SECRETS, self.objects),
            await admin.list(CONFIGMAPS, self.objects),
        )
        owners, wrong = judge(view, parse_ring_name(self.ring), shards)
        if wrong:
            more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
            raise Complaints("; ".join(wrong[:SHOWN]) + more)
        return owners


@dataclass(frozen=True, slots=True)
class View:
    """What the API server says at about one moment; `ready` are names of pods."""

    ready: list[str]
    leases: list[dict[str, Any]]
    ring: dict[str, Any]
    secrets: list[dict[str, Any]]
    children: list[dict[str, Any]]


def judge(view: View, labels: RingLabels, shards: int) -> tuple[Counter[str], list[str]]:
    """How many objects each shard has, and what is not as it should be with so many shards."""
    holding = sorted(each["metadata"]["name"] for each in view.leases if held_by_itself(each))
    children = {each["metadata"]["name"]: each for each in view.children}
    wrong = [
        f"the ring is not {condition}: {view.ring.get('status')}"
        for condition in ("Ready", "Settled")
        if status_of(view.ring, condition) != "True"
    ]
    if len(holding) != shards or view.ready != holding:
        wrong.append(f"pods {view.ready} are ready, leases are held by {holding}, not {shards} of each")
    owners: Counter[str] = Counter(dict.fromkeys(holding, 0))
    for secret in view.secrets:
        name, carried = secret["metadata"]["name"], secret["metadata"].get("labels") or {}
        shard, child = carried.get(labels.shard, ""), children.get(f"{name}-checksum")
        if shard not in holding or labels.drain in carried:
            wrong.append(f"{name} carries {carried}")
        elif child is None or child.get("data") != {"sha256": checksum(secret)}:
            wrong.append(f"{name} has the ConfigMap {child and child.get('data')}, not {checksum(secret)}")
        elif (child["metadata"].get("labels") or {}).get(labels.shard) != shard:
            wrong.append(f"{name} is on {shard}, its ConfigMap carries {child['metadata'].get('labels')}")
        else:
            owners[shard] += 1
    return owners, wrong


def held_by_itself(lease: dict[str, Any]) -> bool:
    """Whether a shard holds its own lease."""
    return bool(lease["spec"].get("holderIdentity") == lease["metadata"]["name"])


def status_of(item: dict[str, Any], condition: str) -> str:
    """Of a condition: True, False or Unknown."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((str(each["status"]) for each in conditions if each["type"] == condition), "Unknown")


def checksum(secret: dict[str, Any]) -> str:
    """What the example controller makes of a Secret; written out anew."""
    digest = hashlib.sha256()
    for key, value in sorted((secret.get("data") or {}).items()):
        digest.update(key.encode() + b"\0" + base64.b64decode(value) + b"\0")
    return digest.hexdigest()


@asynccontextmanager
async def watched(world: World) -> AsyncIterator[None]:
    """While it is entered, nobody but an object's shard gives it away, unless its lease was taken over before.

    Checked at the end, from every version of every object and lease.
    """
    ring = parse_ring_name(world.ring)
    admin = world.cluster.admin
    async with (
        Chronicle(admin, ring, world.objects, SECRETS) as secrets,
        Chronicle(admin, ring, world.namespace) as leases,
    ):
        yield
        await secrets.caught_up()
        await leases.caught_up()
        assert taken_from_the_living(secrets.steps([SECRETS]), leases.lease) == []


def taken_from_the_living(
    steps: Iterable[tuple[Version, Version]], lease: Callable[[str], Sequence[Version]]
) -> list[str]:
    """Each time an object left a shard that held its own `lease` and had not been asked to let go."""
    wrong = []
    for before, after in steps:
        if before.deleted or after.deleted or before.shard is None or before.shard == after.shard:
            continue
        held = [each for each in lease(before.shard) if each.at < after.at]
        away = not held or held[-1].deleted or held[-1].holder != before.shard
        if not (away or before.draining):
            wrong.append(f"{before.name} left {before.shard} for {after.shard} at {after.at}, without a drain")
    return wrong


@dataclass(slots=True)
class Writing:
    """Writes Secrets: creates some, changes some, deletes some; `unlabelled` came back without a shard."""

    world: World
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    created: int = 0
    unlabelled: int = 0
    there: list[str] = field(default_factory=list)

    async def create(self, number: int) -> None:
        """Create one Secret."""
        name = f"s-{number}"
        body = {"metadata": {"name": name}, "stringData": {"value": f"{number}"}}
        made = await self.world.cluster.admin.create(SECRETS, body, self.world.objects)
        self.created += 1
        self.unlabelled += parse_ring_name(self.world.ring).shard not in (made["metadata"].get("labels") or {})
        self.there.append(name)

    async def go_on(self, first: int, most: int = 150) -> None:
        """Write until cancelled; never more than `most` objects are there."""
        admin, objects = self.world.cluster.admin, self.world.objects
        for number in itertools.count(first):
            if len(self.there) < most:
                await self.create(number)
            changed = self.rng.choice(self.there)
            await admin.patch(SECRETS, changed, {"stringData": {"value": f"changed-{number}"}}, objects)
            if len(self.there) >= most // 2:
                deleted = self.there.pop(self.rng.randrange(len(self.there)))
                await admin.delete(SECRETS, deleted, objects)
            # A pace that leaves two cores to the pods.
            await asyncio.sleep(0.1)


@asynccontextmanager
async def writing(world: World, first: int) -> AsyncIterator[Writing]:
    """Secrets are written meanwhile; a write that the API server refuses fails the test."""
    writer = Writing(world, random.Random(first))
    writer.there = [each["metadata"]["name"] for each in await world.cluster.admin.list(SECRETS, world.objects)]
    task = asyncio.create_task(writer.go_on(first))
    try:
        yield writer
    finally:
        if task.done():
            task.result()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def make_namespace(cluster: Cluster, name: str, labels: dict[str, str] | None = None) -> None:
    """Make a namespace unless it is there."""
    try:
        await cluster.admin.namespace(name, labels)
    except AdminError as error:
        if error.status != 409:
            raise
