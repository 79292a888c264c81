"""Whoever reconciles an owner sees its children, and makes none twice."""

from __future__ import annotations

import asyncio

import pytest

from shardsdk.protocol.objects import PartialObject
from shardsdk.rbac import Right
from shardsdk.reconcile.context import Context
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS, Lag, Rig, come_back_unseen

Ctx = Context[PartialObject]


async def make_child_if_missing(context: Ctx) -> None:
    if not context.children(CONFIGMAPS):
        body = {
            "metadata": {
                "generateName": "child-",
                "namespace": "default",
                "ownerReferences": [context.controller_reference()],
            }
        }
        await context.api.create(CONFIGMAPS, body, "default")


async def make_child_without_answer(rig: Rig, context: Ctx) -> None:
    """The request is on its way for 20 s, and given up after one."""
    rig.api.delay = lambda: 20.0
    try:
        async with asyncio.timeout(1):
            await make_child_if_missing(context)
    finally:
        rig.api.delay = lambda: 0.001


@in_virtual_time
async def test_an_owner_handed_over_waits_until_its_children_are_in_the_cache(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner", shard="shard-2")
    rig.child("owner", "child", shard="shard-2")
    async with rig.shard(make_child_if_missing):
        await clock.sleep(5)
        rig.api.lag = lambda: 0.001
        lag = Lag(rig, CONFIGMAPS, 10)
        # As the sharder does it: children first, then the owner.
        rig.relabel(CONFIGMAPS, "child", shard="shard-1")
        rig.relabel(SECRETS, "owner", shard="shard-1")
        await clock.sleep(5)
        assert rig.reconciled == []
        lag.seconds = 0
        rig.nudge(CONFIGMAPS)
        await clock.sleep(5)
    assert rig.reconciled == ["owner"]
    assert len(rig.server.select(CONFIGMAPS, "default")) == 1


@in_virtual_time
async def test_owners_that_are_there_at_the_start_wait_too(clock: VirtualClock) -> None:
    rig = Rig(clock)
    for number in range(50):
        rig.secret(f"owner{number}")
        rig.child(f"owner{number}", f"child{number}")
    async with rig.shard(make_child_if_missing):
        await clock.sleep(30)
    assert len(rig.reconciled) >= 50
    assert len(rig.server.select(CONFIGMAPS)) == 50


@in_virtual_time
async def test_one_list_serves_all_owners_that_wait(clock: VirtualClock) -> None:
    rig = Rig(clock)
    async with rig.shard():
        await clock.sleep(5)
        before = rig.counter("child_lists_total") or 0
        for number in range(500):
            rig.secret(f"owner{number}")
        await clock.sleep(10)
        lists = (rig.counter("child_lists_total") or 0) - before
    assert len(set(rig.reconciled)) == 500
    assert lists < 25  # they arrive within half a second


@in_virtual_time
async def test_an_owner_that_was_given_away_and_comes_back_waits_again(clock: VirtualClock) -> None:
    """Even if this shard saw nothing of its leaving: its watch was broken all the while."""
    rig = Rig(clock)
    rig.secret("owner")
    async with rig.shard(make_child_if_missing):
        await clock.sleep(5)
        (child,) = rig.server.select(CONFIGMAPS)
        rig.drain("owner")
        await clock.sleep(5)
        rig.api.fault = Fault.LOST
        # The other shard replaces the child.
        rig.server.delete(CONFIGMAPS, child["metadata"]["name"], "default")
        rig.child("owner", "replacement", shard="shard-1")
        rig.relabel(SECRETS, "owner", shard="shard-1")
        await clock.sleep(200)
        rig.api.fault = Fault.NONE
        await clock.sleep(200)
    assert [thing["metadata"]["name"] for thing in rig.server.select(CONFIGMAPS)] == ["replacement"]


@in_virtual_time
async def test_an_owner_seen_to_leave_and_not_to_have_left_waits_again(clock: VirtualClock) -> None:
    """The last this shard saw was the drain label; when it looks again the object is its own once more."""
    rig = Rig(clock)
    rig.secret("owner")
    rig.child("owner", "old")
    seen: list[list[str]] = []

    async def look(context: Ctx) -> None:
        seen.append([child.metadata.name for child in context.children(CONFIGMAPS)])

    async with rig.shard(look):
        await clock.sleep(5)
        children, owners = Lag(rig, CONFIGMAPS, 0), Lag(rig, SECRETS, 0)
        rig.drain("owner")
        await clock.sleep(0.0015)  # the event is here, the acknowledgement under way
        owners.seconds = 1000
        await clock.sleep(1)
        assert rig.labels("owner") == {}
        await come_back_unseen(rig, "owner", children, old="old", new="new")
    assert seen[0] == ["old"]
    assert [names for names in seen[1:] if names != ["new"]] == []


@in_virtual_time
async def test_a_child_deleted_while_it_is_listed_holds_nobody_up(clock: VirtualClock) -> None:
    rig = Rig(clock)
    for number in range(5):
        rig.secret(f"owner{number}", shard="shard-2")
        rig.child(f"owner{number}", f"child{number}")
    async with rig.shard():
        await clock.sleep(5)
        rig.api.delay = lambda: 1.0
        rig.relabel(SECRETS, "owner1", shard="shard-1")
        await clock.sleep(0.5)
        rig.server.delete(CONFIGMAPS, "child1", "default")
        rig.server.delete(CONFIGMAPS, "child2", "default")
        await clock.sleep(10)
    assert rig.reconciled == ["owner1"]


@in_virtual_time
async def test_owners_wait_as_long_as_their_children_cannot_be_listed(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner", shard="shard-2")
    async with rig.shard():
        await clock.sleep(5)
        rig.api.fault = Fault.REFUSED
        # The event itself came before the connection broke.
        rig.relabel(SECRETS, "owner", shard="shard-1")
        await clock.sleep(0.01)
        await clock.sleep(20)
        assert rig.reconciled == []
        rig.api.fault = Fault.NONE
        await clock.sleep(100)
    assert rig.reconciled == ["owner"]


@in_virtual_time
async def test_a_creation_without_an_answer_is_followed_by_a_fresh_list(clock: VirtualClock) -> None:
    """The child was made, the answer was lost, and its name was generated: only a list can tell."""
    rig = Rig(clock)

    async def reconcile(context: Ctx) -> None:
        if not context.children(CONFIGMAPS) and not rig.server.select(CONFIGMAPS):
            rig.api.fault = Fault.UNANSWERED
        try:
            await make_child_if_missing(context)
        finally:
            rig.api.fault = Fault.NONE

    rig.secret("owner")
    lag = Lag(rig, CONFIGMAPS, 0)
    async with rig.shard(reconcile):
        lag.seconds = 40  # the answer is given up after 30 s, the news come later
        await clock.sleep(35)
        rig.nudge(CONFIGMAPS)
        await clock.sleep(60)
        rig.nudge(CONFIGMAPS)
        await clock.sleep(60)
    made = [thing for thing in rig.server.select(CONFIGMAPS) if "ownerReferences" in thing["metadata"]]
    assert len(made) == 1
    assert made[0]["metadata"]["labels"] == {RING.shard: "shard-1"}


@in_virtual_time
async def test_that_list_waits_until_the_creation_can_no_longer_be_executed(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.hold.seconds = 60
    attempts = 0

    async def reconcile(context: Ctx) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            await make_child_without_answer(rig, context)
        await make_child_if_missing(context)

    rig.secret("owner")
    async with rig.shard(reconcile):
        await clock.sleep(100)
    assert len(rig.server.select(CONFIGMAPS)) == 1
    assert attempts > 1


@in_virtual_time
async def test_a_doubt_that_arises_while_another_is_waited_out_has_a_wait_of_its_own(clock: VirtualClock) -> None:
    """Two creations without an answer, the second while the barrier waits for the first to be dead."""
    rig = Rig(clock)
    rig.hold.seconds = 60
    attempts: dict[str, int] = {}

    async def reconcile(context: Ctx) -> None:
        name = context.request.name
        attempts[name] = attempts.get(name, 0) + 1
        if attempts[name] == 1:
            await clock.sleep(0 if name == "early" else 15)
            await make_child_without_answer(rig, context)
        await make_child_if_missing(context)

    rig.secret("early")
    rig.secret("late")
    async with rig.shard(reconcile):
        await clock.sleep(200)
    assert set(attempts) == {"early", "late"}
    owners = [child["metadata"]["ownerReferences"][0]["name"] for child in rig.server.select(CONFIGMAPS)]
    assert sorted(owners) == ["early", "late"]


@in_virtual_time
async def test_a_barrier_that_fails_ends_its_controller(clock: VirtualClock) -> None:
    """Else owners would wait for ever, and nobody would notice."""
    rig = Rig(clock)

    async def fail(batch: object) -> float:
        raise RuntimeError("nothing that a list is known to raise")

    async with rig.shard() as reconciler:
        reconciler._barrier._learn_children = fail  # type: ignore[method-assign]
        rig.secret("owner")
        with pytest.raises(ExceptionGroup) as ended:
            async with asyncio.timeout(60):
                await rig.tasks[-1]
    assert ended.group_contains(RuntimeError, match="nothing that a list")


@in_virtual_time
async def test_without_children_nobody_waits(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("mine")
    async with rig.shard(owns=False):
        await clock.sleep(1)
    assert rig.reconciled == ["mine"]
    assert rig.counter("child_lists_total") == pytest.approx(0)


@in_virtual_time
async def test_a_write_in_doubt_of_an_owner_that_is_gone_leaves_nothing_behind(clock: VirtualClock) -> None:
    rig = Rig(clock)
    async with rig.shard(make_child_if_missing) as reconciler:
        await clock.sleep(5)
        for number in range(5):
            rig.secret(f"owner-{number}")
            while len(rig.reconciled) == number:
                await clock.sleep(0.0005)
            rig.api.delay = lambda: 0.5
            await clock.sleep(0.1)
            rig.server.delete(SECRETS, f"owner-{number}", "default")
            await clock.sleep(5)
            rig.api.delay = lambda: 0.001
        await clock.sleep(100)
        assert reconciler._states.known() == 0


@in_virtual_time
async def test_an_owner_that_left_with_a_write_in_doubt_and_comes_back_waits_for_that_write(
    clock: VirtualClock,
) -> None:
    rig = Rig(clock)
    rig.hold.seconds = 60
    begun = asyncio.Event()

    async def make_child(context: Ctx) -> None:
        if begun.is_set():
            await make_child_if_missing(context)
            return
        rig.api.delay = lambda: 20.0
        begun.set()
        try:
            await make_child_if_missing(context)
        finally:
            rig.api.delay = lambda: 0.001

    rig.secret("owner")
    async with rig.shard(make_child):
        await begun.wait()
        await clock.sleep(1)
        rig.relabel(SECRETS, "owner", shard="shard-2")
        await clock.sleep(1)
        rig.relabel(SECRETS, "owner", shard="shard-1")
        await clock.sleep(100)
    assert len(rig.reconciled) > 1
    assert len(rig.server.select(CONFIGMAPS, "default")) == 1


@in_virtual_time
async def test_a_child_that_is_labelled_while_the_barrier_lists_is_not_made_twice(clock: VirtualClock) -> None:
    """It is found among those that nobody has, or among those that this shard has."""
    rig = Rig(clock)
    rig.secret("owner", shard="shard-2")
    rig.child("owner", "child")
    rig.relabel(CONFIGMAPS, "child", shard=None)
    asked = 0

    def label(right: Right) -> None:
        nonlocal asked
        asked += (right.verb, right.resource) == ("list", CONFIGMAPS.group_resource)
        if asked == 2:  # between the two lists
            rig.api.on_request = None
            rig.relabel(CONFIGMAPS, "child", shard="shard-1")

    async with rig.shard(make_child_if_missing, listed=True):
        await clock.sleep(5)
        lag = Lag(rig, CONFIGMAPS, 10)
        rig.api.on_request = label
        rig.relabel(SECRETS, "owner", shard="shard-1")
        await clock.sleep(5)
        assert (asked, rig.reconciled) == (2, [])
        lag.seconds = 0
        rig.nudge(CONFIGMAPS)
        await clock.sleep(5)
    assert rig.reconciled == ["owner"]
    assert len(rig.server.select(CONFIGMAPS, "default")) == 1


@in_virtual_time
async def test_an_owner_that_leaves_and_comes_back_during_a_list_waits_for_the_next(clock: VirtualClock) -> None:
    """That list is older than what the other shard has made."""
    rig = Rig(clock)
    async with rig.shard(make_child_if_missing):
        await clock.sleep(5)
        lag = Lag(rig, CONFIGMAPS, 60)
        rig.api.delay = lambda: 1.0
        rig.secret("owner")
        await clock.sleep(1.5)  # the list is on its way back
        rig.relabel(SECRETS, "owner", shard="shard-2")
        await clock.sleep(0.1)
        rig.child("owner", "child")
        rig.relabel(SECRETS, "owner", shard="shard-1")
        await clock.sleep(20)
        assert rig.reconciled == []
        lag.seconds = 0
        rig.nudge(CONFIGMAPS)
        await clock.sleep(20)
    assert set(rig.reconciled) == {"owner"}
    assert len(rig.server.select(CONFIGMAPS, "default")) == 1
