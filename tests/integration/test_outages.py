"""API server and etcd fail for longer than every lease lasts: nothing moves, and afterwards all is as before.

Time counts only while the sharder's own lease is seen to renew.  The shards of
these tests lose their hold in the outage, as any shard does, end, and are
started again in the same pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio

from localcluster import AdminError, ControlPlane
from localcluster.installation import ROOT, Installation
from shardsdk.lease.timings import LeaseTimings
from tests.integration.chronicle import LEASES
from tests.integration.harness import Sharder, Stage, set_stage
from tests.integration.processes import STEADY, alive, eventually, says
from tests.integration.scripted import Object, Script, ScriptedShard
from tests.integration.test_leases import LIMITS

pytestmark = pytest.mark.timeout(600)

SECRETS: Final = "v1/secrets"
RINGS: Final = "sharding.timebertt.dev/v1alpha1/clusterrings"
SECONDS: Final = 5
TIMINGS: Final = LeaseTimings(lease_duration=4, renew_deadline=3, retry_period=0.3)
FENCED: Final = Script(lease_seconds=SECONDS, renew_seconds=0.3)
UNFENCED: Final = Script(lease_seconds=SECONDS, renew_seconds=0.3, go_like=True)
_POD_START_SECONDS: Final = 0.5
Break = Callable[[ControlPlane], Coroutine[Any, Any, None]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def breakable() -> AsyncIterator[ControlPlane]:
    """A control plane that these tests break and mend again."""
    async with ControlPlane() as plane:
        await plane.apply(ROOT / "crds", ROOT / "rbac" / "sharder.yaml")
        yield plane


@pytest_asyncio.fixture
async def stage(breakable: ControlPlane) -> AsyncIterator[Stage]:
    async with breakable.admin() as admin:
        made = await admin.create("v1/namespaces", {"metadata": {"generateName": "test-"}})
        async with set_stage(breakable, admin, made["metadata"]["name"]) as stage:
            yield stage


async def api_server_killed(plane: ControlPlane) -> None:
    await plane.apiserver.kill()
    await longer_than_every_lease()
    await plane.apiserver.start()


async def api_server_paused(plane: ControlPlane) -> None:
    plane.apiserver.pause()
    await longer_than_every_lease()
    plane.apiserver.resume()


async def etcd_killed(plane: ControlPlane) -> None:
    await plane.etcd.kill()
    await longer_than_every_lease()
    await plane.etcd.start()


async def etcd_paused(plane: ControlPlane) -> None:
    plane.etcd.pause()
    await longer_than_every_lease()
    plane.etcd.resume()


async def longer_than_every_lease() -> None:
    await asyncio.sleep(2 * SECONDS + 0.5)


@asynccontextmanager
async def kept_running(sharder: Sharder, *shards: ScriptedShard) -> AsyncIterator[None]:
    """What a kubelet does for its pods, a moment later than the sharder is back: it must wait for them."""

    async def keep(shard: ScriptedShard) -> None:
        while True:
            await shard.lost.wait()
            await shard.crash()
            while shard.lost.is_set():
                await leads(sharder)
                await asyncio.sleep(_POD_START_SECONDS)
                try:
                    await shard.start(same_pod=True)
                except (AdminError, aiohttp.ClientError, OSError):
                    shard.lost.set()

    keepers = [asyncio.create_task(keep(shard)) for shard in shards]
    try:
        yield
    finally:
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)


async def leases_of(stage: Stage) -> dict[str, Object]:
    return {lease["metadata"]["name"]: lease["spec"] for lease in await stage.admin.list(LEASES, stage.namespace)}


async def renewed_for_a_while(stage: Stage, times: int = 4) -> None:
    """Wait until every lease has been renewed so often that the outage cannot count any more."""
    seen: dict[str, set[str]] = {}

    def enough(leases: list[Object]) -> bool:
        for lease in leases:
            seen.setdefault(lease["metadata"]["name"], set()).add(lease["spec"]["renewTime"])
        return all(len(each) > times * SECONDS for each in seen.values())

    await stage.admin.eventually(LEASES, enough, stage.namespace)


async def leads(sharder: Sharder, *, yes: bool = True) -> None:
    async def told() -> bool:
        return sharder.replica.elector.is_leader is yes

    await eventually(told)


@pytest.mark.parametrize("outage", [api_server_killed, api_server_paused, etcd_killed, etcd_paused])
async def test_in_an_outage_nothing_moves_and_no_lease_is_taken_and_afterwards_all_is_as_before(
    stage: Stage, breakable: ControlPlane, outage: Break
) -> None:
    ring = await stage.ring()
    scripts: dict[str, Script] = {"fenced-1": FENCED, "fenced-2": FENCED, "unfenced": UNFENCED}
    shards = [await stage.shard(ring, name, script=script) for name, script in scripts.items()]
    sharder = await stage.sharder(webhook=False, takeover=LIMITS, timings=TIMINGS)
    await ring.create_families(4, list(scripts))
    await ring.in_place()
    async with kept_running(sharder, *shards):
        versions, before = await ring.versions(), await leases_of(stage)
        breaking = asyncio.create_task(outage(breakable))
        await leads(sharder, yes=False)
        await asyncio.gather(*(asyncio.wait_for(shard.lost.wait(), 60) for shard in shards))
        await breaking
        await breakable.apiserver.ready()

        await leads(sharder)
        await renewed_for_a_while(stage)
        after = await leases_of(stage)
        assert _hands(after) == _hands(before), "no lease has changed hands"
        assert await ring.versions() == versions, "nothing was written"

        await ring.create(SECRETS, name="made-later")
        await stage.shard(ring, "joins")
        await ring.in_place()


def _hands(leases: dict[str, Object]) -> dict[str, Any]:
    return {name: (spec["holderIdentity"], spec["leaseTransitions"]) for name, spec in leases.items()}


# -- what is not there at the start ------------------------------------------------


async def test_a_sharder_that_finds_no_api_server_says_so_and_is_ready_once_there_is_one(
    breakable: ControlPlane,
) -> None:
    async with Installation(breakable, STEADY, webhook=False) as installation:
        await breakable.apiserver.kill()
        try:
            replica = await installation.start_sharder("early", wait=False)
            await says(replica, "waiting for the API server: ")
            assert breakable.url.removeprefix("https://") in await says(replica, "rings")
            await alive(replica)
        finally:
            await breakable.apiserver.start()
        await installation.ready(replica)
        assert await replica.process.stop() == 0
        assert "Reflector interrupted" in replica.process.log.read_text()


async def test_a_sharder_that_finds_no_crd_says_so_and_works_once_it_is_installed(breakable: ControlPlane) -> None:
    async with Installation(breakable, STEADY, webhook=False) as installation:
        await breakable.kubectl("delete", "crd", "clusterrings.sharding.timebertt.dev")
        try:
            replica = await installation.start_sharder("early", wait=False)
            told = await says(replica, "CustomResourceDefinition")
            assert "clusterrings" in told
            await alive(replica)
        finally:
            await breakable.apply(ROOT / "crds")
        await installation.ready(replica)
        await installation.ring("made-later", {"resources": [{"resource": "secrets"}]})
        async with breakable.admin() as admin:
            await admin.eventually(RINGS, lambda rings: all(each.get("status") for each in rings) and rings)
            await admin.delete(RINGS, "made-later")


async def test_a_sharder_that_is_asked_to_stop_in_an_outage_ends_in_time(breakable: ControlPlane) -> None:
    async with Installation(breakable, STEADY, webhook=False) as installation:
        replica = await installation.start_sharder("stops")
        await installation.leader()
        breakable.apiserver.pause()
        try:
            # Later than its limit it would be ended, with another code.
            assert await replica.process.stop() == 0
        finally:
            breakable.apiserver.resume()
