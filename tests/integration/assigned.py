"""The same test in a ring by labels and in one by ranges: where its objects are, whose, and whether they stay."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import yaml

from localcluster import AdminClient
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import GroupResource
from shardsdk.protocol.ranges import BY_LABELS, BY_RANGES, NOWHERE, HashBy, Named, named_by, point_of
from shardsdk.rbac import ShardRole, shard_role
from tests.integration.harness import Stage
from tests.integration.ranged_shard import ASSIGNMENTS
from tests.integration.scripted import LEASES, RING_LABEL, Object
from tests.integration.world import LOOK_SECONDS, Ring

WAYS: Final = (BY_LABELS, BY_RANGES)
SECRETS: Final = "v1/secrets"
#: Namespaces of a ring by ranges: each of two shards has some, whatever their hashes are.
_TEAMS: Final = 6
#: Time for what a slow machine does in a few seconds.
_PATIENCE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A Secret."""

    namespace: str
    name: str


@dataclass
class Assigned(ABC):
    """A ring of secrets with configmaps; `account` is its shards', in the stage's namespace."""

    stage: Stage
    ring: Ring
    account: str
    namespaces: Sequence[str]
    secrets: list[Place] = field(default_factory=list)

    @property
    def admin(self) -> AdminClient:
        return self.stage.admin

    async def create(self, place: Place) -> None:
        """Make a Secret whose value is its name."""
        body = {"metadata": {"name": place.name}, "data": {"key": base64.b64encode(place.name.encode()).decode()}}
        await self.admin.create(SECRETS, body, place.namespace)
        self.secrets.append(place)

    async def change(self, value: str) -> None:
        """Give every Secret this value."""
        for place in self.secrets:
            await self.admin.patch(SECRETS, place.name, {"stringData": {"key": value}}, place.namespace)

    async def until(self, namespace: str, name: str, holds: Callable[[Object], Any], resource: str) -> Object:
        """Wait until something true can be said of an object; returns it."""

        def look(objects: list[Object]) -> Object | None:
            return next((each for each in objects if each["metadata"]["name"] == name and holds(each)), None)

        return await self.admin.eventually(resource, look, namespace, timeout_seconds=_PATIENCE_SECONDS)

    @abstractmethod
    async def create_for(self, each: int, shards: Collection[str]) -> None:
        """Make Secrets of which each of `shards` will have some, `each` on average, if those are the ring's shards."""

    @abstractmethod
    async def settled(self, shards: Collection[str]) -> None:
        """Wait until these are the available shards, and every object is where it belongs."""

    @abstractmethod
    async def shards_of(self) -> dict[Place, str | None]:
        """Who has each Secret."""

    @abstractmethod
    async def place_on(self, shard: str, name: str) -> Place:
        """Where a Secret whose name begins so is on that shard, as shards are."""

    @abstractmethod
    def unmoved(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Meanwhile no Secret that was there goes anywhere."""

    @abstractmethod
    async def close(self) -> None:
        """Take away what the stage does not."""


class Labelled(Assigned):
    """By labels."""

    async def create_for(self, each: int, shards: Collection[str]) -> None:
        for name in self.ring.pick_names(each, shards):
            await self.create(Place(self.stage.namespace, name))

    async def settled(self, shards: Collection[str]) -> None:
        await self.ring.in_place(shards, timeout=_PATIENCE_SECONDS)

    async def shards_of(self) -> dict[Place, str | None]:
        found = await self.ring.shards_of()
        return {place: found[place.name] for place in self.secrets}

    async def place_on(self, shard: str, name: str) -> Place:
        picked = self.ring.pick_names(1, await self.ring.available())
        return Place(self.stage.namespace, next(each for each, owner in picked.items() if owner == shard))

    @asynccontextmanager
    async def unmoved(self) -> AsyncIterator[None]:
        before = await self.shards_of()
        async with self.ring.history() as history:
            yield
        assert {place: history.of(place.name) for place in before} == {
            place: [shard] for place, shard in before.items()
        }

    async def close(self) -> None:
        """There is nothing but what the stage made."""


class Ranged(Assigned):
    """By ranges of hashes."""

    async def create_for(self, each: int, shards: Collection[str]) -> None:
        for number in range(each * len(shards)):
            await self.create(Place(self.namespaces[number % len(self.namespaces)], f"object-{number}"))

    async def named(self) -> Named:
        """What the RingAssignment says; nobody is named where there is none."""
        found = await self.admin.find(ASSIGNMENTS, self.ring.name)
        return Named(HashBy.NAMESPACE, {}) if found is None else named_by(found, HashBy.NAMESPACE)

    async def settled(self, shards: Collection[str]) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not await self._is_settled(set(shards)):
                await asyncio.sleep(LOOK_SECONDS)

    async def _is_settled(self, shards: set[str]) -> bool:
        leases = [
            msgspec.convert(each, Lease)
            for each in await self.admin.list(LEASES, labels=f"{RING_LABEL}={self.ring.name}")
        ]
        held = {each.metadata.name: each.held_ranges or NOWHERE for each in leases if each.held_by_shard}
        named = await self.named()
        return held.keys() == shards and named.shards == held and not named.nobodys

    async def shards_of(self) -> dict[Place, str | None]:
        named = await self.named()
        return {place: named.shard_at(point_of(place.namespace)) for place in self.secrets}

    async def place_on(self, shard: str, name: str) -> Place:
        named = await self.named()
        return Place(next(each for each in self.namespaces if named.shard_at(point_of(each)) == shard), name)

    @asynccontextmanager
    async def unmoved(self) -> AsyncIterator[None]:
        before = await self.admin.get(ASSIGNMENTS, self.ring.name)
        yield
        after = await self.admin.get(ASSIGNMENTS, self.ring.name)
        # Each change of the spec, also one that was taken back, counts on.
        assert before["metadata"]["generation"] == after["metadata"]["generation"]
        assert before["metadata"]["uid"] == after["metadata"]["uid"]

    async def untouched(self) -> None:
        """Nobody has labelled anything."""
        for resource in (SECRETS, "v1/configmaps"):
            for namespace in self.namespaces:
                assert not [
                    each for each in await self.admin.list(resource, namespace) if each["metadata"].get("labels")
                ]

    async def close(self) -> None:
        await self.untouched()
        for resource in ("clusterroles", "clusterrolebindings"):
            await self.admin.delete(f"rbac.authorization.k8s.io/v1/{resource}", self.account)


@asynccontextmanager
async def assigned(stage: Stage, way: str) -> AsyncIterator[Assigned]:
    """A ring that assigns that way, with the rights that its shards need by it; nothing else differs."""
    made: Assigned
    if way == BY_LABELS:
        made = Labelled(stage, await stage.ring(), "shard", [stage.namespace])
    else:
        made = await _by_ranges(stage)
    yield made
    await made.close()


async def _by_ranges(stage: Stage) -> Ranged:
    teams = [f"{stage.namespace}-{number}" for number in range(_TEAMS)]
    for team in teams:
        await stage.admin.create("v1/namespaces", {"metadata": {"name": team}})
    named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": teams}
    ring = await stage.ring(
        grant=False, shards_may=False, assignment=BY_RANGES, hashBy="Namespace",
        namespaceSelector={"matchExpressions": [named]},
    )  # fmt: skip
    role = ShardRole(
        ring.name, ring.name, stage.namespace, [GroupResource("", "secrets")], [GroupResource("", "configmaps")],
        further_controlled_verbs=("create", "patch"), by_ranges=True,
    )  # fmt: skip
    await stage.plane.apply(stdin=yaml.safe_dump_all(shard_role(role)))
    return Ranged(stage, ring, ring.name, teams)
