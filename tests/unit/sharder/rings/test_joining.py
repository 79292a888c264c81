"""A resource that a ring lists as controlled, and had as main: nothing keeps it waiting, and nothing is left of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shardsdk.errors import Forbidden, ServerError
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.rbac import Right
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    LABELS,
    OWNERS,
    RING,
    SETTINGS,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)
from tests.unit.sharder.rings.edited import FAMILY, OTHERS, SHARDS, Edited, prepare, settled


def refuse_status(right: Right) -> None:
    if (right.resource, right.verb) == (CLUSTERRINGS.group_resource, "patch"):
        raise ServerError("500 Internal Server Error", status=500)


def refuse_patch_of(name: str) -> Callable[[Right], None]:
    def refuse(right: Right) -> None:
        if (right.name, right.verb) == (name, "patch"):
            raise Forbidden("403 Forbidden", status=403)

    return refuse


@in_virtual_time
async def test_what_drains_and_is_taken_along_by_its_owner_drains_no_longer(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE, OTHERS), None)
    shards = (*SHARDS, "three")
    for shard in shards:
        stage.start(shard)
    [name], [child] = names_on("two", *shards), names_on("three", *shards, resource=CHILDREN)
    owner = stage.create(OWNERS, thing(name, shard="two"))
    stage.create(CHILDREN, thing(child, shard="three", owner=owner))
    edited = Edited(stage, {}, {"three": child}, {}, child)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        edited.edit(FAMILY)
        await stage.until(lambda: stage.draining(CHILDREN, child))
        stage.crash("two")
        stage.crash("three")
        await stage.until(lambda: stage.label(OWNERS, name) == "one")
        await stage.until(lambda: edited.placed_as == "controlled")
        assert stage.label(CHILDREN, child) == "one"
        assert not stage.draining(CHILDREN, child)


@in_virtual_time
async def test_it_is_controlled_soon_after_owners_are_made_no_longer_though_no_sync_period_is_set(
    clock: VirtualClock,
) -> None:
    edited = prepare(clock)
    stage = edited.stage
    async with leading(stage, replace(SETTINGS, sync_period_seconds=0.0)):
        await stage.until(lambda: stage.condition("Settled") == "True")
        for name in (*edited.apart.values(), edited.orphan):
            stage.server.delete(CHILDREN, name, "default")
        for number in range(400):
            stage.create(OWNERS, thing(f"made-meanwhile-{number}"))
            if number == 50:
                edited.edit(FAMILY)
            await stage.pass_time(0.05)
        await stage.until(lambda: edited.placed_as == "controlled")
        await stage.until(lambda: stage.condition("Settled") == "True")


@in_virtual_time
async def test_nothing_is_gone_through_while_shards_take_their_time(clock: VirtualClock) -> None:
    async with settled(clock) as edited:
        stage = edited.stage
        edited.edit(FAMILY)
        await edited.until_asked_back()
        [owner] = names_on("three", *SHARDS, "three")
        stage.create(OWNERS, thing(owner, shard="one"))
        stage.start("three")
        await stage.pass_time(60)
        before = len(stage.api.lists)
        await stage.pass_time(20 * 60)
        lists = stage.api.lists[before:]
        assert lists.count(CHILDREN.plural) <= 20 * 60 / SETTINGS.sync_period_seconds
        assert lists.count(OWNERS.plural) <= 20 * 60 / SETTINGS.sync_period_seconds
        assert not stage.draining(OWNERS, owner)


@in_virtual_time
async def test_an_owner_that_may_get_no_shard_does_not_keep_the_others(clock: VirtualClock) -> None:
    async with settled(clock) as edited:
        stage = edited.stage
        name = names_on("one", *SHARDS, count=30)[-1]

        stage.api.on_request = refuse_patch_of(name)
        stage.create(OWNERS, thing(name))
        edited.edit(FAMILY)
        await edited.until_asked_back()
        for each in sorted(edited.asked_back):
            edited.let_go(each)
        await stage.until(lambda: edited.placed_as == "controlled", seconds=700)
        assert stage.label(OWNERS, name) is None


@in_virtual_time
async def test_where_the_family_of_an_owner_was_to_go_is_forgotten_when_the_owner_stays(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(ALONE, OTHERS), "one")
    [orphan] = names_on("one", "one", resource=CHILDREN)
    stage.create(CHILDREN, thing(orphan, shard="one"))
    [name] = names_on("three", "one", "two", "three")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"resources": [FAMILY]}})
        await stage.until(lambda: stage.draining(CHILDREN, orphan))
        stage.api.on_request = refuse_patch_of(name)
        owner = stage.create(OWNERS, thing(name))
        stage.create(CHILDREN, thing("with-it", owner=owner))
        await stage.until(lambda: stage.label(CHILDREN, "with-it") == "one")
        # Somebody else gives it to a shard.
        for shard in ("two", "three"):
            stage.start(shard)
        stage.server.patch(OWNERS, name, "default", {"metadata": {"labels": {LABELS.shard: "two"}}})
        await stage.pass_time(60)
        stage.api.on_request = None
        assert stage.label(OWNERS, name) == "two"
        assert not stage.draining(OWNERS, name)
        stage.server.patch(OWNERS, name, "default", {"metadata": {"labels": {LABELS.shard: None}}})
        await stage.until(lambda: stage.label(OWNERS, name) is not None)
        assert stage.label(OWNERS, name) == "three"


@in_virtual_time
async def test_what_is_taken_off_before_its_new_part_is_written_down_is_asked_back(clock: VirtualClock) -> None:
    async with settled(clock) as edited:
        stage = edited.stage
        edited.edit(FAMILY)
        await edited.until_asked_back()
        stage.api.on_request = refuse_status
        edited.let_all_go()
        await stage.pass_time(40)
        assert edited.placed_as == "main"
        edited.edit(ALONE)
        await stage.pass_time(1)
        stage.api.on_request = None
        labelled = {*edited.apart.values(), *edited.together.values()}
        await stage.until(lambda: edited.asked_back == labelled)
        for name in sorted(labelled):
            edited.let_go(name)
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert not edited.taken
