"""Children that the sharder has not labelled yet are in no shard's cache; their owner makes them no second time."""

from __future__ import annotations

import pytest

from shardsdk.protocol.objects import PartialObject
from shardsdk.rbac import Right
from shardsdk.reconcile.barrier import CATCH_UP_SECONDS
from shardsdk.reconcile.childlists import UNLABELLED_SECONDS
from shardsdk.reconcile.context import Context
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, SECRETS, Rig

#: Within so long a waiting owner has had another list, and its cache has caught up.
SOON_SECONDS = CATCH_UP_SECONDS + 5


async def make_child_if_missing(context: Context[PartialObject]) -> None:
    if not context.children(CONFIGMAPS):
        name = context.request.name
        body = {"metadata": {"name": f"new-of-{name}", "ownerReferences": [context.controller_reference()]}}
        await context.api.create(CONFIGMAPS, body, "default")


def unlabelled_child(rig: Rig, owner: str) -> str:
    """A child from before its resource was added to the ring."""
    name = f"old-of-{owner}"
    rig.child(owner, name)
    rig.relabel(CONFIGMAPS, name, shard=None)
    return name


def children(rig: Rig) -> set[str]:
    return {thing["metadata"]["name"] for thing in rig.server.select(CONFIGMAPS, "default")}


@in_virtual_time
async def test_an_owner_waits_until_its_children_are_labelled(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    child = unlabelled_child(rig, "owner")
    async with rig.shard(make_child_if_missing, listed=True):
        await clock.sleep(5 * SOON_SECONDS)
        assert rig.reconciled == []
        rig.relabel(CONFIGMAPS, child, shard="shard-1")
        await clock.sleep(1)
    assert rig.reconciled == ["owner"]
    assert children(rig) == {child}


@in_virtual_time
async def test_as_long_as_one_of_its_owners_waits_for_such_a_child_a_shard_looks_for_those_of_others(
    clock: VirtualClock,
) -> None:
    """An owner without any, whose list is the next one, says nothing of the children of others."""
    rig = Rig(clock)
    rig.secret("waiting")
    rig.secret("later", shard="shard-2")
    old = [unlabelled_child(rig, "waiting"), unlabelled_child(rig, "later")]
    async with rig.shard(make_child_if_missing, listed=True):
        await clock.sleep(5)
        rig.secret("childless")
        await clock.sleep(5)
        assert rig.reconciled[:1] == ["childless"]
        rig.relabel(SECRETS, "later", shard="shard-1")
        await clock.sleep(5)
        assert set(rig.reconciled) == {"childless"}
        for child in old:
            rig.relabel(CONFIGMAPS, child, shard="shard-1")
        await clock.sleep(5)
    assert set(rig.reconciled) == {"childless", "waiting", "later"}
    assert children(rig) == {*old, "new-of-childless"}


@in_virtual_time
async def test_once_there_are_none_they_are_looked_for_no_longer(clock: VirtualClock) -> None:
    """What nobody's owner on this shard has is no reason to: it costs a list each time."""
    rig = Rig(clock)
    rig.secret("elsewhere", shard="shard-2")
    unlabelled_child(rig, "elsewhere")
    lists = 0

    def count(right: Right) -> None:
        nonlocal lists
        lists += (right.verb, right.resource) == ("list", CONFIGMAPS.group_resource)

    async with rig.shard(listed=True):
        await clock.sleep(5)
        rig.secret("first")
        await clock.sleep(5)
        rig.api.on_request = count
        rig.secret("second")
        await clock.sleep(5)
    assert set(rig.reconciled) == {"first", "second"}
    assert lists == 1


@in_virtual_time
async def test_a_child_that_nobody_labels_holds_its_owner_up_for_a_limited_time(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    rig.secret("other")
    unlabelled_child(rig, "owner")
    async with rig.shard(listed=True):
        await clock.sleep(UNLABELLED_SECONDS - 5)
        assert set(rig.reconciled) == {"other"}
        assert "never labelled" not in caplog.text
        await clock.sleep(2 * SOON_SECONDS)
        assert set(rig.reconciled) == {"other", "owner"}
    assert "A child is never labelled; its owner goes on without it" in caplog.text


@in_virtual_time
async def test_each_such_child_has_that_time_for_itself(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("early")
    unlabelled_child(rig, "early")
    async with rig.shard(listed=True):
        await clock.sleep(UNLABELLED_SECONDS / 2)
        rig.secret("late", shard="shard-2")
        unlabelled_child(rig, "late")
        rig.relabel(SECRETS, "late", shard="shard-1")
        await clock.sleep(UNLABELLED_SECONDS / 2 + 2 * SOON_SECONDS)
        assert rig.reconciled == ["early"]
        await clock.sleep(UNLABELLED_SECONDS / 2)
        assert set(rig.reconciled) == {"early", "late"}
