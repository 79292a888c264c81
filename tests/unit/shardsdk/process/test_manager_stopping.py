"""How a shard that is told to stop leaves: what rests is given away, what runs ends, and the Lease says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from shardsdk.errors import Invalid, LeaseLost
from shardsdk.events.recorder import EventType
from shardsdk.kube.api import Api, Fence
from shardsdk.lease.leadership import Election
from shardsdk.process.manager import Manager, World
from shardsdk.process.process import ExitCode
from shardsdk.protocol.labels import DRAIN_VALUE, FENCED_ANNOTATION, INSTANCE_ANNOTATION, MAIN_RESOURCES_ANNOTATION
from shardsdk.protocol.leases import Lease
from shardsdk.reconcile.spec import Scope, Task, controller_for
from shardsdk.testing.memory import Change
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import RING, SECRETS
from tests.unit.shardsdk.process.test_manager import Ctx, Stage

#: So long a request takes to the API server, and its answer back, where that is slow.
SLOW_SECONDS = 0.7


@dataclass
class Leaving(Stage):
    """A shard whose reconciles of what is called busy go on until `gate` is set; `story` is what happens, in order."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.server.listeners.append(self._note)

    def world(self) -> World:
        @asynccontextmanager
        async def opened(fence: Fence | None) -> AsyncIterator[Api]:
            yield MemoryApi(self.server, self.clock)

        return replace(super().world(), open=opened)

    def _note(self, change: Change) -> None:
        if change.resource == SECRETS.group_resource and change.new is not None:
            metadata = change.new["metadata"]
            if RING.shard not in (metadata.get("labels") or {}):
                self.story.append(f"{metadata['name']} given away")

    async def reconcile(self, context: Ctx) -> None:
        self.reconciled.append(context.request.name)
        if context.request.name.startswith("busy"):
            try:
                await self.gate.wait()
            finally:
                self.story.append(f"{context.request.name} ended")

    def read(self) -> Lease:
        return msgspec.convert(self.lease(), Lease)

    def drain(self, *names: str) -> None:
        for name in names:
            self.server.patch(SECRETS, name, "default", {"metadata": {"labels": {RING.drain: DRAIN_VALUE}}})

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)

    async def begin(
        self, *names: str, tasks: Sequence[Task] = (), **options: Any
    ) -> tuple[Manager, asyncio.Task[ExitCode]]:
        """A shard that has had its turn with these."""
        for name in names:
            self.secret(name)
        manager = Manager(RING.ring, shard="shard-1", namespace="shards", fenced=True, **options)
        manager.add(controller_for(SECRETS).options(concurrency=4).reconcile(self.reconcile))
        for task in tasks:
            manager.run_task(task, grace_seconds=20)
        process = self.start(manager)
        await self.clock.sleep(5)
        assert sorted(self.reconciled) == sorted(names)
        return manager, process


@in_virtual_time
async def test_it_says_so_at_once_and_gives_away_what_rests_while_something_runs(clock: VirtualClock) -> None:
    stage = Leaving(clock)
    manager, process = await stage.begin("busy", "idle")
    assert not stage.read().leaving
    manager.stopping.set()
    await clock.sleep(0.1)
    assert stage.read().leaving
    stage.secret("late")  # somebody has not heard of it yet
    stage.drain("busy", "idle", "late")
    await clock.sleep(1)
    assert stage.story == ["idle given away", "late given away"]
    renewed = stage.read().spec.renew_time
    await clock.sleep(6)
    assert stage.read().spec.renew_time != renewed
    assert stage.read().leaving, "with each renewal"
    assert not process.done()
    stage.gate.set()
    assert await process is ExitCode.OK
    assert stage.story[2] == "busy ended", "never before nothing works on it"
    assert sorted(stage.reconciled) == ["busy", "idle"], "nothing new is begun"
    left = stage.read()
    assert (left.holder, left.leaving, left.ended_in_failure) == ("", False, False)
    assert not left.metadata.annotations


@in_virtual_time
async def test_where_nothing_runs_it_just_releases(clock: VirtualClock) -> None:
    stage = Leaving(clock)
    manager, process = await stage.begin("idle")
    written = len(stage.keeper.writes)
    began = clock.monotonic()
    manager.stopping.set()
    assert await process is ExitCode.OK
    assert clock.monotonic() - began < 0.1
    assert len(stage.keeper.writes) == written + 1, "who hears of a release need not hear of a leave"


@in_virtual_time
async def test_a_task_that_ends_by_itself_in_its_grace_goes_on_as_a_reconcile_does(clock: VirtualClock) -> None:
    stage = Leaving(clock)

    async def finish(api: Api) -> None:
        await stage.gate.wait()

    manager, process = await stage.begin("idle", tasks=[finish])
    manager.stopping.set()
    await clock.sleep(0.1)
    assert stage.read().leaving
    stage.drain("idle")
    await clock.sleep(1)
    assert stage.story == ["idle given away"]
    assert not process.done()
    stage.gate.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_one_that_has_returned_does_not(clock: VirtualClock) -> None:
    stage = Leaving(clock)

    async def once(api: Api) -> None:
        """It is done."""

    manager, process = await stage.begin("idle", tasks=[once])
    written = len(stage.keeper.writes)
    manager.stopping.set()
    assert await process is ExitCode.OK
    assert len(stage.keeper.writes) == written + 1


@dataclass
class Poller:
    """A task without a hash, which equals any other one."""

    gate: asyncio.Event = field(compare=False)

    async def __call__(self, api: Api) -> None:
        await self.gate.wait()


@in_virtual_time
async def test_one_that_has_returned_is_not_its_equal_that_goes_on(clock: VirtualClock) -> None:
    stage, done = Leaving(clock), asyncio.Event()
    manager, process = await stage.begin("idle", tasks=[Poller(done), Poller(stage.gate)])
    done.set()
    await clock.sleep(1)
    manager.stopping.set()
    await clock.sleep(0.1)
    assert stage.read().leaving
    stage.gate.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_acknowledgements_under_way_end_before_it_releases(clock: VirtualClock) -> None:
    """One that is cut off may still be executed, so the lease would have to be held until it no longer can."""
    stage = Leaving(clock)
    manager, process = await stage.begin("a", "b", "c")
    stage.api.delay = lambda: SLOW_SECONDS
    stage.drain("a", "b", "c")
    await clock.sleep(SLOW_SECONDS / 2)
    manager.stopping.set()
    assert await process is ExitCode.OK
    sent = len(stage.api.writes)
    answered = manager.metrics.registry.get_sample_value("shardsdk_acknowledgements_total", {"resource": "secrets"})
    assert answered == sent > 0
    assert clock.monotonic() < 5 + 4 * SLOW_SECONDS
    assert stage.holder() == ""


@in_virtual_time
async def test_one_that_takes_too_long_is_cut_off(clock: VirtualClock) -> None:
    stage = Leaving(clock)
    manager, process = await stage.begin("a")
    stage.api.delay = lambda: 4.0
    stage.drain("a")
    await clock.sleep(1)
    manager.stopping.set()
    assert await process is ExitCode.OK
    settled = 5 + 8
    assert settled <= clock.monotonic() < settled + 1, "its end is waited for, and nothing else"


@in_virtual_time
async def test_an_event_under_way_ends_before_it_releases(clock: VirtualClock) -> None:
    stage = Leaving(clock)

    async def tell(context: Ctx) -> None:
        context.event(EventType.NORMAL, "Checked", "everything is as it should be")
        stage.api.delay = lambda: SLOW_SECONDS

    stage.secret("mine")
    process = stage.start(manager := stage.manager(tell))
    await stage.until(lambda: any(each[1] == "events" for each in stage.api.writes))
    manager.stopping.set()
    assert await process is ExitCode.OK
    assert [each[1] for each in stage.api.writes] == ["events"], "once"
    assert stage.holder() == ""


@pytest.mark.parametrize("scope", [Scope.SHARDED, Scope.EVERYWHERE])
@in_virtual_time
async def test_a_release_after_a_failure_says_so(clock: VirtualClock, scope: Scope) -> None:
    stage, written = Leaving(clock), list[int]()

    async def fail(api: Api) -> None:
        await clock.sleep(3)
        written.append(len(stage.keeper.writes))
        raise RuntimeError("it has failed")

    stage.secret("idle")

    async def patient(api: Api) -> None:
        await stage.gate.wait()

    manager = stage.manager(stage.reconcile).run_task(fail, scope=scope)
    if scope is Scope.SHARDED:
        manager.run_task(patient, scope=scope, grace_seconds=20)  # it has them only when it is told to stop
    process = stage.start(manager)
    assert await process is ExitCode.FAILED
    assert len(stage.keeper.writes) == written[0] + 1, "nothing runs any more: it just releases"
    assert stage.holder() == ""
    assert stage.read().ended_in_failure
    process = stage.start(manager := stage.manager(stage.reconcile))
    await clock.sleep(5)
    assert not stage.read().ended_in_failure
    assert set(stage.read().metadata.annotations or {}) == {
        INSTANCE_ANNOTATION,
        FENCED_ANNOTATION,
        MAIN_RESOURCES_ANNOTATION,
    }
    manager.stopping.set()
    assert await process is ExitCode.OK
    assert not stage.read().ended_in_failure


@pytest.mark.parametrize("lost", [False, True])
@in_virtual_time
async def test_so_does_one_after_another_part_has_raised_but_where_that_has_lost_its_lease(
    clock: VirtualClock, lost: bool
) -> None:
    stage = Leaving(clock)

    async def lead(*_: object) -> ExitCode:
        await clock.sleep(3)
        raise LeaseLost("another leads") if lost else Invalid("the election's Lease is refused", status=422)

    async def task(api: Api) -> None:
        """Nobody comes to it."""

    manager = stage.manager(stage.reconcile, election=Election("lead", "shards", identity="one"))
    manager.run_task(task, scope=Scope.LEADER)
    with patch.object(manager, "_lead", lead):
        assert await stage.start(manager) is (ExitCode.LEASE_LOST if lost else ExitCode.FAILED)
    assert stage.holder() == ""
    assert stage.read().ended_in_failure is not lost


@in_virtual_time
async def test_a_lease_that_is_left_for_a_restart_is_not_about_to_be_left(clock: VirtualClock) -> None:
    """What would be taken from it meanwhile, its next process would get back."""
    stage = Leaving(clock)
    manager, process = await stage.begin("busy", restart_grace_seconds=60)
    manager.stopping.set()
    await clock.sleep(5)
    assert not stage.read().leaving
    stage.gate.set()
    assert await process is ExitCode.OK
    assert (stage.read().instance, stage.read().leaving) == ("", False)


@in_virtual_time
async def test_the_lease_is_kept_under_a_reconcile_however_often_all_around_it_is_cancelled(
    clock: VirtualClock,
) -> None:
    """As `asyncio.run` does with whatever is left when its function has returned or raised."""
    stage = Leaving(clock)

    async def work(context: Ctx) -> None:
        while not stage.gate.is_set():
            with suppress(asyncio.CancelledError):
                await stage.gate.wait()

    stage.secret("busy")
    before = asyncio.all_tasks()
    process = stage.start(stage.manager(work))
    await clock.sleep(5)
    for _ in range(3):
        for task in asyncio.all_tasks() - before:
            if (task is process) or any(
                part in str(task.get_coro()) for part in ("until_stopped", "_hold", "Workload")
            ):
                task.cancel()
        await clock.sleep(1)
    assert stage.holder() == "shard-1"
    assert not process.done()
    stage.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await process
    assert stage.holder() == ""
