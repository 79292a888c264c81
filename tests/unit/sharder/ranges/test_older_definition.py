"""A sharder on the definition of an older one: what that drops is told with a remedy, and written again in time."""

from __future__ import annotations

import pytest

from sharder.ranges.store import AGAIN_SECONDS
from shardsdk.protocol.leases import RELEASED_DURATION_SECONDS
from shardsdk.protocol.objects import LEASES, Resource
from shardsdk.protocol.ranges import EVERYWHERE, RING_ASSIGNMENTS
from shardsdk.testing.memory import MemoryServer, Object
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, SHARDS, leading, lease, make_stage, ring
from tests.unit.sharder.ranges.rig import sharder
from tests.unit.sharder.ranges.shards import RangedShard, Workers
from tests.unit.sharder.ranges.test_homes import ELSEWHERE, twins
from tests.unit.sharder.ranges.test_transit import HIGH, LOW, fixed


class Older:
    """What an API server drops of each range by the definition that it has."""

    def __init__(self, server: MemoryServer, *fields: str) -> None:
        self.fields = fields
        server.admit = self._drop

    def _drop(self, verb: str, resource: Resource, old: Object | None, new: Object) -> Object:
        if resource == RING_ASSIGNMENTS:
            for each in new.get("spec", {}).get("ranges", ()):
                for field in self.fields:
                    each.pop(field, None)
        return new


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [each for each in caplog.records if each.name == "sharder.ranges.store"]
    assert all("sharder crds --apply" in each.message for each in records)
    return [str(each.__dict__["fields"]) for each in records]


@in_virtual_time
async def test_namespaces_that_are_dropped_are_told_once_and_written_again_once_they_are_not(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with twins(clock, monkeypatch) as world:
        older = Older(world.ring.stage.server, "namespace")
        async with sharder(world.ring.stage) as assignment:
            a, c = world.start("a"), world.start("c")
            await world.until_held(a, c)
            ranges = assignment.summarize().ranges
            assert ranges is not None
            assert ranges.dropped == {"namespace"}
            before, writes = world.ring.named(), world.ring.writes()
            await world.ring.stage.pass_time(AGAIN_SECONDS * 2)
            assert world.ring.writes() - writes <= 4
            assert told(caplog) == ["namespace"]
            older.fields = ()
            await world.ring.stage.until(
                lambda: world.homes() == {"a": SHARDS, "c": SHARDS}, seconds=AGAIN_SECONDS + 10
            )
            assert world.ring.named() == before
            ranges = assignment.summarize().ranges
            assert ranges is not None
            assert ranges.dropped == frozenset()
            await world.ring.stage.pass_time(10)
            writes = world.ring.writes()
            await world.ring.stage.pass_time(AGAIN_SECONDS * 2)
            assert world.ring.writes() == writes


@in_virtual_time
async def test_whose_ranges_were_and_are_to_be_is_told_once_for_however_many(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with twins(clock, monkeypatch) as world:
        Older(world.ring.stage.server, "from", "to")
        async with sharder(world.ring.stage, fixed(a=LOW, b=HIGH)):
            a, b = world.start("a"), world.start("b")
            await world.until_held(a, b)
            assert told(caplog) == []
        async with sharder(world.ring.stage, fixed(a=HIGH, b=LOW)):
            await world.ring.stage.until(lambda: (a.owns(), b.owns()) == (HIGH, LOW))
        assert told(caplog) == ["from, to"]


@in_virtual_time
async def test_whoever_works_is_waited_for_though_another_of_its_name_has_given_its_lease_back(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its Lease, which somebody has deleted, and not by the one elsewhere: nothing says which of them is named."""
    async with twins(clock, monkeypatch) as world:
        Older(world.ring.stage.server, "namespace", "from", "to")
        async with sharder(world.ring.stage, fixed(a=EVERYWHERE)):
            a, b = world.start("a"), world.start("b")
            await world.until_held(a)
        left = {"holderIdentity": "", "leaseDurationSeconds": RELEASED_DURATION_SECONDS}
        body = lease(clock, "a")
        body["metadata"]["namespace"] = ELSEWHERE
        world.ring.stage.server.create(LEASES, body | {"spec": body["spec"] | left}, ELSEWHERE)
        a.ends_in = 60  # its fence is what ends its work
        a.keeper_slowness = 1e6  # it cannot put back what is taken away
        world.ring.stage.server.delete(LEASES, "a", SHARDS)
        async with sharder(world.ring.stage, fixed(b=EVERYWHERE)):
            await world.until_held(b)


@in_virtual_time
async def test_the_ring_has_an_event_with_the_remedy_and_stays_ready(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.api.served.append(RING_ASSIGNMENTS)
    Older(stage.server, "namespace")
    stage.set_up(ring(ALONE, assignment="Ranges", hashBy="UID"))
    RangedShard("a", stage.server, clock, Workers()).start()
    async with leading(stage):
        await stage.until(lambda: bool(stage.events.of("DefinitionOutdated")))
        await stage.pass_time(120)
        [event] = stage.events.of("DefinitionOutdated")
        assert "drops namespace" in event
        assert "sharder crds --apply" in event
        assert stage.condition("Ready") == "True"
