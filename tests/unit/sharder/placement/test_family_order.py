"""The order in which a group changes hands, when something else happens in the middle of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shardsdk.errors import ConnectionFailed
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.testing.memory import Change
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.processes import outside
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.families import create_family, split_families
from tests.unit.sharder.placement.refusing import begin_to_move, changes_of, name_that_a_third_shard_gets, staged
from tests.unit.sharder.placement.stage import (
    CHILDREN,
    LABELS,
    OWNERS,
    SlowApi,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)


@in_virtual_time
async def test_an_owner_that_somebody_labelled_meanwhile_is_not_taken_from_the_shard_that_has_it(
    clock: VirtualClock,
) -> None:
    """The webhook has placed it, or people have; its shard may work on it already."""
    stage, api = staged(clock, "one", "two")
    [name] = names_on("one", "one", "two")

    def label() -> None:
        stage.server.patch(OWNERS, name, "default", {"metadata": {"labels": {LABELS.shard: "two"}}})

    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.before[name] = label
        changes = changes_of(stage, name)
        create_family(stage, name, shard=None, children=(None,))
        await stage.pass_time(10)
        assert changes == [(None, "two")]
        # It goes where it belongs as everything does that a living shard has.
        assert stage.draining(OWNERS, name)


@in_virtual_time
async def test_children_that_followed_their_owner_to_where_somebody_put_it_stay_there(clock: VirtualClock) -> None:
    """Whoever works on the owner has them; to go on with the group would take them away again."""
    stage, api = staged(clock, "one", "two")
    [name] = names_on("one", "one", "two")

    def label() -> None:
        for resource, each in ((OWNERS, name), (CHILDREN, f"{name}-0")):
            stage.server.patch(resource, each, "default", {"metadata": {"labels": {LABELS.shard: "two"}}})

    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.before[name] = label
        changes = changes_of(stage, f"{name}-0")
        create_family(stage, name, shard=None, children=(None,))
        await stage.until(lambda: stage.label(OWNERS, name) == "two")
        await stage.pass_time(5)
        assert changes[:2] == [(None, "one"), ("one", "two")]
        assert ("two", "one") not in changes


@in_virtual_time
async def test_a_shard_that_is_back_before_its_owner_drains_keeps_it(clock: VirtualClock) -> None:
    """The watch does not show its lease yet, so the hold on that counts still; only the renewal can tell."""
    stage, api = staged(clock, "one", "two")
    [name] = names_on("one", "one", "two")
    create_family(stage, name, shard="one", children=("one", "one"))

    def come_back() -> None:
        assert stage.holder("one") == SHARDER_HOLDER
        api.lag = lambda: 1.0
        stage.start("one")

    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.before[name] = come_back
        changes = [changes_of(stage, each) for each in (name, f"{name}-0", f"{name}-1")]
        stage.crash("one")
        await stage.until(lambda: not api.before, seconds=30)
        await stage.pass_time(10)
        assert stage.holder("one") == "one"
        assert changes == [[], [], []]


@in_virtual_time
async def test_a_group_goes_where_it_began_to_go_although_another_shard_came(clock: VirtualClock) -> None:
    stage, api = staged(clock, "one", "two")
    name = name_that_a_third_shard_gets()
    async with leading(stage):
        child, owner = await begin_to_move(stage, api, name)
        stage.start("three")
        await stage.pass_time(5)
        api.refused.clear()
        await stage.until(lambda: stage.label(OWNERS, name) is not None, seconds=12)
        assert child == owner == [(None, "one")]
        # Only then it is asked for again, in order.
        await stage.until(lambda: stage.draining(OWNERS, name))


@in_virtual_time
async def test_a_group_that_began_to_go_to_a_shard_that_is_gone_goes_elsewhere_as_a_whole(clock: VirtualClock) -> None:
    stage, api = staged(clock, "one", "two")
    [name] = names_on("one", "one", "two")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.refused.add(f"{name}-1")
        create_family(stage, name, shard=None, children=(None, None))
        await stage.until(lambda: stage.label(CHILDREN, f"{name}-0") == "one")
        stage.crash("one")
        api.refused.clear()
        api.refused.add(name)
        await stage.until(lambda: stage.holder("one") == SHARDER_HOLDER, seconds=20)
        api.refused.clear()
        await stage.until(lambda: stage.label(OWNERS, name) is not None, seconds=40)
        assert [stage.label(CHILDREN, f"{name}-{number}") for number in range(2)] == ["two", "two"]
        assert stage.label(OWNERS, name) == "two"


@in_virtual_time
async def test_an_owner_that_has_moved_does_not_drain_at_its_new_shard(clock: VirtualClock) -> None:
    """The drain label that kept its last shard off goes with the same patch that names the next one."""
    stage, _ = staged(clock, "one", "two")
    [name] = names_on("one", "one", "two")
    create_family(stage, name, shard="one", children=("one",))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.crash("one")
        await stage.until(lambda: stage.label(OWNERS, name) == "two", seconds=30)
        assert not stage.draining(OWNERS, name)


@pytest.mark.parametrize(("back", "gone"), [("one", "two"), ("two", "one")])
@in_virtual_time
async def test_a_shard_that_is_back_keeps_its_owner_whatever_others_are_gone(
    clock: VirtualClock, back: str, gone: str
) -> None:
    """One batch of families has both leases renewed, and each renewal says something of its own shard alone."""
    stage, api = staged(clock, "one", "two", "three")
    # The first of all is a batch of its own, as long as the others wait.
    names = {shard: names_on(shard, "one", "two", "three", count=2) for shard in ("one", "two")}
    for shard, owners in names.items():
        for name in owners:
            create_family(stage, name, shard=shard, children=(shard,))

    def come_back() -> None:
        assert stage.holder(back) == SHARDER_HOLDER
        api.lag = lambda: 1.0  # the watch does not show its lease yet
        stage.start(back)

    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.before[names[back][0]] = come_back
        kept = [changes_of(stage, each) for name in names[back] for each in (name, f"{name}-0")]
        stage.crash("one")
        stage.crash("two")
        await stage.until(lambda: all(stage.label(OWNERS, name) == "three" for name in names[gone]), seconds=60)
        assert not api.before
        assert kept == [[], [], [], []]


@in_virtual_time
async def test_a_child_that_somebody_changes_meanwhile_goes_along_all_the_same(clock: VirtualClock) -> None:
    stage, api = staged(clock, "one", "two")
    [name] = names_on("one", "one", "two")
    split = split_families(stage)

    def change() -> None:
        stage.server.patch(CHILDREN, f"{name}-0", "default", {"data": {"a": "b"}})

    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.before[f"{name}-0"] = change
        create_family(stage, name, shard=None, children=("two", None))
        assert await stage.until(lambda: stage.label(OWNERS, name) == "one", seconds=1) < 0.5
        assert not api.before
    assert not split


@in_virtual_time
async def test_a_child_that_is_deleted_meanwhile_keeps_its_owner_from_nothing(clock: VirtualClock) -> None:
    stage, api = staged(clock, "one", "two")
    [name] = names_on("one", "one", "two")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.before[f"{name}-0"] = lambda: stage.server.delete(CHILDREN, f"{name}-0", "default")
        create_family(stage, name, shard=None, children=(None, "two"))
        assert await stage.until(lambda: stage.label(OWNERS, name) == "one", seconds=1) < 0.5
        assert stage.label(CHILDREN, f"{name}-1") == "one"


@in_virtual_time
async def test_a_child_that_another_owner_adopts_meanwhile_stays_with_that_owners_shard(clock: VirtualClock) -> None:
    """To go on with it would take it away from whoever reconciles its owner by now."""
    stage, api = staged(clock, "one", "two")
    [name], [other] = names_on("one", "one", "two"), names_on("two", "one", "two")

    def adopt() -> None:
        references = thing("it", owner=stage.server.get(OWNERS, other, "default"))["metadata"]["ownerReferences"]
        stage.server.patch(CHILDREN, f"{name}-0", "default", {"metadata": {"ownerReferences": references}})

    async with leading(stage):
        create_family(stage, other, shard="two", children=())
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.before[f"{name}-0"] = adopt
        changes = changes_of(stage, f"{name}-0")
        create_family(stage, name, shard=None, children=("two",))
        await stage.until(lambda: stage.label(OWNERS, name) == "one", seconds=5)
        await stage.pass_time(5)
        assert changes == []


class Late(SlowApi):
    """Of the first write of an owner there is no answer; it is executed later."""

    unanswered = ""

    async def patch(self, resource: Any, name: str, *args: Any, **more: Any) -> Any:
        if name != self.unanswered:
            return await super().patch(resource, name, *args, **more)
        self.unanswered, self.slow = "", {OWNERS.plural: 5.0}
        outside(super().patch(resource, name, *args, **more))
        await asyncio.sleep(0.1)
        self.slow = {}
        raise ConnectionFailed(f"patch {name}: connection reset")


@in_virtual_time
async def test_an_owner_in_doubt_is_read_when_its_last_write_can_no_longer_be_executed(clock: VirtualClock) -> None:
    """Read before, it is nobody's, and its children would leave the shard that is about to have it."""
    stage = make_stage(clock, api=Late)
    api = stage.api
    assert isinstance(api, Late)
    stage.set_up(ring(), "one", "two")
    [name] = names_on("one", "one", "two")
    drains: list[bool] = []

    def look(change: Change) -> None:
        metadata = {} if change.new is None else change.new["metadata"]
        if metadata.get("name") == f"{name}-0" and (metadata.get("labels") or {}).get(LABELS.shard) == "two":
            drains.append(stage.draining(OWNERS, name))

    stage.server.listeners.append(look)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.unanswered = name
        create_family(stage, name, shard=None, children=(None,))
        await stage.until(lambda: stage.label(CHILDREN, f"{name}-0") == "one" and not api.unanswered)
        stage.release("one")
        await stage.until(lambda: stage.label(OWNERS, name) == "two", seconds=60)
        assert drains == [True]


class Behind(MemoryApi):
    """Of the first write of an owner there is no answer, though it is executed; from then on news of owners wait."""

    unanswered = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.news = asyncio.Event()
        self.news.set()

    async def patch(self, resource: Any, name: str, *args: Any, **more: Any) -> Any:
        if name == self.unanswered:
            self.news.clear()
        answer = await super().patch(resource, name, *args, **more)
        if name == self.unanswered:
            self.unanswered = ""
            raise ConnectionFailed(f"patch {name}: connection reset")
        return answer

    async def watch(self, resource: Any, *args: Any, **more: Any) -> AsyncIterator[Any]:
        async for event in super().watch(resource, *args, **more):
            if resource == OWNERS:
                await self.news.wait()
            yield event


@in_virtual_time
async def test_an_owner_that_was_read_is_not_taken_for_what_it_was_before_while_its_watch_is_behind(
    clock: VirtualClock,
) -> None:
    """By that it is nobody's, and its children would leave a shard that has not let it go."""
    stage = make_stage(clock, api=Behind)
    api = stage.api
    assert isinstance(api, Behind)
    stage.set_up(ring(), "one", "two")
    [name] = names_on("one", "one", "two")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.unanswered = name
        create_family(stage, name, shard=None, children=(None,))
        await stage.until(lambda: stage.label(OWNERS, name) == "one")
        await stage.pass_time(2)
        stage.release("one")
        await stage.pass_time(20)
        assert stage.holder("one") == SHARDER_HOLDER
        assert (stage.label(CHILDREN, f"{name}-0"), stage.draining(OWNERS, name)) == ("one", False)
        api.news.set()
        await stage.until(lambda: stage.label(OWNERS, name) == "two", seconds=20)
