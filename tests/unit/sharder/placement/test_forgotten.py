"""What is deleted before it was placed leaves nothing with the leader, which may lead for months."""

from __future__ import annotations

import pytest

from sharder.placement.placement import Placement
from sharder.replica import Replica
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.families import create_family
from tests.unit.sharder.placement.stage import ALONE, CHILDREN, OWNERS, RING, Stage, leading, make_stage, ring, thing
from tests.unit.sharder.placement.test_places import Unwritable


def placement_of(replica: Replica) -> Placement:
    """What places the ring's objects."""
    assert replica._leader is not None
    placement = replica._leader._rings[RING]._assignment._placement  # type: ignore[attr-defined]
    assert isinstance(placement, Placement)
    return placement


def unwritable_stage(clock: VirtualClock) -> tuple[Stage, Unwritable]:
    """Of a ring whose children cannot be written that are called `it` and so on."""
    stage = make_stage(clock, api=Unwritable)
    assert isinstance(stage.api, Unwritable)
    stage.api.resource, stage.api.prefix = CHILDREN, "it"
    stage.set_up(ring(), "one", "two")
    return stage, stage.api


@in_virtual_time
async def test_owners_that_could_not_be_moved(clock: VirtualClock) -> None:
    stage, _ = unwritable_stage(clock)
    async with leading(stage) as replica:
        await stage.until_settled()
        for number in range(20):
            create_family(stage, f"it-{number}", shard=None, children=(None,))
        held_up = placement_of(replica)._handovers._held_up
        await stage.until(lambda: len(held_up) == 20)
        for number in range(20):
            stage.server.delete(OWNERS, f"it-{number}", "default")
        await stage.pass_time(60)
        assert not held_up


@in_virtual_time
async def test_owners_that_were_moved_in_the_end(clock: VirtualClock) -> None:
    stage, api = unwritable_stage(clock)
    async with leading(stage) as replica:
        await stage.until_settled()
        create_family(stage, "it", shard=None, children=(None,))
        held_up = placement_of(replica)._handovers._held_up
        await stage.until(lambda: bool(held_up))
        api.prefix = "another"
        await stage.until(lambda: stage.label(OWNERS, "it") is not None)
        assert not held_up


@pytest.mark.parametrize("again", [1, 2])
@in_virtual_time
async def test_what_waited_for_a_place_on_a_shard_that_left(clock: VirtualClock, again: int) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "stays")
    async with leading(stage) as replica:
        await stage.until_settled()
        for turn in range(again):
            names = [f"it-{turn}-{number}" for number in range(50)]
            leaves, joins = f"leaves-{turn}", f"joins-{turn}"
            stage.start(leaves)
            await stage.pass_time(20)
            for name in names:
                stage.create(OWNERS, thing(name, shard=leaves))
            stage.start(joins)
            await stage.until(lambda: placement_of(replica)._transit.waiting > 0)
            stage.release(leaves)
            for name in names:
                stage.server.delete(OWNERS, name, "default")
            await stage.pass_time(60)
            await stage.until_settled()
        assert not placement_of(replica).backlog._unshown
