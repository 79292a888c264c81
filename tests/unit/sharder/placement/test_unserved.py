"""A type that is not served, for a while or for good: that says nothing of its objects."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sharder.rings.status import REFUSED
from shardsdk.errors import NotServed
from shardsdk.protocol.objects import CLUSTERRINGS, Resource
from shardsdk.rbac import Right
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.families import create_family, split_families
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    OWNERS,
    Stage,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)


def without(resource: Resource, *verbs: str) -> Callable[[Right], None]:
    """Answers requests of these verbs as an API server does that does not know the type (an aggregated one's proxy)."""

    def refuse(right: Right) -> None:
        if right.resource == resource.group_resource and right.verb in verbs:
            raise NotServed("404 page not found", status=404)

    return refuse


def two_shards(clock: VirtualClock, *resources: object) -> Stage:
    stage = make_stage(clock)
    stage.set_up(ring(*resources), "one", "two")
    return stage


@pytest.mark.parametrize("resource", [CHILDREN, OWNERS], ids=["child", "owner"])
@in_virtual_time
async def test_a_family_waits_whole_while_a_type_of_it_is_not_served(clock: VirtualClock, resource: Resource) -> None:
    stage = two_shards(clock)
    split = split_families(stage)
    [name] = names_on("two", "one", "two")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.on_request = without(resource, "patch")
        create_family(stage, name, shard=None, children=("one",))
        await stage.pass_time(60)
        assert stage.label(OWNERS, name) is None
        stage.api.on_request = None
        await stage.until(lambda: stage.label(OWNERS, name) == "two", seconds=20)
        assert stage.label(CHILDREN, f"{name}-0") == "two"
        assert not split


@pytest.mark.parametrize("resource", [CHILDREN, OWNERS], ids=["child", "owner"])
@in_virtual_time
async def test_a_family_that_waits_for_a_type_that_is_listed_all_the_same_is_told_of(
    clock: VirtualClock, resource: Resource
) -> None:
    stage = two_shards(clock)
    split = split_families(stage)
    [name] = names_on("one", "one", "two")
    async with leading(stage):
        create_family(stage, name, shard="one", children=("one",))
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.on_request = without(resource, "patch")
        stage.release("one")
        await stage.pass_time(120)
        assert stage.label(OWNERS, name) == stage.label(CHILDREN, f"{name}-0") == "one"
        assert "the API server refuses to change some of them" in stage.message("Settled")
        assert "404 page not found" in stage.events.of(REFUSED)[-1]
        stage.api.on_request = None
        await stage.until(lambda: stage.label(OWNERS, name) == "two", seconds=61)
        assert stage.label(CHILDREN, f"{name}-0") == "two"
        assert not split


@in_virtual_time
async def test_a_family_does_not_wait_for_children_whose_type_was_uninstalled(clock: VirtualClock) -> None:
    stage = two_shards(clock)
    [name] = names_on("two", "one", "two")
    async with leading(stage) as replica:
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.served.remove(CHILDREN)
        stage.api.on_request = without(CHILDREN, "patch", "list", "watch")
        create_family(stage, name, shard=None, children=("one",))
        await stage.pass_time(5)
        assert stage.label(OWNERS, name) is None
        replica.cache.resolve_again(stage.server.select(CLUSTERRINGS)[0]["metadata"]["name"])
        await stage.until(lambda: stage.label(OWNERS, name) == "two", seconds=20)


@pytest.mark.parametrize("shard", ["one", None], ids=["asked back", "given"])
@in_virtual_time
async def test_what_could_not_be_placed_while_its_type_was_not_served_is_placed_when_it_is_again(
    clock: VirtualClock, shard: str | None
) -> None:
    stage = two_shards(clock, ALONE)
    [name] = names_on("two", "one", "two")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.on_request = without(OWNERS, "patch")
        stage.create(OWNERS, thing(name, shard=shard))
        if shard is not None:
            stage.start("three")
        await stage.pass_time(75)
        stage.api.on_request = None
        if shard is None:
            await stage.until(lambda: stage.label(OWNERS, name) == "two", seconds=61)
        else:
            await stage.until(lambda: stage.draining(OWNERS, name), seconds=15)
