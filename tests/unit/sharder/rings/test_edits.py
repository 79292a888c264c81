"""A ring that is edited: what is known of the resources that stay is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

from sharder.replica import Replica
from shardsdk.protocol.objects import CLUSTERRINGS, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.families import create_family
from tests.unit.sharder.placement.refusing import begin_to_move, name_that_a_third_shard_gets, staged
from tests.unit.sharder.placement.stage import (
    CHILDREN,
    LABELS,
    OWNERS,
    RING,
    Stage,
    leading,
    make_stage,
    names_on,
    ring,
    scrape,
    thing,
)

ALONE: Final = {"group": OWNERS.group, "resource": OWNERS.plural}
OTHERS: Final = {"resource": CHILDREN.plural}
FAMILY: Final = ALONE | {"controlledResources": [OTHERS]}


class Listing(MemoryApi):
    """Counts how often each resource is listed in order to be watched."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.listed: Counter[str] = Counter()

    async def watch(
        self, resource: Resource, *args: Any, initial_events: bool = False, **more: Any
    ) -> AsyncIterator[Any]:
        self.listed[resource.plural] += initial_events
        async for event in super().watch(resource, *args, initial_events=initial_events, **more):
            yield event


def edit(stage: Stage, **spec: Any) -> None:
    stage.server.patch(CLUSTERRINGS, RING, None, {"spec": spec})


def oldest_drain(replica: Replica) -> float:
    """The age of the drain that has waited longest, in seconds, as the metrics show it."""
    [seconds] = scrape(replica, replica._metrics.oldest_drain_age)
    return seconds


@in_virtual_time
async def test_what_stays_is_not_listed_again(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Listing)
    assert isinstance(stage.api, Listing)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    stage.start("one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        before = stage.api.listed.copy()
        stage.create(CHILDREN, thing("child"))
        edit(stage, resources=[ALONE, OTHERS])
        await stage.until(lambda: stage.label(CHILDREN, "child") == "one", seconds=10)
        assert stage.api.listed[CHILDREN.plural] > before[CHILDREN.plural]
        assert stage.api.listed[OWNERS.plural] == before[OWNERS.plural]
        edit(stage, resources=[ALONE])
        await stage.until(lambda: stage.draining(CHILDREN, "child"), seconds=60)
        await stage.pass_time(30)
        assert stage.api.listed[OWNERS.plural] == before[OWNERS.plural]
        stage.create(OWNERS, thing("new"))
        await stage.until(lambda: stage.label(OWNERS, "new") == "one", seconds=1)


@in_virtual_time
async def test_an_owner_that_gets_other_children_is_not_listed_again(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Listing)
    assert isinstance(stage.api, Listing)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    stage.start("one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        before = stage.api.listed[OWNERS.plural]
        edit(stage, resources=[FAMILY])
        await stage.pass_time(5)
        create_family(stage, "owner", shard=None, children=(None,))
        await stage.until(lambda: stage.label(CHILDREN, "owner-0") == "one", seconds=10)
        assert stage.api.listed[OWNERS.plural] == before


@in_virtual_time
async def test_namespaces_that_come_into_scope_are_listed(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "shards"}}
    stage.create(CLUSTERRINGS, ring(ALONE, namespaceSelector=selector), None)
    stage.start("one")
    stage.create(OWNERS, thing("it"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert stage.label(OWNERS, "it") is None
        selector["matchLabels"]["kubernetes.io/metadata.name"] = "default"
        edit(stage, namespaceSelector=selector)
        await stage.until(lambda: stage.label(OWNERS, "it") == "one", seconds=2)


@in_virtual_time
async def test_a_drain_is_as_old_as_it_is(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    for shard in ("one", "two"):
        stage.start(shard)
    [name] = names_on("two", "one", "two")
    stage.create(OWNERS, thing(name, shard="one"))
    async with leading(stage) as replica:
        await stage.until(lambda: stage.draining(OWNERS, name))
        await stage.pass_time(40)
        edit(stage, resources=[ALONE, OTHERS])
        await stage.pass_time(10)
        assert 45 <= oldest_drain(replica) <= 55
        stage.acknowledge(name)
        await stage.until(lambda: stage.label(OWNERS, name) == "two", seconds=5)
        await stage.until(lambda: oldest_drain(replica) == 0.0, seconds=5)


@in_virtual_time
async def test_a_group_goes_where_it_began_to_go(clock: VirtualClock) -> None:
    stage, api = staged(clock, "one", "two")
    name = name_that_a_third_shard_gets()
    async with leading(stage):
        child, owner = await begin_to_move(stage, api, name)
        edit(stage, namespaceSelector={"matchLabels": {}})
        stage.start("three")
        await stage.pass_time(5)
        api.refused.clear()
        await stage.until(lambda: stage.label(OWNERS, name) is not None, seconds=12)
        assert child == owner == [(None, "one")]
        assert LABELS.shard in (stage.server.get(CHILDREN, f"{name}-1", "default")["metadata"]["labels"])
