"""For how long a Lease is missed that a shard of a ring by ranges held, while looks at it fail."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sharder.core.observed import UNSEEN_SECONDS
from sharder.ranges.homes import Homes
from sharder.ranges.store import AssignmentStore, Read
from shardsdk.errors import Forbidden, ServerError
from shardsdk.protocol.leases import RELEASED_DURATION_SECONDS, Lease
from shardsdk.protocol.objects import LEASES, Resource
from shardsdk.protocol.ranges import EVERYWHERE, RING_ASSIGNMENTS, HashBy
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import SHARDS, lease
from tests.unit.sharder.ranges.rig import sharder
from tests.unit.sharder.ranges.test_homes import ELSEWHERE, twins
from tests.unit.sharder.ranges.test_homes_lost import three


@pytest.mark.parametrize("meanwhile", ["nothing", "one failed look", "an outage", "it is named elsewhere"])
@in_virtual_time
async def test_a_lease_is_missed_from_when_it_was_looked_for_all_the_time(clock: VirtualClock, meanwhile: str) -> None:
    """While nobody could look, it may have been made and deleted once more."""
    homes, said = Homes(clock), {"a": [SHARDS]}
    body = lease(clock, "a", holder="", duration=RELEASED_DURATION_SECONDS)
    body["metadata"] |= {"namespace": ELSEWHERE}
    leases = [msgspec.convert(body, Lease)]

    def gone() -> bool:
        homes.read(leases, {"a": EVERYWHERE}, said, (), lambda shard: False, {"a"})
        return "a" in homes.gone

    assert gone()
    await clock.sleep(UNSEEN_SECONDS - 5)
    assert gone()
    await clock.sleep(4 if meanwhile == "an outage" else 1)
    if meanwhile in ("one failed look", "an outage"):
        homes.miss(clock.monotonic())
    elif meanwhile == "it is named elsewhere":
        said["a"] = ["third"]
    assert gone()
    await clock.sleep(5)
    assert gone() == (meanwhile in ("an outage", "it is named elsewhere"))
    await clock.sleep(UNSEEN_SECONDS)
    assert not gone()


@in_virtual_time
async def test_looks_that_fail_have_it_missed_anew(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with twins(clock, monkeypatch) as world:
        stage = world.ring.stage
        async with sharder(stage):
            a, c = world.start("a"), world.start("c")
            await world.until_held(a, c)
            second = world.start("a", ELSEWHERE)
            await stage.pass_time(5)
        world.give_back(second)
        a.process.kill()
        stage.server.delete(LEASES, "a", SHARDS)
        async with sharder(stage):
            await stage.pass_time(UNSEEN_SECONDS - 5)
            get = stage.server.get

            def fail(of: Resource, *args: Any, **said: Any) -> Any:
                if of == RING_ASSIGNMENTS:
                    raise ServerError("etcdserver: leader changed", status=500)
                return get(of, *args, **said)

            monkeypatch.setattr(stage.server, "get", fail)
            await stage.pass_time(10)
            monkeypatch.setattr(stage.server, "get", get)
            await stage.pass_time(UNSEEN_SECONDS - 1)
            assert c.owns() != EVERYWHERE
            await world.until_held(c)


@pytest.mark.parametrize("failing", ["reads, now and then", "what is told to people"])
@in_virtual_time
async def test_failures_that_come_back_leave_nothing_nobodys_for_ever(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage):
        a, c, second = await three(world)
        looks = 0
        read = AssignmentStore.read

        async def refuse(store: AssignmentStore, status: Any) -> None:
            raise Forbidden("ringassignments/status is forbidden", status=403)

        async def fail_at_times(store: AssignmentStore, by: HashBy) -> Read:
            nonlocal looks
            looks += 1
            if looks % 5 == 0:
                raise ServerError("etcdserver: request timed out", status=500)
            return await read(store, by)

        if failing == "reads, now and then":
            monkeypatch.setattr(AssignmentStore, "read", fail_at_times)
        else:
            monkeypatch.setattr(AssignmentStore, "write_status", refuse)
        a.process.kill()
        world.ring.stage.server.delete(LEASES, "a", SHARDS)
        await world.until_held(second, c)
