"""A ring by ranges, with shards that follow the contract: nobody's range is long nobody's, and never two shards'."""

from __future__ import annotations

from random import Random

import pytest

from sharder.core.cutting import cut
from sharder.ranges.assignment import RangeAssignment
from sharder.ranges.store import AssignmentStore
from sharder.ranges.weights import EVENINGS, EVENINGS_SECONDS, TOLD_SECONDS
from shardsdk.errors import AlreadyExists, Conflict
from shardsdk.protocol.objects import LEASES, NAMESPACES
from shardsdk.protocol.ranges import (
    EVERYWHERE,
    HELD_RANGES_ANNOTATION,
    RING_ASSIGNMENTS,
    HashBy,
    Named,
    point_of,
)
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import OWNERS, RING, SHARDS, lease, make_stage
from tests.unit.sharder.ranges.rig import Open, Ring, ranged, sharder


@in_virtual_time
async def test_shards_share_the_space_and_a_new_one_gets_its_part_in_few_writes(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        await ring.until_spread("a", "b")
        await ring.stage.until(lambda: assignment.summarize().settled)
        before, named = ring.writes(), ring.named()
        ring.start("c")
        seconds = await ring.until_spread("a", "b", "c")
        assert seconds < 3
        assert ring.writes() - before <= 6
        # Only what the third gets has moved.
        assert all(not ring.named().of(shard) - named.of(shard) for shard in ("a", "b"))
        await ring.stage.until(lambda: assignment.summarize().settled)
        await ring.stage.until(lambda: len(ring.status()["shares"]) == 3 and ring.status()["rangesInTransit"] == 0)
        assert 99 < sum(float(each["share"].rstrip("%")) for each in ring.status()["shares"]) < 101


@in_virtual_time
async def test_at_rest_nothing_is_read_or_written(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        await ring.until_spread("a", "b")
        await ring.stage.until(lambda: assignment.summarize().at_rest)
        await ring.stage.pass_time(1)
        api = ring.stage.api
        before = ring.writes(), api.requests.count("get")
        await ring.stage.pass_time(60)
        assert (ring.writes(), api.requests.count("get")) == before


@in_virtual_time
async def test_a_shard_that_leaves_in_order_is_replaced_at_once(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b", "c") as ring, sharder(ring.stage):
        await ring.until_spread("a", "b", "c")
        await ring.shards["b"].leave()
        assert await ring.until_spread("a", "c") < 3


@in_virtual_time
async def test_a_crashed_shard_keeps_its_ranges_until_its_lease_is_the_sharders(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b", "c") as ring, sharder(ring.stage):
        await ring.until_spread("a", "b", "c")
        before = ring.named()
        ring.shards["b"].crash()
        await ring.stage.pass_time(10)
        assert ring.named() == before, "its lease has not run out"
        await ring.until_spread("a", "c", seconds=15)
        found = ring.stage.server.find(LEASES, "b", SHARDS)
        assert found is not None
        assert HELD_RANGES_ANNOTATION not in (found["metadata"].get("annotations") or {})
        ring.start("b")
        await ring.until_spread("a", "b", "c")


@in_virtual_time
async def test_who_does_not_let_go_keeps_its_range_and_only_that_waits(clock: VirtualClock) -> None:
    async with ranged(clock, "a") as ring, sharder(ring.stage) as assignment:
        ring.start("slow", drain_seconds=40)
        await ring.until_spread("a", "slow")
        ring.start("c")
        await ring.stage.until(lambda: bool(ring.workers.working.get("c")))
        await ring.stage.pass_time(10)
        summary = assignment.summarize()
        assert not summary.settled
        assert ring.named().nobodys, "what the slow one still works on is nobody's"
        assert summary.ranges is not None
        assert summary.ranges.moving is not None
        assert "from slow to c" in summary.ranges.moving
        stuck = summary.stuck_drain(5)
        assert stuck is not None
        assert (stuck.shard, str(stuck).endswith("on shard slow")) == ("slow", True)
        status = ring.status()
        assert status["rangesInTransit"] == len(status["inTransit"]) > 0
        assert {(each["from"], each["to"]) for each in status["inTransit"]} == {("slow", "c")}
        settled = next(each for each in status["conditions"] if each["type"] == "Settled")
        assert "look into the log of slow, or stop it" in settled["message"]
        await ring.until_spread("a", "slow", "c")


@in_virtual_time
async def test_an_assignment_that_is_deleted_or_made_nonsense_of_is_rebuilt_and_nothing_moves(
    clock: VirtualClock,
) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage):
        await ring.until_spread("a", "b")
        named, working = ring.named(), dict(ring.workers.working)
        for harm in ("delete", "nonsense", "all to one"):
            if harm == "delete":
                ring.stage.server.delete(RING_ASSIGNMENTS, RING, None)
            elif harm == "nonsense":
                ring.stage.server.patch(RING_ASSIGNMENTS, RING, None, {"spec": {"ranges": [{"start": "0xzz"}]}})
            else:
                everything = [{"start": "0x0000000000000000", "shard": "a"}]
                ring.stage.server.patch(RING_ASSIGNMENTS, RING, None, {"spec": {"ranges": everything}})
            await ring.stage.pass_time(20)
            await ring.until_spread("a", "b")
            if harm != "all to one":
                assert (ring.named(), ring.workers.working) == (named, working)


@in_virtual_time
async def test_two_sharders_at_once_never_make_two_shards_work_on_one_range(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring:
        other = make_stage(clock)
        other.server = ring.stage.server
        other.api = MemoryApi(other.server, clock, served=(OWNERS, RING_ASSIGNMENTS))
        async with sharder(ring.stage), sharder(other):
            await ring.until_spread("a", "b")
            for name in ("c", "d"):
                ring.start(name)
                await ring.until_spread(*ring.shards)
            await ring.shards["a"].leave()
            await ring.until_spread("b", "c", "d")


@in_virtual_time
async def test_a_lease_that_is_deleted_counts_as_held_until_it_would_have_run_out(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage):
        await ring.until_spread("a", "b")
        shard = ring.shards["b"]
        task = shard._task
        assert task is not None
        task.cancel()  # it hangs, and goes on with what it does
        before = ring.named()
        ring.stage.server.delete(LEASES, "b", SHARDS)
        await ring.stage.pass_time(12)
        assert ring.named() == before
        shard.crash()
        await ring.until_spread("a", seconds=30)


@in_virtual_time
async def test_nothing_is_rebuilt_over_a_shard_whose_lease_vanished_with_the_assignment(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage):
        await ring.until_spread("a", "b")
        shard, held = ring.shards["b"], ring.workers.working["b"]
        assert shard._task is not None
        shard._task.cancel()  # it hangs, and goes on with what it does
        ring.stage.server.delete(LEASES, "b", SHARDS)
        ring.stage.server.delete(RING_ASSIGNMENTS, RING, None)
        await ring.stage.pass_time(10)
        assert not ring.named().of("a") & held
        shard.crash()
        await ring.until_spread("a", seconds=30)


def start_labels_only(ring: Ring, name: str) -> None:
    """A shard that knows labels alone: it holds its lease, and says nothing of ranges."""
    ring.stage.server.create(LEASES, lease(ring.stage.clock, name), SHARDS)


def say_held(ring: Ring, name: str, held: str | None) -> None:
    """What the lease of a shard says that it holds."""
    body = {"metadata": {"annotations": {HELD_RANGES_ANNOTATION: held}}}
    ring.stage.server.patch(LEASES, name, SHARDS, body)


@in_virtual_time
async def test_a_shard_that_knows_labels_alone_is_named_for_nothing_and_told_of(clock: VirtualClock) -> None:
    async with ranged(clock, "a") as ring, sharder(ring.stage) as assignment:
        start_labels_only(ring, "go")
        ring.start("b")
        await ring.until_spread("a", "b")
        await ring.stage.until(lambda: assignment.summarize().settled)
        assert set(ring.named().shards) == {"a", "b"}
        assert not told_unfit(assignment), "it may be about to say what it holds"
        for _ in range(8):
            await ring.stage.pass_time(2)
            ring.stage.server.patch(LEASES, "go", SHARDS, {"spec": lease(clock, "go")["spec"]})
        assert told_unfit(assignment) == {"go"}
        assert set(ring.named().shards) == {"a", "b"}
        say_held(ring, "go", "")
        await ring.stage.until(lambda: bool(ring.named().of("go")))
        assert not told_unfit(assignment)


@in_virtual_time
async def test_where_all_know_labels_alone_everything_waits(clock: VirtualClock) -> None:
    async with ranged(clock) as ring, sharder(ring.stage) as assignment:
        start_labels_only(ring, "go")
        await ring.stage.until(lambda: told_unfit(assignment) == {"go"})
        assert ring.named().nobodys == EVERYWHERE
        assert not assignment.summarize().settled


@pytest.mark.parametrize("new_leader", [False, True])
@in_virtual_time
async def test_who_says_nothing_of_its_ranges_any_more_keeps_them_for_as_long_as_its_lease_lasts(
    clock: VirtualClock, new_leader: bool
) -> None:
    async with ranged(clock, "a", "b") as ring:
        async with sharder(ring.stage) as assignment:
            await ring.until_spread("a", "b")
            await ring.stage.until(lambda: assignment.summarize().settled)
            named = ring.named()
            if not new_leader:
                say_held(ring, "a", None)
                await ring.stage.pass_time(14)
                assert ring.named() == named, "somebody's hand may have done it"
                say_held(ring, "a", str(named.of("a")))
                await ring.stage.pass_time(20)
                assert ring.named() == named
        # One of its name that knows labels alone has taken its place.
        ring.shards["a"].crash()
        say_held(ring, "a", None)
        async with sharder(ring.stage) as assignment:
            for _ in range(7):
                await ring.stage.pass_time(2)
                ring.stage.server.patch(LEASES, "a", SHARDS, {"spec": lease(clock, "a")["spec"]})
                assert ring.named() == named
            await ring.stage.pass_time(2)
            ring.stage.server.patch(LEASES, "a", SHARDS, {"spec": lease(clock, "a")["spec"]})
            await ring.until_spread("b", seconds=5)
            assert told_unfit(assignment) == {"a"}


@in_virtual_time
async def test_what_is_being_given_up_is_nobodys_while_the_annotation_that_says_so_is_missing(
    clock: VirtualClock,
) -> None:
    async with ranged(clock, "a") as ring, sharder(ring.stage):
        ring.start("slow", drain_seconds=10)
        await ring.until_spread("a", "slow")
        ring.start("c")
        await ring.stage.until(lambda: bool(ring.named().nobodys & ring.workers.working["slow"]))
        going = ring.named().nobodys & ring.workers.working["slow"]
        say_held(ring, "slow", None)
        await ring.stage.pass_time(5)
        assert ring.named().nobodys & going == going, "what works there has not ended"
        await ring.until_spread("a", "slow", "c")


def told_unfit(assignment: RangeAssignment) -> frozenset[str]:
    """Who is told of as knowing labels alone."""
    summary = assignment.summarize().ranges
    return summary.unfit if summary is not None else frozenset()


@in_virtual_time
async def test_an_assignment_is_changed_as_it_was_read_or_not_at_all(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    store = AssignmentStore(RING, stage.api, Open(), clock)
    first, second = (Named(HashBy.UID, {name: EVERYWHERE}) for name in ("a", "b"))
    missing = await store.read(HashBy.UID)
    assert (missing.version, missing.named) == ("", None)
    await store.write(missing, first, {}, "uid")
    with pytest.raises(AlreadyExists):
        await store.write(missing, second, {}, "uid")
    read = await store.read(HashBy.UID)
    assert read.named == first
    await store.write(read, second, {}, "uid")
    with pytest.raises(Conflict):
        await store.write(read, first, {}, "uid")
    again = await store.read(HashBy.NAMESPACE)
    assert again.named is None
    assert "hashBy is UID" in again.problem


def make_namespaces(ring: Ring) -> list[str]:
    names = [f"n{number}" for number in range(40)]
    for name in names:
        ring.stage.create(NAMESPACES, {"metadata": {"name": name}}, None)
    return names


@in_virtual_time
async def test_what_shards_report_of_namespaces_moves_ranges_and_not_too_often(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring:
        names = make_namespaces(ring)
        async with sharder(ring.stage, cut=cut) as assignment:
            await ring.until_spread("a", "b")
            await ring.stage.until(lambda: assignment.summarize().settled)
            named, heavy = ring.named(), list[str]()
            ring.shards["a"].report(dict.fromkeys(names, 1))
            await ring.stage.pass_time(5)
            assert ring.named() == named, "as it was counted"
            await ring.stage.pass_time(TOLD_SECONDS)  # of one namespace nobody tells anything

            for turn in range(2 * EVENINGS):
                named, shard = ring.named(), "ab"[turn % 2]
                heavy = [name for name in names if named.shard_at(point_of(name)) == shard]
                for each in "ab":
                    ring.shards[each].report({name: 64 if name in heavy else 1 for name in names})
                await ring.stage.pass_time(5)
                assert (ring.named() != named) == (turn < EVENINGS)
                await ring.stage.until(lambda: assignment.summarize().settled)
            await ring.stage.pass_time(EVENINGS_SECONDS)
            assert ring.named() != named, "once time has passed it may move again"
            loads = dict.fromkeys("ab", 0)
            for name in names:
                loads[ring.named().shard_at(point_of(name)) or "nobody"] += 64 if name in heavy else 1
            assert max(loads.values()) < 1.25 * sum(loads.values()) / 2


@in_virtual_time
async def test_nothing_moves_between_others_while_a_lease_is_away_that_somebody_has_deleted(
    clock: VirtualClock,
) -> None:
    rng, shards = Random(1), "abcd"
    async with ranged(clock) as ring:
        weights = {name: rng.choice((1, 1, 2, 7)) for name in make_namespaces(ring)}
        async with sharder(ring.stage, cut=cut) as assignment:
            for name in shards:
                ring.start(name).report(weights)
                await ring.until_spread(*ring.shards)
            await ring.stage.until(lambda: assignment.summarize().settled)
            named = ring.named()
            for name in shards:
                ring.shards[name].crash()
                ring.stage.server.delete(LEASES, name, SHARDS)
                await ring.stage.pass_time(3)
                assert ring.named() == named, f"{name} may be at work"
                ring.start(name).report(weights)
                await ring.until_spread(*shards)
                await ring.stage.pass_time(3)
                assert ring.named() == named
            ring.shards["a"].crash()
            ring.stage.server.delete(LEASES, "a", SHARDS)
            ring.start("e").report(weights)
            await ring.stage.pass_time(5)
            assert ring.named().of("a") == named.of("a"), "who comes takes from those who are there"
            ring.start("a").report(weights)
            await ring.until_spread(*shards, "e")


@in_virtual_time
async def test_a_new_leader_moves_nothing_for_what_a_shard_has_yet_to_tell(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring:
        names = make_namespaces(ring)
        async with sharder(ring.stage, cut=cut) as assignment:
            await ring.until_spread("a", "b")
            await ring.stage.until(lambda: assignment.summarize().settled)
        named = ring.named()
        # As after a restart of a: what it had told went with the lease that it acquired.
        ring.shards["a"].report({})
        ring.shards["b"].report(dict.fromkeys(names, 64))
        async with sharder(ring.stage, cut=cut) as assignment:
            await ring.stage.pass_time(TOLD_SECONDS - 30)
            assert ring.named() == named
            ring.shards["a"].report(dict.fromkeys(names, 64))
            await ring.stage.pass_time(TOLD_SECONDS)
            assert ring.named() == named
            ring.shards["b"].report(dict.fromkeys(names, 1))
            await ring.stage.until(lambda: ring.named() != named)


@in_virtual_time
async def test_a_new_leader_believes_after_a_while_that_a_shard_has_nothing_to_tell(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring:
        names = make_namespaces(ring)
        async with sharder(ring.stage, cut=cut) as assignment:
            await ring.until_spread("a", "b")
            await ring.stage.until(lambda: assignment.summarize().settled)
            named = ring.named()
            ring.shards["b"].report(dict.fromkeys(names, 64))
            await ring.stage.pass_time(TOLD_SECONDS / 2)
            assert ring.named() == named
            await ring.stage.pass_time(TOLD_SECONDS)
            assert ring.named() != named
