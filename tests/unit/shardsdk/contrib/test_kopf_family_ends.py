"""A main object and what it controls: their ends, what stays here after all, and kopf's start."""

from __future__ import annotations

import asyncio

import pytest

from shardsdk.errors import ConnectionFailed, NotServed
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS
from tests.unit.shardsdk.contrib.test_kopf_families import LATER_VERSION, change_child, child_of, end, go, shown_family
from tests.unit.shardsdk.contrib.test_kopf_gate import CHILDREN, HANDLED, Indexed, Rig

# -- endings -------------------------------------------------------------------------


@in_virtual_time
async def test_the_end_of_a_controlled_object_is_told_while_its_owner_is_here(clock: VirtualClock) -> None:
    rig = Rig(clock)
    owner = rig.secret()
    await rig.event("ADDED", owner)
    children = [child_of(rig, owner, name) for name in ("one", "two", "three")]
    for child in children:
        await rig.event("ADDED", child, CHILDREN)
        rig.server.delete(CONFIGMAPS, child["metadata"]["name"], "default")
    told = len(rig.processed)
    await rig.event("DELETED", children[0], CHILDREN)
    assert rig.processed[told:] == [("DELETED", "one")]

    daemon = await rig.daemon(owner, lasts=10.0)
    giving = go(rig.event("MODIFIED", rig.change(drain="true")))
    await clock.sleep(1)
    late = go(rig.event("DELETED", children[1], CHILDREN))
    await asyncio.gather(giving, daemon, late)
    await rig.event("DELETED", children[2], CHILDREN)
    assert rig.processed[told:] == [("DELETED", "one")]


@in_virtual_time
async def test_children_of_a_deleted_owner_are_worked_on_to_their_end(clock: VirtualClock) -> None:
    rig = Rig(clock)
    owner, child = await shown_family(rig)
    rig.server.delete(SECRETS, "mine", "default")
    await rig.event("DELETED", owner)
    await rig.event("MODIFIED", change_child(rig, annotations={"a": "b"}), CHILDREN)
    rig.server.delete(CONFIGMAPS, "child", "default")
    await rig.event("DELETED", child, CHILDREN)
    assert rig.processed[2:] == [("DELETED", "mine"), ("MODIFIED", "child"), ("DELETED", "child")]


@pytest.mark.parametrize("refused", [ConnectionFailed("refused"), NotServed("404 page not found", status=404)])
@in_virtual_time
async def test_daemons_of_children_that_stay_are_begun_again(clock: VirtualClock, refused: Exception) -> None:
    rig = Rig(clock)
    owner = rig.secret()
    await rig.event("ADDED", owner)
    for name in ("with", "without"):
        await rig.event("ADDED", child_of(rig, owner, name), CHILDREN)
    await rig.daemon(rig.server.get(CONFIGMAPS, "with", "default"), lasts=1.0)
    await rig.event("MODIFIED", rig.change(drain="true"))
    before = len(rig.server.log)
    back = rig.change(shard="shard-1")
    rig.api.error = refused
    await rig.event("MODIFIED", back)  # and the children have not left
    rig.api.error = None
    await rig.event("MODIFIED", rig.change(shard="shard-1"))
    await rig.event("MODIFIED", rig.change(shard="shard-1"))
    # kopf itself has an object processed again by this annotation.
    touched = [each.new for each in rig.server.log[before:] if each.resource == CONFIGMAPS.group_resource]
    assert [each and each["metadata"]["name"] for each in touched] == ["with"]
    assert "kopf.zalando.org/touch-dummy" in rig.server.get(CONFIGMAPS, "with", "default")["metadata"]["annotations"]


@in_virtual_time
async def test_a_withdrawn_drain_is_seen_while_a_handler_still_runs(clock: VirtualClock) -> None:
    rig = Rig(clock)
    owner = rig.secret()
    await rig.event("ADDED", owner)
    rig.busy_seconds = 1000.0
    working = go(rig.event("ADDED", child_of(rig, owner), CHILDREN))
    await clock.sleep(1)
    news = asyncio.Event()
    giving = go(rig.event("MODIFIED", rig.change(drain="true"), stream_pressure=news))
    await clock.sleep(1)
    kept = rig.change(drain=None)
    news.set()
    await giving
    rig.busy_seconds = 0.0
    await rig.event("MODIFIED", kept)
    assert rig.processed == [("ADDED", "mine"), ("ADDED", "child"), ("MODIFIED", "mine")]
    await end(working)


@in_virtual_time
async def test_an_object_that_comes_back_is_resumed_although_no_answer_to_its_acknowledgement_came(
    clock: VirtualClock,
) -> None:
    rig = Rig(clock)
    owner = rig.secret(annotations=HANDLED)
    child = child_of(rig, owner)
    await rig.event("ADDED", owner)
    drained = rig.change(drain="true")
    rig.api.fault = Fault.UNANSWERED
    news, childs_news = asyncio.Event(), asyncio.Event()
    giving = go(rig.event("MODIFIED", drained, stream_pressure=news))
    await clock.sleep(1)
    rig.api.fault = Fault.NONE
    waiting = go(rig.event("ADDED", child, CHILDREN, stream_pressure=childs_news))  # it asks for its owner
    await clock.sleep(5)
    news.set()
    await giving
    await rig.event("DELETED", drained)
    await rig.event("ADDED", rig.change(shard="shard-1"))
    await waiting
    assert rig.processed.count((None, "mine")) == 2


@in_virtual_time
async def test_so_it_is_where_nobody_told_that_it_was_away(clock: VirtualClock) -> None:
    """The next try meets a newer object, and a list that is made meanwhile has it here again."""
    rig = Rig(clock)
    await rig.event("ADDED", rig.secret(annotations=HANDLED))
    drained = rig.change(drain="true")
    rig.api.fault = Fault.UNANSWERED
    giving = go(rig.event("MODIFIED", drained, stream_pressure=asyncio.Event()))
    await clock.sleep(1)
    rig.api.fault = Fault.NONE
    assert rig.labels() == {}
    await giving
    await rig.event("ADDED", rig.change(shard="shard-1"))
    assert rig.processed.count((None, "mine")) == 2


@in_virtual_time
async def test_what_is_deleted_has_not_ended_when_it_leaves_by_an_acknowledgement_whose_answer_was_lost(
    clock: VirtualClock,
) -> None:
    rig = Rig(clock)
    await shown_family(rig, finalizers=["example.com/kopf"])
    rig.server.delete(SECRETS, "mine", "default")
    drained = rig.change(drain="true")
    assert drained["metadata"]["deletionTimestamp"]
    rig.api.fault = Fault.UNANSWERED
    giving = go(rig.event("MODIFIED", drained))
    await clock.sleep(0.1)
    rig.api.fault = Fault.NONE
    assert rig.labels() == {}
    left = rig.change(shard="shard-2")["metadata"]["resourceVersion"]
    await giving
    told = len(rig.processed)
    # As the API server tells it: what the object was before, at the version at which it was that no more.
    await rig.event("DELETED", {**drained, "metadata": {**drained["metadata"], "resourceVersion": left}})
    waiting = go(rig.event("MODIFIED", change_child(rig, annotations={"a": "b"}), CHILDREN))
    await clock.sleep(60)
    assert rig.processed[told:] == []
    await end(waiting)


@in_virtual_time
async def test_no_daemon_outlives_the_end_of_its_object(clock: VirtualClock) -> None:
    rig = Rig(clock)
    _, child = await shown_family(rig)
    daemon = await rig.daemon(child, lasts=10.0)
    rig.server.delete(CONFIGMAPS, "child", "default")
    ending = go(rig.event("DELETED", child, CHILDREN))
    await clock.sleep(1)
    giving = go(rig.event("MODIFIED", rig.change(drain="true")))
    await clock.sleep(5)
    assert RING.drain in rig.labels()
    await asyncio.gather(ending, giving)
    assert daemon.done()
    assert rig.labels() == {}


# -- kopf's start ----------------------------------------------------------------------


@in_virtual_time
async def test_what_waits_does_not_keep_the_handlers_of_others_from_being_called(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret()
    drained, others, unknown = Indexed(), Indexed(), Indexed()
    owner = rig.change(drain="true")
    child, stray = child_of(rig, owner), child_of(rig, rig.secret("unseen"), "stray")
    rig.api.fault = Fault.REFUSED
    giving = go(rig.event(None, owner, resource_indexed="this object", operator_indexed=drained))
    waiting = go(rig.event(None, child, CHILDREN, resource_indexed="this object", operator_indexed=others))
    lost = go(rig.event(None, stray, CHILDREN, resource_indexed="this object", operator_indexed=unknown))
    await clock.sleep(0.5)
    assert drained.waits_for == set()
    assert others.waits_for == set()
    assert unknown.waits_for  # mostly its owner is about to be shown
    await clock.sleep(3)
    assert unknown.waits_for == set()
    await end(giving, waiting, lost)


@in_virtual_time
async def test_what_leaves_with_its_owner_is_expected(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(clock)
    owner, _ = await shown_family(rig)
    await rig.event("MODIFIED", rig.change(drain="true"))
    await rig.event("DELETED", owner)
    await rig.event("DELETED", change_child(rig, labels={RING.shard: "shard-2"}), CHILDREN)
    assert rig.api.lists == []
    assert caplog.records == []


@in_virtual_time
async def test_that_an_object_has_left_is_too_late_when_it_has_come_back(clock: VirtualClock) -> None:
    rig = Rig(clock)
    await rig.event("ADDED", rig.secret())
    left = rig.change(shard="shard-2")
    back = rig.change(shard="shard-1")
    await rig.event("MODIFIED", back, LATER_VERSION)
    daemon = await rig.daemon(back, lasts=1000.0)
    await rig.event("DELETED", left)
    await clock.sleep(1)
    assert not daemon.done()
    await end(daemon)


@in_virtual_time
async def test_a_drain_is_acknowledged_after_versions_went_back(clock: VirtualClock) -> None:
    rig = Rig(clock)
    before = rig.secret()
    before["metadata"]["resourceVersion"] = "1000"
    await rig.event("ADDED", before)
    await rig.event(None, rig.change(drain="true"))  # as kopf lists it anew
    assert rig.labels() == {}


@in_virtual_time
async def test_families_are_forgotten_with_the_last_of_them(clock: VirtualClock) -> None:
    rig = Rig(clock)
    for name in ("first", "second"):
        owner = rig.secret(name)
        child = child_of(rig, owner, f"{name}-child")
        await rig.event("ADDED", child, CHILDREN)
        await rig.event("ADDED", owner)
        await rig.event("MODIFIED", rig.change(name, drain="true"))
        ends = [("DELETED", owner), ("DELETED", child, CHILDREN)]
        for event in ends if name == "first" else reversed(ends):
            await rig.event(*event)
    assert rig.gate._families.count == 0
