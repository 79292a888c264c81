"""A namespace that leaves a ring while families of it are under way."""

from __future__ import annotations

from typing import Final

from shardsdk.protocol.objects import NAMESPACES
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.families import create_family, split_families
from tests.unit.sharder.placement.refusing import changes_of
from tests.unit.sharder.placement.stage import CHILDREN, OWNERS, SlowApi, Stage, leading, make_stage, ring

OURS: Final = {"matchLabels": {"team": "ours"}}
NAME: Final = "family"
#: How long a write takes that is to be under way when the namespace leaves.
WRITE_SECONDS: Final = 0.5


def staged(clock: VirtualClock) -> tuple[Stage, SlowApi]:
    stage = make_stage(clock, api=SlowApi)
    assert isinstance(stage.api, SlowApi)
    set_team(stage, "ours")
    stage.set_up(ring(namespaceSelector=OURS), "one")
    return stage, stage.api


def set_team(stage: Stage, team: str) -> None:
    stage.server.patch(NAMESPACES, "default", None, {"metadata": {"labels": {"team": team}}})


def nobody_has_the_children(stage: Stage) -> bool:
    return [stage.label(CHILDREN, f"{NAME}-{number}") for number in (0, 1)] == [None, None]


@in_virtual_time
async def test_an_owner_whose_children_are_under_way_is_given_to_nobody(clock: VirtualClock) -> None:
    stage, api = staged(clock)
    owner = changes_of(stage, NAME)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.slow[CHILDREN.plural] = WRITE_SECONDS
        create_family(stage, NAME, shard=None, children=(None, None))
        await stage.until(lambda: stage.label(CHILDREN, f"{NAME}-0") == "one")
        set_team(stage, "theirs")
        await stage.until(lambda: stage.label(CHILDREN, f"{NAME}-1") == "one")
        await stage.until(lambda: nobody_has_the_children(stage))
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert owner == []


@in_virtual_time
async def test_children_stay_with_an_owner_that_is_under_way_until_it_has_left(clock: VirtualClock) -> None:
    """That it is given to a shard cannot be taken back, so it leaves the ring in order."""
    stage, api = staged(clock)
    split, owner = split_families(stage), changes_of(stage, NAME)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.slow[OWNERS.plural] = WRITE_SECONDS
        create_family(stage, NAME, shard=None, children=(None, None))
        await stage.until(lambda: stage.label(CHILDREN, f"{NAME}-1") == "one")
        await stage.pass_time(WRITE_SECONDS / 2)
        set_team(stage, "theirs")
        await stage.until(lambda: stage.draining(OWNERS, NAME))
        assert owner == [(None, "one")]
        assert not nobody_has_the_children(stage)
        stage.acknowledge(NAME)
        await stage.until(lambda: nobody_has_the_children(stage))
        await stage.until(lambda: stage.condition("Settled") == "True")
    assert not split
