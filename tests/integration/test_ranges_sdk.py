"""The SDK's shards and the sharder in a ring by ranges: out, in, a crash; with and without filtering."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from localcluster import AdminClient, ControlPlane
from sharder.core.cutting import cut
from shardsdk.process.process import ExitCode
from shardsdk.protocol.objects import GroupResource
from shardsdk.protocol.ranges import (
    SPACE,
    HashBy,
    Named,
    named_by,
    point_of,
    read_counts,
)
from shardsdk.ranges import holder
from shardsdk.rbac import ShardRole, shard_role
from tests.integration.harness import REPOSITORY, Stage, set_stage
from tests.integration.ranged_shard import ASSIGNMENTS, RangedShard, Workers
from tests.integration.sdk_ranges import CONFIGMAPS, SECRETS, Chronicle, ContractShard, SdkShard
from tests.integration.world import SECRETS as FAMILY

TEAMS = [f"crew-{number}" for number in range(16)]
NAMES = ("one", "two")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[True, False], ids=["filtering", "ignoring"])
async def plane(request: pytest.FixtureRequest) -> AsyncIterator[ControlPlane]:
    gates = {"ShardedListAndWatch": True} if request.param else {}
    async with set_up(gates) as plane:
        yield plane


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
    chronicle: Chronicle = field(default_factory=Chronicle)
    shards: dict[str, SdkShard] = field(default_factory=dict)

    async def start(self, *names: str) -> None:
        for name in names:
            shard = SdkShard(self.ring, name, self.kubeconfig, self.chronicle)
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

    async def touch(self) -> None:
        """Change every secret."""
        for team in TEAMS:
            for name in NAMES:
                patch = {"metadata": {"annotations": {"touched": str(asyncio.get_running_loop().time())}}}
                await self.admin.patch("v1/secrets", name, patch, team)

    async def children(self) -> Counter[tuple[str, str]]:
        """How many config maps each secret has."""
        found = await self.admin.list("v1/configmaps")
        owned = [each["metadata"] for each in found if each["metadata"]["namespace"] in TEAMS]
        return Counter(
            (each["namespace"], owner["name"]) for each in owned for owner in each.get("ownerReferences") or ()
        )


@asynccontextmanager
async def ranged(plane: ControlPlane, name: str) -> AsyncIterator[Ranged]:
    """A ring, its shards' account, and the sharder; in the end nobody may ever have had two owners."""
    async with plane.admin() as admin, set_stage(plane, admin, name) as stage:
        spec = {"assignment": "Ranges", "hashBy": "Namespace", "namespaceSelector": None}
        await stage.ring(FAMILY, name=name, grant=False, shards_may=False, **spec)
        role = ShardRole(
            name, name, "default", [_named(SECRETS)], [_named(CONFIGMAPS)],
            further_controlled_verbs=("create",), by_ranges=True,
        )  # fmt: skip
        await plane.kubectl("apply", "-f-", stdin=yaml.safe_dump_all(shard_role(role)))
        kubeconfig = await plane.service_account_kubeconfig("default", name)
        on = Ranged(plane, admin, stage, name, kubeconfig)
        await stage.sharder()
        watching = asyncio.create_task(on.chronicle.watch())
        try:
            yield on
        finally:
            watching.cancel()
            for shard in list(on.chronicle.shards):
                with contextlib.suppress(Exception):
                    await shard.stop()
        assert not on.chronicle.met


def _named(resource: object) -> GroupResource:
    return resource.group_resource  # type: ignore[attr-defined,no-any-return]


@pytest.mark.timeout(300)
async def test_shards_come_and_go_and_crash_and_every_object_has_one_owner(plane: ControlPlane) -> None:
    filters = plane.feature_gates.get("ShardedListAndWatch", False)
    async with ranged(plane, "sdk-ranges") as on:
        await on.start("a", "b", "c")
        await on.until_all_by("a", "b", "c")
        assert await on.children() == {(team, name): 1 for team in TEAMS for name in NAMES}
        made = [*await on.admin.list("v1/configmaps"), *await on.admin.list("v1/secrets")]
        assert not [each for each in made if each["metadata"].get("labels") and each["metadata"]["namespace"] in TEAMS]

        await on.start("d")
        await on.touch()
        await on.until_all_by("a", "b", "c", "d", seconds=60)
        # A watch that was just asked anew shows that it is not filtered by the first event that is not its shard's.
        async with asyncio.timeout(60):
            while on.shards["d"].filtered() != {filters}:
                await on.touch()

        assert await on.shards["b"].stop() is ExitCode.OK
        await on.touch()
        await on.until_all_by("a", "c", "d", seconds=30)

        await on.shards["c"].crash()
        await on.touch()
        await on.until_all_by("a", "d", seconds=90)
        assert await on.children() == {(team, name): 1 for team in TEAMS for name in NAMES}


@pytest.mark.timeout(300)
async def test_shards_of_another_make_share_a_ring_with_them(plane: ControlPlane) -> None:
    async with ranged(plane, "mixed-makes") as on:
        await on.start("a", "b")
        await on.until_all_by("a", "b")
        workers = Workers()
        foreign = RangedShard(on.admin, on.ring, "default", "foreign", workers)
        on.stage.shards.append(foreign)
        await foreign.start()
        async with asyncio.timeout(60):
            while not workers.working.get("foreign"):
                await asyncio.sleep(0.05)
        theirs = workers.working["foreign"]
        mine = [span for shard in on.shards.values() for span in shard.works_on()]
        assert not [(one, other) for one in theirs for other in mine if max(one[0], other[0]) < min(one[1], other[1])]
        assignment = await on.admin.get(ASSIGNMENTS, on.ring)
        assert {each.get("shard") for each in assignment["spec"]["ranges"]} >= {"a", "b", "foreign"}
        await foreign.release()
        await on.touch()
        await on.until_all_by("a", "b", seconds=60)


@pytest.mark.timeout(300)
async def test_a_shard_written_from_the_contract_alone_shares_a_ring_with_them_and_crashes(
    plane: ControlPlane, tmp_path: Path
) -> None:
    imports = {line.split()[1].split(".")[0] for line in ContractShard.source() if line.startswith(("import", "from"))}
    assert imports <= sys.stdlib_module_names
    assert len(ContractShard.source()) < 200
    async with ranged(plane, "by-contract") as on:
        await on.start("a", "b")
        await on.until_all_by("a", "b")
        foreign = ContractShard(on.ring, "foreign", on.kubeconfig, on.chronicle, tmp_path)
        await foreign.start()
        await foreign.until_it_works()
        before = await on.children()
        for team in TEAMS:
            await on.admin.create("v1/secrets", {"metadata": {"name": "late"}}, team)
        everything = {*before, *((team, "late") for team in TEAMS)}
        async with asyncio.timeout(60):
            while await on.children() != dict.fromkeys(everything, 1):
                await asyncio.sleep(0.2)
        foreign.kill()
        await on.touch()
        await on.until_all_by("a", "b", seconds=60)
        assert await on.children() == dict.fromkeys(everything, 1)
        for team in TEAMS:
            await on.admin.delete("v1/secrets", "late", team)


#: Namespaces in the first quarter of the space, which who counts namespaces alone would give to one shard.
BULKY = [name for number in range(64) if point_of(name := f"bulk-{number}") < SPACE // 4][:12]
EACH = 16


@pytest.mark.timeout(300)
async def test_a_shard_that_comes_has_its_part_of_what_shards_have_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "COUNT_SECONDS", 0.5)
    # On a control plane of its own: namespaces that are deleted linger, and nothing can be made in them.
    async with set_up({}) as plane, ranged(plane, "counted") as on:
        for name in BULKY:
            await on.admin.create("v1/namespaces", {"metadata": {"name": name}})
            for number in range(EACH):
                await on.admin.create("v1/secrets", {"metadata": {"name": f"bulk-{number}"}}, name)
        await on.start("a", "b")
        await on.until_all_by("a", "b")
        wanted = {point_of(name) for name in (*BULKY, *TEAMS)}
        async with asyncio.timeout(60):
            while not wanted <= (told := await _told(on)).keys():
                await asyncio.sleep(0.1)
        assert {told[point_of(name)] for name in BULKY} == {EACH}
        blind = cut(Named(HashBy.NAMESPACE, {}), "abc", dict.fromkeys(told, 1.0))
        assert max(_loads(blind).values()) > 1.5 * EVEN

        await on.start("c")
        async with asyncio.timeout(60):
            while not (loads := _loads(await _assigned(on))).keys() >= {"a", "b", "c"} or None in loads:
                await asyncio.sleep(0.1)
        assert max(loads.values()) <= EVEN


#: A third of all secrets, and a namespace and a half more: none can be split, and those of the control plane count too.
EVEN = (len(BULKY) * EACH + len(TEAMS) * len(NAMES)) / 3 + 1.5 * EACH


async def _told(on: Ranged) -> dict[int, float]:
    leases = await on.admin.list("coordination.k8s.io/v1/leases", "default")
    annotations = [each["metadata"].get("annotations") for each in leases if each["metadata"]["name"] in ("a", "b")]
    return {point: count for each in annotations for point, count in read_counts(each).items()}


async def _assigned(on: Ranged) -> Named:
    return named_by(await on.admin.get(ASSIGNMENTS, on.ring), HashBy.NAMESPACE)


def _loads(named: Named) -> Counter[str | None]:
    """Secrets by the shard that is named for their namespace."""
    loads: Counter[str | None] = Counter()
    for names, each in ((BULKY, EACH), (TEAMS, len(NAMES))):
        for name in names:
            loads[named.shard_at(point_of(name))] += each
    return loads
