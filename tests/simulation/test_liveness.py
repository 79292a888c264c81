"""What a run's end is judged by: what rings and leases say then."""

from __future__ import annotations

from typing import Any

import pytest

from sharder.core.conditions import ConditionType
from shardsdk.protocol.labels import LEASE_RING_LABEL, LEASE_STATE_LABEL, SHARDER_HOLDER
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.simulation.ranges.drawing import draw_ranges_plan
from tests.simulation.schedule import draw_plan
from tests.simulation.storage import Author
from tests.simulation.vocabulary import FAMILY, ring_object
from tests.simulation.world import World


def store_ring(world: World, **wrong: dict[str, Any]) -> None:
    told = {kind: {"type": kind, "status": "True", "observedGeneration": 1} for kind in ConditionType}
    conditions = [said | wrong.get(kind, {}) for kind, said in told.items()]
    doc = {**ring_object(FAMILY.ring, select_namespaces=False), "status": {"conditions": conditions}}
    world.storage.create(CLUSTERRINGS, doc, Author("setup"))


def store_lease(world: World, holder: str, state: str) -> None:
    labels = {LEASE_RING_LABEL: FAMILY.ring, LEASE_STATE_LABEL: state}
    meta = {"namespace": world.namespace_of_shard("fam-0"), "name": "fam-0", "labels": labels}
    kind = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta}
    world.storage.create(LEASES, {**kind, "spec": {"holderIdentity": holder}}, Author("setup"))


@pytest.mark.parametrize("wrong", [{"status": "False"}, {"status": "Unknown"}, {"observedGeneration": 0}])
@in_virtual_time
async def test_each_condition_has_to_be_true_of_the_ring_as_it_is(clock: VirtualClock, wrong: dict[str, Any]) -> None:
    for number, kind in enumerate(ConditionType):
        world = World((draw_ranges_plan if number % 2 else draw_plan)(1), clock)
        store_ring(world, **{kind: wrong})
        assert [each for each in world.liveness.settled() if "does not say" in each and f" {kind} " in each]
        assert len([each for each in world.liveness.settled() if "does not say" in each]) == 1


@pytest.mark.parametrize(
    ("holder", "state", "wrong"),
    [
        ("fam-0", "ready", ""),
        ("fam-0", "expired", "is labelled expired"),
        ("", "dead", ""),
        ("", "ready", "is labelled ready"),
        (SHARDER_HOLDER, "dead", "is in the sharder's name"),
    ],
)
@in_virtual_time
async def test_each_lease_has_to_be_somebodys_and_to_say_so(
    clock: VirtualClock, holder: str, state: str, wrong: str
) -> None:
    world = World(draw_plan(1), clock)
    store_ring(world)
    store_lease(world, holder, state)
    told = [each for each in world.liveness.settled() if each.startswith("lease ")]
    assert len(told) == bool(wrong)
    assert all(each.endswith(wrong) for each in told)


@in_virtual_time
async def test_while_nobody_can_mend_something_rings_may_say_so(clock: VirtualClock) -> None:
    world = World(draw_plan(1), clock)
    store_ring(world, Ready={"status": "False"})
    world.hung = "fam-0_1"
    assert world.liveness.settled() == []
