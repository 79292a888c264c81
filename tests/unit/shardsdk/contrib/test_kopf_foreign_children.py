"""An object of another namespace that names an owner by its uid has no part in what becomes of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from kopf._cogs.structs.references import Resource as KopfResource

from shardsdk.contrib.kopf_families import Families
from shardsdk.contrib.kopf_gate import Gate
from shardsdk.errors import Forbidden
from shardsdk.protocol.objects import Resource
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, ME, RING
from tests.unit.shardsdk.contrib.test_kopf_families import end, go, reference_to
from tests.unit.shardsdk.contrib.test_kopf_gate import CHILDREN, Indexed, Rig

WIDGETS = Resource("example.com", "v1", "widgets", "Widget", namespaced=False)
SHOWN = KopfResource("example.com", "v1", "widgets", kind="Widget", namespaced=False)


def pretend(rig: Rig, owner: dict[str, Any]) -> dict[str, Any]:
    """A config map of this shard, controlled by `owner` if its uid alone is looked at."""
    metadata = {
        "name": "foreign", "namespace": "another", "labels": {RING.shard: "shard-1"},
        "ownerReferences": [reference_to(owner)],
    }  # fmt: skip
    return rig.server.create(CONFIGMAPS, {"metadata": metadata})


@in_virtual_time
async def test_what_it_says_of_the_owner_is_not_believed(clock: VirtualClock) -> None:
    """The object that it names is not there, in its own namespace; that has the owner no less."""
    rig = Rig(clock)
    owner = rig.secret()
    pretending = go(rig.event("ADDED", pretend(rig, owner), CHILDREN))
    await clock.sleep(10)
    await rig.event("ADDED", owner)
    assert ("ADDED", "mine") in rig.processed
    await rig.event("MODIFIED", rig.change(drain="true"))
    assert rig.labels() == {}
    await end(pretending)


@in_virtual_time
async def test_the_owners_drain_does_not_wait_for_it(clock: VirtualClock) -> None:
    rig = Rig(clock)
    owner = rig.secret()
    await rig.event("ADDED", owner)
    rig.busy_seconds = 1000.0
    working = go(rig.event("ADDED", pretend(rig, owner), CHILDREN))
    await clock.sleep(20)
    giving = go(rig.event("MODIFIED", rig.change(drain="true")))
    await clock.sleep(20)
    assert rig.labels() == {}
    await end(working, giving)


def said_to_have_a_namespace(rig: Rig) -> Gate:
    """A gate whose program has said of the main resource no more than its name."""
    return Gate(
        rig.process, ME, rig.api, rig.lease, settle=rig.api.writes_settled, memories=rig.memories, clock=rig.clock,
        main=[replace(WIDGETS, namespaced=True)], controlled=[CONFIGMAPS],
    )  # fmt: skip


def family(rig: Rig) -> tuple[dict[str, Any], dict[str, Any]]:
    """A main object without a namespace, and a child of it."""
    owner = rig.server.create(WIDGETS, {"metadata": {"name": "mine", "labels": {RING.shard: "shard-1"}}})
    reference = {**reference_to(owner, "Widget"), "apiVersion": "example.com/v1"}
    metadata = {"name": "child", "namespace": "default", "labels": {RING.shard: "shard-1"}}
    return owner, rig.server.create(CONFIGMAPS, {"metadata": {**metadata, "ownerReferences": [reference]}})


@pytest.mark.parametrize("first", ["owner", "child", "child, before its type was served", "child, in an outage"])
@in_virtual_time
async def test_a_drain_waits_for_the_children_of_what_has_no_namespace_though_it_was_said_to_have_one(
    clock: VirtualClock, first: str
) -> None:
    """Its definition may be made after the shard has started."""
    rig, indexed = Rig(clock), Indexed()
    rig.gate = said_to_have_a_namespace(rig)
    owner, child = family(rig)
    rig.busy_seconds = 10.0
    shown: list[Any] = []
    if first == "owner":
        shown.append(go(rig.event("ADDED", owner, SHOWN)))
        await clock.sleep(11)
    elif first == "child, in an outage":
        rig.api.fault = Fault.REFUSED
    elif first == "child":
        rig.api.served.append(WIDGETS)
    toggles = {"operator_indexed": indexed, "resource_indexed": "this object"}
    working = go(rig.event("ADDED", child, CHILDREN, **toggles))
    await clock.sleep(3)
    if first != "owner":
        assert (("ADDED", "child") in rig.processed) is (first == "child")
        assert not indexed.waits_for or first == "child", "others' handlers do not wait for it"
        rig.api.fault = Fault.NONE
        shown.append(go(rig.event("ADDED", owner, SHOWN)))
        await clock.sleep(3)
    assert ("ADDED", "child") in rig.processed
    drained = rig.server.patch(WIDGETS, "mine", None, {"metadata": {"labels": {RING.drain: "true"}}})
    giving = go(rig.event("MODIFIED", drained, SHOWN))
    await clock.sleep(3)
    assert RING.drain in rig.server.get(WIDGETS, "mine", None)["metadata"]["labels"]
    await end(working, giving, *shown)


@in_virtual_time
async def test_what_must_not_be_asked_for_is_as_it_was_said_to_be(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(clock)

    async def refuse(group: str, plural: str) -> None:
        raise Forbidden(f"{plural}: no right", status=403)

    monkeypatch.setattr(rig.api, "discover", refuse)
    owner = rig.secret()
    metadata = {"name": "child", "namespace": "default", "labels": {RING.shard: "shard-1"}}
    references = {"ownerReferences": [reference_to(owner)]}
    child = rig.server.create(CONFIGMAPS, {"metadata": {**metadata, **references}})
    working = go(rig.event("ADDED", child, CHILDREN))
    await clock.sleep(3)
    assert ("ADDED", "child") in rig.processed
    await end(working)


@in_virtual_time
async def test_a_type_that_is_made_anew_without_a_namespace_has_families_as_it_is_now(clock: VirtualClock) -> None:
    rig = Rig(clock)
    families = Families(ME, rig.api, [WIDGETS], clock)
    owner, child = family(rig)
    as_it_was = {"metadata": {"name": "earlier", "namespace": "default", "uid": "earlier"}}
    families.of_main(replace(WIDGETS, namespaced=True), as_it_was)
    now = families.of_main(WIDGETS, owner)
    families.of_main(replace(WIDGETS, namespaced=True), as_it_was, left=True)  # told late
    assert families.of_child(CONFIGMAPS, child) is now


async def _nothing() -> None:
    pass


@pytest.mark.parametrize("served", [True, False])
@in_virtual_time
async def test_children_that_come_together_ask_together(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, served: bool
) -> None:
    """A shard may be shown thousands before it is shown any owner, or while the owners' type is not served."""
    rig, asked = Rig(clock), 0

    async def discover(group: str, plural: str) -> Resource | None:
        nonlocal asked
        asked += 1
        await clock.sleep(0.1)
        return WIDGETS if served else None

    monkeypatch.setattr(rig.api, "discover", discover)
    families = Families(ME, rig.api, [replace(WIDGETS, namespaced=True)], clock)
    _, child = family(rig)
    learning = [go(families.learn(child, None, _nothing)) for _ in range(100)]
    await clock.sleep(10)
    assert all(each.done() is served for each in learning)
    assert asked == (1 if served else 4)
    assert len(caplog.records) == (0 if served else 4)
    await end(*learning)


@pytest.mark.parametrize("answer", ["declared", "refused"])
@in_virtual_time
async def test_what_an_event_has_told_meanwhile_counts(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """Else its children have it looked for in their namespace, where it counts as deleted, and begin without it."""
    rig, said = Rig(clock), replace(WIDGETS, namespaced=True)

    async def discover(group: str, plural: str) -> Resource:
        await clock.sleep(1)
        if answer == "refused":
            raise Forbidden(f"{plural}: no right", status=403)
        return said

    monkeypatch.setattr(rig.api, "discover", discover)
    families = Families(ME, rig.api, [said], clock)
    owner, child = family(rig)
    learning = go(families.learn(child, None, _nothing))
    await clock.sleep(0.5)
    now = families.of_main(WIDGETS, owner)
    await learning
    assert families.of_child(CONFIGMAPS, child) is now


@in_virtual_time
async def test_a_drain_waits_for_children_though_the_owner_was_shown_while_it_was_being_asked_for(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(clock)
    rig.gate = said_to_have_a_namespace(rig)

    async def refuse(group: str, plural: str) -> None:
        await clock.sleep(1)
        raise Forbidden(f"{plural}: no right", status=403)

    monkeypatch.setattr(rig.api, "discover", refuse)
    owner, child = family(rig)
    shown = [go(rig.event("ADDED", child, CHILDREN))]
    await clock.sleep(0.5)
    shown.append(go(rig.event("ADDED", owner, SHOWN)))
    await clock.sleep(5)
    rig.busy_seconds = 10.0
    changed = rig.server.patch(CONFIGMAPS, "child", "default", {"data": {"changed": "yes"}})
    shown.append(go(rig.event("MODIFIED", changed, CHILDREN)))
    await clock.sleep(2)
    drained = rig.server.patch(WIDGETS, "mine", None, {"metadata": {"labels": {RING.drain: "true"}}})
    giving = go(rig.event("MODIFIED", drained, SHOWN))
    await clock.sleep(3)
    assert rig.processed[-1] == ("MODIFIED", "child")
    assert RING.drain in rig.server.get(WIDGETS, "mine", None)["metadata"].get("labels", {}), "a child is worked on"
    await end(giving, *shown)


@pytest.mark.parametrize("told", ["by the owner", "by news of the child"])
@in_virtual_time
async def test_an_answer_that_hangs_holds_up_nobody_who_is_told_otherwise(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    rig, news = Rig(clock), asyncio.Event()

    async def discover(group: str, plural: str) -> Resource:
        await clock.sleep(30)
        return WIDGETS

    monkeypatch.setattr(rig.api, "discover", discover)
    families = Families(ME, rig.api, [replace(WIDGETS, namespaced=True)], clock)
    owner, child = family(rig)
    learning = [go(families.learn(child, news, _nothing)) for _ in range(10)]
    await clock.sleep(0.5)
    if told == "by the owner":
        families.of_main(WIDGETS, owner)
    else:
        news.set()
    await clock.sleep(0.5)
    assert all(each.done() for each in learning)
