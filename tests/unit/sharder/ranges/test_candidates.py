"""Who may be named for ranges: whose lease says what it holds, and for how long whoever says so no longer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sharder.ranges.assignment import RangeAssignment
from sharder.ranges.candidates import IDLE_SECONDS, Candidates
from shardsdk.errors import ShardingError
from shardsdk.protocol.labels import INSTANCE_ANNOTATION, SHARDER_HOLDER
from shardsdk.protocol.leases import Lease, LeaseSpec, render_instance, render_micro_time
from shardsdk.protocol.objects import LEASES, ObjectMeta, Resource
from shardsdk.protocol.ranges import (
    EVERYWHERE,
    HELD_RANGES_ANNOTATION,
    NOWHERE,
    RING_ASSIGNMENTS,
    HashRanges,
    render_held,
)
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import lease
from tests.unit.sharder.ranges.rig import ranged, sharder

A, JUST_A = {"a": EVERYWHERE}, frozenset({"a"})
HOMES = dict.fromkeys(("a", "knows", "go"), "")
GO, NOBODY = frozenset({"go"}), frozenset[str]()
THEN = "2030-01-01T00:00:00.000000Z"


def held(
    name: str, held_ranges: str | None, instance: str | None = None, seconds: int = 15, since: str | None = None
) -> Lease:
    who = None if instance is None else render_instance(instance, THEN)
    said = {HELD_RANGES_ANNOTATION: held_ranges, INSTANCE_ANNOTATION: who}
    annotations = {key: value for key, value in said.items() if value is not None}
    spec = LeaseSpec(holder_identity=name, lease_duration_seconds=seconds, renew_time=THEN, acquire_time=since)
    return Lease(ObjectMeta(name=name, annotations=annotations), spec)


@in_virtual_time
async def test_who_says_that_it_holds_nothing_may_be_named_and_who_says_nothing_may_not(clock: VirtualClock) -> None:
    candidates = Candidates(clock)
    candidates.read([held("knows", ""), held("go", None)], named={}, homes=HOMES)
    assert (candidates.unfit, candidates.silent, candidates.due_in()) == (GO, NOBODY, 15.0)
    await clock.sleep(15)
    assert (candidates.unfit, candidates.silent, candidates.due_in()) == (GO, GO, None)
    candidates.read([held("knows", ""), held("go", "")], named={}, homes=HOMES)
    assert (candidates.unfit, candidates.silent) == (NOBODY, NOBODY)


@in_virtual_time
async def test_who_is_named_keeps_what_it_has_for_one_duration_of_its_lease(clock: VirtualClock) -> None:
    candidates = Candidates(clock)
    candidates.read([held("a", None)], named=A, homes=HOMES)
    await clock.sleep(14)
    candidates.read([held("a", None)], named=A, homes=HOMES)
    assert not candidates.unfit
    await clock.sleep(1)
    assert candidates.unfit == {"a"}


@in_virtual_time
async def test_who_comes_back_after_a_long_grace_has_its_own_time(clock: VirtualClock) -> None:
    candidates = Candidates(clock)
    candidates.read([held("a", None, "", seconds=60)], named=A, homes=HOMES)
    await clock.sleep(50)
    candidates.read([held("a", None, "next")], named=A, homes=HOMES)
    assert not candidates.unfit
    assert candidates.due_in() == 15.0


@pytest.mark.parametrize("named", [A, {}])
@in_virtual_time
async def test_of_one_that_has_left_with_a_grace_nobody_is_told_that_it_knows_labels_alone(
    clock: VirtualClock, named: dict[str, HashRanges]
) -> None:
    candidates = Candidates(clock)
    candidates.read([held("a", None, "")], named, HOMES)
    await clock.sleep(15)
    assert (candidates.unfit, candidates.silent) == (JUST_A, NOBODY), "others get what it had"
    candidates.read([held("a", None, "next")], named, HOMES)
    await clock.sleep(15)
    assert candidates.silent == JUST_A


@in_virtual_time
async def test_one_that_has_moved_and_left_a_lease_with_a_grace_elsewhere_knows_more_than_labels(
    clock: VirtualClock,
) -> None:
    candidates, left = Candidates(clock), held("a", None, "")
    there = msgspec.structs.replace(left, metadata=msgspec.structs.replace(left.metadata, namespace="elsewhere"))
    for leases in ([there, held("a", "", "next")], [held("a", "", "next"), there]):
        candidates.read(leases, A, HOMES)
        await clock.sleep(15)
        assert candidates.silent == NOBODY


@in_virtual_time
async def test_what_was_said_last_counts_as_held_until_the_lease_would_have_run_out(clock: VirtualClock) -> None:
    candidates, low = Candidates(clock), HashRanges.of((0, 16))
    assert candidates.read([held("a", str(low), "one")], named={}, homes=HOMES) == {"a": low}
    assert candidates.read([held("a", None, "one")], named={}, homes=HOMES) == {"a": low}
    assert candidates.read([held("a", None)], named={}, homes=HOMES) == {"a": low}, "all annotations are gone"
    await clock.sleep(14)
    assert candidates.read([held("a", None)], named={}, homes=HOMES) == {"a": low}
    await clock.sleep(1)
    assert candidates.read([held("a", None)], named={}, homes=HOMES) == {"a": NOWHERE}


@in_virtual_time
async def test_what_is_said_to_be_given_up_is_and_another_process_holds_what_it_says(clock: VirtualClock) -> None:
    candidates, low = Candidates(clock), HashRanges.of((0, 16))
    candidates.read([held("a", str(low), "one")], named={}, homes=HOMES)
    assert candidates.read([held("a", "", "one")], named={}, homes=HOMES) == {"a": NOWHERE}
    assert candidates.read([held("a", None, "one")], named={}, homes=HOMES) == {"a": NOWHERE}
    candidates.read([held("a", str(low), "one")], named={}, homes=HOMES)
    assert candidates.read([held("a", None, "two")], named={}, homes=HOMES) == {"a": NOWHERE}


@in_virtual_time
async def test_a_process_inherits_nothing_that_another_of_its_name_has_said(clock: VirtualClock) -> None:
    """One that knows labels alone rewrites the spec, and leaves the annotations as they are."""
    candidates, low = Candidates(clock), HashRanges.of((0, 16))
    left = render_held(low, "2029-12-31T23:59:00.000000Z")
    assert candidates.read([held("a", left)], named=A, homes=HOMES) == {"a": low}, "its author may be at work"
    assert not candidates.unfit
    await clock.sleep(14)
    assert candidates.read([held("a", left)], named=A, homes=HOMES) == {"a": low}
    await clock.sleep(1)
    assert candidates.read([held("a", left)], named=A, homes=HOMES) == {"a": NOWHERE}
    assert candidates.unfit == {"a"}
    assert candidates.read([held("a", render_held(low, THEN))], named=A, homes=HOMES) == {"a": low}
    assert not candidates.unfit


@in_virtual_time
async def test_a_ring_without_shards_is_at_rest_until_one_comes(clock: VirtualClock) -> None:
    async with ranged(clock) as ring, sharder(ring.stage) as assignment:
        await ring.stage.pass_time(10)
        before = len(ring.stage.api.requests)
        await ring.stage.pass_time(60)
        assert len(ring.stage.api.requests) == before
        summary = assignment.summarize()
        assert summary.ranges is not None
        assert not summary.settled
        assert "start a shard" in str(summary.ranges.moving)
        ring.start("a")
        assert await ring.until_spread("a") < 5


LOW = HashRanges.of((0, 16))
IDLE = held("a", "", "one")


@in_virtual_time
async def test_who_holds_nothing_of_what_is_free_for_it_is_named_for_nothing_more(clock: VirtualClock) -> None:
    candidates = Candidates(clock)
    candidates.read([IDLE], A, HOMES)
    assert (candidates.unfit, candidates.due_in()) == (NOBODY, IDLE_SECONDS)
    await clock.sleep(IDLE_SECONDS)
    for named in (A, {}, {}):
        candidates.read([IDLE], named, HOMES)
        assert (candidates.unfit, candidates.idle, candidates.due_in()) == (JUST_A, JUST_A, None)
        await clock.sleep(IDLE_SECONDS)


@pytest.mark.parametrize(
    ("before", "again"),
    [
        (IDLE, held("a", str(LOW), "one")),
        (IDLE, held("a", "", "two")),
        (held("a", ""), held("a", "", since=THEN)),
    ],
)
@in_virtual_time
async def test_until_it_holds_something_or_is_another_process(clock: VirtualClock, before: Lease, again: Lease) -> None:
    candidates = Candidates(clock)
    candidates.read([before], A, HOMES)
    await clock.sleep(IDLE_SECONDS)
    candidates.read([again], {}, HOMES)
    assert not candidates.unfit


@pytest.mark.parametrize("looked", [False, True])
@pytest.mark.parametrize("next_one", ["one", "two"])
@in_virtual_time
async def test_one_that_lost_its_lease_meanwhile_is_no_other_process(
    clock: VirtualClock, looked: bool, next_one: str
) -> None:
    candidates = Candidates(clock)
    candidates.read([IDLE], A, HOMES)
    await clock.sleep(IDLE_SECONDS)
    candidates.read([IDLE], {}, HOMES)
    if looked:
        for _ in range(2):
            taken = LeaseSpec(holder_identity=SHARDER_HOLDER, renew_time=THEN)
            candidates.read([msgspec.structs.replace(IDLE, spec=taken)], {}, HOMES)
            assert not candidates.idle, "it is not there"
    candidates.read([held("a", "", next_one, since=THEN)], A, HOMES)
    assert candidates.idle == (JUST_A if next_one == "one" else NOBODY)


@in_virtual_time
async def test_time_in_which_the_sharder_could_not_look_is_not_counted(clock: VirtualClock) -> None:
    candidates = Candidates(clock)
    candidates.read([IDLE], A, HOMES)
    await clock.sleep(20)
    candidates.read([IDLE], A, HOMES)
    for _ in range(3):
        candidates.miss()
        await clock.sleep(30)
    candidates.read([IDLE], A, HOMES)
    assert (candidates.unfit, candidates.due_in()) == (NOBODY, IDLE_SECONDS - 20)
    await clock.sleep(IDLE_SECONDS - 20)
    candidates.read([IDLE], A, HOMES)
    candidates.miss()
    await clock.sleep(1)
    candidates.read([IDLE], A, HOMES)
    assert candidates.idle == JUST_A, "who was judged before stays so"


@pytest.mark.parametrize(
    ("leases", "named"),
    [
        ([held("a", str(LOW), "one")], A),
        ([IDLE, held("b", str(EVERYWHERE))], A),
        ([IDLE], {}),
    ],
)
@in_virtual_time
async def test_who_holds_something_or_waits_for_others_is_not_idle(
    clock: VirtualClock, leases: list[Lease], named: dict[str, HashRanges]
) -> None:
    candidates = Candidates(clock)
    candidates.read([IDLE], A, HOMES)
    await clock.sleep(IDLE_SECONDS - 1)
    candidates.read(leases, named, HOMES)
    await clock.sleep(2)
    candidates.read([IDLE], A, HOMES)
    assert (candidates.unfit, candidates.due_in()) == (NOBODY, IDLE_SECONDS)


@in_virtual_time
async def test_a_longer_lease_gives_more_time(clock: VirtualClock) -> None:
    candidates = Candidates(clock)
    candidates.read([held("a", "", "one", seconds=100)], A, HOMES)
    assert candidates.due_in() == 200.0


@pytest.mark.parametrize("of_twin", ["", str(LOW)])
@in_virtual_time
async def test_another_of_its_name_elsewhere_neither_saves_one_nor_is_it_judged(
    clock: VirtualClock, of_twin: str
) -> None:
    candidates = Candidates(clock)
    for number in range(5):
        twin = held("a", of_twin, f"restarts-{number}")
        candidates.read([IDLE, msgspec.structs.replace(twin, metadata=named_in(twin, "elsewhere"))], A, HOMES)
        await clock.sleep(IDLE_SECONDS / 4)
    assert candidates.idle == JUST_A
    candidates.read([IDLE], A, {"a": "elsewhere"})
    await clock.sleep(2 * IDLE_SECONDS)
    assert not candidates.unfit


@in_virtual_time
async def test_once_one_of_them_holds_something_all_others_are_tried_again(clock: VirtualClock) -> None:
    candidates, both = Candidates(clock), {"a": LOW, "go": EVERYWHERE - LOW}
    candidates.read([IDLE, held("go", "")], both, HOMES)
    await clock.sleep(IDLE_SECONDS)
    assert candidates.idle == {"a", "go"}
    candidates.read([IDLE, held("go", str(LOW))], both, HOMES)
    assert not candidates.unfit


def named_in(lease: Lease, namespace: str) -> ObjectMeta:
    return msgspec.structs.replace(lease.metadata, namespace=namespace)


def told_idle(assignment: RangeAssignment) -> frozenset[str]:
    summary = assignment.summarize().ranges
    return summary.idle if summary is not None else frozenset()


@in_virtual_time
async def test_others_get_what_a_shard_never_begins_with_and_it_gets_some_once_it_was_restarted(
    clock: VirtualClock,
) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        ring.shards["b"].deaf = True
        await ring.stage.until(lambda: assignment.state is not None and bool(assignment.state.named.of("b")))
        summary = assignment.summarize().ranges
        assert summary is not None
        assert summary.unheld
        assert IDLE_SECONDS - 5 < await ring.until_spread("a") < IDLE_SECONDS + 10
        assert told_idle(assignment) == {"b"}
        writes = ring.writes()
        await ring.stage.pass_time(10 * IDLE_SECONDS)
        assert ring.writes() == writes, "it is not tried again and again"
        ring.shards["b"].crash()
        ring.start("b")
        await ring.until_spread("a", "b")
        assert not told_idle(assignment)


@in_virtual_time
async def test_where_all_are_so_nobody_is_named_twice_and_whoever_recovers_has_it(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        for shard in ring.shards.values():
            shard.deaf = True
        await ring.stage.until(lambda: told_idle(assignment) == {"a", "b"})
        named, writes = ring.named(), ring.writes()
        assert not named.nobodys
        await ring.stage.pass_time(10 * IDLE_SECONDS)
        assert (ring.named(), ring.writes()) == (named, writes)
        assert ring.status()["conditions"][0]["reason"] == "Moving", "there are shards"
        ring.shards["a"].deaf = False
        await ring.until_spread("a")
        assert told_idle(assignment) == {"b"}


@in_virtual_time
async def test_where_all_recover_all_have_some(clock: VirtualClock) -> None:
    """One after the other came: the last has been named for all that the others did not take."""
    async with ranged(clock) as ring, sharder(ring.stage) as assignment:
        for name in "abc":
            ring.start(name).deaf = True
            await ring.stage.pass_time(3)
        await ring.stage.until(lambda: told_idle(assignment) == {"a", "b", "c"}, seconds=300)
        for shard in ring.shards.values():
            shard.deaf = False
        await ring.until_spread("a", "b", "c")


@pytest.mark.parametrize("ends", ["crash", "leave"])
@in_virtual_time
async def test_one_that_has_recovered_has_what_the_last_other_leaves(clock: VirtualClock, ends: str) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage) as assignment:
        ring.shards["b"].deaf = True
        await ring.until_spread("a")
        assert told_idle(assignment) == {"b"}
        ring.shards["b"].deaf = False
        await ring.stage.pass_time(10)
        if ends == "crash":
            ring.shards["a"].crash()
        else:
            await ring.shards["a"].leave()
        await ring.until_spread("b")


@in_virtual_time
async def test_others_get_what_one_does_not_take_though_another_of_its_name_restarts_again_and_again(
    clock: VirtualClock,
) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage):
        ring.shards["b"].deaf = True
        await ring.stage.pass_time(10)
        body = lease(clock, "b")
        body["metadata"]["annotations"][HELD_RANGES_ANNOTATION] = ""
        ring.stage.server.create(LEASES, body, "elsewhere")
        for number in range(20):
            now = render_micro_time(clock.now())
            said = {"metadata": {"annotations": {INSTANCE_ANNOTATION: render_instance(str(number), now)}}}
            ring.stage.server.patch(LEASES, "b", "elsewhere", said | {"spec": {"renewTime": now}})
            await ring.stage.pass_time(5)
        await ring.until_spread("a")


@in_virtual_time
async def test_a_shard_that_could_read_nothing_while_the_sharder_could_not_either_is_not_judged_by_that(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ranged(clock, "a") as ring, sharder(ring.stage) as assignment:
        await ring.until_spread("a")
        ring.start("b").deaf = True
        await ring.stage.until(lambda: bool(ring.named().of("b")))
        await ring.stage.pass_time(5)
        get = ring.stage.api.get

        async def refuse(of: Resource, *args: Any, **said: Any) -> Any:
            if of == RING_ASSIGNMENTS:
                raise ShardingError("503")
            return await get(of, *args, **said)

        with monkeypatch.context() as outage:
            outage.setattr(ring.stage.api, "get", refuse)
            await ring.stage.pass_time(2 * IDLE_SECONDS)
        await ring.stage.pass_time(IDLE_SECONDS / 2)
        assert not told_idle(assignment)
        ring.shards["b"].deaf = False
        await ring.until_spread("a", "b")
