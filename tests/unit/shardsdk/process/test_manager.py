"""A shard's life, from its lease to its exit code, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.events.recorder import EVENTS, EventType
from shardsdk.kube.api import Api
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.timings import LeaseTimings
from shardsdk.process.manager import Manager, World
from shardsdk.process.process import ExitCode
from shardsdk.process.workload import CANCEL_SECONDS
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, PartialObject
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.spec import ControllerSpec, Reconcile, controller_for
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS, stubborn

Ctx = Context[PartialObject]


@dataclass
class Stage:
    """One API server, and processes that may become shards."""

    clock: VirtualClock
    server: MemoryServer = field(default_factory=MemoryServer)
    deaths: list[int] = field(default_factory=list)
    last_words: list[str] = field(default_factory=list)
    reconciled: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.api = MemoryApi(self.server, self.clock)
        self.keeper = MemoryApi(self.server, self.clock)

    def world(self) -> World:
        @asynccontextmanager
        async def keeper() -> AsyncIterator[Api]:
            yield self.keeper

        @asynccontextmanager
        async def connect(lease: ShardLease) -> AsyncIterator[Api]:
            self.api.fence = lease.fence
            yield self.api

        return World(
            keeper, connect, self.clock, Random(1), threaded=False, serve=False, signals=False,
            die=self.die,
        )  # fmt: skip

    def die(self, code: int, why: str) -> None:
        self.deaths.append(code)
        self.last_words.append(why)

    def secret(self, name: str, shard: str = "shard-1") -> None:
        metadata = {"name": name, "namespace": "default", "labels": {RING.shard: shard}}
        self.server.create(SECRETS, {"metadata": metadata})

    def lease(self) -> dict[str, Any]:
        return self.server.get(LEASES, "shard-1", "shards")

    def holder(self) -> str:
        return str(self.lease()["spec"].get("holderIdentity") or "")

    def manager(self, function: Reconcile[PartialObject] | None = None, **options: Any) -> Manager:
        async def note(context: Ctx) -> None:
            self.reconciled.append(context.request.name)

        manager = Manager(RING.ring, shard="shard-1", namespace="shards", fenced=True, **options)
        return manager.add(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(function or note))

    def start(self, manager: Manager) -> asyncio.Task[ExitCode]:
        return asyncio.create_task(manager.run_async(self.world()))


@in_virtual_time
async def test_a_shard_takes_its_lease_works_and_gives_it_back(clock: VirtualClock) -> None:
    stage = Stage(clock)
    stage.secret("mine")
    stage.secret("other", shard="shard-2")
    manager = stage.manager()
    process = stage.start(manager)
    await clock.sleep(5)
    assert stage.holder() == "shard-1"
    assert stage.reconciled == ["mine"]
    manager.stopping.set()
    assert await process is ExitCode.OK
    assert stage.holder() == ""
    assert stage.lease()["spec"]["leaseDurationSeconds"] == 1


@in_virtual_time
async def test_nothing_is_listed_before_the_lease_is_held(clock: VirtualClock) -> None:
    stage = Stage(clock)
    stage.secret("mine")
    spec = {"holderIdentity": "shardlease-controller", "leaseDurationSeconds": 30}
    stage.server.create(LEASES, {"metadata": {"name": "shard-1", "namespace": "shards"}, "spec": spec})
    process = stage.start(manager := stage.manager())
    await clock.sleep(25)
    assert stage.api.lists == []
    assert stage.reconciled == []
    await clock.sleep(15)
    assert stage.reconciled == ["mine"]
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_a_stop_while_waiting_for_the_lease_leaves_it_alone(clock: VirtualClock) -> None:
    stage = Stage(clock)
    spec = {"holderIdentity": "shardlease-controller", "leaseDurationSeconds": 300}
    stage.server.create(LEASES, {"metadata": {"name": "shard-1", "namespace": "shards"}, "spec": spec})
    process = stage.start(manager := stage.manager())
    await clock.sleep(5)
    manager.stopping.set()
    assert await process is ExitCode.OK
    assert stage.holder() == "shardlease-controller"


@in_virtual_time
async def test_stopping_lets_running_reconciles_end_before_the_lease_is_released(clock: VirtualClock) -> None:
    stage = Stage(clock)
    ended: list[str] = []

    async def slow(context: Ctx) -> None:
        stage.reconciled.append(context.request.name)
        await clock.sleep(20)
        await context.api.patch(SECRETS, context.request.name, "default", {"data": {"k": "v"}})
        ended.append(stage.holder())

    stage.secret("first")
    stage.secret("second")
    process = stage.start(manager := stage.manager(slow))
    await clock.sleep(5)
    manager.stopping.set()
    assert await process is ExitCode.OK
    assert stage.reconciled == ["first"]  # the second was not begun any more
    assert ended == ["shard-1"]
    assert stage.holder() == ""


@in_virtual_time
async def test_stopping_cancels_what_takes_too_long_and_then_releases(clock: VirtualClock) -> None:
    stage = Stage(clock)
    ended: list[float] = []

    async def endless(context: Ctx) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(clock.monotonic())

    stage.secret("mine")
    process = stage.start(manager := stage.manager(endless, grace_seconds=8))
    await clock.sleep(5)
    manager.stopping.set()
    assert await process is ExitCode.OK
    assert ended == pytest.approx([13])
    assert stage.holder() == ""


@in_virtual_time
async def test_events_of_the_last_reconcile_are_written_before_the_lease_is_released(clock: VirtualClock) -> None:
    stage = Stage(clock)

    async def tell(context: Ctx) -> None:
        await clock.sleep(20)
        context.event(EventType.NORMAL, "Checked", "everything is as it should be")
        stage.api.delay = lambda: 60.0  # that one is being written when the shard stops
        await clock.sleep(0.1)
        stage.api.delay = lambda: 0.001
        context.event(EventType.NORMAL, "Told", "so it has been told")

    stage.secret("mine")
    process = stage.start(manager := stage.manager(tell))
    await clock.sleep(5)
    manager.stopping.set()
    assert await process is ExitCode.OK
    events = stage.server.select(EVENTS)
    assert {(event["involvedObject"]["name"], event["reason"]) for event in events} == {
        ("mine", "Checked"),
        ("mine", "Told"),
    }
    for event in events:
        assert int(event["metadata"]["resourceVersion"]) < int(stage.lease()["metadata"]["resourceVersion"])


@in_virtual_time
async def test_what_cannot_be_stopped_ends_with_the_process(clock: VirtualClock) -> None:
    stage = Stage(clock)
    gate = asyncio.Event()

    stage.secret("mine")

    async def stay(api: Api) -> None:
        while not gate.is_set():
            with suppress(asyncio.CancelledError):
                await gate.wait()

    manager = stage.manager(stubborn(gate), grace_seconds=8).run_task(stay)
    process = stage.start(manager)
    await clock.sleep(5)
    manager.stopping.set()
    assert await process is ExitCode.STUCK
    assert stage.deaths == [ExitCode.STUCK]
    assert stage.last_words == [
        "the time for stopping is over, and there still run: the reconcile of default/mine by secrets, task stay"
    ]
    gate.set()


@in_virtual_time
async def test_what_has_ended_while_the_tasks_did_is_not_stuck(clock: VirtualClock) -> None:
    stage = Stage(clock)
    stage.secret("mine")

    async def slow(context: Ctx) -> None:
        until = clock.monotonic() + 5 + 8 + CANCEL_SECONDS + 1
        while clock.monotonic() < until:  # as a plain function, it does not heed its cancellation
            with suppress(asyncio.CancelledError):
                await clock.sleep(until - clock.monotonic())

    async def serve(api: Api) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await clock.sleep(CANCEL_SECONDS - 0.5)

    manager = stage.manager(slow, grace_seconds=8).run_task(serve)
    process = stage.start(manager)
    await clock.sleep(5)
    manager.stopping.set()
    assert await process is ExitCode.OK
    assert stage.deaths == []
    assert stage.holder() == ""


@in_virtual_time
async def test_a_lease_taken_away_ends_the_shard_without_a_further_write(clock: VirtualClock) -> None:
    stage = Stage(clock)
    cancelled: list[str] = []

    async def busy(context: Ctx) -> None:
        try:
            while True:
                await context.api.patch(SECRETS, "mine", "default", {"data": {"k": str(clock.monotonic())}})
                await clock.sleep(0.5)
        except asyncio.CancelledError:
            cancelled.append(context.request.name)
            raise

    stage.secret("mine")
    process = stage.start(stage.manager(busy))
    await clock.sleep(5)
    stage.server.patch(LEASES, "shard-1", "shards", {"spec": {"holderIdentity": "shardlease-controller"}})
    taken = clock.monotonic()
    assert await process is ExitCode.LEASE_LOST
    assert cancelled == ["mine"]
    assert clock.monotonic() - taken < 5
    assert stage.holder() == "shardlease-controller"


@in_virtual_time
async def test_a_shard_cut_off_from_the_api_server_ends_before_its_lease_does(clock: VirtualClock) -> None:
    stage = Stage(clock)
    stage.secret("mine")
    process = stage.start(stage.manager(timings=LeaseTimings(15, 10, 2)))
    await clock.sleep(5)
    stage.keeper.fault = stage.api.fault = Fault.LOST
    cut_off = clock.monotonic()
    assert await process is ExitCode.LEASE_LOST
    assert clock.monotonic() - cut_off <= 15
    assert stage.deaths == []


@in_virtual_time
async def test_a_lost_lease_ends_the_feeding_before_it_cancels_what_runs(clock: VirtualClock) -> None:
    stage = Stage(clock)
    cancelled: list[tuple[str, bool]] = []

    async def busy(context: Ctx) -> None:
        stage.reconciled.append(context.request.name)
        if len(stage.reconciled) == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                # It tidies up and returns, which sets its worker free; writes are still allowed, so nothing but the
                # queue keeps that worker from the object that waits.
                assert stage.api.fence is not None
                cancelled.append((context.request.name, stage.api.fence.remaining() > 0))

    stage.secret("first")
    stage.secret("second")
    process = stage.start(stage.manager(busy))
    await clock.sleep(5)
    assert stage.reconciled == ["first"]
    stage.api.fault = stage.keeper.fault = Fault.LOST
    await clock.sleep(60)
    assert cancelled == [("first", True)]
    assert stage.reconciled == ["first"]
    assert stage.deaths == []
    assert await process is ExitCode.LEASE_LOST


@in_virtual_time
async def test_work_that_outlives_the_hold_ends_with_the_process(clock: VirtualClock) -> None:
    stage = Stage(clock)
    gate = asyncio.Event()

    stage.secret("mine")
    process = stage.start(stage.manager(stubborn(gate)))
    await clock.sleep(5)
    stage.server.patch(LEASES, "shard-1", "shards", {"spec": {"holderIdentity": "shardlease-controller"}})
    await clock.sleep(20)
    assert stage.deaths == [ExitCode.LEASE_LOST]
    gate.set()
    assert await process is ExitCode.LEASE_LOST


@in_virtual_time
async def test_a_cancelled_manager_leaves_nothing_running_and_releases(clock: VirtualClock) -> None:
    stage = Stage(clock)
    ended: list[str] = []

    async def endless(context: Ctx) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(context.request.name)

    stage.secret("mine")
    process = stage.start(stage.manager(endless))
    await clock.sleep(5)
    process.cancel()
    with pytest.raises(asyncio.CancelledError):
        await process
    assert ended == ["mine"]
    assert stage.holder() == ""
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_a_way_of_assigning_that_nobody_knows_ends_the_process_before_its_first_reconcile(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(clock)
    stage.server.create(CLUSTERRINGS, {"metadata": {"name": RING.ring}, "spec": {"assignment": "Ranges"}})
    stage.secret("mine")
    assert await stage.start(stage.manager()) is ExitCode.CONFIGURATION
    assert not stage.reconciled
    assert stage.holder() == ""
    [said] = [each for each in caplog.records if each.levelname == "CRITICAL"]
    assert "spec.assignment 'Ranges'" in said.getMessage()
    assert said.exc_info is None


@in_virtual_time
async def test_a_lease_that_says_another_ring_is_a_configuration_error(clock: VirtualClock) -> None:
    manager = Manager("a" * 64, shard="shard-1", namespace="shards", fenced=True)
    manager.add(controller_for(SECRETS).reconcile(lambda context: None))
    assert await manager.run_async(Stage(clock).world()) is ExitCode.CONFIGURATION


def spec(**options: Any) -> ControllerSpec[PartialObject]:
    return controller_for(SECRETS).reconcile(lambda context: None).options(**options)


@pytest.mark.parametrize(
    ("add", "problem"),
    [
        (lambda manager: manager.add(controller_for(SECRETS)), "no function"),
        (lambda manager: manager.add(spec()).add(spec()), "two controllers are called 'secrets'"),
        (
            lambda manager: manager.add(spec()).add(
                controller_for(CONFIGMAPS).owns(SECRETS, dict).reconcile(lambda context: None)
            ),
            "one resource has one cache",
        ),
        (
            lambda manager: manager.add(spec(name="a", drain_timeout_seconds=1.0)).add(spec(name="b")),
            "drain_timeout_seconds",
        ),
        (lambda manager: manager.add(controller_for(SECRETS).owns(SECRETS)), "lists secrets twice"),
    ],
)
def test_controllers_that_cannot_run_together_are_refused(add: Callable[[Manager], object], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        add(Manager("example"))
