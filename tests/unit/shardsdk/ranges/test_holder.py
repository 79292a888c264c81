"""A shard follows its ring's assignment: in order, beside others, and whatever anybody writes into it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from shardsdk.kube.clock import SystemClock
from shardsdk.lease.hold import Hold
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.leases import render_micro_time
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import EVERYWHERE, NOWHERE, RING_ASSIGNMENTS, SPACE, HashBy, HashRanges
from shardsdk.ranges.holder import RangeHolder
from shardsdk.ranges.parts import PAUSE_SECONDS, Changes, Part
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.lease_rig import NAMESPACE, RING
from tests.ranges_rig import HIGH, LOW, RangesWorld

MIDDLE = HashRanges.of((SPACE // 4, SPACE // 4 * 3))


@in_virtual_time
async def test_a_shard_works_where_it_is_named_once_its_lease_says_so_and_a_look_has_confirmed_it(
    clock: VirtualClock,
) -> None:
    world = RangesWorld(clock)
    a = world.start("a")
    await world.until(lambda: world.server.find(LEASES, "a", "default") is not None)
    world.name({"a": LOW})
    took = await world.until(lambda: a.holder.working == LOW)
    assert took < 0.2
    assert world.held("a") == LOW
    assert a.changes == [Changes(gained=LOW)]
    assert (a.holder.part_at(0), a.holder.part_at(SPACE - 1)) == (Part.WORKING, Part.OTHERS)


@in_virtual_time
async def test_what_is_revoked_stays_on_the_lease_until_what_runs_has_ended(clock: VirtualClock) -> None:
    world = RangesWorld(clock)
    a, b = world.start("a"), world.start("b")
    world.name({"a": EVERYWHERE})
    await world.until(lambda: a.holder.working == EVERYWHERE)
    a.ends_in = 30.0
    with world.never_two_owners():
        world.name({"a": LOW, "b": HIGH})
        await world.until(lambda: a.holder.ending == HIGH)
        await asyncio.sleep(25)
        assert (a.holder.working, world.held("a"), b.holder.working) == (LOW, EVERYWHERE, NOWHERE)
        took = await world.until(lambda: b.holder.working == HIGH)
    assert took < 5 + 5.1, "it looks again within seconds"
    assert a.changes[1:] == [Changes(revoked=HIGH), Changes(dropped=HIGH)]
    assert world.held("a") == LOW


@in_virtual_time
async def test_a_look_that_fails_or_hangs_confirms_nothing_and_is_made_again(clock: VirtualClock) -> None:
    world = RangesWorld(clock)
    a = world.start("a")
    await world.until(lambda: a.lease.fence.remaining() > 0)
    await asyncio.sleep(1)
    world.name({"a": LOW})
    a.api.fault = Fault.LOST
    await asyncio.sleep(40)
    assert a.holder.working == NOWHERE
    a.api.fault = Fault.NONE
    await world.until(lambda: a.holder.working == LOW, 60)


@in_virtual_time
async def test_what_somebody_else_holds_is_flagged_and_let_go_again_and_taken_once_it_is_free(
    clock: VirtualClock,
) -> None:
    world = RangesWorld(clock)
    world.add_lease("b", MIDDLE)
    a = world.start("a")
    world.name({"a": LOW})
    await world.until(lambda: a.holder.working == LOW - MIDDLE)
    await asyncio.sleep(60)
    assert a.holder.working == LOW - MIDDLE
    world.server.patch(LEASES, "b", "default", {"spec": {"holderIdentity": ""}})
    await world.until(lambda: a.holder.working == LOW, 6)


@in_virtual_time
async def test_what_is_not_free_is_looked_at_at_one_pace_however_often_the_assignment_is_written(
    clock: VirtualClock,
) -> None:
    world = RangesWorld(clock)
    world.add_lease("b", MIDDLE)
    a = world.start("a")
    for written in range(20):
        world.name({"a": LOW, "c": HIGH if written % 2 else NOWHERE})
        await clock.sleep(0.5)
    assert a.running == LOW - MIDDLE
    before = a.api.requests.count("get")
    await clock.sleep(60)
    assert a.api.requests.count("get") - before <= 60 / (PAUSE_SECONDS[1] / 2) + 1


@in_virtual_time
async def test_an_assignment_that_is_gone_or_makes_no_sense_takes_nothing_away_and_gives_nothing(
    clock: VirtualClock,
) -> None:
    world = RangesWorld(clock)
    a = world.start("a")
    world.name({"a": LOW})
    await world.until(lambda: a.holder.working == LOW)
    for nonsense in ({"hashBy": "UID"}, {"hashBy": "Namespace", "ranges": "none"}, {}):
        world.write(nonsense)
        await asyncio.sleep(10)
        assert (a.holder.working, a.holder.named) == (LOW, None)
    world.name({"a": LOW})
    await world.until(lambda: a.holder.named is not None)
    world.server.delete(RING_ASSIGNMENTS, RING)
    await asyncio.sleep(10)
    assert (a.holder.working, a.holder.named) == (LOW, None)
    world.name({"a": HIGH})
    await world.until(lambda: a.holder.working == HIGH)


class WrittenByHand:
    """A lease that says what is held when the test has it so."""

    ring, name, namespace = parse_ring_name(RING), "a", NAMESPACE

    def __init__(self) -> None:
        self.number = 0
        self.on_held: Callable[[int], None] = lambda number: None
        self.fence = Hold("a", SystemClock())

    def hold_ranges(self, ranges: HashRanges, number: int) -> None:
        self.number = number

    def tell_counts(self, counts: str) -> None:
        """Nobody asks."""


@in_virtual_time
async def test_what_is_written_while_it_ends_asks_for_nothing_more(clock: VirtualClock) -> None:
    world, lease, answer_seconds = RangesWorld(clock), WrittenByHand(), 0.001

    async def ended(ranges: HashRanges) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)  # what runs takes a moment to end

    holder = RangeHolder(
        MemoryApi(world.server, clock, delay=lambda: answer_seconds), lease, HashBy.NAMESPACE, ended=ended,
        on_change=lambda changes: None, clock=clock, rng=Random(1),
    )  # fmt: skip
    world.name({"a": LOW})
    running = asyncio.create_task(holder.run())
    await world.until(lambda: holder.part_at(0) is Part.FLAGGING)
    lease.on_held(lease.number)
    await world.until(lambda: holder.working == LOW)
    world.name({"a": HIGH})
    await world.until(lambda: holder.ending == LOW)
    answer_seconds, before = 60.0, clock.monotonic()
    running.cancel()
    await asyncio.sleep(0.5)
    lease.on_held(lease.number)
    await asyncio.wait([running])
    assert clock.monotonic() - before < 2, "it ended without a look"
    assert holder.held == NOWHERE


@in_virtual_time
async def test_a_shard_that_ends_in_order_leaves_a_lease_that_holds_nothing(clock: VirtualClock) -> None:
    world = RangesWorld(clock)
    a, b = world.start("a"), world.start("b")
    world.name({"a": EVERYWHERE})
    await world.until(lambda: a.holder.working == EVERYWHERE)
    with world.never_two_owners():
        a.running = NOWHERE  # as a manager does, whose reconciles have ended before
        next(task for task in asyncio.all_tasks() if task.get_name() == "a").cancel()
        await world.until(lambda: world.held("a") == NOWHERE)
        world.name({"b": EVERYWHERE})
        assert await world.until(lambda: b.holder.working == EVERYWHERE) < 0.2
    assert a.holder.held == NOWHERE


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "hangs"])
@in_virtual_time
async def test_what_a_shard_held_that_is_gone_waits_until_somebody_has_acquired_its_lease(
    clock: VirtualClock, killed: bool
) -> None:
    world = RangesWorld(clock)
    a, b = world.start("a"), world.start("b")
    world.name({"a": EVERYWHERE})
    await world.until(lambda: a.holder.working == EVERYWHERE)
    with world.never_two_owners():
        a.process.kill() if killed else a.process.pause()
        world.name({"b": EVERYWHERE})
        await asyncio.sleep(14)
        assert b.holder.working == NOWHERE
        await asyncio.sleep(2)
        world.take_over("a")
        await world.until(lambda: b.holder.working == EVERYWHERE, 6)
        a.process.resume()
        await asyncio.sleep(30)
    assert a.owns() == NOWHERE
    assert killed or a.holder.working == NOWHERE, "it has noticed"


@pytest.mark.parametrize("seed", range(8))
@in_virtual_time
async def test_two_shards_never_work_on_one_point_whatever_is_written_and_whoever_hangs(
    clock: VirtualClock, seed: int
) -> None:
    """Nobody waits before naming somebody else: what keeps two apart is the shards' own doing."""
    world, rng = RangesWorld(clock), Random(seed)
    names = ["a", "b", "c"]
    for name in names:
        world.start(name)
    await asyncio.sleep(1)
    with world.never_two_owners():
        for _ in range(120):
            await asyncio.sleep(rng.choice([0.002, 0.01, 0.05, 0.3, 2.0]))
            member = rng.choice(world.members)
            match rng.choice(["name", "name", "name", "slow", "busy", "nonsense", "hang", "fault"]):
                case "name":
                    world.name(random_shares(rng, names))
                case "slow":
                    member.slowness = rng.choice([0.001, 0.02, 0.5])
                    member.keeper_slowness = rng.choice([0.001, 0.2, 1.0])
                case "busy":
                    member.ends_in = rng.choice([0.0, 0.1, 3.0])
                case "nonsense":
                    world.write(rng.choice([{"hashBy": "UID"}, {"hashBy": "Namespace", "ranges": []}]))
                case "fault":
                    member.api.fault = rng.choice([Fault.NONE, Fault.NONE, Fault.LOST, Fault.UNANSWERED])
                case _:
                    member.process.pause()
                    await asyncio.sleep(rng.choice([0.05, 0.5, 4.0]))
                    member.process.resume()
        for member in world.members:
            member.api.fault, member.slowness, member.keeper_slowness = Fault.NONE, 0.01, 0.01
            member.ends_in = 0.1
        world.name({"a": LOW, "b": HIGH})
        present = {each.name: each for each in world.members if each.lease.loss is None}
        await world.until(lambda: all(present[name].holder.working for name in ("a", "b") if name in present), 300)


def random_shares(rng: Random, names: list[str]) -> dict[str, HashRanges]:
    """Who is named for what: anybody, or nobody, for each of some parts."""
    cuts = sorted({0, *(rng.randrange(8) * (SPACE // 8) for _ in range(3)), SPACE})
    shares: dict[str, HashRanges] = {}
    for start, end in pairwise(cuts):
        if (name := rng.choice([*names, ""])) != "":
            shares[name] = shares.get(name, NOWHERE) | HashRanges.of((start, end))
    return shares


async def renewed_by_another(world: RangesWorld, name: str, clock: VirtualClock) -> None:
    """A process that knows labels alone renews the lease of that name: it rewrites the spec."""
    while True:
        spec = {"holderIdentity": name, "leaseDurationSeconds": 15, "renewTime": render_micro_time(clock.now())}
        world.server.patch(LEASES, name, NAMESPACE, {"spec": spec})
        await asyncio.sleep(2)


@in_virtual_time
@pytest.mark.parametrize("crashed", [True, False], ids=["crashed", "at work"])
async def test_a_process_that_knows_labels_alone_inherits_no_ranges_with_the_name_that_it_takes(
    clock: VirtualClock, crashed: bool
) -> None:
    """Others get them, and not while the one that had them may work: until it sees that its lease is another's."""
    world = RangesWorld(clock)
    a, b = world.start("a"), world.start("b")
    world.name({"a": EVERYWHERE})
    await world.until(lambda: a.holder.working == EVERYWHERE)
    with world.never_two_owners():
        if crashed:
            a.process.kill()
        usurper = asyncio.create_task(renewed_by_another(world, "a", clock))
        world.name({"b": EVERYWHERE})
        took = await world.until(lambda: b.holder.working == EVERYWHERE)
        usurper.cancel()
    assert 15 <= took < 15 + 5.1
    assert a.owns() == NOWHERE


@in_virtual_time
async def test_only_a_namespace_that_is_said_makes_a_name_another_shards(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A range without one among others, as somebody's hand leaves it, says nothing of whose the name is."""
    world = RangesWorld(clock)
    a = world.start("a")
    low, high = {"start": "0x0000000000000000", "shard": "a"}, {"start": "0x8000000000000000", "shard": "c"}
    elder = {"hashBy": "Namespace", "ranges": [low, high]}
    here = {"namespace": NAMESPACE}
    world.write({"hashBy": "Namespace", "ranges": [low | here, high | here]})
    await world.until(lambda: a.holder.working == LOW)
    world.write({"hashBy": "Namespace", "ranges": [low, high | here]})
    await world.until(lambda: a.holder.working == NOWHERE)
    world.write(elder)
    await world.until(lambda: a.holder.working == LOW)
    assert "takes nothing" not in caplog.text
    world.write({"hashBy": "Namespace", "ranges": [low | {"namespace": "elsewhere"}, high | here]})
    await world.until(lambda: a.holder.working == NOWHERE)
    world.write(elder)
    await asyncio.sleep(30)
    assert a.holder.working == NOWHERE
    assert "does not say which shard of this name it names; this one takes nothing" in caplog.text
