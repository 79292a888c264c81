"""Owners and what they control: what a leader does not know, and groups that cannot move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from shardsdk.errors import Conflict, ConnectionFailed, Invalid
from shardsdk.kube.api import Fence, ListOptions, Selection
from shardsdk.kube.fencing import Unconfirmed
from shardsdk.kube.store import Key
from shardsdk.testing.memoryapi import REQUEST_SECONDS, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.families import create_family, split_families
from tests.unit.sharder.placement.stage import (
    CHILDREN,
    LABELS,
    OWNERS,
    SETTINGS,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)


class Hanging(MemoryApi):
    """Writes to some objects have no answer, by name; what each write goes under is noted."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.hanging: Callable[[str], bool] = lambda name: False
        self.under: list[tuple[str, tuple[Fence, ...]]] = []

    async def patch(self, resource: Any, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        self.under.append((name, tuple(more.get("fences", ()))))
        if self.hanging(name):
            seconds = more.get("timeout_seconds") or REQUEST_SECONDS
            await self.clock.sleep(seconds)
            raise ConnectionFailed(f"patch {name}: no answer within {seconds:g} s")
        return await super().patch(resource, name, namespace, body, **more)


class Refusing(MemoryApi):
    """Some objects cannot be written, some are more than anybody expected."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.refused: set[str] = set()
        self.bewildering: set[str] = set()

    async def patch(self, resource: Any, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        if name in self.bewildering:
            raise KeyError(name)
        if name in self.refused:
            raise Invalid(f"patch {name}: an admission policy refuses it", status=422)
        return await super().patch(resource, name, namespace, body, **more)


class Contested(MemoryApi):
    """Somebody changes each owner just before it is written."""

    async def patch(self, resource: Any, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        if resource == OWNERS:
            raise Conflict(f"patch {name}: it has changed")
        return await super().patch(resource, name, namespace, body, **more)


class SlowLists(MemoryApi):
    """Children take a second to be read."""

    async def read_pages(self, selection: Selection[Any], options: ListOptions) -> AsyncIterator[list[Any]]:
        async for page in super().read_pages(selection, options):
            yield page
        if selection.resource == CHILDREN:
            await self.clock.sleep(1.0)


@in_virtual_time
async def test_an_owner_that_changes_more_often_than_children_can_be_read_is_placed(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=SlowLists)
    split = split_families(stage)
    stage.set_up(ring(), "one", "two")

    async def change() -> None:
        while True:
            stage.server.patch(OWNERS, "family", "default", {"metadata": {"annotations": {"at": f"{clock.now()}"}}})
            await clock.sleep(0.3)

    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        create_family(stage, "family", shard=None, children=(None, "one", "two"))
        changes = asyncio.create_task(change())
        await stage.until(lambda: stage.label(OWNERS, "family") is not None, seconds=10)
        changes.cancel()
    assert not split


@in_virtual_time
async def test_an_owner_that_changes_with_every_read_is_told_of(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make_stage(clock, api=Contested)
    stage.set_up(ring(), "one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        create_family(stage, "family", shard=None, children=(None,))
        await stage.pass_time(5)
    told = [record for record in caplog.records if record.message == "family not moved, will retry"]
    assert {getattr(record, "object", None) for record in told} == {"family"}


@in_virtual_time
async def test_what_an_earlier_leader_moved_halfway_is_gathered(clock: VirtualClock) -> None:
    """Its shard died, half of the children moved, the shard came back and acknowledges to a new leader."""
    stage = make_stage(clock)
    split = split_families(stage)
    stage.set_up(ring(), "one", "two", "three")
    [name] = names_on("three", "one", "two", "three")
    create_family(stage, name, shard="one", children=("two", "one", "three"), draining=True)
    async with leading(stage):
        await stage.pass_time(1)
        stage.acknowledge(name)
        await stage.until(lambda: stage.label(OWNERS, name) == "three", seconds=10)
    assert not split


@in_virtual_time
async def test_a_group_that_cannot_move_is_tried_less_and_less_often(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Refusing)
    assert isinstance(stage.api, Refusing)
    stage.set_up(ring(), "one", "two")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        create_family(stage, "stuck", shard=None, children=("one",))
        stage.api.refused.add("stuck-0")
        before = stage.api.lists.count(CHILDREN.plural)
        await stage.pass_time(60)
        assert 5 < stage.api.lists.count(CHILDREN.plural) - before < 30
        create_family(stage, "fine", shard=None, children=("one", "two"))
        await stage.until(lambda: stage.label(OWNERS, "fine") is not None, seconds=2)
        stage.api.refused.clear()
        await stage.until(lambda: stage.label(OWNERS, "stuck") is not None, seconds=12)


@in_virtual_time
async def test_a_group_goes_on_as_soon_as_its_childrens_shard_can_be_taken_from(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(), "one", "two", "three")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        create_family(stage, "family", shard=None, children=("gone",))
        # A lease that nobody has ever seen counts as held for 15 s.
        took = await stage.until(lambda: stage.label(OWNERS, "family") is not None, seconds=60)
    assert took < 17


@in_virtual_time
async def test_a_shard_that_nobody_has_seen_is_waited_for_once_however_often_others_come_and_go(
    clock: VirtualClock,
) -> None:
    """Each time what is on shards that are gone is listed anew; until then nobody knows whether there is anything."""
    stage = make_stage(clock)
    stage.set_up(ring(), "one")

    async def come_and_go() -> None:
        while True:
            stage.start("two")
            await clock.sleep(4)
            stage.release("two")
            await clock.sleep(4)

    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.create(OWNERS, thing("mine", shard="gone"))
        changes = asyncio.create_task(come_and_go())
        await stage.until(lambda: stage.label(OWNERS, "mine") != "gone", seconds=60)
        changes.cancel()


@in_virtual_time
async def test_an_error_that_nobody_expected_stays_with_its_object(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Refusing)
    assert isinstance(stage.api, Refusing)
    stage.set_up(ring(), "one")
    stage.api.bewildering.update({"strange", "family-0"})
    async with leading(stage):
        create_family(stage, "strange", shard=None, children=())
        create_family(stage, "family", shard=None, children=(None,))
        create_family(stage, "fine", shard=None, children=(None,))
        await stage.until(lambda: stage.label(OWNERS, "fine") == "one", seconds=5)
        await stage.pass_time(10)
        stage.api.bewildering.clear()
        await stage.until(lambda: stage.label(OWNERS, "strange") == "one", seconds=12)
        await stage.until(lambda: stage.label(OWNERS, "family") == "one", seconds=12)


@in_virtual_time
async def test_an_owner_that_a_backup_brought_back_is_moved_again(clock: VirtualClock) -> None:
    """Its version is older than the one that the leader gave it, and stays so."""
    stage = make_stage(clock)
    stage.set_up(ring(), "one")
    async with leading(stage):
        create_family(stage, "family", shard="gone", children=("gone",))
        backup = {resource: stage.server.select(resource) for resource in (OWNERS, CHILDREN)}
        await stage.until(lambda: stage.label(OWNERS, "family") == "one")
        await stage.pass_time(10)
        for resource, objects in backup.items():
            for each in objects:
                key = Key("default", each["metadata"]["name"])
                stage.server.objects[resource.group_resource][key] = each
        stage.start("two")
        await stage.until(lambda: stage.label(OWNERS, "family") in ("one", "two"), seconds=180)
        assert stage.label(CHILDREN, "family-0") == stage.label(OWNERS, "family")


@in_virtual_time
async def test_families_that_cannot_be_written_hold_up_no_other(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Hanging)
    assert isinstance(stage.api, Hanging)
    stage.api.hanging = lambda name: name.startswith("hangs")
    stage.set_up(ring(), "one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        for number in range(3):
            create_family(stage, f"hangs-{number}", shard=None, children=(None,))
        await stage.pass_time(3)
        for number in range(20):
            create_family(stage, f"fine-{number}", shard=None, children=())
            await stage.until(lambda name=f"fine-{number}": stage.label(OWNERS, name) == "one", seconds=1)  # type: ignore[misc]
            await stage.pass_time(0.7)


@in_virtual_time
async def test_a_resource_that_cannot_be_written_holds_up_no_other_resource(clock: VirtualClock) -> None:
    """Many times as many of its objects wait as there may be writes at once."""
    stage = make_stage(clock, api=Hanging)
    assert isinstance(stage.api, Hanging)
    stage.api.hanging = lambda name: name.startswith("hangs")
    stage.set_up(ring(), "one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        for number in range(10 * SETTINGS.concurrent_moves):
            create_family(stage, f"hangs-{number}", shard=None, children=(None,))
        orphan = stage.create(OWNERS, thing("owner", shard="one"))
        stage.create(CHILDREN, thing("hangs-alone", owner=orphan))
        await stage.pass_time(10)
        for number in range(20):
            create_family(stage, f"fine-{number}", shard=None, children=())
            await stage.until(lambda name=f"fine-{number}": stage.label(OWNERS, name) == "one", seconds=2)  # type: ignore[misc]
            await stage.pass_time(0.7)
        stage.api.hanging = lambda name: False
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=60)


@in_virtual_time
async def test_a_child_on_another_living_shard_goes_along(clock: VirtualClock) -> None:
    """It was adopted, restored from a backup, or labelled by an answer that its owner's move overtook."""
    stage = make_stage(clock)
    split = split_families(stage)
    stage.set_up(ring(), "one", "two")
    with_three = set(names_on("three", "one", "two", "three", count=100))
    name = next(each for each in names_on("one", "one", "two", count=100) if each in with_three)
    create_family(stage, name, shard="one", children=("one", "one"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.server.patch(CHILDREN, f"{name}-1", "default", {"metadata": {"labels": {LABELS.shard: "two"}}})
        stage.start("three")
        await stage.until(lambda: stage.draining(OWNERS, name), seconds=10)
        stage.acknowledge(name)
        await stage.until(lambda: stage.label(OWNERS, name) == "three", seconds=5)
        assert not split


@in_virtual_time
async def test_what_moves_as_a_group_goes_under_a_lead_that_the_api_server_confirms(clock: VirtualClock) -> None:
    """Late it would split the family: the next leader may have moved one part of it and not the other."""
    stage = make_stage(clock, api=Hanging)
    assert isinstance(stage.api, Hanging)
    stage.set_up(ring(), "one")
    create_family(stage, "family", shard=None, children=(None,))
    async with leading(stage):
        await stage.until(lambda: stage.label(OWNERS, "family") == "one")
        under = dict(stage.api.under)
    for name in ("family", "family-0"):
        assert any(not isinstance(fence, Unconfirmed) for fence in under[name])


@in_virtual_time
async def test_a_child_that_follows_its_owner_from_a_living_shard_goes_under_such_a_lead_too(
    clock: VirtualClock,
) -> None:
    """Late it would leave its owner again, whom the next leader may have moved with all that it controls."""
    stage = make_stage(clock, api=Hanging)
    assert isinstance(stage.api, Hanging)
    stage.set_up(ring(), "one", "two")
    [name] = names_on("one", "one", "two")
    create_family(stage, name, shard="one", children=("two",))
    async with leading(stage):
        await stage.until(lambda: stage.label(CHILDREN, f"{name}-0") == "one")
        under = dict(stage.api.under)
    assert any(not isinstance(fence, Unconfirmed) for fence in under[f"{name}-0"])
