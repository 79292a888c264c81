"""An object of another namespace that names an owner by its uid has no part in what becomes of it."""

from __future__ import annotations

from typing import Any

from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING
from tests.unit.shardsdk.contrib.test_kopf_families import end, go, reference_to
from tests.unit.shardsdk.contrib.test_kopf_gate import CHILDREN, Rig


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
