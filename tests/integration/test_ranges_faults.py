"""What may go wrong around a ring by ranges, on a real control plane: nobody's range is ever two shards'."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from shardsdk.lease.timings import LeaseTimings
from tests.integration.harness import REPOSITORY, Stage, set_stage
from tests.integration.ranged_shard import ASSIGNMENTS, EVERYTHING, HELD, RangedShard, Workers, join, meet, named
from tests.integration.scripted import LEASES, Object, Script, ScriptedShard
from tests.integration.world import LONE_SECRETS, Ring

QUICK = LeaseTimings(lease_duration=4, renew_deadline=3, retry_period=0.3)
FOR_EVER = 3600.0
FIRST = "0x0000000000000000"
NAMESPACES = [f"faulty-{number}" for number in range(16)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane() -> AsyncIterator[ControlPlane]:
    async with ControlPlane() as plane:
        await plane.apply(REPOSITORY / "crds", REPOSITORY / "rbac" / "sharder.yaml")
        async with plane.admin() as admin:
            for name in NAMESPACES:
                await admin.create("v1/namespaces", {"metadata": {"name": name}})
        yield plane


@pytest_asyncio.fixture
async def own(plane: ControlPlane) -> AsyncIterator[AdminClient]:
    async with plane.admin() as admin:
        yield admin


class Ranged:
    """A ring by ranges with shards that know the contract alone."""

    def __init__(self, stage: Stage, ring: Ring) -> None:
        self.stage = stage
        self.ring = ring
        self.workers = Workers()
        self.shards: dict[str, RangedShard] = {}

    async def start(self, *names: str, drain_seconds: float = 0.1) -> None:
        for name in names:
            shard = RangedShard(self.stage.admin, self.ring.name, "default", name, self.workers)
            shard.drain_seconds = drain_seconds
            self.stage.shards.append(shard)
            self.shards[name] = shard
            await shard.start()

    async def share(self, *names: str) -> None:
        """Start these shards and a sharder; returns once they share everything."""
        await self.start(*names)
        await self.stage.sharder()
        await self.workers.until_spread(*names)

    async def assignment(self) -> Object:
        return await self.stage.admin.get(ASSIGNMENTS, self.ring.name)

    async def until(self, holds: Any) -> Object:
        """Wait until the RingAssignment is there, and so."""

        def found(assignments: list[Object]) -> Object | None:
            mine = (each for each in assignments if each["metadata"]["name"] == self.ring.name)
            return next((each for each in mine if holds(each)), None)

        return await self.stage.admin.eventually(ASSIGNMENTS, found)


@asynccontextmanager
async def ranged(plane: ControlPlane, admin: AdminClient, name: str) -> AsyncIterator[Ranged]:
    async with set_stage(plane, admin, name) as stage:
        spec: dict[str, Any] = {"assignment": "Ranges", "hashBy": "Namespace", "namespaceSelector": None}
        ring = await stage.ring(LONE_SECRETS, name=name, grant=False, shards_may=False, **spec)
        made = Ranged(stage, ring)
        yield made
        assert not made.workers.met


def whole(assignment: Object) -> bool:
    """Whether somebody is named for everything."""
    return not named(assignment, None)


@pytest.mark.timeout(300)
async def test_an_assignment_that_somebody_deletes_or_disorders_is_rebuilt_and_nothing_moves(
    plane: ControlPlane, own: AdminClient
) -> None:
    async with ranged(plane, own, "edited") as on:
        await on.share("one", "two", "three")
        before = await on.until(whole)
        working = dict(on.workers.working)

        await own.delete(ASSIGNMENTS, on.ring.name)
        rebuilt = await on.until(lambda each: each["metadata"]["uid"] != before["metadata"]["uid"] and whole(each))
        assert rebuilt["spec"] == before["spec"]
        assert rebuilt["metadata"]["ownerReferences"][0]["name"] == on.ring.name

        spec = rebuilt["spec"]
        disorder = {"ranges": [spec["ranges"][0], *reversed(spec["ranges"][1:])]}
        await own.patch(ASSIGNMENTS, on.ring.name, {"spec": disorder})
        assert (await on.until(lambda each: each["spec"] == spec))["metadata"]["uid"] == rebuilt["metadata"]["uid"]
        assert on.workers.working == working, "nothing has moved"

        await own.patch(ASSIGNMENTS, on.ring.name, {"spec": {"ranges": [{"start": FIRST, "shard": "one"}]}})
        await on.until(lambda each: whole(each) and named(each, "two") and named(each, "three"))
        await on.workers.until_spread("one", "two", "three")


@pytest.mark.timeout(300)
async def test_a_sharder_that_is_killed_in_the_middle_of_a_handover_is_followed_by_one_that_ends_it(
    plane: ControlPlane, own: AdminClient
) -> None:
    async with ranged(plane, own, "killed") as on:
        await on.start("one", "two", drain_seconds=5.0)
        first = await on.stage.sharder(timings=QUICK)
        await on.workers.until_spread("one", "two")
        await on.until(whole)
        await on.start("three")
        await on.until(lambda each: not whole(each))
        await first.crash()
        halfway = await on.assignment()
        assert not whole(halfway), "its shards have not let go yet"
        await on.stage.sharder(timings=QUICK)
        await on.workers.until_spread("one", "two", "three")


@pytest.mark.timeout(300)
async def test_a_shard_that_never_lets_go_keeps_what_it_has_holds_up_nobody_else_and_is_told_of(
    plane: ControlPlane, own: AdminClient
) -> None:
    async with ranged(plane, own, "stubborn") as on:
        await on.start("one", drain_seconds=FOR_EVER)
        await on.start("two")
        sharder = await on.stage.sharder(drain_alarm_seconds=1.0)
        await on.workers.until_spread("one", "two")
        before = await on.until(whole)
        await on.start("three")
        condition = await on.ring.condition("DrainsAcknowledged", "False", says="one")
        assert "0x" in condition["message"], "and which range"
        assert (await on.ring.events("Overdue"))["type"] == "Warning"
        labels = {"ringName": on.ring.name}
        assert sharder.metric("ranges_in_transit", **labels) > 0
        assert sharder.metric("oldest_drain_age_seconds", **labels) >= 1.0
        while not on.workers.working.get("three"):
            await on.workers.changed.wait()
        kept = named(before, "one")
        assert not meet(on.workers.working["three"], kept), "two has let go of its part, and one of nothing"

        await on.shards["one"].crash()  # what people are told to do: its process is ended
        await on.workers.until_spread("two", "three")
        await on.ring.condition("DrainsAcknowledged")


@pytest.mark.timeout(300)
async def test_two_sharders_at_once_that_know_nothing_of_each_other_share_a_ring_out(
    plane: ControlPlane, own: AdminClient
) -> None:
    async with ranged(plane, own, "rivals") as on:
        await on.start("one", "two")
        await on.stage.sharder()
        await on.stage.sharder(lease_name="sharder-rival")
        await on.workers.until_spread("one", "two")
        await on.start("three", "four")
        await on.workers.until_spread("one", "two", "three", "four")
        await on.shards["one"].release()
        await on.workers.until_spread("two", "three", "four")
        await on.shards["two"].crash()
        await on.workers.until_spread("three", "four")


@pytest.mark.timeout(300)
async def test_a_process_that_knows_labels_alone_inherits_no_range_under_the_name_of_a_crashed_shard(
    plane: ControlPlane, own: AdminClient
) -> None:
    async with ranged(plane, own, "inherited") as on:
        await on.share("one", "two")
        await on.shards["one"].crash()
        labelled = ScriptedShard(own, on.ring.name, ("", ""), "default", "one", (), Script(go_like=True))
        on.stage.shards.append(labelled)
        await labelled.start()
        lease = await own.get(LEASES, "one", "default")
        assert not lease["metadata"]["annotations"][HELD].endswith(lease["spec"]["renewTime"]), (
            "it leaves what it finds"
        )
        await on.workers.until_spread("two")
        assert (await on.ring.condition("ShardsFit", "False", says="one"))["reason"] == "LabelsOnly"
        assert not labelled.lost.is_set()


@pytest.mark.timeout(300)
async def test_a_shard_that_stands_still_beyond_its_lease_comes_back_to_nothing(
    plane: ControlPlane, own: AdminClient
) -> None:
    async with ranged(plane, own, "suspended") as on:
        await on.share("one", "two", "three")
        stopped = on.shards["two"]
        stopped.pause()
        on.workers.set("two", frozenset())  # what stands still does nothing
        await on.workers.until_spread("one", "three")
        stopped.resume()
        await asyncio.wait_for(stopped.lost.wait(), 30)
        assert join(*on.workers.working.values()) == EVERYTHING
        await stopped.restart()
        await on.workers.until_spread("one", "two", "three")
