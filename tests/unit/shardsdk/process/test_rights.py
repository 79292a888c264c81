"""A shard that may not read takes no lease, says which rule lacks, and goes on when it is granted; so later on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from shardsdk.errors import ApiError, ConnectionFailed, Forbidden, ServerError, StreamInterrupted, Unauthorized
from shardsdk.kube.api import Api, Fence, Selection, T, WatchEvent, WatchOptions
from shardsdk.lease.leadership import Election
from shardsdk.lease.shardlease import ShardLease
from shardsdk.process.checks import check_work
from shardsdk.process.manager import Manager
from shardsdk.process.probes import CACHES
from shardsdk.process.process import ExitCode
from shardsdk.process.world import World
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, GroupResource
from shardsdk.reconcile.caches import TELL_SECONDS, UNREAD_SECONDS
from shardsdk.reconcile.spec import Scope, controller_for
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS


class Role:
    """What a shard may do; `questions` are answered with an error while nobody can tell."""

    def __init__(self, *forbidden: tuple[str, str]) -> None:
        self.forbidden = set(forbidden)
        self.tells = True
        self.away = False
        #: In one namespace alone, what each of its lists and watches is answered with.
        self.answers: dict[str, ApiError] = {}

    def judge(self, verb: str, plural: str, namespace: str | None = None) -> None:
        if (answer := self.answers.get(namespace or "")) is not None:
            raise answer
        if self.away:
            raise ConnectionFailed("connection refused")
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
        self.role.judge("list", selection.resource.plural, selection.namespace)
        return super().read_stream(selection, batch)

    async def read_events(self, selection: Selection[T], options: WatchOptions) -> AsyncIterator[WatchEvent[T]]:
        self.role.judge("list", selection.resource.plural, selection.namespace)
        self.role.judge("watch", selection.resource.plural)
        async for event in super().read_events(selection, options):
            if self.role.away:
                raise StreamInterrupted("broke")
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


def seconds_unread(manager: Manager) -> float:
    return manager.metrics.registry.get_sample_value("shardsdk_unread_seconds", {"resource": "secrets"}) or 0.0


@in_virtual_time
async def test_a_shard_that_may_not_read_any_more_says_so_each_minute_and_is_not_ready(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server, role = MemoryServer(), Role()
    manager = manager_of([])
    process = asyncio.create_task(manager.run_async(world_of(server, clock, role)))
    await clock.sleep(5)
    role.forbidden |= {("list", "secrets"), ("watch", "secrets")}
    while not seconds_unread(manager):  # a watch goes on that was accepted
        assert manager._check_caches() is None
        await clock.sleep(1)
    await clock.sleep(UNREAD_SECONDS - 5)
    assert manager._check_caches() is None
    assert "cannot be read" not in caplog.text
    await clock.sleep(10)
    assert manager._check_caches() == "secrets: list secrets: 403"
    assert manager._check_caches(unread=False) is None, "who answers others is ready"
    await clock.sleep(10 * TELL_SECONDS)
    told = [vars(each) for each in caplog.records if "cannot be read" in each.message]
    assert len(told) in (10, 11)
    assert all(each["resource"] == "secrets" and each["error"] == "list secrets: 403" for each in told)
    assert "shardsdk rbac" in told[-1]["remedy"]
    assert lease_is_held(server), "others may read no more than this one"

    caplog.clear()
    caplog.set_level("INFO", logger="shardsdk")
    role.forbidden.clear()
    await clock.sleep(3 * TELL_SECONDS)
    assert manager._check_caches() is None
    assert seconds_unread(manager) == 0
    assert caplog.text.count("A resource is read again") == 1
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_of_several_namespaces_the_one_is_named_that_has_been_refused_for_longest(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    role = Role()
    manager = Manager(watch_namespace=["blue", "green"]).add(controller_for(SECRETS).reconcile(lambda context: None))
    process = asyncio.create_task(manager.run_async(world_of(MemoryServer(), clock, role)))
    await clock.sleep(5)
    role.answers["green"] = Unauthorized("list secrets green: 401", status=401)
    await clock.sleep(1000)
    role.answers["blue"] = Forbidden("list secrets blue: 403", status=403)
    caplog.clear()
    await clock.sleep(700)
    assert manager._check_caches() == "secrets in green: list secrets green: 401"
    told = [vars(each) for each in caplog.records if "cannot be read" in each.message]
    assert {(each["namespace"], each["error"]) for each in told} == {("green", "list secrets green: 401")}
    assert "token" in told[-1]["remedy"]
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_of_a_manager_that_has_ended_nothing_is_counted_any_more(clock: VirtualClock) -> None:
    """Another one may count in the same registry."""
    role = Role()
    manager = Manager().add(controller_for(SECRETS).reconcile(lambda context: None))
    process = asyncio.create_task(manager.run_async(world_of(MemoryServer(), clock, role)))
    await clock.sleep(5)
    role.forbidden |= {("list", "secrets"), ("watch", "secrets")}
    await clock.sleep(1000)
    assert seconds_unread(manager) > UNREAD_SECONDS
    manager.stopping.set()
    assert await process is ExitCode.OK
    assert seconds_unread(manager) == 0
    assert manager.metrics._of_caches._caches == {"secrets": []}, "nor is what they held kept"


@in_virtual_time
async def test_whoever_reads_on_every_replica_is_ready_while_the_api_server_is_away(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """No restart would help, and replicas that are all not ready serve nobody when it is back."""
    server, role = MemoryServer(), Role()
    manager = Manager().add(controller_for(SECRETS).reconcile(lambda context: None))
    process = asyncio.create_task(manager.run_async(world_of(server, clock, role)))
    await clock.sleep(5)
    role.away = True
    await clock.sleep(1200)
    assert manager._check_caches() is None
    assert seconds_unread(manager) == 0
    assert "cannot be read" not in caplog.text
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_whoever_answers_others_is_ready_though_it_may_not_read_any_more(clock: VirtualClock) -> None:
    """An operator's webhooks, say: without them what users write would be refused."""

    async def answer(api: Api) -> None:
        await asyncio.Event().wait()

    for answers in (False, True):
        server, role = MemoryServer(), Role()
        manager = manager_of([])
        if answers:
            manager.run_task(answer, scope=Scope.EVERYWHERE)
        world = world_of(server, clock, role)
        manager._make_checks(world, check_work(manager.controllers, manager._tasks, ring=RING.ring, election=None))
        process = asyncio.create_task(manager.run_async(world))
        await clock.sleep(5)
        role.forbidden |= {("list", "secrets"), ("watch", "secrets")}
        await clock.sleep(1000)
        assert seconds_unread(manager) > UNREAD_SECONDS
        assert (CACHES in await manager._probes.readyz.failing()) is not answers
        manager.stopping.set()
        assert await process is ExitCode.OK
