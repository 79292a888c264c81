"""API server and etcd are killed and come back, while ranges change hands and for longer than a lease, for real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

import pytest
import pytest_asyncio

from localcluster import ControlPlane
from shardsdk.lease.timings import LeaseTimings
from shardsdk.process.process import ExitCode
from shardsdk.protocol.ranges import HashBy, Named, named_by, point_of
from tests.integration.ranged_shard import ASSIGNMENTS
from tests.integration.sdk_ring import NAMES, TEAMS, Ranged, ranged, set_up

#: How long a reconcile takes here: longer than it takes to see that it is to end, and to kill an API server.
SLOW_SECONDS = 2.0
#: Of leases that outlive an API server which takes its time.
LEASE_SECONDS = 60
#: Of leases that run out while an API server is away, and that leave shards time to come back on a busy machine.
SHORT_LEASE_SECONDS: Final = 15
#: Of a sharder that outlasts them without an API server.
PATIENT: Final = LeaseTimings(lease_duration=120, renew_deadline=80, retry_period=1)
#: The shards that there are when another comes.
OLD = ("a", "b", "c")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane() -> AsyncIterator[ControlPlane]:
    async with set_up({"ShardedListAndWatch": True}) as plane:
        yield plane


def revoked(named: Named) -> bool:
    """Ranges were taken from who has them, and nobody has them yet."""
    return bool(named.nobodys)


def granted(named: Named) -> bool:
    """The shard that has come is named, a moment ago."""
    return bool(named.of("d"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("at", [revoked, granted])
async def test_a_handover_ends_that_an_api_server_was_killed_in(
    plane: ControlPlane, at: Callable[[Named], bool]
) -> None:
    async with ranged(plane, f"outage-{at.__name__}") as on:
        await on.start(*OLD, lease_seconds=LEASE_SECONDS)
        await on.until_all_by(*OLD)
        before = await until_in_place(on, *OLD)
        on.chronicle.worked.clear()
        on.chronicle.busy_seconds = SLOW_SECONDS
        await on.touch()
        await on.start("d", lease_seconds=LEASE_SECONDS)
        await until_assigned(on, at)
        await plane.apiserver.kill()
        if at is revoked:
            assert not on.chronicle.worked.get("d"), "what runs where ranges were taken has not ended"
        await on.chronicle.until_at_rest()
        await plane.apiserver.start()

        on.chronicle.busy_seconds = 0.0
        await on.touch()
        await on.until_all_by(*OLD, "d")
        after = await until_in_place(on, *OLD, "d")
        worked = on.chronicle.worked
        named = {name: before.of(name) | after.of(name) for name in (*OLD, "d")}
        assert worked == named, "nobody worked where it was not named, nor where it was named for a while alone"
        moved = [team for team in TEAMS if before.shard_at(point_of(team)) != after.shard_at(point_of(team))]
        # A namespace is not split: besides d's part one more may go from one of the others to another.
        assert len(moved) <= len(TEAMS) // len(named) + 2, "and no more has moved than a fourth shard takes"
        assert await on.children() == {(team, name): 1 for team in TEAMS for name in NAMES}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("dead", ["kube-apiserver", "etcd"])
async def test_shards_come_back_to_what_they_had_after_an_outage_longer_than_their_leases(
    plane: ControlPlane, dead: str
) -> None:
    async with ranged(plane, f"outlasted-{dead}", timings=PATIENT) as on:
        await on.start(*OLD, lease_seconds=SHORT_LEASE_SECONDS, in_pods=True)
        await on.until_all_by(*OLD)
        before = await until_in_place(on, *OLD)
        component = plane.etcd if dead == "etcd" else plane.apiserver
        await component.kill()
        # Whoever waits for the leases counts from the last renewal, which was before this.
        run_out = asyncio.create_task(asyncio.sleep(SHORT_LEASE_SECONDS))
        assert {await on.shards[name].ended() for name in OLD} == {ExitCode.LEASE_LOST}
        await run_out
        # Their containers are started again, and wait for the API server: their leases ran out long ago, and who has
        # seen nobody renew them for a lease may take them over.  Each takes its pod's up at once.
        await on.start(*OLD, lease_seconds=SHORT_LEASE_SECONDS, in_pods=True)
        await component.start()
        await plane.apiserver.ready()
        await on.touch()
        await on.until_all_by(*OLD)
        assert await until_in_place(on, *OLD) == before, "nothing has moved"
        assert await on.children() == {(team, name): 1 for team in TEAMS for name in NAMES}


async def until_assigned(on: Ranged, holds: Callable[[Named], bool]) -> None:
    """Wait for the event that makes the assignment so."""
    async for _, item in on.admin.changes(ASSIGNMENTS):
        if item["metadata"]["name"] == on.ring and holds(named_by(item, HashBy.NAMESPACE)):
            return


async def until_in_place(on: Ranged, *names: str) -> Named:
    """Wait until these shards share everything, and each works where it is named; who is named where."""
    async with asyncio.timeout(60):
        while True:
            named = await on.assignment()
            works = {name: on.shards[name].works_on() for name in names}
            if not named.nobodys and works == named.shards:
                return named
            await asyncio.sleep(0.1)
