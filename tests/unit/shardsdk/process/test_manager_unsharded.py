"""Unsharded controllers, alone and beside sharded ones, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from shardsdk.lease.leadership import Election
from shardsdk.lease.timings import LeaseTimings
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.reconcile.spec import controller_for
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, SECRETS, stubborn
from tests.unsharded_rig import ELECTION, Cluster, Ctx, Replica, shard_of_ring


def everywhere(replica: Replica, **options: Any) -> Manager:
    return Manager(**options).add(controller_for(SECRETS).reconcile(replica.note))


def elected(replica: Replica, election: Election = ELECTION, **options: Any) -> Manager:
    return Manager(election=election, **options).add(controller_for(SECRETS).reconcile(replica.note))


@in_virtual_time
async def test_without_ring_and_election_every_replica_reconciles_every_object(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a", shard="somebody")
    cluster.secret("b")
    replicas = [cluster.replica(), cluster.replica()]
    managers = [everywhere(replica) for replica in replicas]
    processes = [replica.start(manager) for replica, manager in zip(replicas, managers, strict=True)]
    await clock.sleep(5)
    cluster.secret("late")
    await clock.sleep(5)
    assert [replica.reconciled for replica in replicas] == [["a", "b", "late"]] * 2
    for manager in managers:
        manager.stopping.set()
    assert await asyncio.gather(*processes) == [ExitCode.OK, ExitCode.OK]
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_one_replica_leads_and_the_next_takes_over_with_warm_caches(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    first, second = cluster.replica(), cluster.replica()
    one, two = elected(first), elected(second)
    process = first.start(one)
    await clock.sleep(5)
    other = second.start(two)
    await clock.sleep(60)
    assert (first.reconciled, second.reconciled) == (["a"], [])
    assert all(cache.synced and len(cache) == 1 for cache in two._shared or ()), "warm before it leads"
    lists = sum(len(api.lists) for api in second.apis)
    one.stopping.set()
    assert await process is ExitCode.OK
    await clock.sleep(5)
    assert second.reconciled == ["a"]
    assert sum(len(api.lists) for api in second.apis) == lists + 1, "one list of what the leader before it did"
    two.stopping.set()
    assert await other is ExitCode.OK
    assert cluster.holder() == ""


@in_virtual_time
async def test_controllers_of_a_new_leader_share_one_list_of_each_resource(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    replica = cluster.replica()
    manager = elected(replica).add(controller_for(SECRETS).options(name="second").reconcile(replica.note))
    manager.add(controller_for(CONFIGMAPS).on_leader().reconcile(replica.note))
    process = replica.start(manager)
    await clock.sleep(5)
    assert replica.reconciled == ["a", "a"]
    lists = [resource for api in replica.apis for resource in api.lists]
    assert sorted(lists) == ["configmaps", "configmaps", "secrets", "secrets"], "one for the cache, one to catch up"
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_a_replica_that_cannot_read_does_not_stand_for_election(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    blind, seeing = cluster.replica(), cluster.replica()
    blind.reading = Fault.REFUSED
    managers = [elected(blind), elected(seeing)]
    waiting = blind.start(managers[0])
    await clock.sleep(60)
    leading = seeing.start(managers[1])
    await clock.sleep(5)
    assert (blind.reconciled, seeing.reconciled) == ([], ["a"])
    managers[0].stopping.set()
    assert await waiting is ExitCode.OK, "a stop ends that wait as well"
    managers[1].stopping.set()
    assert await leading is ExitCode.OK


@in_virtual_time
async def test_a_new_leader_waits_for_what_the_one_before_it_has_written(clock: VirtualClock) -> None:
    """A warm cache may be behind; without the list a child would be made a second time."""
    cluster = Cluster(clock)
    seen: list[list[str]] = []

    async def look(context: Ctx) -> None:
        seen.append([child.metadata.name for child in context.children(CONFIGMAPS)])

    replica = cluster.replica()
    manager = Manager(election=ELECTION).add(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(look))
    cluster.secret("owner")
    other = cluster.replica()
    leader = elected(other)
    leading = other.start(leader)
    await clock.sleep(1)
    process = replica.start(manager)
    await clock.sleep(5)
    for api in replica.apis:
        api.lag = lambda: 20.0
    uid = cluster.server.get(SECRETS, "owner", "default")["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": uid, "controller": True}
    metadata = {"name": "child", "namespace": "default", "ownerReferences": [reference]}
    cluster.server.create(CONFIGMAPS, {"metadata": metadata})
    leader.stopping.set()
    assert await leading is ExitCode.OK
    await clock.sleep(60)
    assert seen[0] == ["child"]
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_a_lost_election_ends_the_process_without_a_further_write(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    replica = cluster.replica()
    cancelled: list[str] = []

    async def busy(context: Ctx) -> None:
        try:
            while True:
                await context.api.patch(SECRETS, "a", "default", {"data": {"k": str(clock.monotonic())}})
                await clock.sleep(0.5)
        except asyncio.CancelledError:
            cancelled.append(context.request.name)
            raise

    manager = Manager(election=ELECTION).add(controller_for(SECRETS).reconcile(busy))
    process = replica.start(manager)
    await clock.sleep(5)
    cluster.take(ELECTION.name)
    assert await process is ExitCode.LEASE_LOST
    assert cancelled == ["a"]
    assert cluster.holder() == "somebody"
    assert replica.deaths == []


@in_virtual_time
async def test_a_leader_cut_off_ends_before_another_may_lead(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    replica = cluster.replica()
    process = replica.start(elected(replica, Election("sweeper", "shards", timings=LeaseTimings(15, 10, 2))))
    await clock.sleep(5)
    replica.cut_off()
    cut_off = clock.monotonic()
    assert await process is ExitCode.LEASE_LOST
    assert clock.monotonic() - cut_off <= 15
    assert replica.deaths == []


@in_virtual_time
async def test_a_leader_whose_work_outlives_its_hold_ends_with_the_process(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    replica, gate = cluster.replica(), asyncio.Event()

    process = replica.start(Manager(election=ELECTION).add(controller_for(SECRETS).reconcile(stubborn(gate))))
    await clock.sleep(5)
    cluster.take(ELECTION.name)
    await clock.sleep(20)
    assert replica.deaths == [ExitCode.LEASE_LOST]
    gate.set()
    assert await process is ExitCode.LEASE_LOST


@in_virtual_time
async def test_a_stop_while_waiting_to_be_elected_ends_the_wait(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    first, second = cluster.replica(), cluster.replica()
    one, two = elected(first), elected(second)
    leading, waiting = first.start(one), None
    await clock.sleep(5)
    waiting = second.start(two)
    await clock.sleep(5)
    holder = cluster.holder()
    two.stopping.set()
    assert await waiting is ExitCode.OK
    assert cluster.holder() == holder
    one.stopping.set()
    assert await leading is ExitCode.OK


# -- beside a shard's work ------------------------------------------------------


@in_virtual_time
async def test_one_process_runs_sharded_elected_and_common_controllers(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("mine", shard="shard-1")
    cluster.secret("other", shard="shard-2")
    replica = cluster.replica()
    ran: dict[str, list[str]] = {"sharded": [], "leader": [], "everywhere": []}

    def noting(where: str) -> Callable[[Ctx], Any]:
        async def note(context: Ctx) -> None:
            ran[where].append(context.request.name)

        return note

    manager = shard_of_ring(election=ELECTION)
    manager.add(controller_for(SECRETS).reconcile(noting("sharded")))
    manager.add(controller_for(SECRETS).options(name="sweep").on_leader().reconcile(noting("leader")))
    manager.add(controller_for(SECRETS).options(name="log").on_every_replica().reconcile(noting("everywhere")))
    process = replica.start(manager)
    await clock.sleep(5)
    assert ran == {"sharded": ["mine"], "leader": ["mine", "other"], "everywhere": ["mine", "other"]}
    assert sum(api.lists.count("secrets") for api in replica.apis) == 3, (
        "a cache for each selection, and the catching up"
    )
    manager.stopping.set()
    assert await process is ExitCode.OK
    assert (cluster.holder(), cluster.holder("shard-1")) == ("", "")


@pytest.mark.parametrize(("lost", "kept"), [(ELECTION.name, "shard-1"), ("shard-1", ELECTION.name)])
@in_virtual_time
async def test_whichever_lease_is_lost_the_process_ends_and_gives_the_other_back(
    clock: VirtualClock, lost: str, kept: str
) -> None:
    cluster = Cluster(clock)
    cluster.secret("mine", shard="shard-1")
    replica = cluster.replica()
    ended: list[str] = []

    async def endless(context: Ctx) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(context.main.plural)

    manager = shard_of_ring(election=ELECTION).add(controller_for(SECRETS).reconcile(endless))
    manager.add(controller_for(SECRETS).options(name="sweep").on_leader().reconcile(endless))
    process = replica.start(manager)
    await clock.sleep(5)
    cluster.take(lost)
    assert await process is ExitCode.LEASE_LOST
    assert ended == ["secrets", "secrets"]
    assert (cluster.holder(lost), cluster.holder(kept)) == ("somebody", "")
    assert replica.deaths == []


@in_virtual_time
async def test_what_does_not_end_when_another_lease_is_lost_ends_with_the_process(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("mine", shard="shard-1")
    replica, gate = cluster.replica(), asyncio.Event()

    manager = shard_of_ring().add(controller_for(SECRETS).reconcile(replica.note))
    manager.add(controller_for(SECRETS).options(name="log").on_every_replica().reconcile(stubborn(gate)))
    process = replica.start(manager)
    await clock.sleep(5)
    cluster.take("shard-1")
    assert await process is ExitCode.LEASE_LOST
    assert replica.deaths == [ExitCode.LEASE_LOST]
    gate.set()


# -- tasks ---------------------------------------------------------------------------
