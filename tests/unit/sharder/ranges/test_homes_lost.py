"""Two shards of one name, whose RingAssignment is edited, deleted, or written by a sharder that knows no namespaces."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import tests.ranges_rig as rig
from sharder.core.observed import UNSEEN_SECONDS
from sharder.ranges.homes import Homes
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.labels import INSTANCE_ANNOTATION
from shardsdk.protocol.leases import Lease, render_instance, render_micro_time
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import EVERYWHERE, HELD_RANGES_ANNOTATION, NOWHERE, RING_ASSIGNMENTS, HashRanges
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.ranges_rig import Member
from tests.unit.sharder.placement.stage import RING, SHARDS, lease
from tests.unit.sharder.ranges.rig import ranged, sharder
from tests.unit.sharder.ranges.test_homes import ELSEWHERE, Twins, twins


async def three(world: Twins) -> tuple[Member, Member, Member]:
    """The first `a` and `c`, which have everything, and the second `a`, which has nothing."""
    a, c = world.start("a"), world.start("c")
    await world.until_held(a, c)
    second = world.start("a", ELSEWHERE)
    await world.ring.stage.pass_time(5)
    return a, c, second


def edit_one(world: Twins, of: str, **said: str) -> None:
    """Have the first range of `of` say this, and no namespace but that."""
    found = world.ring.stage.server.find(RING_ASSIGNMENTS, RING)
    assert found is not None
    ranges: list[dict[str, Any]] = [dict(each) for each in found["spec"]["ranges"]]
    which = next(each for each in ranges if each.get("shard") == of)
    which.pop("namespace")
    which |= said
    world.ring.stage.server.patch(RING_ASSIGNMENTS, RING, None, {"spec": {"ranges": ranges}})


@pytest.mark.parametrize("of", ["a", "c"])
@in_virtual_time
async def test_a_range_that_somebody_names_a_for_without_a_namespace_is_that_of_the_first(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage):
        a, c, second = await three(world)
        width = world.ring.named().of("a").width
        edit_one(world, of, shard="a")
        await world.ring.stage.pass_time(1)
        await world.until_held(a, c)
        assert world.ring.named().of("a").width >= width
        assert not second.changes
        assert world.homes() == {"a": SHARDS, "c": SHARDS}


@in_virtual_time
async def test_nor_does_the_second_begin_while_no_sharder_is_there(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world:
        async with sharder(world.ring.stage):
            a, c, _ = await three(world)
        edit_one(world, "a")
        await world.ring.stage.pass_time(60)
        async with sharder(world.ring.stage):
            await world.until_held(a, c)
            assert world.homes() == {"a": SHARDS, "c": SHARDS}


@in_virtual_time
async def test_what_somebody_gives_the_second_by_hand_goes_on_only_once_both_have_let_go(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage):
        a, c, second = await three(world)
        a.ends_in = second.ends_in = 3
        edit_one(world, "c", shard="a", namespace=ELSEWHERE)
        await world.until_held(c)
        second.process.kill()
        await world.until_held(a, c)


@in_virtual_time
async def test_an_older_sharder_gives_the_second_nothing_that_has_read_whose_its_name_is(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world:
        async with sharder(world.ring.stage):
            a, c, second = await three(world)
        world.forget_homes()
        await world.ring.stage.pass_time(60)
        await world.until_held(a, c)
        async with sharder(world.ring.stage):
            await world.ring.stage.until(lambda: world.homes() == {"a": SHARDS, "c": SHARDS})
            await world.until_held(a, c)
            assert not second.changes


@in_virtual_time
async def test_a_deleted_assignment_is_made_again_for_the_first(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage):
        a, c, _ = await three(world)
        before = world.ring.named()
        world.ring.stage.server.delete(RING_ASSIGNMENTS, RING)
        await world.ring.stage.pass_time(30)
        assert world.ring.named() == before
        await world.until_held(a, c)


@in_virtual_time
async def test_also_by_a_leader_that_has_just_come(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with twins(clock, monkeypatch) as world:
        async with sharder(world.ring.stage):
            a, c, _ = await three(world)
            before = world.ring.named()
        world.ring.stage.server.delete(RING_ASSIGNMENTS, RING)
        async with sharder(world.ring.stage):
            await world.ring.stage.pass_time(30)
            assert world.ring.named() == before
            await world.until_held(a, c)


@in_virtual_time
async def test_what_the_first_may_be_working_on_is_nobodys_though_its_lease_and_the_assignment_are_gone(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage):
        a, c, second = await three(world)
        a.ends_in = 60  # its fence is what ends its work
        a.keeper_slowness = 1e6  # it cannot put back what is taken away
        world.ring.stage.server.delete(LEASES, "a", SHARDS)
        world.ring.stage.server.delete(RING_ASSIGNMENTS, RING)
        await world.until_held(second, c)
        assert world.homes()["a"] == ELSEWHERE


@in_virtual_time
async def test_where_namespaces_are_dropped_nobody_is_named_whose_name_two_have(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said by what it holds, the first would be named again and again, and the second as well each time."""
    async with ranged(clock) as ring:
        world = Twins(ring, monkeypatch)
        server, patch = world.ring.stage.server, world.ring.stage.server.patch

        def patch_less(of: Any, name: str, namespace: str | None, body: Any, *args: Any, **said: Any) -> Any:
            for each in body.get("spec", {}).get("ranges", []):
                each.pop("namespace", None)
            return patch(of, name, namespace, body, *args, **said)

        async with sharder(world.ring.stage):
            a, c, second = await three(world)
        second.process.kill()
        server.delete(LEASES, "a", ELSEWHERE)
        monkeypatch.setattr(server, "patch", patch_less)
        world.forget_homes()
        async with sharder(world.ring.stage):
            await world.until_held(a, c)
            second = world.start("a", ELSEWHERE)
            await world.until_held(c)
            await world.ring.stage.pass_time(60)
            assert (a.owns(), second.owns(), c.owns()) == (NOWHERE, NOWHERE, EVERYWHERE)


@pytest.mark.parametrize("looked", [False, True])
@in_virtual_time
async def test_of_a_name_that_is_named_in_two_namespaces_the_one_that_is_left_begins_only_once_the_other_has_run_out(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, looked: bool
) -> None:
    """Also where the sharder has seen both, and has revoked what either has, before one Lease was deleted."""
    async with twins(clock, monkeypatch) as world, sharder(world.ring.stage):
        a, c, second = await three(world)
        a.ends_in = 60  # its fence is what ends its work
        a.keeper_slowness = 1e6  # it cannot put back what is taken away
        edit_one(world, "c", shard="a", namespace=ELSEWHERE)
        if looked:
            await world.ring.stage.pass_time(1)
        world.ring.stage.server.delete(LEASES, "a", SHARDS)
        await world.until_held(second, c)
        assert world.homes() == {"a": ELSEWHERE, "c": SHARDS}


@pytest.mark.parametrize("said", ["nothing", "both"])
@in_virtual_time
async def test_nor_does_it_for_a_leader_that_has_just_come_and_cannot_tell_whose_its_name_was(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    async with twins(clock, monkeypatch) as world:
        async with sharder(world.ring.stage):
            a, c, second = await three(world)
        a.ends_in = 60
        a.keeper_slowness = 1e6
        if said == "nothing":
            world.forget_homes()  # an older sharder wrote last
        else:
            edit_one(world, "c", shard="a", namespace=ELSEWHERE)
        world.ring.stage.server.delete(LEASES, "a", SHARDS)
        async with sharder(world.ring.stage):
            await world.until_held(second, c)
            assert world.homes() == {"a": ELSEWHERE, "c": SHARDS}


@pytest.mark.parametrize(
    ("first", "then", "waits"),
    [
        ({}, {}, False),  # a ring's first start
        ({}, {"a": [""]}, False),  # whom a leader has seen come nobody was before
        ({"a": [""]}, {"a": [""]}, True),
        ({"a": [""]}, {}, True),  # it has been revoked
        ({"a": [SHARDS, ELSEWHERE]}, {}, True),
        ({"a": [SHARDS]}, {"a": [SHARDS, ELSEWHERE]}, True),
    ],
)
@in_virtual_time
async def test_a_name_waits_only_where_somebody_may_have_worked_by_it_of_whom_nothing_is_left(
    clock: VirtualClock, first: dict[str, list[str]], then: dict[str, list[str]], waits: bool
) -> None:
    homes = Homes(clock)
    body = lease(clock, "a")
    body["metadata"] |= {"namespace": ELSEWHERE}
    leases = [msgspec.convert(body, Lease)]
    homes.read(leases, dict.fromkeys(first, EVERYWHERE), first, (), lambda shard: False, {"a"})
    await clock.sleep(UNSEEN_SECONDS - 1)
    homes.read(leases, dict.fromkeys(then, EVERYWHERE), then, (), lambda shard: False, {"a"})
    assert (homes.of, homes.gone) == (({}, {"a": EVERYWHERE}) if waits else ({"a": ELSEWHERE}, {}))
    await clock.sleep(UNSEEN_SECONDS)
    homes.read(leases, {}, {}, (), lambda shard: False, {"a"})
    assert (homes.of, homes.gone) == ({"a": ELSEWHERE}, {})
    homes.read(leases, {"a": EVERYWHERE}, {"a": [SHARDS, ELSEWHERE]}, (), lambda shard: True, {"a"})
    assert homes.gone == {"a": EVERYWHERE}


def in_grace(clock: VirtualClock, seconds: int = 60) -> dict[str, Any]:
    """What an orderly end leaves of a Lease for the next process of its shard."""
    now = render_micro_time(clock.now())
    said = {HELD_RANGES_ANNOTATION: None, INSTANCE_ANNOTATION: render_instance("", now)}
    return {"metadata": {"annotations": said}, "spec": {"leaseDurationSeconds": seconds, "renewTime": now}}


@in_virtual_time
async def test_a_shard_that_is_in_its_grace_keeps_what_an_older_sharder_named_it_for(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world:
        async with sharder(world.ring.stage):
            a, c = world.start("a"), world.start("c")
            await world.until_held(a, c)
        before, stage = world.ring.named(), world.ring.stage
        world.forget_homes()
        a.process.kill()
        stage.server.patch(LEASES, "a", SHARDS, in_grace(clock))
        async with sharder(stage):
            await stage.until(lambda: world.homes() == {"a": SHARDS, "c": SHARDS})
            await stage.pass_time(30)
            assert world.ring.named() == before
            await world.until_held(world.start("a"), c)
            assert world.ring.named() == before


IN_GRACE, IDLE, AT_WORK = (None, "@then"), ("", "one@then"), ("0x0000000000000000-0x1000000000000000", "one@then")


@pytest.mark.parametrize(
    ("here", "elsewhere", "home"),
    [
        (IN_GRACE, None, SHARDS),
        (IN_GRACE, IDLE, SHARDS),
        (IN_GRACE, AT_WORK, ELSEWHERE),
        (IN_GRACE, IN_GRACE, None),
        (AT_WORK, AT_WORK, None),
        (IDLE, None, None),
    ],
)
@in_virtual_time
async def test_a_new_leader_goes_by_who_is_at_work_and_else_by_who_is_to_be_back(
    clock: VirtualClock, here: tuple[str | None, str], elsewhere: tuple[str | None, str] | None, home: str | None
) -> None:
    leases = []
    for namespace, said in ((SHARDS, here), (ELSEWHERE, elsewhere)):
        if said is not None:
            body = lease(clock, "a")
            annotations = {HELD_RANGES_ANNOTATION: said[0], INSTANCE_ANNOTATION: said[1]}
            body["metadata"] |= {
                "namespace": namespace,
                "annotations": {key: value for key, value in annotations.items() if value is not None},
            }
            body["spec"]["renewTime"] = "then"
            leases.append(msgspec.convert(body, Lease))
    homes = Homes(clock)
    homes.read(leases, {"a": EVERYWHERE}, {"a": [""]}, (), lambda shard: False, {"a"})
    assert homes.of.get("a") == home


@in_virtual_time
async def test_of_a_name_in_doubt_nothing_is_presumed_that_others_were_named_for_before(clock: VirtualClock) -> None:
    homes, low, high = Homes(clock), HashRanges.of((0, 16)), HashRanges.of((16, 32))
    leases = [msgspec.convert(lease(clock, "a"), Lease)]
    homes.read(leases, {"a": low, "b": high}, {"a": [""], "b": [SHARDS]}, (), lambda shard: False, {"a", "b"})
    assert homes.gone == {"a": EVERYWHERE - high}
    homes.read(leases, {"b": low}, {"b": [SHARDS]}, (), lambda shard: False, {"a", "b"})
    assert homes.gone == {"a": EVERYWHERE - high}, "what is granted meanwhile is no proof"


@in_virtual_time
async def test_a_name_in_doubt_keeps_nobody_from_what_others_leave(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some shard of the ring has a lease of ten minutes: so long has whoever may have had the name before."""
    async with twins(clock, monkeypatch) as world:
        stage = world.ring.stage
        async with sharder(stage):
            a, b, d = (world.start(name) for name in "abd")
            monkeypatch.setattr(rig, "LeaseTimings", lambda: LeaseTimings.of(600))
            c = world.start("c")
            await world.until_held(a, b, c, d)
        theirs = world.ring.named().of("b")
        world.forget_homes()
        b.process.kill()
        said = {HELD_RANGES_ANNOTATION: "", INSTANCE_ANNOTATION: None}  # its next process has just begun
        begun = {"metadata": {"annotations": said}, "spec": {"leaseDurationSeconds": 900}}
        stage.server.patch(LEASES, "b", SHARDS, begun)
        d.process.kill()
        async with sharder(stage):
            await stage.until(lambda: a.owns().width + c.owns().width == (EVERYWHERE - theirs).width, seconds=120)
            await stage.pass_time(300)
            assert not (a.owns() | c.owns()) & theirs
            assert world.ring.named().nobodys == theirs
