"""Two shards of one name in two namespaces: one of them is named, and the other begins nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import msgspec
import pytest

import tests.ranges_rig as rig
from sharder.core.ranges import homes_for
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.leases import RELEASED_DURATION_SECONDS
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import (
    EVERYWHERE,
    HELD_RANGES_ANNOTATION,
    NOWHERE,
    RING_ASSIGNMENTS,
    HashRanges,
    RingAssignmentSpec,
    homes_of,
)
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.ranges_rig import Member
from tests.unit.sharder.placement.stage import RING, SHARDS
from tests.unit.sharder.ranges.rig import Ring, ranged, sharder

ELSEWHERE = "elsewhere"


@pytest.mark.parametrize(
    ("said", "there", "lasting", "homes"),
    [
        ({}, {"a": {"x"}}, (), {"a": "x"}),
        ({"a": ""}, {"a": {"x"}}, (), {"a": "x"}),
        ({"a": "x"}, {"a": {"x", "y"}}, (), {"a": "x"}),
        ({"a": "x"}, {}, (), {"a": "x"}),
        ({"a": "x"}, {"a": {"y"}}, ("a",), {"a": "x"}),
        ({"a": "x"}, {"a": {"y"}}, (), {"a": "y"}),
        ({"a": "x"}, {"a": {"y", "z"}}, (), {}),
        ({"a": ""}, {"a": {"x", "y"}}, (), {}),
        ({}, {"a": {"x", "y"}}, (), {}),
        ({"a": ""}, {}, (), {}),
        ({"a": ""}, {"a": {"x"}}, ("a",), {}),
        ({}, {"a": {"x"}}, ("a",), {}),
    ],
)
def test_a_name_stays_bound_to_a_namespace_until_nothing_can_be_left_of_its_shard_there(
    said: dict[str, str], there: dict[str, set[str]], lasting: tuple[str, ...], homes: dict[str, str]
) -> None:
    assert homes_for(said, there, lasting) == homes


@dataclass
class World:
    """What a `Member` wants of one."""

    server: MemoryServer
    clock: VirtualClock


class Twins:
    """Processes of the SDK in namespaces of their own, in a ring whose sharder is the real one."""

    def __init__(self, ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ring = ring
        self.members: list[Member] = []
        self._patch = monkeypatch
        monkeypatch.setattr(rig, "RING", RING)

    def start(self, name: str, namespace: str = SHARDS) -> Member:
        self._patch.setattr(rig, "NAMESPACE", namespace)
        world: Any = World(self.ring.stage.server, self.ring.stage.clock)
        member = Member(world, name, len(self.members) + 1)
        self.members.append(member)
        member.process.start(member.run())
        return member

    def give_back(self, member: Member) -> None:
        """What is left of one that has ended in order."""
        member.process.kill()
        released = {"spec": {"holderIdentity": "", "leaseDurationSeconds": RELEASED_DURATION_SECONDS}}
        self.ring.stage.server.patch(LEASES, member.name, member.lease.namespace, released)

    async def until_held(self, *members: Member) -> None:
        await self.ring.stage.until(
            lambda: (
                self.ring.stage.server.find(RING_ASSIGNMENTS, RING) is not None
                and not self.ring.named().nobodys
                and {each for each in self.members if each.owns()} == set(members)
                and sum(each.owns().width for each in members) == EVERYWHERE.width
            )
        )

    def homes(self) -> dict[str, str]:
        found = self.ring.stage.server.find(RING_ASSIGNMENTS, RING)
        assert found is not None
        said = homes_of(msgspec.convert(found["spec"], RingAssignmentSpec))
        return {shard: " or ".join(sorted(homes)) for shard, homes in said.items()}

    def forget_homes(self) -> None:
        """As of an older sharder, and of who edits the object by hand."""
        found = self.ring.stage.server.find(RING_ASSIGNMENTS, RING)
        assert found is not None
        ranges = [
            {part: said for part, said in each.items() if part != "namespace"} for each in found["spec"]["ranges"]
        ]
        self.ring.stage.server.patch(RING_ASSIGNMENTS, RING, None, {"spec": {"ranges": ranges}})


@asynccontextmanager
async def twins(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Twins]:
    """A ring by ranges in which no two may ever own one point."""
    async with ranged(clock) as ring:
        made = Twins(ring, monkeypatch)
        met: list[str] = []
        watching = asyncio.create_task(_watch(made, met))
        yield made
        watching.cancel()
        assert not met, met[0]


async def _watch(twins: Twins, met: list[str]) -> None:
    while True:
        for one, other in combinations(twins.members, 2):
            if both := one.owns() & other.owns():
                met.append(f"{twins.ring.stage.clock.monotonic():.3f}: {one.name} and {other.name} both have {both}")
        await asyncio.sleep(0.003)


@in_virtual_time
async def test_the_second_of_a_name_begins_nothing_and_takes_nothing_from_the_first(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage):
        a, c = world.start("a"), world.start("c")
        await world.until_held(a, c)
        assert world.homes() == {"a": SHARDS, "c": SHARDS}
        before = world.ring.named()
        second = world.start("a", ELSEWHERE)
        await world.ring.stage.pass_time(60)
        assert (second.running, world.ring.named()) == (NOWHERE, before)
        await world.until_held(a, c)


@in_virtual_time
async def test_it_has_what_the_first_had_once_that_is_gone(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage):
        a, c = world.start("a"), world.start("c")
        await world.until_held(a, c)
        second = world.start("a", ELSEWHERE)
        await world.ring.stage.pass_time(5)
        a.process.kill()
        await world.until_held(second, c)
        assert world.homes() == {"a": ELSEWHERE, "c": SHARDS}


@pytest.mark.parametrize("meddling", ["deleted", "emptied"])
@in_virtual_time
async def test_but_not_while_the_first_may_work_though_its_lease_does_not_say_so(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, meddling: str
) -> None:
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage):
        a, c = world.start("a"), world.start("c")
        await world.until_held(a, c)
        second = world.start("a", ELSEWHERE)
        await world.ring.stage.pass_time(5)
        a.ends_in = 60  # its fence is what ends its work
        a.keeper_slowness = 1e6  # it cannot put back what is taken away
        server = world.ring.stage.server
        if meddling == "deleted":
            server.delete(LEASES, "a", SHARDS)
        else:
            server.patch(LEASES, "a", SHARDS, {"spec": {"holderIdentity": "", "leaseDurationSeconds": 15}})
        await world.until_held(second, c)
        assert world.homes()["a"] == ELSEWHERE


@pytest.mark.parametrize("given_back", [False, True])
@in_virtual_time
async def test_nor_for_a_leader_that_comes_after_the_lease_was_deleted(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, given_back: bool
) -> None:
    """Nor while the second has ended, so that the sharder could take its Lease over at once."""
    async with twins(clock, monkeypatch) as world:
        async with sharder(world.ring.stage):
            a, c = world.start("a"), world.start("c")
            await world.until_held(a, c)
            second = world.start("a", ELSEWHERE)
            await world.ring.stage.pass_time(5)
        a.ends_in = 60  # its fence is what ends its work
        a.keeper_slowness = 1e6
        world.ring.stage.server.delete(LEASES, "a", SHARDS)
        if given_back:
            world.give_back(second)
        async with sharder(world.ring.stage):
            await world.until_held(*([c] if given_back else [second, c]))


@in_virtual_time
async def test_where_nobody_can_tell_which_was_named_both_let_go_and_others_have_it(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second began under an assignment that bound no name, while no sharder was there."""
    async with twins(clock, monkeypatch) as world:
        async with sharder(world.ring.stage):
            a, c = world.start("a"), world.start("c")
            await world.until_held(a, c)
        second = world.start("a", ELSEWHERE)
        await world.ring.stage.until(lambda: world.ring.stage.server.find(LEASES, "a", ELSEWHERE) is not None)
        world.forget_homes()
        second.process.kill()  # one that looked would work on what the first has
        server = world.ring.stage.server

        def hold(ranges: HashRanges) -> None:
            server.patch(LEASES, "a", ELSEWHERE, {"metadata": {"annotations": {HELD_RANGES_ANNOTATION: str(ranges)}}})

        hold(world.ring.named().of("a"))
        async with sharder(world.ring.stage):
            await world.ring.stage.until(lambda: not world.ring.named().of("a"))
            hold(NOWHERE)
            await world.until_held(c)
            assert world.ring.named().shards == {"c": EVERYWHERE}
            server.patch(LEASES, "a", ELSEWHERE, {"spec": {"holderIdentity": SHARDER_HOLDER}})
            await world.until_held(a, c)
            assert world.homes() == {"a": SHARDS, "c": SHARDS}


@in_virtual_time
async def test_an_assignment_that_an_older_sharder_wrote_is_bound_without_anything_changing_hands(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage):
        a, c = world.start("a"), world.start("c")
        await world.until_held(a, c)
        before, changes = world.ring.named(), [len(each.changes) for each in (a, c)]
        world.forget_homes()
        await world.ring.stage.until(lambda: world.homes() == {"a": SHARDS, "c": SHARDS})
        assert (world.ring.named(), [len(each.changes) for each in (a, c)]) == (before, changes)


@in_virtual_time
async def test_a_definition_that_drops_the_namespaces_is_not_written_again_and_again(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world:
        server = world.ring.stage.server
        patch, create = server.patch, server.create

        def drop(body: Any) -> Any:
            for each in body.get("spec", {}).get("ranges", []):
                each.pop("namespace", None)
            return body

        def patch_less(of: Any, name: str, namespace: str | None, body: Any, *args: Any, **said: Any) -> Any:
            return patch(of, name, namespace, drop(body), *args, **said)

        monkeypatch.setattr(server, "patch", patch_less)
        monkeypatch.setattr(server, "create", lambda of, body, *more: create(of, drop(body), *more))
        async with sharder(world.ring.stage):
            a, c = world.start("a"), world.start("c")
            await world.until_held(a, c)
            writes = world.ring.writes()
            await world.ring.stage.pass_time(60)
            assert world.ring.writes() - writes <= 2
            assert set(world.homes().values()) == {""}
