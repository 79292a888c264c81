"""An object of another namespace that names an owner by its uid is no child of it, and does not hold it up."""

from __future__ import annotations

import pytest

from sharder.placement.families import Families
from shardsdk.testing.memory import Object
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import CHILDREN, OWNERS, Stage, leading, make_stage, names_on, ring, thing
from tests.unit.sharder.placement.test_handover import Refusing

NAMESPACES = ("default", "b", "c", "d", "e")


def pretend(stage: Stage, owner: Object, namespace: str = "another") -> None:
    """A child of a namespace of somebody else, which cannot be changed."""
    assert isinstance(stage.api, Refusing)
    stage.create(CHILDREN, thing("pretender", shard="one", owner=owner), namespace)
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


@pytest.mark.parametrize("read", [False, True], ids=["watches show children", "children are read"])
def test_owners_of_a_dead_shard_go_on_without_it(read: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if read:
        monkeypatch.setattr(Families, "find", lambda *_: None)

    @in_virtual_time
    async def scenario(clock: VirtualClock) -> None:
        stage = make_stage(clock, api=Refusing)
        stage.set_up(ring(), "one", "two")
        owners = [stage.create(OWNERS, thing("owner", shard="one"), each) for each in NAMESPACES]
        for owner, namespace in zip(owners, NAMESPACES[1:] + NAMESPACES[:1], strict=True):
            pretend(stage, owner, namespace)
        async with leading(stage):
            await stage.pass_time(1)
            stage.crash("one")
            await stage.until(
                lambda: all(stage.label(OWNERS, "owner", each) == "two" for each in NAMESPACES), seconds=60
            )

    scenario()
