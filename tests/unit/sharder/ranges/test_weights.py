"""How much is in namespaces is what those tell who hold them; and evenness alone moves ranges now and then."""

from __future__ import annotations

import msgspec

from sharder.ranges.weights import (
    EVENINGS,
    EVENINGS_SECONDS,
    TOLD_SECONDS,
    UNTOLD,
    Budget,
    ReportedWeights,
    weights_by_point,
)
from shardsdk.protocol.leases import Lease, LeaseSpec
from shardsdk.protocol.objects import ObjectMeta
from shardsdk.protocol.ranges import (
    EVERYWHERE,
    HELD_RANGES_ANNOTATION,
    NAMESPACE_COUNTS_ANNOTATION,
    HashRanges,
    point_of,
    render_counts,
)
from shardsdk.testing.virtual import VirtualClock, in_virtual_time


def telling(name: str, counts: dict[str, int], held: HashRanges) -> Lease:
    annotations = {HELD_RANGES_ANNOTATION: str(held), NAMESPACE_COUNTS_ANNOTATION: render_counts(counts)}
    return Lease(ObjectMeta(name=name, annotations=annotations), LeaseSpec(holder_identity=name))


@in_virtual_time
async def test_a_count_is_believed_of_who_holds_the_namespace_and_kept_while_nobody_does(clock: VirtualClock) -> None:
    weights = ReportedWeights(clock)
    here = HashRanges.of((point_of("here"), point_of("here") + 1))
    one, two = telling("one", {"here": 64}, here), telling("two", {"here": 4096}, here.complement)
    weights.read([one, two])
    assert weights.of(["here", "there"]) == {"here": 64.0, "there": UNTOLD}
    weights.read([telling("one", {}, EVERYWHERE)])
    assert weights.of(["here"]) == {"here": 64.0}
    weights.read([telling("two", {"here": 4096}, here)])
    assert weights.of(["here"]) == {"here": 4096.0}
    # A namespace that is gone is forgotten.
    weights.of([])
    assert weights.of(["here"]) == {"here": UNTOLD}


@in_virtual_time
async def test_a_lease_that_its_shard_does_not_hold_tells_nothing(clock: VirtualClock) -> None:
    weights = ReportedWeights(clock)
    gone = telling("one", {"here": 64}, EVERYWHERE)
    weights.read([msgspec.structs.replace(gone, spec=LeaseSpec(holder_identity="another"))])
    assert weights.of(["here"]) == {"here": UNTOLD}
    assert weights_by_point({"here": 2.0}) == {point_of("here"): 2.0}


@in_virtual_time
async def test_a_leader_that_knows_a_part_is_unsure_until_each_shard_has_had_time_to_tell(clock: VirtualClock) -> None:
    weights = ReportedWeights(clock)
    weights.of(["here", "there"])
    assert weights.unsure_for() == 0  # no shard tells
    weights.read([telling("one", {"here": 64}, EVERYWHERE)])
    await clock.sleep(10)
    weights.of(["here", "there"])
    assert weights.unsure_for() == TOLD_SECONDS - 10
    weights.of(["here"])
    assert weights.unsure_for() == 0
    weights.of(["here", "there"])
    await clock.sleep(TOLD_SECONDS - 10)
    assert weights.unsure_for() == 0


@in_virtual_time
async def test_what_is_spent_comes_back(clock: VirtualClock) -> None:
    budget = Budget(clock)
    for _ in range(EVENINGS):
        assert budget.left_in() == 0
        budget.spend()
        await clock.sleep(10)
    left = budget.left_in()
    assert left == EVENINGS_SECONDS - 10 * EVENINGS
    await clock.sleep(left)
    assert budget.left_in() == 0
    budget.spend()
    assert budget.left_in() == 10
