"""What excuses a wait, and what does not: the trouble of whom it waits for, and of nobody else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.processes import ProcessState
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.simulation.network import Fate
from tests.simulation.schedule import draw_plan
from tests.simulation.storage import Author
from tests.simulation.vocabulary import FAMILY, WORKS
from tests.simulation.waiting import LEADERS_LEASE, Wait
from tests.simulation.world import World

LEADER, STANDBY = "sharder-0_1", "sharder-1_1"


def process_of(world: World, identity: str, **more: Any) -> Any:
    """A process that does nothing."""
    process = SimpleNamespace(state=ProcessState.RUNNING)
    name = identity.rpartition("_")[0]
    return SimpleNamespace(
        name=name, identity=identity, process=process, link=world.link(identity), running=True, **more
    )


def add_shard(world: World, name: str) -> Any:
    """A shard at work, that holds its lease."""
    shard = process_of(world, f"{name}_1", ring=FAMILY)
    world.shards.append(shard)
    meta = {"namespace": world.namespace_of_shard(name), "name": name, "labels": {LEASE_RING_LABEL: FAMILY.ring}}
    kind = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta}
    spec = {"holderIdentity": name, "leaseDurationSeconds": 15}
    world.storage.create(LEASES, {**kind, "spec": spec}, Author(shard.identity))
    return shard


def add_replica(world: World, identity: str, *, leads: bool) -> Any:
    replica = process_of(world, identity, ready=True, stays=True)
    world.replicas.append(replica)
    if leads:
        meta = {"namespace": LEADERS_LEASE.namespace, "name": LEADERS_LEASE.name}
        kind = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta}
        world.storage.create(LEASES, {**kind, "spec": {"holderIdentity": identity}}, Author(identity))
    return replica


def make_work(world: World, shard: str | None) -> str:
    labels = {} if shard is None else {FAMILY.shard: shard}
    meta = {"namespace": "blue", "name": f"of-{shard or 'nobody'}", "labels": labels}
    doc = {"apiVersion": WORKS.api_version, "kind": WORKS.kind, "metadata": meta, "spec": {"keys": []}}
    return world.storage.create(WORKS, doc, Author("setup")).uid


async def look_for(world: World, seconds: float) -> list[str]:
    """Look once a second for so long; what has waited for too long by then."""
    for _ in range(int(seconds)):
        await world.clock.sleep(1.0)
        world.hindrances.look()
        world.waits.tick()
    return [each.message for each in world.checkers.violations if each.rule == "waits no longer than it must"]


def longest(world: World) -> float:
    return max(world.waits.bound(wait) for wait in Wait)


@pytest.mark.parametrize("state", [ProcessState.RUNNING, ProcessState.PAUSED])
@in_virtual_time
async def test_nobody_waits_for_the_trouble_of_another_shard(clock: VirtualClock, state: ProcessState) -> None:
    world = World(draw_plan(1), clock)
    add_replica(world, LEADER, leads=True)
    add_shard(world, "fam-0")
    add_shard(world, "fam-1").process.state = state
    uid = make_work(world, None)
    told = await look_for(world, world.waits.bound(Wait.SHARD) + 3)
    assert [each for each in told if f"{uid} (None) is unassigned" in each]


@in_virtual_time
async def test_what_a_shard_has_waits_for_its_trouble_and_for_as_long_again(clock: VirtualClock) -> None:
    world = World(draw_plan(1), clock)
    add_replica(world, LEADER, leads=True)
    shard = add_shard(world, "fam-0")
    add_shard(world, "fam-1")
    uid, bound = make_work(world, "fam-0"), world.waits.bound(Wait.RECONCILE)
    shard.process.state = ProcessState.PAUSED
    assert await look_for(world, 2 * bound) == []
    shard.process.state = ProcessState.RUNNING
    assert await look_for(world, bound) == []
    assert await look_for(world, 30 + 3) == [f"{uid} (fam-0) is not reconciled for {bound + 1:.1f} s"]


@in_virtual_time
async def test_a_request_without_answer_hinders_until_it_is_given_up(clock: VirtualClock) -> None:
    world = World(draw_plan(1), clock)
    shard = add_shard(world, "fam-0")
    shard.link.cut = True
    assert shard.link.fate(writes=False) is Fate.LOST
    world.server.receive(shard.link, lambda: None, None, writes=False, granted=20.0)  # type: ignore[arg-type]
    shard.link.cut = False
    world.hindrances.look()
    assert world.hindrances.until(FAMILY.ring, ["fam-0"]) == world.now + 20.0
    assert world.hindrances.until(FAMILY.ring, ["fam-1"]) <= world.now
    assert world.hindrances.until(FAMILY.ring) == world.now + 20.0


@pytest.mark.parametrize("cut", [False, True])
@in_virtual_time
async def test_a_sharder_that_could_lead_has_to(clock: VirtualClock, cut: bool) -> None:
    world = World(draw_plan(1), clock)
    leader = add_replica(world, LEADER, leads=True)
    standby = add_replica(world, STANDBY, leads=False)
    add_shard(world, "fam-0")
    uid = make_work(world, None)
    leader.running = leader.stays = False
    standby.link.cut = cut
    told = await look_for(world, longest(world) + 3)
    assert [each for each in told if uid in each] == []
    assert [each for each in told if "the sharder (None) has no leader" in each] == told
    assert bool(told) is not cut


@in_virtual_time
async def test_who_has_no_owner_between_troubles_has_none_all_the_time(clock: VirtualClock) -> None:
    world = World(draw_plan(1), clock)
    leader = add_replica(world, LEADER, leads=True)
    add_shard(world, "fam-0")
    uid = make_work(world, None)
    for _ in range(int(world.waits.bound(Wait.OWNER) / 5) + 1):
        leader.process.state = ProcessState.PAUSED
        await look_for(world, 1)
        leader.process.state = ProcessState.RUNNING
        await look_for(world, 6)
    told = [each.message for each in world.checkers.violations]
    assert [each for each in told if f"{uid} (None) has no owner" in each] == told != []


@in_virtual_time
async def test_what_goes_from_one_wait_to_another_has_no_owner_all_the_time(clock: VirtualClock) -> None:
    world = World(draw_plan(1), clock)
    add_replica(world, LEADER, leads=True)
    add_shard(world, "fam-0")
    uid = make_work(world, None)
    while world.now < longest(world) + 10:
        found = world.index.mains[uid]
        shard = None if found.label(FAMILY.shard) else "gone"
        doc = {**found.doc, "metadata": {**found.doc["metadata"], "labels": {FAMILY.shard: shard} if shard else {}}}
        world.storage.replace(WORKS, found, doc, Author("user"))
        await look_for(world, 3)
    assert [each.message for each in world.checkers.violations if "has no owner" in each.message]
    assert not [each for each in world.checkers.violations if "is unassigned" in each.message]
