"""A ring by ranges with the sharder and the SDK's shards on a real control plane, and who has reconciled what."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from localcluster import AdminClient, ControlPlane
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.ranges import HashBy, Named, named_by
from shardsdk.rbac import ShardRole, shard_role
from tests.integration.harness import REPOSITORY, SYSTEM, Stage, set_stage
from tests.integration.ranged_shard import ASSIGNMENTS
from tests.integration.sdk_ranges import CONFIGMAPS, SECRETS, Chronicle, SdkShard
from tests.integration.world import SECRETS as FAMILY

TEAMS: Final = [f"crew-{number}" for number in range(16)]
NAMES: Final = ("one", "two")

#: By which kubeconfig a process reaches the API server: its name, and the one of its user -> its own.
Connect = Callable[[str, Path], Awaitable[Path]]


async def directly(name: str, kubeconfig: Path) -> Path:
    """By nothing in between."""
    return kubeconfig


@asynccontextmanager
async def set_up(gates: dict[str, bool]) -> AsyncIterator[ControlPlane]:
    """A control plane with the secrets of all teams."""
    async with ControlPlane(feature_gates=gates) as plane:
        await plane.apply(REPOSITORY / "crds", REPOSITORY / "rbac" / "sharder.yaml")
        async with plane.admin() as admin:
            for team in TEAMS:
                await admin.create("v1/namespaces", {"metadata": {"name": team}})
                for name in NAMES:
                    await admin.create("v1/secrets", {"metadata": {"name": name}}, team)
        yield plane


@dataclass
class Ranged:
    """A ring whose shards are the SDK's."""

    plane: ControlPlane
    admin: AdminClient
    stage: Stage
    ring: str
    kubeconfig: Path
    connect: Connect
    chronicle: Chronicle = field(default_factory=Chronicle)
    shards: dict[str, SdkShard] = field(default_factory=dict)

    async def start(self, *names: str, lease_seconds: int = 15, in_pods: bool = False) -> None:
        for name in names:
            kubeconfig = await self.connect(name, self.kubeconfig)
            timings, pod = LeaseTimings.of(lease_seconds), f"pod-of-{name}" if in_pods else None
            shard = SdkShard(self.ring, name, kubeconfig, self.chronicle, timings, pod=pod)
            self.shards[name] = shard
            await shard.start()

    async def until_all_by(self, *names: str, seconds: float = 90.0) -> None:
        """Wait until every secret was reconciled as it is, by one of these shards, and each of them has some."""
        async with asyncio.timeout(seconds):
            while not await self._all_by(set(names)):
                await asyncio.sleep(0.1)

    async def _all_by(self, names: set[str]) -> bool:
        there = {
            (each["metadata"]["namespace"], each["metadata"]["name"]): each["metadata"]["resourceVersion"]
            for each in await self.admin.list("v1/secrets")
            if each["metadata"]["namespace"] in TEAMS
        }
        note = self.chronicle
        return (
            all(note.seen.get(key) == version for key, version in there.items())
            and {note.by[key] for key in there} == names
        )

    async def until_it_works(self, name: str, seconds: float = 60.0) -> None:
        """Wait until this shard has worked somewhere."""
        async with asyncio.timeout(seconds):
            while not self.chronicle.worked.get(name):
                await asyncio.sleep(0.02)

    async def assignment(self) -> Named:
        """Who is named for what."""
        return named_by(await self.admin.get(ASSIGNMENTS, self.ring), HashBy.NAMESPACE)

    async def touch(self) -> None:
        """Change every secret."""
        for team in TEAMS:
            for name in NAMES:
                await self._touch("v1/secrets", team, name)

    async def touch_children(self) -> None:
        """Change every secret's config map."""
        for each in await self._config_maps():
            await self._touch("v1/configmaps", each["namespace"], each["name"])

    async def children(self) -> Counter[tuple[str, str]]:
        """How many config maps each secret has."""
        return Counter(
            (each["namespace"], owner["name"])
            for each in await self._config_maps()
            for owner in each.get("ownerReferences") or ()
        )

    async def _touch(self, resource: str, namespace: str, name: str) -> None:
        patch = {"metadata": {"annotations": {"touched": str(asyncio.get_running_loop().time())}}}
        await self.admin.patch(resource, name, patch, namespace)

    async def _config_maps(self) -> list[Any]:
        """The metadata of those in the teams' namespaces."""
        found = await self.admin.list("v1/configmaps")
        return [each["metadata"] for each in found if each["metadata"]["namespace"] in TEAMS]


@asynccontextmanager
async def ranged(plane: ControlPlane, name: str, connect: Connect = directly, **changes: Any) -> AsyncIterator[Ranged]:
    """A ring, its shards' account, and the sharder; in the end nobody may ever have had two owners.

    `changes` are fields of the sharder's ReplicaSettings.
    """
    async with plane.admin() as admin, set_stage(plane, admin, name) as stage:
        spec = {"assignment": "Ranges", "hashBy": "Namespace", "namespaceSelector": None}
        await stage.ring(FAMILY, name=name, grant=False, shards_may=False, **spec)
        role = ShardRole(
            name, name, "default", [SECRETS.group_resource], [CONFIGMAPS.group_resource],
            further_controlled_verbs=("create",), by_ranges=True,
        )  # fmt: skip
        await plane.kubectl("apply", "-f-", stdin=yaml.safe_dump_all(shard_role(role)))
        kubeconfig = await plane.service_account_kubeconfig("default", name)
        on = Ranged(plane, admin, stage, name, kubeconfig, connect)
        sharders = await plane.service_account_kubeconfig(SYSTEM, "sharder")
        await stage.sharder(kubeconfig=await connect("sharder", sharders), **changes)
        watching = asyncio.create_task(on.chronicle.watch())
        try:
            yield on
        finally:
            watching.cancel()
            for shard in list(on.chronicle.shards):
                with contextlib.suppress(Exception):
                    await shard.stop()
            # Who ends soon after it went on with a dead process's lease leaves that to run out; names come again.
            for each in on.shards:
                await admin.delete("coordination.k8s.io/v1/leases", each, "default")
        assert not on.chronicle.met
