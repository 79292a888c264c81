"""Tasks run as long as the reconciles of their scope do, in virtual time."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from shardsdk.cache.objects import Request
from shardsdk.errors import ConfigurationError
from shardsdk.kube.api import Api
from shardsdk.operator.operator import Operator
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.queueing.sources import Trigger
from shardsdk.reconcile.spec import Scope, controller_for
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import SECRETS
from tests.unsharded_rig import ELECTION, Cluster, Ctx, Replica


def everywhere(replica: Replica, **options: Any) -> Manager:
    return Manager(**options).add(controller_for(SECRETS).reconcile(replica.note))


@in_virtual_time
async def test_tasks_run_with_their_scope_and_end_after_the_reconciles(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    replica = cluster.replica()
    story: list[str] = []

    def task(name: str) -> Callable[[Api], Any]:
        async def run(api: Api) -> None:
            story.append(f"{name} begins")
            try:
                await asyncio.Event().wait()
            finally:
                story.append(f"{name} ends")

        return run

    async def slow(context: Ctx) -> None:
        story.append("reconcile begins")
        await clock.sleep(10)
        story.append("reconcile ends")

    manager = Manager().add(controller_for(SECRETS).reconcile(slow))
    manager.run_task(task("first")).run_task(task("second"), name="2", scope=Scope.EVERYWHERE)
    process = replica.start(manager)
    await clock.sleep(5)
    manager.stopping.set()
    assert await process is ExitCode.OK
    assert story == [
        "first begins", "second begins", "reconcile begins", "reconcile ends", "second ends", "first ends",
    ]  # fmt: skip


@in_virtual_time
@pytest.mark.parametrize(("takes", "ends"), [(5, "by itself"), (60, "cancelled")])
async def test_a_task_that_heeds_stopping_has_a_grace_to_end_by_itself(
    clock: VirtualClock, takes: float, ends: str
) -> None:
    story: list[str] = []

    async def finish(api: Api) -> None:
        try:
            await manager.stopping.wait()
            await clock.sleep(takes)
        except asyncio.CancelledError:
            story.append("cancelled")
            raise
        story.append("by itself")

    manager = Manager().run_task(finish, grace_seconds=15)
    process = Cluster(clock).replica().start(manager)
    await clock.sleep(5)
    manager.stopping.set()
    began = clock.monotonic()
    assert await process is ExitCode.OK
    assert (story, round(clock.monotonic() - began)) == ([ends], min(takes, 15))


@in_virtual_time
async def test_a_leaders_task_runs_while_it_leads_and_writes_under_its_hold(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    replica = cluster.replica()
    refused: list[str] = []

    async def write(api: Api) -> None:
        await api.create(SECRETS, {"metadata": {"name": "by-leader", "namespace": "default"}}, "default")
        try:
            await asyncio.Event().wait()
        finally:
            try:
                await api.create(SECRETS, {"metadata": {"name": "too-late", "namespace": "default"}}, "default")
            except Exception as error:
                refused.append(type(error).__name__)

    process = replica.start(Manager(election=ELECTION).run_task(write))
    await clock.sleep(5)
    assert cluster.names(SECRETS) == ["by-leader"]
    cluster.take(ELECTION.name)
    assert await process is ExitCode.LEASE_LOST
    assert refused == ["FenceClosed"]
    assert cluster.names(SECRETS) == ["by-leader"]


@in_virtual_time
async def test_a_task_whose_configuration_cannot_work_ends_the_process_with_2_and_a_sentence(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuses(api: Api) -> None:
        raise ConfigurationError("port 9443 is taken; free it")

    replica = Cluster(clock).replica()
    process = replica.start(everywhere(replica).run_task(refuses))
    assert await process is ExitCode.CONFIGURATION
    (said,) = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert (said.getMessage(), said.exc_info) == ("The process cannot run: port 9443 is taken; free it", None)


@in_virtual_time
async def test_a_task_that_returns_is_done_and_one_that_raises_ends_the_process(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    replica = cluster.replica()
    trigger = Trigger()

    async def once(api: Api) -> None:
        return

    async def fails(api: Api) -> None:
        await clock.sleep(20)
        raise RuntimeError("the port is taken")

    manager = everywhere(replica).run_task(once).run_task(fails)
    manager.add(controller_for(SECRETS).options(name="asked").source(trigger).reconcile(replica.note))
    process = replica.start(manager)
    await clock.sleep(10)
    trigger.push(Request("default", "a"))
    await clock.sleep(1)
    assert replica.reconciled == ["a", "a", "a"]
    assert await process is ExitCode.FAILED


def test_a_plain_function_is_refused_as_a_task() -> None:
    def serve(api: Api) -> None:
        """Would hold up the event loop."""

    refused = pytest.raises(ConfigurationError, match=r"'serve' is a plain function.*write `async def`")
    with refused:
        Manager().run_task(serve)  # type: ignore[arg-type]
    with refused:
        Operator("pages").on_every_replica(serve)  # type: ignore[type-var]
    with refused:
        Operator("pages").task()(serve)  # type: ignore[type-var]


def test_whatever_gives_something_to_await_is_a_task() -> None:
    class Service:
        async def __call__(self, api: Api) -> None:
            """Serves."""

        async def run(self, api: Api, port: int = 0) -> None:
            """Serves too."""

    @functools.wraps(Service.run)
    def decorated(api: Api) -> Awaitable[None]:
        return Service().run(api)

    manager = Manager()
    for task in (Service(), Service().run, partial(Service().run, port=1), partial(Service()), decorated):
        manager.run_task(task)
    assert len(manager._tasks) == 5


@in_virtual_time
async def test_a_task_that_fails_as_it_ends_is_told_of(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(api: Api) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise LookupError("nothing to flush to")

    manager = Manager().run_task(fail)
    process = Cluster(clock).replica().start(manager)
    await clock.sleep(5)
    manager.stopping.set()
    assert await process is ExitCode.FAILED
    (line,) = [each for each in caplog.records if each.msg == "Task has failed while it was to end"]
    assert line.exc_info is not None
    assert isinstance(line.exc_info[1], LookupError)


@in_virtual_time
async def test_a_task_that_waits_for_what_was_cancelled_fails_with_that(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def wait_in_vain(api: Api) -> None:
        helper = asyncio.ensure_future(asyncio.sleep(9))
        helper.cancel()
        await helper

    assert await Cluster(clock).replica().start(Manager().run_task(wait_in_vain)) is ExitCode.FAILED
    (line,) = [each for each in caplog.records if each.msg == "A part of the manager has ended; stopping"]
    assert line.exc_info is not None
    assert "something that the function awaited was cancelled" in str(line.exc_info[1])
