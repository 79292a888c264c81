"""Namespaces that come into a ring's scope, or leave it, while the ring is edited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from sharder.backlog.informers import MAX_NAMESPACES
from sharder.placement.labels import FINISH_SECONDS
from shardsdk.errors import Invalid
from shardsdk.protocol.objects import CLUSTERRINGS, NAMESPACES
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    OWNERS,
    RING,
    SlowApi,
    Stage,
    leading,
    make_stage,
    ring,
    thing,
)

OURS: Final = {"matchLabels": {"team": "ours"}}
#: How many namespaces are the ring's: such as are watched one by one, and such as are watched with all others.
COUNTS: Final = (1, MAX_NAMESPACES, MAX_NAMESPACES + 1)
#: How long an edit has waited for what the placement before it has sent.
WAITED: Final = (FINISH_SECONDS / 2, 1.5 * FINISH_SECONDS)


def make_many(clock: VirtualClock, count: int, team: str, api: type[MemoryApi] = MemoryApi) -> Stage:
    """A ring of `count` namespaces, and beside them `other`, which is `team`'s and has an object without a shard."""
    stage = make_stage(clock, api=api)
    for name in (*(f"team-{number}" for number in range(count)), "other"):
        labels = {"kubernetes.io/metadata.name": name, "team": team if name == "other" else "ours"}
        stage.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}}, None)
    stage.set_up(ring(ALONE, namespaceSelector=OURS), "one")
    stage.create(OWNERS, thing("it"), "other")
    return stage


def set_team(stage: Stage, team: str) -> None:
    stage.server.patch(NAMESPACES, "other", None, {"metadata": {"labels": {"team": team}}})


def edit(stage: Stage, **spec: Any) -> None:
    stage.server.patch(CLUSTERRINGS, RING, None, {"spec": spec})


#: In milliseconds; less than nothing: the ring is edited first.
@pytest.mark.parametrize("later", [0, 2, -2, -5])
@pytest.mark.parametrize("count", COUNTS)
@in_virtual_time
async def test_what_comes_while_the_ring_is_edited_is_placed(clock: VirtualClock, count: int, later: int) -> None:
    stage = make_many(clock, count, "theirs")
    async with leading(stage):
        await stage.until_settled()
        steps: list[Callable[[], None]] = [
            lambda: set_team(stage, "ours"),
            lambda: edit(stage, resources=[ALONE, {"resource": CHILDREN.plural}]),
        ]
        for step in steps if later >= 0 else reversed(steps):
            step()
            await clock.sleep(abs(later) / 1000)
        await stage.until(lambda: stage.label(OWNERS, "it", "other") == "one", seconds=10)
        await stage.until_settled()


@pytest.mark.parametrize("seconds", WAITED)
@pytest.mark.parametrize("count", COUNTS)
@in_virtual_time
async def test_what_comes_while_an_edit_waits_for_writes_is_placed(
    clock: VirtualClock, count: int, seconds: float
) -> None:
    stage, api = make_refusing(clock, count, "theirs")
    async with leading(stage):
        await stage.until_settled()
        async with edit_waiting(stage, api, seconds):
            set_team(stage, "ours")
        await stage.until(lambda: stage.label(OWNERS, "it", "other") == "one", seconds=10)
        await stage.until_settled()


@pytest.mark.parametrize("seconds", WAITED)
@pytest.mark.parametrize("count", COUNTS)
@in_virtual_time
async def test_what_leaves_while_an_edit_waits_for_writes_is_not_waited_for(
    clock: VirtualClock, count: int, seconds: float
) -> None:
    stage, api = make_refusing(clock, count, "ours")
    api.refused.add("it")
    async with leading(stage):
        await stage.pass_time(20)
        assert stage.condition("Settled") != "True"
        async with edit_waiting(stage, api, seconds):
            set_team(stage, "theirs")
        await stage.until_settled()
        assert stage.label(OWNERS, "it", "other") is None


@pytest.mark.parametrize("count", COUNTS)
@in_virtual_time
async def test_what_came_and_was_refused_is_tried_again(clock: VirtualClock, count: int) -> None:
    stage, api = make_refusing(clock, count, "theirs")
    async with leading(stage):
        await stage.until_settled()
        api.refused.add("it")
        set_team(stage, "ours")
        await stage.pass_time(100)
        assert stage.condition("Settled") != "True"
        api.refused.clear()
        await stage.until(lambda: stage.label(OWNERS, "it", "other") == "one", seconds=70)
        await stage.until_settled()


class Refusing(SlowApi):
    """A connection to an API server with a policy by which some owners, by name, may not be labelled."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.refused: set[str] = set()

    async def patch(self, resource: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if resource == OWNERS and name in self.refused:
            raise Invalid("a policy says no", status=422)
        return await super().patch(resource, name, *args, **kwargs)


def make_refusing(clock: VirtualClock, count: int, team: str) -> tuple[Stage, Refusing]:
    stage = make_many(clock, count, team, Refusing)
    assert isinstance(stage.api, Refusing)
    return stage, stage.api


@asynccontextmanager
async def edit_waiting(stage: Stage, api: SlowApi, seconds: float) -> AsyncIterator[None]:
    """Edit the ring while a label is being written; when the block is left, that is under way still.

    `seconds` later: what placed so far waits for its answers, or is gone already while nobody knows what became of it.
    """
    api.slow[OWNERS.plural] = 5.0
    stage.create(OWNERS, thing("slow"), "team-0")
    await stage.pass_time(1)
    edit(stage, resources=[ALONE, {"resource": CHILDREN.plural}])
    await stage.pass_time(seconds)
    yield
    await stage.pass_time(0.5)
    assert stage.label(OWNERS, "slow", "team-0") is None
    api.slow.clear()
