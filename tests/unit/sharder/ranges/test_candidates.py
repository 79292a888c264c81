"""Who may be named for ranges: whose lease says what it holds, and for how long whoever says so no longer."""

from __future__ import annotations

from sharder.ranges.candidates import Candidates
from shardsdk.protocol.labels import INSTANCE_ANNOTATION
from shardsdk.protocol.leases import Lease, LeaseSpec, render_instance
from shardsdk.protocol.objects import ObjectMeta
from shardsdk.protocol.ranges import HELD_RANGES_ANNOTATION, NOWHERE, HashRanges, render_held
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.ranges.rig import ranged, sharder

GO, NOBODY = frozenset({"go"}), frozenset[str]()
THEN = "2030-01-01T00:00:00.000000Z"


def held(name: str, held_ranges: str | None, instance: str | None = None, seconds: int = 15) -> Lease:
    said = {HELD_RANGES_ANNOTATION: held_ranges, INSTANCE_ANNOTATION: instance and render_instance(instance, THEN)}
    annotations = {key: value for key, value in said.items() if value is not None}
    spec = LeaseSpec(holder_identity=name, lease_duration_seconds=seconds, renew_time=THEN)
    return Lease(ObjectMeta(name=name, annotations=annotations), spec)


@in_virtual_time
async def test_who_says_that_it_holds_nothing_may_be_named_and_who_says_nothing_may_not(clock: VirtualClock) -> None:
    candidates = Candidates(clock)
    candidates.read([held("knows", ""), held("go", None)], named=())
    assert (candidates.unfit, candidates.silent, candidates.due_in()) == (GO, NOBODY, 15.0)
    await clock.sleep(15)
    assert (candidates.unfit, candidates.silent, candidates.due_in()) == (GO, GO, None)
    candidates.read([held("knows", ""), held("go", "")], named=())
    assert (candidates.unfit, candidates.silent) == (NOBODY, NOBODY)


@in_virtual_time
async def test_who_is_named_keeps_what_it_has_for_one_duration_of_its_lease(clock: VirtualClock) -> None:
    candidates = Candidates(clock)
    candidates.read([held("a", None)], named={"a"})
    await clock.sleep(14)
    candidates.read([held("a", None)], named={"a"})
    assert not candidates.unfit
    await clock.sleep(1)
    assert candidates.unfit == {"a"}


@in_virtual_time
async def test_who_comes_back_after_a_long_grace_has_its_own_time(clock: VirtualClock) -> None:
    candidates = Candidates(clock)
    candidates.read([held("a", None, "", seconds=60)], named={"a"})
    await clock.sleep(50)
    candidates.read([held("a", None, "next")], named={"a"})
    assert not candidates.unfit
    assert candidates.due_in() == 15.0


@in_virtual_time
async def test_what_was_said_last_counts_as_held_until_the_lease_would_have_run_out(clock: VirtualClock) -> None:
    candidates, low = Candidates(clock), HashRanges.of((0, 16))
    assert candidates.read([held("a", str(low), "one")], named=()) == {"a": low}
    assert candidates.read([held("a", None, "one")], named=()) == {"a": low}
    assert candidates.read([held("a", None)], named=()) == {"a": low}, "all annotations are gone"
    await clock.sleep(14)
    assert candidates.read([held("a", None)], named=()) == {"a": low}
    await clock.sleep(1)
    assert candidates.read([held("a", None)], named=()) == {"a": NOWHERE}


@in_virtual_time
async def test_what_is_said_to_be_given_up_is_and_another_process_holds_what_it_says(clock: VirtualClock) -> None:
    candidates, low = Candidates(clock), HashRanges.of((0, 16))
    candidates.read([held("a", str(low), "one")], named=())
    assert candidates.read([held("a", "", "one")], named=()) == {"a": NOWHERE}
    assert candidates.read([held("a", None, "one")], named=()) == {"a": NOWHERE}
    candidates.read([held("a", str(low), "one")], named=())
    assert candidates.read([held("a", None, "two")], named=()) == {"a": NOWHERE}


@in_virtual_time
async def test_a_process_inherits_nothing_that_another_of_its_name_has_said(clock: VirtualClock) -> None:
    """One that knows labels alone rewrites the spec, and leaves the annotations as they are."""
    candidates, low = Candidates(clock), HashRanges.of((0, 16))
    left = render_held(low, "2029-12-31T23:59:00.000000Z")
    assert candidates.read([held("a", left)], named={"a"}) == {"a": low}, "its author may be at work"
    assert not candidates.unfit
    await clock.sleep(14)
    assert candidates.read([held("a", left)], named={"a"}) == {"a": low}
    await clock.sleep(1)
    assert candidates.read([held("a", left)], named={"a"}) == {"a": NOWHERE}
    assert candidates.unfit == {"a"}
    assert candidates.read([held("a", render_held(low, THEN))], named={"a"}) == {"a": low}
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
