"""A shard that may not read takes no lease, says which rule lacks, and goes on when it is granted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from shardsdk.errors import Forbidden, ServerError
from shardsdk.kube.api import Api, Fence, Selection, T, WatchEvent, WatchOptions
from shardsdk.lease.leadership import Election
from shardsdk.lease.shardlease import ShardLease
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.process.world import World
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, GroupResource
from shardsdk.reconcile.spec import controller_for
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS


class Role:
    """What a shard may do; `questions` are answered with an error while nobody can tell."""

    def __init__(self, *forbidden: tuple[str, str]) -> None:
        self.forbidden = set(forbidden)
        self.tells = True

    def judge(self, verb: str, plural: str) -> None:
        if (verb, plural) in self.forbidden:
            raise Forbidden(f"{verb} {plural}: 403", status=403)


class Restricted(MemoryApi):
    """An API server that keeps to a role."""

    role: Role

    async def allowed(self, verb: str, resource: GroupResource, **_: Any) -> bool:
        if not self.role.tells:
            raise ServerError("selfsubjectaccessreviews: 503", status=503)
        return (verb, resource.resource) not in self.role.forbidden

    def read_stream(self, selection: Selection[T], batch: int) -> AsyncIterator[list[T]]:
        self.role.judge("list", selection.resource.plural)
        return super().read_stream(selection, batch)

    async def read_events(self, selection: Selection[T], options: WatchOptions) -> AsyncIterator[WatchEvent[T]]:
        self.role.judge("list", selection.resource.plural)
        self.role.judge("watch", selection.resource.plural)
        async for event in super().read_events(selection, options):
            yield event


def world_of(server: MemoryServer, clock: VirtualClock, role: Role) -> World:
    @asynccontextmanager
    async def opened(fence: Fence | None = None) -> AsyncIterator[Api]:
        api = Restricted(server, clock, fence=fence)
        api.role = role
        yield api

    @asynccontextmanager
    async def connect(lease: ShardLease) -> AsyncIterator[Api]:
        async with opened(lease.fence) as api:
            yield api

    return World(opened, connect, clock, Random(1), threaded=False, serve=False, signals=False, open=opened)


def manager_of(reconciled: list[str], **options: Any) -> Manager:
    async def note(context: Any) -> None:
        reconciled.append(context.request.name)

    manager = Manager(RING.ring, shard="shard-1", namespace="shards", fenced=True, **options)
    return manager.add(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(note))


def lease_is_held(server: MemoryServer) -> bool:
    return any(each["spec"].get("holderIdentity") == "shard-1" for each in server.select(LEASES, "shards"))


@in_virtual_time
async def test_no_lease_is_taken_before_everything_may_be_read(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server, role, reconciled = MemoryServer(), Role(("list", "secrets"), ("watch", "configmaps")), list[str]()
    server.create(SECRETS, {"metadata": {"name": "a", "namespace": "default", "labels": {RING.shard: "shard-1"}}})
    manager = manager_of(reconciled)
    process = asyncio.create_task(manager.run_async(world_of(server, clock, role)))
    await clock.sleep(300)
    assert not lease_is_held(server)
    [told] = [each for each in caplog.records if each.levelno == logging.ERROR]
    missing = vars(told)["missing"]
    assert 'resources: ["secrets"], verbs: ["list"]' in missing
    assert 'resources: ["configmaps"], verbs: ["watch"]' in missing
    assert 'verbs: ["list"]' in str(manager._check_caches())

    role.forbidden.clear()
    await clock.sleep(15)
    assert lease_is_held(server)
    assert reconciled == ["a"]
    assert manager._check_lease() is None
    assert manager._check_caches() is None
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_a_shard_that_could_not_learn_of_its_ranges_takes_no_lease(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server, role = MemoryServer(), Role(("watch", "ringassignments"), ("list", "leases"))
    spec = {"assignment": "Ranges", "hashBy": "Namespace", "namespaceSelector": {}}
    server.create(CLUSTERRINGS, {"metadata": {"name": RING.ring}, "spec": spec})
    manager = manager_of([])
    process = asyncio.create_task(manager.run_async(world_of(server, clock, role)))
    await clock.sleep(300)
    assert not lease_is_held(server)
    [told] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert 'resources: ["ringassignments"], verbs: ["watch"]' in vars(told)["missing"]
    assert "in namespace 'shards'" in vars(told)["missing"]
    assert 'resources: ["leases"], verbs: ["list"]' in str(manager._check_caches())

    role.forbidden.clear()
    await clock.sleep(15)
    assert lease_is_held(server)
    assert manager._check_caches() is None
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_namespaces_are_asked_for_one_by_one(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    manager = manager_of([], watch_namespace=["blue", "green"])
    process = asyncio.create_task(manager.run_async(world_of(MemoryServer(), clock, Role(("list", "secrets")))))
    await clock.sleep(5)
    [told] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "in namespace 'blue'" in vars(told)["missing"]
    assert "in namespace 'green'" in vars(told)["missing"]
    manager.stopping.set()
    assert await process is ExitCode.OK, "a stop ends that wait"


@in_virtual_time
@pytest.mark.parametrize("election", [None, Election("sweep", namespace="shards")])
async def test_unsharded_work_waits_as_well_and_a_stop_ends_that(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, election: Election | None
) -> None:
    server, role, reconciled = MemoryServer(), Role(("list", "secrets")), list[str]()
    server.create(SECRETS, {"metadata": {"name": "a", "namespace": "default"}})

    async def note(context: Any) -> None:
        reconciled.append(context.request.name)

    def manager() -> Manager:
        return Manager(election=election).add(controller_for(SECRETS).reconcile(note))

    one = manager()
    process = asyncio.create_task(one.run_async(world_of(server, clock, role)))
    await clock.sleep(60)
    assert "list" in str(one._check_caches())
    one.stopping.set()
    assert await process is ExitCode.OK
    assert not reconciled
    other = manager()
    process = asyncio.create_task(other.run_async(world_of(server, clock, role)))
    await clock.sleep(60)
    role.forbidden.clear()
    await clock.sleep(60)
    other.stopping.set()
    assert await process is ExitCode.OK
    assert reconciled == ["a"]
    assert any("waits" in each.message for each in caplog.records)


@in_virtual_time
async def test_where_nobody_can_tell_the_lease_is_taken(clock: VirtualClock) -> None:
    server, role = MemoryServer(), Role()
    role.tells = False
    manager = manager_of([])
    process = asyncio.create_task(manager.run_async(world_of(server, clock, role)))
    await clock.sleep(5)
    assert lease_is_held(server)
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_a_stop_does_not_wait_for_a_cache_that_is_never_complete(clock: VirtualClock) -> None:
    server, role = MemoryServer(), Role(("list", "configmaps"))
    role.tells = False  # so that it gets as far as its caches
    manager = manager_of([])
    process = asyncio.create_task(manager.run_async(world_of(server, clock, role)))
    await clock.sleep(60)
    began = clock.monotonic()
    manager.stopping.set()
    assert await process is ExitCode.OK
    assert clock.monotonic() - began < 2
    assert not lease_is_held(server)
