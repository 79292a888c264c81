"""An object of another namespace that names an owner by its uid has no part in what becomes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kopf._cogs.structs.references import Resource as KopfResource

from shardsdk.contrib.kopf_families import as_served
from shardsdk.contrib.kopf_gate import Gate
from shardsdk.protocol.objects import Resource
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, ME, RING
from tests.unit.shardsdk.contrib.test_kopf_families import end, go, reference_to
from tests.unit.shardsdk.contrib.test_kopf_gate import CHILDREN, Rig

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


@in_virtual_time
async def test_a_drain_waits_for_the_children_of_what_has_no_namespace_though_it_was_said_to_have_one(
    clock: VirtualClock,
) -> None:
    rig = Rig(clock)
    owner = rig.server.create(WIDGETS, {"metadata": {"name": "mine", "labels": {RING.shard: "shard-1"}}})
    rig.api.served.append(WIDGETS)
    said = replace(WIDGETS, namespaced=True)
    rig.gate = Gate(
        rig.process, ME, rig.api, rig.lease, settle=rig.api.writes_settled, memories=rig.memories, clock=clock,
        main=[await as_served(rig.api, said)], controlled=[CONFIGMAPS],
    )  # fmt: skip
    reference = {**reference_to(owner, "Widget"), "apiVersion": "example.com/v1"}
    metadata = {
        "name": "child",
        "namespace": "default",
        "labels": {RING.shard: "shard-1"},
        "ownerReferences": [reference],
    }
    child = rig.server.create(CONFIGMAPS, {"metadata": metadata})
    await rig.event("ADDED", owner, SHOWN)
    rig.busy_seconds = 10.0
    working = go(rig.event("ADDED", child, CHILDREN))
    await clock.sleep(3)
    drained = rig.server.patch(WIDGETS, "mine", None, {"metadata": {"labels": {RING.drain: "true"}}})
    giving = go(rig.event("MODIFIED", drained, SHOWN))
    await clock.sleep(3)
    assert RING.drain in rig.server.get(WIDGETS, "mine", None)["metadata"]["labels"]
    await end(working, giving)


@in_virtual_time
async def test_what_cannot_be_asked_for_is_as_it_was_said_to_be(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.api.fault = Fault.REFUSED
    assert await as_served(rig.api, WIDGETS) is WIDGETS
