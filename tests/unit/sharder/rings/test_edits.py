"""A ring that is edited: what is known of the resources that stay is kept."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from sharder.replica import Replica
from shardsdk.errors import ServerError
from shardsdk.protocol.objects import CLUSTERRINGS, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.families import create_family
from tests.unit.sharder.placement.refusing import begin_to_move, name_that_a_third_shard_gets, staged
from tests.unit.sharder.placement.stage import (
    ALONE,
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
from tests.unit.sharder.rings.edited import FAMILY, OTHERS


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


@asynccontextmanager
async def settled(stage: Stage, *resources: Any) -> AsyncIterator[Replica]:
    """A replica that leads, a shard, and a ring of `resources` where all is in its place."""
    stage.set_up(ring(*resources), "one")
    async with leading(stage) as replica:
        await stage.until(lambda: stage.condition("Settled") == "True")
        yield replica


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
    async with settled(stage, ALONE):
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
    async with settled(stage, ALONE):
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
    stage.set_up(ring(ALONE, namespaceSelector=selector), "one")
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
    stage.set_up(ring(ALONE), "one", "two")
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


class Away(MemoryApi):
    """What some API groups serve nobody says, while they are `away`; `late` ones say so after a while."""

    away = True

    async def discover(self, group: str, plural: str) -> Resource | None:
        if group == LATE["group"]:
            await asyncio.sleep(3)
        elif self.away and group == LOST["group"]:
            raise ServerError("the server is currently unable to handle the request", status=503)
        return await super().discover(group, plural)


LOST: Final = {"group": "away.example", "resource": "things"}
LATE: Final = {"group": "late.example", "resource": "things"}
WAITING: Final = "whether the API server serves things.away.example is not known: the server is currently unable"


def things(listed: dict[str, str]) -> Resource:
    return Resource(listed["group"], "v1", listed["resource"], "Thing")


def served(stage: Stage, *listed: dict[str, str]) -> Away:
    """The connection, once these are served as well."""
    assert isinstance(stage.api, Away)
    stage.api.served += map(things, listed)
    return stage.api


def told(stage: Stage, kind: str = "Ready") -> tuple[int, str, str]:
    """Of what generation a condition speaks, its status, and what it says."""
    status = stage.server.get(CLUSTERRINGS, RING, None).get("status", {})
    for each in status.get("conditions", ()):
        assert each["observedGeneration"] == status["observedGeneration"]
        if each["type"] == kind:
            return each["observedGeneration"], each["status"], each["message"]
    return 0, "", ""


@in_virtual_time
async def test_conditions_speak_of_the_spec_that_is_in_use_until_the_edited_one_is(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Away)
    served(stage, LATE)
    async with settled(stage, ALONE):
        edit(stage, resources=[LATE])
        await stage.pass_time(2)
        assert told(stage)[:2] == (1, "True")
        assert told(stage, "Settled")[:2] == (1, "True")
        await stage.until(lambda: told(stage)[:2] == (2, "True"), seconds=2)
        stage.create(things(LATE), thing("it"))
        await stage.until(lambda: stage.label(things(LATE), "it") == "one", seconds=2)


@in_virtual_time
async def test_an_edited_spec_that_cannot_be_looked_up_is_said_not_to_be_in_force_while_the_old_one_is(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock, api=Away)
    api = served(stage, LOST)
    async with settled(stage, ALONE):
        edit(stage, resources=[LOST])
        await stage.until(lambda: told(stage)[:2] == (2, "False"), seconds=2)
        since, message = clock.now(), told(stage, "ResourcesServed")[2]
        assert message.startswith(WAITING)
        assert "used as it was before it was edited (generation 1)" in message
        assert f"again since {since:%Y-%m-%dT%H:%M}" in message
        assert told(stage, "Settled")[:2] == (2, "Unknown")
        before = stage.patches(CLUSTERRINGS)
        stage.create(OWNERS, thing("it"))
        await stage.until(lambda: stage.label(OWNERS, "it") == "one", seconds=2)
        await stage.pass_time(100)
        assert told(stage, "ResourcesServed") == (2, "False", message)
        assert stage.patches(CLUSTERRINGS) - before <= 2, "it is written once, however often it is tried again"
        edit(stage, namespaceSelector={"matchLabels": {}})
        await stage.until(lambda: told(stage)[:2] == (3, "False"), seconds=2)
        api.away = False
        await stage.until(lambda: told(stage)[:2] == (3, "True"), seconds=15)
        assert (len(stage.events.of("Served")), stage.events.of("Granted")) == (1, []), "nobody was told that it is not"
        await stage.until(lambda: stage.draining(OWNERS, "it"), seconds=15)


@in_virtual_time
async def test_an_edit_that_lists_nothing_new_is_in_force_although_nobody_says_what_is_served(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock, api=Away)
    api = served(stage, LOST)
    api.away = False
    async with settled(stage, LOST):
        api.away = True
        edit(stage, namespaceSelector={"matchLabels": {}})
        await stage.until(lambda: told(stage)[:2] == (2, "True"), seconds=2)


@in_virtual_time
async def test_an_edit_that_is_undone_while_it_cannot_be_looked_up_leaves_nothing_behind(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Away)
    async with settled(stage, ALONE):
        edit(stage, resources=[LOST])
        await stage.until(lambda: told(stage)[:2] == (2, "False"), seconds=2)
        edit(stage, resources=[ALONE])
        await stage.until(lambda: told(stage)[:2] == (3, "True"), seconds=2)
        await stage.until(lambda: told(stage, "Settled")[:2] == (3, "True"), seconds=30)
        edit(stage, resources=[LOST])
        await stage.until(lambda: told(stage)[:2] == (4, "False"), seconds=2)
        edit(stage, resources=[{"group": "Not A Group", "resource": "x"}])
        await stage.until(lambda: told(stage)[0] == 5, seconds=2)
        assert "is no API group" in told(stage)[2]


@pytest.mark.parametrize("assignment", [{}, {"assignment": "Ranges", "hashBy": "Namespace"}], ids=["labels", "ranges"])
def test_a_new_ring_of_which_nothing_can_be_looked_up_says_so(assignment: dict[str, str]) -> None:
    @in_virtual_time
    async def story(clock: VirtualClock) -> None:
        stage = make_stage(clock, api=Away)
        api = served(stage, LOST)
        stage.set_up(ring(LOST, **assignment), "one")
        async with leading(stage):
            await stage.until(lambda: stage.condition("Ready") == "False", seconds=2)
            generation, _, message = told(stage, "ResourcesServed")
            assert generation == 1
            assert message.startswith(WAITING)
            assert "nothing of the ring is placed" in message
            assert told(stage, "PermissionsGranted")[1] == told(stage, "Settled")[1] == "Unknown"
            api.away = False
            await stage.until(lambda: stage.condition("Ready") == "True", seconds=15)
            assert stage.condition("ResourcesServed") == stage.condition("PermissionsGranted") == "True"

    story()


@in_virtual_time
async def test_a_selector_that_no_api_server_takes_moves_nothing_and_is_told(clock: VirtualClock) -> None:
    """An older definition lets it in."""
    stage = make_stage(clock)
    async with settled(stage, ALONE):
        stage.create(OWNERS, thing("it"))
        await stage.until(lambda: stage.label(OWNERS, "it") == "one")
        before = stage.patches(OWNERS)
        edit(stage, namespaceSelector={"matchLabels": {"bad key!": "x"}})
        await stage.until(lambda: stage.condition("Ready") == "False")
        assert "'bad key!' cannot be the name of a label" in stage.events.of("ReconciliationFailed")[0]
        await stage.pass_time(600)
        assert (stage.label(OWNERS, "it"), stage.patches(OWNERS)) == ("one", before)
