"""The SDK's shards and the sharder in a ring by ranges: out, in, a crash; with and without filtering."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from localcluster import ControlPlane
from sharder.core.cutting import cut
from shardsdk.process.process import ExitCode
from shardsdk.protocol.ranges import SPACE, HashBy, Named, point_of, read_counts
from shardsdk.ranges import holder
from tests.integration.ranged_shard import ASSIGNMENTS, RangedShard, Workers
from tests.integration.sdk_ranges import ContractShard
from tests.integration.sdk_ring import NAMES, TEAMS, Ranged, ranged, set_up


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[True, False], ids=["filtering", "ignoring"])
async def plane(request: pytest.FixtureRequest) -> AsyncIterator[ControlPlane]:
    gates = {"ShardedListAndWatch": True} if request.param else {}
    async with set_up(gates) as plane:
        yield plane


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
        await on.until_all_by("a", "b", "c", "d")
        # A watch that was just asked anew shows that it is not filtered by the first event that is not its shard's.
        async with asyncio.timeout(60):
            while on.shards["d"].filtered() != {filters}:
                await on.touch()
                await on.touch_children()  # theirs is another watch

        assert await on.shards["b"].stop() is ExitCode.OK
        await on.touch()
        await on.until_all_by("a", "c", "d")

        await on.shards["c"].crash()
        await on.touch()
        await on.until_all_by("a", "d")
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
        await on.until_all_by("a", "b")


@pytest.mark.timeout(300)
async def test_a_shard_written_from_the_contract_alone_shares_a_ring_with_them_and_crashes(
    plane: ControlPlane, tmp_path: Path
) -> None:
    imports = {line.split()[1].split(".")[0] for line in ContractShard.source() if line.startswith(("import", "from"))}
    assert imports <= sys.stdlib_module_names
    assert len(ContractShard.source()) < 230
    async with ranged(plane, "by-contract") as on:
        await on.start("a", "b")
        await on.until_all_by("a", "b")
        # A name of its own: whoever has let go of its Lease a moment ago may find it with the sharder, and would wait.
        foreign = ContractShard(on.ring, "by-contract", on.kubeconfig, on.chronicle, tmp_path)
        await foreign.start()
        await foreign.until_it_works()
        before = await on.children()
        for team in TEAMS:
            await on.admin.create("v1/secrets", {"metadata": {"name": "late"}}, team)
        everything = {*before, *((team, "late") for team in TEAMS)}
        async with asyncio.timeout(60):
            while await on.children() != dict.fromkeys(everything, 1):
                await asyncio.sleep(0.2)
        twin = ContractShard(on.ring, "by-contract", on.kubeconfig, on.chronicle, tmp_path)
        await twin.start()
        await asyncio.sleep(2)
        assert not twin.works_on(), "another process of its name has its Lease"
        foreign.kill()
        await twin.until_it_works()
        twin.kill()
        await on.touch()
        await on.until_all_by("a", "b")
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
            while not (loads := _loads(await on.assignment())).keys() >= {"a", "b", "c"} or None in loads:
                await asyncio.sleep(0.1)
        assert max(loads.values()) <= EVEN


#: A third of all secrets, and a namespace and a half more: none can be split, and those of the control plane count too.
EVEN = (len(BULKY) * EACH + len(TEAMS) * len(NAMES)) / 3 + 1.5 * EACH


async def _told(on: Ranged) -> dict[int, float]:
    leases = await on.admin.list("coordination.k8s.io/v1/leases", "default")
    annotations = [each["metadata"].get("annotations") for each in leases if each["metadata"]["name"] in ("a", "b")]
    return {point: count for each in annotations for point, count in read_counts(each).items()}


def _loads(named: Named) -> Counter[str | None]:
    """Secrets by the shard that is named for their namespace."""
    loads: Counter[str | None] = Counter()
    for names, each in ((BULKY, EACH), (TEAMS, len(NAMES))):
        for name in names:
            loads[named.shard_at(point_of(name))] += each
    return loads
