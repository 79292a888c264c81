"""How often a child may move: with its owner, and there and back for each label that somebody takes off that."""

from __future__ import annotations

from typing import Any, Final

import pytest

from shardsdk.kube.store import Key
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.simulation.ownership import MOST_MOVES, THERE_AND_BACK
from tests.simulation.schedule import draw_plan
from tests.simulation.storage import Author
from tests.simulation.vocabulary import FAMILY, PIECES, WORKS
from tests.simulation.world import World

FAMILYS_NAME: Final = Key("blue", "family")
SETUP: Final = Author("setup")
USER: Final = Author("user")
#: The shard that has let go of it, as it acknowledges a drain.
SHARD: Final = Author("fam-0_1")


def make_family(world: World) -> None:
    """An owner and its child, both on fam-0."""
    meta = {"namespace": FAMILYS_NAME.namespace, "name": FAMILYS_NAME.name, "labels": {FAMILY.shard: "fam-0"}}
    spec: dict[str, Any] = {"key": "a"}
    kind = {"apiVersion": WORKS.api_version, "kind": WORKS.kind}
    owner = world.storage.create(WORKS, {**kind, "metadata": meta, "spec": spec}, SETUP)
    reference = {**kind, "name": FAMILYS_NAME.name, "uid": owner.uid, "controller": True}
    child = {"apiVersion": PIECES.api_version, "kind": PIECES.kind, "spec": spec}
    world.storage.create(PIECES, {**child, "metadata": {**meta, "ownerReferences": [reference]}}, SETUP)


def label_owner(world: World, labels: dict[str, str], author: Author) -> None:
    before = world.storage.demand(WORKS, FAMILYS_NAME)
    meta = {**before.doc["metadata"], "labels": labels}
    world.storage.replace(WORKS, before, {**before.doc, "metadata": meta}, author)


def move_child(world: World, times: int) -> list[str]:
    """The sharder gives the child to one shard and to the other; the rules that it breaks by that, of this one."""
    for number in range(times):
        before = world.storage.demand(PIECES, FAMILYS_NAME)
        shard = "fam-1" if before.label(FAMILY.shard) == "fam-0" else "fam-0"
        meta = {**before.doc["metadata"], "labels": {FAMILY.shard: shard}}
        world.storage.replace(PIECES, before, {**before.doc, "metadata": meta}, Author(f"sharder-0_{number}"))
    return [each.rule for each in world.checkers.violations if each.rule == "moves once a change"]


@pytest.mark.parametrize("removals", [0, 1, 2])
@in_virtual_time
async def test_a_child_moves_there_and_back_for_each_label_of_its_owners_that_a_user_takes_off(
    clock: VirtualClock, removals: int
) -> None:
    world = World(draw_plan(1), clock)
    make_family(world)
    for _ in range(removals):
        label_owner(world, {FAMILY.shard: "fam-0"}, SETUP)
        label_owner(world, {}, USER)
    assert move_child(world, MOST_MOVES + removals * THERE_AND_BACK) == []
    assert move_child(world, 1) == ["moves once a change"]


@in_virtual_time
async def test_an_acknowledged_drain_lets_a_child_move_no_more_often(clock: VirtualClock) -> None:
    world = World(draw_plan(1), clock)
    make_family(world)
    label_owner(world, {}, SHARD)
    assert move_child(world, MOST_MOVES + 1) == ["moves once a change"]
