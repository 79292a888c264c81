"""An object of another namespace that names an owner by its uid is no child of it, and does not hold it up."""

from __future__ import annotations

from shardsdk.testing.memory import Object
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import CHILDREN, OWNERS, Stage, leading, make_stage, names_on, ring, thing
from tests.unit.sharder.placement.test_handover import Refusing

NAMESPACES_READ_AT_ONCE = ("default", "b", "c", "d", "e")


def pretend(stage: Stage, owner: Object) -> None:
    """A child of a namespace of somebody else, which cannot be changed."""
    assert isinstance(stage.api, Refusing)
    stage.create(CHILDREN, thing("pretender", shard="one", owner=owner), "another")
    stage.api.refused.add("pretender")


@in_virtual_time
async def test_an_owner_that_is_asked_back_goes_on_without_it(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Refusing)
    stage.set_up(ring(), "one")
    [name] = names_on("two", "one", "two")
    owner = stage.create(OWNERS, thing(name, shard="one"))
    pretend(stage, owner)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.start("two")

        def moves() -> bool:
            if stage.draining(OWNERS, name) and stage.label(OWNERS, name) == "one":
                stage.acknowledge(name)
            return stage.label(OWNERS, name) == "two"

        await stage.until(moves, seconds=30)


@in_virtual_time
async def test_owners_of_a_dead_shard_go_on_without_it(clock: VirtualClock) -> None:
    """Of so many namespaces that the children are read in all of them."""
    stage = make_stage(clock, api=Refusing)
    stage.set_up(ring(), "one", "two")
    owners = [stage.create(OWNERS, thing("owner", shard="one"), each) for each in NAMESPACES_READ_AT_ONCE]
    for owner in owners[:1]:
        pretend(stage, owner)
    async with leading(stage):
        await stage.pass_time(1)
        stage.crash("one")
        await stage.until(
            lambda: all(stage.label(OWNERS, "owner", each) == "two" for each in NAMESPACES_READ_AT_ONCE), seconds=60
        )
