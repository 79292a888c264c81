"""Resources of a ring that cannot be read, their conversion webhook hangs say, beside others of the same ring."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from shardsdk.errors import ConnectionFailed
from shardsdk.kube.api import ListOptions, Selection
from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    LABELS,
    OWNERS,
    RING,
    SETTINGS,
    Stage,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)

SECRETS = Resource("", "v1", "secrets", "Secret")
SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
#: Longer than anything may wait for a read here.
HANG_SECONDS = 3600.0


class Hanging(MemoryApi):
    """Lists of some resources have no answer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.hanging: set[GroupResource] = set()
        self.hang_seconds = HANG_SECONDS

    async def read_pages(self, selection: Selection[Any], options: ListOptions) -> AsyncIterator[list[Any]]:
        if selection.resource.group_resource in self.hanging:
            await self.clock.sleep(self.hang_seconds)
            raise ConnectionFailed(f"list {selection.resource.plural}: no answer")
        async for page in super().read_pages(selection, options):
            yield page


def staged(clock: VirtualClock, *resources: Any) -> tuple[Stage, Hanging]:
    stage = make_stage(clock, api=Hanging)
    assert isinstance(stage.api, Hanging)
    stage.api.served = [*stage.api.served, SECRETS, SETS]
    stage.set_up(ring(*resources), "one", "two")
    return stage, stage.api


@in_virtual_time
async def test_children_whose_owners_cannot_be_read_hold_up_nothing_else(clock: VirtualClock) -> None:
    with_children = {**ALONE, "controlledResources": [{"resource": CHILDREN.plural}]}
    stage, api = staged(clock, with_children, {"resource": SECRETS.plural})
    owner = stage.create(OWNERS, thing(names_on("one", "one", "two")[0], shard="one"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.hanging.add(OWNERS.group_resource)
        for number in range(20 * SETTINGS.concurrent_moves):
            stage.create(CHILDREN, thing(f"child-{number}", owner=owner))
        await stage.pass_time(1)
        stage.create(SECRETS, thing("secret"))
        await stage.until(lambda: stage.label(SECRETS, "secret") is not None, seconds=HANG_SECONDS / 10)


@in_virtual_time
async def test_families_whose_children_cannot_be_read_hold_up_no_family_of_another_resource(
    clock: VirtualClock,
) -> None:
    stage, api = staged(
        clock,
        {**ALONE, "controlledResources": [{"resource": CHILDREN.plural}]},
        {"resource": SECRETS.plural, "controlledResources": [{"group": SETS.group, "resource": SETS.plural}]},
    )
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.hanging.add(CHILDREN.group_resource)
        for number in range(5):
            stage.create(OWNERS, thing(f"owner-{number}"))
        await stage.pass_time(1)
        stage.create(SECRETS, thing("secret"))
        await stage.until(lambda: stage.label(SECRETS, "secret") is not None, seconds=HANG_SECONDS / 10)
        assert stage.label(OWNERS, "owner-0") is None


@in_virtual_time
async def test_children_that_left_the_ring_do_not_wait_for_their_owners_family(clock: VirtualClock) -> None:
    """It leaves them alone, so they need not keep out of its way."""
    sets = {"group": SETS.group, "resource": SETS.plural}
    fewer = {**ALONE, "controlledResources": [{"resource": CHILDREN.plural}]}
    stage, api = staged(clock, {**ALONE, "controlledResources": [{"resource": CHILDREN.plural}, sets]})
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        owner = stage.create(OWNERS, thing("owner", shard="one"))
        for number in range(20):
            stage.create(SETS, thing(f"set-{number}", shard="one", owner=owner))
        await stage.pass_time(5)
        # The resync, which finds what has left, gets on after a while.
        api.hanging.add(CHILDREN.group_resource)
        api.hang_seconds = 60.0
        stage.server.patch(OWNERS, "owner", "default", {"metadata": {"labels": {LABELS.shard: None}}})
        await stage.pass_time(1)

        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"resources": [fewer]}})

        await stage.until(lambda: all(stage.label(SETS, f"set-{number}") is None for number in range(20)), seconds=180)
        assert stage.label(OWNERS, "owner") is None
