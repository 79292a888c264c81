"""Shards that move to another namespace under their names, in order or because what ran them is gone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import msgspec
import pytest

import tests.ranges_rig as rig
from sharder.core.observed import UNSEEN_SECONDS
from sharder.ranges.homes import Homes
from sharder.ranges.weights import Budget
from shardsdk.errors import ShardingError
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.leases import Lease, render_micro_time
from shardsdk.protocol.objects import LEASES, Resource
from shardsdk.protocol.ranges import EVERYWHERE, HELD_RANGES_ANNOTATION, RING_ASSIGNMENTS, Named
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import SHARDS, lease
from tests.unit.sharder.ranges.rig import by_cells, ranged, sharder
from tests.unit.sharder.ranges.test_candidates import told_idle
from tests.unit.sharder.ranges.test_homes import ELSEWHERE, twins

GIVEN_BACK = {"metadata": {"annotations": None}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}


@in_virtual_time
async def test_all_that_crash_here_and_start_elsewhere_have_everything_again(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shard of another name is there for which anything would be taken over."""
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage):
        crashed = [world.start(name) for name in "ab"]
        await world.until_held(*crashed)
        for each in crashed:
            each.process.kill()
        await world.ring.stage.pass_time(5)
        await world.until_held(*[world.start(name, ELSEWHERE) for name in "ab"])
        assert world.homes() == {"a": ELSEWHERE, "b": ELSEWHERE}


@in_virtual_time
async def test_so_has_the_only_one_when_its_lease_here_was_left_to_its_next_process(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage):
        a = world.start("a")
        await world.until_held(a)
        a.process.kill()
        spec = {"leaseDurationSeconds": 40, "renewTime": render_micro_time(clock.now())}
        left = {"metadata": {"annotations": {HELD_RANGES_ANNOTATION: None}}, "spec": spec}
        world.ring.stage.server.patch(LEASES, "a", SHARDS, left)
        await world.until_held(world.start("a", ELSEWHERE))
        assert world.homes() == {"a": ELSEWHERE}


@in_virtual_time
async def test_those_that_moved_while_an_older_sharder_was_there_go_on_with_one_that_knows_namespaces(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world:
        async with sharder(world.ring.stage):
            crashed = [world.start(name) for name in "ab"]
            await world.until_held(*crashed)
        for each in crashed:
            each.process.kill()
        await world.ring.stage.pass_time(30)
        world.forget_homes()
        moved = [world.start(name, ELSEWHERE) for name in "ab"]
        await world.until_held(*moved)
        async with sharder(world.ring.stage):
            await world.ring.stage.until(lambda: world.homes() == {"a": ELSEWHERE, "b": ELSEWHERE})
            await world.until_held(*moved)


@pytest.mark.parametrize("seconds", [0.0, 1.0, 3.0])
@in_virtual_time
async def test_one_that_is_back_before_its_name_is_bound_elsewhere_meets_nobody(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """What the sharder writes takes so long to arrive that the first reads it is named still, and begins again."""
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage):
        a, c = world.start("a"), world.start("c")
        await world.until_held(a, c)
        world.start("a", ELSEWHERE)
        await world.ring.stage.pass_time(5)
        api, delays = world.ring.stage.api, [seconds]
        patch = api.patch

        async def patch_late(of: Any, name: str, *args: Any, **said: Any) -> Any:
            if of == RING_ASSIGNMENTS and said.get("subresource") is None and delays:
                await clock.sleep(delays.pop())
            return await patch(of, name, *args, **said)

        monkeypatch.setattr(api, "patch", patch_late)
        a.process.kill()  # an orderly end: nothing runs, and it is given back
        world.ring.stage.server.patch(LEASES, "a", SHARDS, GIVEN_BACK)
        await world.ring.stage.pass_time(0.5)
        world.start("a").ends_in = 2
        await world.ring.stage.pass_time(10)
        assert not delays
        await world.ring.stage.until(lambda: sum(each.owns().width for each in world.members) == EVERYWHERE.width)


@in_virtual_time
async def test_a_lease_that_was_deleted_counts_for_as_long_as_it_said_though_its_name_is_held_elsewhere(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage):
        monkeypatch.setattr(rig, "LeaseTimings", lambda: LeaseTimings.of(60))
        a = world.start("a")
        monkeypatch.setattr(rig, "LeaseTimings", LeaseTimings)
        c = world.start("c")
        await world.until_held(a, c)
        second = world.start("a", ELSEWHERE)
        await world.ring.stage.pass_time(5)
        a.ends_in = 100  # its fence is what ends its work
        a.keeper_slowness = 1e6  # it cannot put back what is taken away
        world.ring.stage.server.delete(LEASES, "a", SHARDS)
        await world.until_held(second, c)


@in_virtual_time
async def test_a_shard_that_may_not_begin_yet_is_not_judged_for_taking_nothing(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is named for by its name is the first's, whose Lease lasts for two minutes."""
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage) as assignment:
        monkeypatch.setattr(rig, "LeaseTimings", lambda: LeaseTimings.of(120))
        a = world.start("a")
        monkeypatch.setattr(rig, "LeaseTimings", LeaseTimings)
        await world.until_held(a)
        second = world.start("a", ELSEWHERE)
        await world.ring.stage.pass_time(5)
        a.process.kill()
        world.ring.stage.server.delete(LEASES, "a", SHARDS)
        await world.ring.stage.until(lambda: second.owns() == EVERYWHERE, seconds=300)
        assert not told_idle(assignment)


@pytest.mark.parametrize("lacks", [LEASES, RING_ASSIGNMENTS])
@in_virtual_time
async def test_others_get_what_one_does_not_take_that_may_not_look(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, lacks: Resource
) -> None:
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage) as assignment:
        a, b = world.start("a"), world.start("b")
        pages, get = b.api.pages, b.api.get

        def refuse(read: Any, of: Resource, *args: Any, **said: Any) -> Any:
            if of == lacks:
                raise ShardingError("forbidden")
            return read(of, *args, **said)

        monkeypatch.setattr(b.api, "pages", partial(refuse, pages))
        monkeypatch.setattr(b.api, "get", partial(refuse, get))
        await world.ring.stage.until(lambda: told_idle(assignment) == {"b"}, seconds=300)
        await world.until_held(a)


@pytest.mark.parametrize("holder", ["z", ""])
@in_virtual_time
async def test_a_lease_of_68_years_holds_nothing_of_others_up(clock: VirtualClock, holder: str) -> None:
    """Whoever has emptied it: what its own shard may count on is the takeover's to know."""
    homes = Homes(clock)

    def read() -> Collection[str]:
        bodies = lease(clock, "a"), lease(clock, "z", holder=holder, duration=2**31 - 1)
        for body in bodies:
            body["metadata"]["namespace"] = ELSEWHERE
        leases = [msgspec.convert(body, Lease) for body in bodies]
        homes.read(leases, {"a": EVERYWHERE}, {"a": [SHARDS]}, (), lambda shard: False, "a")
        return homes.gone.keys()

    assert read() == {"a"}
    await clock.sleep(UNSEEN_SECONDS - 1)
    assert read() == {"a"}
    await clock.sleep(2)
    assert not read()
    assert homes.of["a"] == ELSEWHERE


@in_virtual_time
async def test_a_ring_without_shards_is_not_looked_at_though_ranges_were_to_move_for_evenness(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Budget, "left_in", lambda budget: 0.3)

    def swapped(
        named: Named, shards: Collection[str], points: Mapping[int, float], **options: Collection[str]
    ) -> Named:
        made = by_cells(named, shards, points, **options)
        if named.nobodys or not made.shards.keys() >= {"a", "b"}:
            return made
        return Named(made.by, {"a": made.of("b"), "b": made.of("a")})

    async with ranged(clock, "a", "b") as ring, sharder(ring.stage, cut=swapped):
        await ring.until_spread("a", "b")
        for shard in "ab":
            await ring.shards[shard].leave()
        await ring.stage.pass_time(60)
        before = ring.stage.api.requests.count("get")
        await ring.stage.pass_time(60)
        assert ring.stage.api.requests.count("get") == before


@in_virtual_time
async def test_nobody_is_told_that_there_is_no_shard_while_there_are_some(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring:
        await ring.stage.pass_time(3)
        told: list[str] = []
        for names in (("a", "b"), ("a", "b", "c")):
            async with sharder(ring.stage) as assignment:

                def tell() -> None:
                    summary = assignment.summarize().ranges
                    told.append((summary.moving if summary is not None else None) or "")

                assignment.when_changed.append(tell)
                if "c" in names:
                    ring.start("c")
                await ring.until_spread(*names)
        assert any("hands" in each for each in told)
        assert not [each for each in told if "no shard" in each]
