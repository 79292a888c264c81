"""A main object and what it controls: nothing of them runs here once another shard may begin."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from kopf._cogs.structs.references import Resource as KopfResource

from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS
from tests.unit.shardsdk.contrib.test_kopf_gate import CHILDREN, Rig

LATER_VERSION = KopfResource("", "v2", "secrets", kind="Secret", namespaced=True)


def child_of(rig: Rig, owner: dict[str, Any] | None, name: str = "child") -> dict[str, Any]:
    """A config map of this shard, controlled by `owner`."""
    references = [] if owner is None else [reference_to(owner)]
    metadata = {
        "name": name, "namespace": "default", "labels": {RING.shard: "shard-1"}, "ownerReferences": references,
    }  # fmt: skip
    return rig.server.create(CONFIGMAPS, {"metadata": metadata})


async def shown_family(rig: Rig, **owners: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A secret with a config map that it controls, both of this shard, and both were shown; `owners` are metadata."""
    owner = rig.secret(**owners)
    child = child_of(rig, owner)
    await rig.event("ADDED", owner)
    await rig.event("ADDED", child, CHILDREN)
    return owner, child


def reference_to(owner: dict[str, Any], kind: str = "Secret") -> dict[str, Any]:
    metadata = owner["metadata"]
    return {"apiVersion": "v1", "kind": kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}


def change_child(rig: Rig, name: str = "child", **metadata: Any) -> dict[str, Any]:
    return rig.server.patch(CONFIGMAPS, name, "default", {"metadata": metadata})


def go(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.create_task(work)


async def end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


# -- what a drain waits for ----------------------------------------------------------


@in_virtual_time
async def test_a_drain_waits_for_the_handlers_of_controlled_objects(clock: VirtualClock) -> None:
    rig = Rig(clock)
    owner = rig.secret()
    await rig.event("ADDED", owner)
    rig.busy_seconds = 50.0
    working = [go(rig.event("ADDED", child_of(rig, owner, name), CHILDREN)) for name in ("one", "two")]
    await clock.sleep(1)
    giving = go(rig.event("MODIFIED", rig.change(drain="true")))
    await clock.sleep(48)
    assert RING.drain in rig.labels()
    await asyncio.gather(giving, *working)
    assert rig.labels() == {}


@in_virtual_time
async def test_a_drain_ends_the_daemons_of_controlled_objects(clock: VirtualClock) -> None:
    rig = Rig(clock)
    _, child = await shown_family(rig)
    daemon = await rig.daemon(child, lasts=30.0)
    giving = go(rig.event("MODIFIED", rig.change(drain="true")))
    await clock.sleep(29)
    assert RING.drain in rig.labels()
    await giving
    assert daemon.done()
    assert rig.labels() == {}


@in_virtual_time
async def test_a_daemon_of_a_controlled_object_is_cancelled_at_the_limit(clock: VirtualClock) -> None:
    rig = Rig(clock, drain_timeout_seconds=5.0)
    _, child = await shown_family(rig)
    daemon = await rig.daemon(child, lasts=1000.0)
    await rig.event("MODIFIED", rig.change(drain="true"))
    assert daemon.cancelled()
    assert clock.monotonic() < 10
    assert rig.labels() == {}


@in_virtual_time
async def test_a_drain_does_not_wait_for_the_controlled_objects_of_others(clock: VirtualClock) -> None:
    rig = Rig(clock)
    owner, other = rig.secret(), rig.secret("other")
    await rig.event("ADDED", owner)
    await rig.event("ADDED", other)
    rig.busy_seconds = 1000.0
    working = [
        go(rig.event("ADDED", child_of(rig, other, "others"), CHILDREN)),
        go(rig.event("ADDED", child_of(rig, None, "nobodys"), CHILDREN)),
    ]
    await clock.sleep(1)
    await rig.event("MODIFIED", rig.change(drain="true"))
    assert rig.labels() == {}
    assert len(rig.processed) == 4
    await end(*working)


@in_virtual_time
async def test_a_daemon_that_a_handler_begins_while_the_drain_waits_for_it_is_ended_too(clock: VirtualClock) -> None:
    for resource in (LATER_VERSION, CHILDREN):
        rig = Rig(clock)
        owner = rig.secret()
        await rig.event("ADDED", owner)
        body = owner if resource is LATER_VERSION else child_of(rig, owner)
        daemons: list[asyncio.Task[None]] = []

        async def process(rig: Rig = rig, daemons: list[asyncio.Task[None]] = daemons, **event: Any) -> None:
            await clock.sleep(5)
            daemons.append(await rig.daemon(event["raw_event"]["object"], lasts=10.0))

        rig.gate._process = process
        working = go(rig.event("ADDED", body, resource))
        await clock.sleep(1)
        await rig.event("MODIFIED", rig.change(drain="true"))
        assert rig.labels() == {}
        assert daemons[0].done()
        await working


# -- what begins no more --------------------------------------------------------------


@in_virtual_time
async def test_an_older_event_by_another_version_begins_nothing_while_the_object_is_given_away(
    clock: VirtualClock,
) -> None:
    rig = Rig(clock)
    body = rig.secret()
    await rig.event("ADDED", body)

    async def settle() -> None:
        await clock.sleep(2)

    rig.gate._drains._settle = settle
    giving = go(rig.event("MODIFIED", rig.change(drain="true")))
    await clock.sleep(1)
    await rig.event("MODIFIED", body, LATER_VERSION)
    await giving
    assert rig.processed == [("ADDED", "mine")]
    assert rig.labels() == {}


@in_virtual_time
async def test_older_events_of_what_is_here_are_processed(clock: VirtualClock) -> None:
    rig = Rig(clock)
    first = rig.secret()
    rig.change(drain="true")
    await rig.event("MODIFIED", rig.change(drain=None))
    await rig.event("ADDED", first, LATER_VERSION)
    assert rig.processed == [("MODIFIED", "mine"), ("ADDED", "mine")]


@in_virtual_time
async def test_nothing_begins_by_a_version_that_lags_behind_the_end_at_another(clock: VirtualClock) -> None:
    rig = Rig(clock)
    body = rig.secret()
    await rig.event("ADDED", body)
    await rig.event("ADDED", body, LATER_VERSION)
    drained = rig.change(drain="true")
    await rig.event("MODIFIED", drained)
    await rig.event("DELETED", drained)
    await rig.event("MODIFIED", body, LATER_VERSION)
    assert rig.processed == [("ADDED", "mine")] * 2


@in_virtual_time
async def test_nothing_begins_by_a_version_that_lags_behind_where_another_shard_has_finished_the_object(
    clock: VirtualClock,
) -> None:
    rig = Rig(clock)
    other = rig.secret("other")
    await rig.event("ADDED", other)
    await rig.event("ADDED", other, LATER_VERSION)  # both versions are watched
    body = rig.secret()
    await rig.event("ADDED", body)
    drained = rig.change(drain="true")
    await rig.event("MODIFIED", drained)
    await rig.event("DELETED", drained)
    rig.change(shard="shard-2")
    rig.server.delete(SECRETS, "mine", "default")
    begun = len(rig.processed)
    await rig.event("ADDED", body, LATER_VERSION)
    assert rig.processed[begun:] == []


@in_virtual_time
async def test_an_event_of_a_controlled_object_waits_for_the_end_of_the_drain(clock: VirtualClock) -> None:
    rig = Rig(clock)
    owner, _ = await shown_family(rig)
    daemon = await rig.daemon(owner, lasts=100.0)
    giving = go(rig.event("MODIFIED", rig.change(drain="true")))
    await clock.sleep(1)
    waiting = go(rig.event("MODIFIED", change_child(rig, annotations={"a": "b"}), CHILDREN))
    await clock.sleep(50)
    assert len(rig.processed) == 2
    kept = rig.change(drain=None)
    await asyncio.gather(giving, daemon)
    await rig.event("MODIFIED", kept)
    await waiting
    assert sorted(rig.processed[2:]) == [("MODIFIED", "child"), ("MODIFIED", "mine")]


@in_virtual_time
async def test_a_controlled_object_is_left_to_the_shard_that_gets_its_owner(clock: VirtualClock) -> None:
    rig = Rig(clock)
    owner, _ = await shown_family(rig)
    drained = rig.change(drain="true")
    await rig.event("MODIFIED", drained)
    await rig.event("DELETED", drained)
    news = asyncio.Event()
    waiting = [
        go(rig.event("MODIFIED", change_child(rig, annotations={"a": "b"}), CHILDREN, stream_pressure=news)),
        go(rig.event("ADDED", child_of(rig, owner, "new"), CHILDREN, stream_pressure=news)),  # it comes late
    ]
    await clock.sleep(100)
    assert len(rig.processed) == 2
    moved = change_child(rig, labels={RING.shard: "shard-2"})
    news.set()
    await asyncio.gather(*waiting)
    await rig.event("DELETED", moved, CHILDREN)
    assert len(rig.processed) == 2


@in_virtual_time
async def test_handlers_of_a_controlled_object_wait_for_its_owner_to_come(clock: VirtualClock) -> None:
    rig = Rig(clock)
    owner = rig.secret(shard=None)
    waiting = go(rig.event("ADDED", child_of(rig, owner), CHILDREN))
    await clock.sleep(100)
    assert rig.processed == []
    came = clock.monotonic()
    await rig.event("ADDED", rig.change(shard="shard-1"))
    await waiting
    assert clock.monotonic() - came < 1, "it was asked for once more"
    assert sorted(rig.processed) == [("ADDED", "child"), ("ADDED", "mine")]


@in_virtual_time
async def test_an_owner_that_no_event_shows_is_asked_for(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.api.fault = Fault.REFUSED
    owner = rig.secret()
    waiting = go(rig.event("ADDED", child_of(rig, owner), CHILDREN))
    await clock.sleep(10)
    assert rig.processed == []
    rig.api.fault = Fault.NONE
    await waiting
    assert rig.processed == [("ADDED", "child")]


@in_virtual_time
async def test_what_its_owner_has_left_behind_is_worked_on(clock: VirtualClock) -> None:
    rig = Rig(clock)
    owner = rig.secret()
    await rig.event("ADDED", owner)
    drained = rig.change(drain="true")
    await rig.event("MODIFIED", drained)
    orphan = go(rig.event("ADDED", child_of(rig, owner), CHILDREN))
    await clock.sleep(1)
    rig.server.delete(SECRETS, "mine", "default")
    await orphan
    again = rig.secret()  # of the same name
    assert again["metadata"]["uid"] != owner["metadata"]["uid"]
    await rig.event("MODIFIED", change_child(rig, annotations={"a": "b"}), CHILDREN)
    assert rig.processed == [("ADDED", "mine"), ("ADDED", "child"), ("MODIFIED", "child")]


@in_virtual_time
async def test_a_controller_that_the_ring_does_not_share_is_not_waited_for(clock: VirtualClock) -> None:
    rig = Rig(clock)
    child = child_of(rig, None)
    child["metadata"]["ownerReferences"] = [reference_to(rig.secret("other", None), kind="Pod")]
    await rig.event("ADDED", child, CHILDREN)
    assert rig.processed == [("ADDED", "child")]


@in_virtual_time
async def test_a_controlled_object_goes_with_the_owner_that_it_was_given(clock: VirtualClock) -> None:
    rig = Rig(clock)
    owner, other = rig.secret(), rig.secret("other")
    child = child_of(rig, owner)
    await rig.event("ADDED", owner)
    await rig.event("ADDED", other)
    await rig.event("ADDED", child, CHILDREN)
    adopted = change_child(rig, ownerReferences=[reference_to(other)])
    await rig.event("MODIFIED", adopted, CHILDREN)
    daemon = await rig.daemon(child, lasts=10.0)
    await rig.event("MODIFIED", rig.change(drain="true"))
    assert rig.labels() == {}
    assert not daemon.done()
    await rig.event("MODIFIED", rig.change("other", drain="true"))
    assert rig.labels("other") == {}
    assert daemon.done()


@in_virtual_time
async def test_an_answer_that_comes_when_the_owner_has_left_begins_nothing(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(clock)
    owner = rig.secret()
    find, answer = rig.api.find, asyncio.Event()

    async def find_late(*asked: Any) -> Any:
        found = await find(*asked)
        await answer.wait()
        return found

    monkeypatch.setattr(rig.api, "find", find_late)
    waiting = go(rig.event("ADDED", child_of(rig, owner), CHILDREN))
    await clock.sleep(2)
    drained = rig.change(drain="true")
    await rig.event("ADDED", drained)
    assert rig.labels() == {}
    await rig.event("DELETED", drained)
    answer.set()
    await clock.sleep(10)
    assert rig.processed == []
    await end(waiting)
