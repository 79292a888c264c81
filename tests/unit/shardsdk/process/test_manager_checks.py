"""What a manager was told and cannot work is said in a sentence, before anything starts."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.kube.api import Api
from shardsdk.lease.leadership import Election
from shardsdk.process.manager import Manager
from shardsdk.process.probes import CACHES, LEASE, MAIN_LOOP, STOPPING
from shardsdk.process.process import ExitCode
from shardsdk.reconcile.spec import Scope, controller_for
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, SECRETS
from tests.unsharded_rig import ELECTION, Cluster, shard_of_ring


def controller() -> Any:
    return controller_for(SECRETS).reconcile(lambda context: None)


def told(**options: Any) -> Manager:
    return Manager(**options).add(controller())


async def task(api: Api) -> None: ...


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Manager(health_address="8081").add(controller()), 'is not "host:port"'),
        (lambda: Manager(metrics_address=":99999").add(controller()), 'is not "host:port"'),
        (lambda: Manager(grace_seconds=-1).add(controller()), "grace_seconds is -1"),
        (lambda: Manager(), "nothing to run"),
        (lambda: Manager("ring"), "nothing to run"),
        (lambda: Manager().add(controller().on_leader()), "no election"),
        (lambda: Manager().run_task(task, scope=Scope.SHARDED), "no ring"),
        (lambda: Manager("ring").add(controller().on_every_replica()), "nobody reconciles"),
        (lambda: Manager(election=ELECTION).add(controller().on_every_replica()), "nothing to do"),
        (lambda: Manager(election=Election("")).add(controller()), "cannot be an election's name"),
        (lambda: Manager(election=Election("x", "No.Such")).add(controller()), "cannot be the name of a namespace"),
        (lambda: Manager(election=Election("x", identity="", namespace="shards")).add(controller()), "identity"),
        (lambda: Manager("ring", shard="A", namespace="b").add(controller()), "cannot be a shard's name"),
        (
            lambda: shard_of_ring(election=Election("shard-1", "shards"))
            .add(controller())
            .add(controller().on_leader().options(name="other")),
            "same Lease",
        ),
        (lambda: shard_of_ring(restart_grace_seconds=-1).add(controller()), "whole seconds"),
        (lambda: shard_of_ring(restart_grace_seconds="60").add(controller()), "is '60': use whole seconds"),
        (lambda: told(health_address=18081), 'address 18081 is no text: write it as ":18081"'),
        (lambda: told(metrics_address=0), 'address 0 is no text: write it as "0"'),
        (lambda: told(ring=5), "ring=5 is no text"),
        (lambda: told(ring="ring", shard=5), "shard=5 is no text"),
        (lambda: told(ring="ring", namespace=5), "namespace=5 is no text"),
        (lambda: told(program=5), "program=5 is no text"),
        (lambda: told(context=5), "context=5 is no text"),
        (lambda: told(watch_namespace=5), "5 cannot be the name of a namespace"),
        (lambda: told(watch_namespace=["a", 5]), "5 cannot be the name of a namespace"),
        (lambda: told(watch_namespace=b"ab"), "b'ab' cannot be the name of a namespace"),
        (lambda: told(election=Election(cast("Any", 5))), "5 cannot be an election's name"),
        (lambda: told(election=Election("x", cast("Any", 5))), "5 cannot be the name of a namespace"),
        (lambda: told(election=Election("x", "shards", cast("Any", 5))), "5 cannot be the identity"),
        (
            lambda: told(election=Election("x", "shards", on_started=cast("Any", "x"))),
            "the election has on_started='x', which is no function",
        ),
        (lambda: told(grace_seconds="30"), "grace_seconds='30' is no number of seconds"),
        (lambda: told(election="name"), "election='name' is none: write Election(name)"),
        (lambda: told(timings=60), "timings=60 are none: write LeaseTimings.of(seconds)"),
        (lambda: told(election=Election("a", timings=cast("Any", 60))), "timings=60 are none"),
        (lambda: told(election=Election("Bad Name", "shards")), "'Bad Name' cannot be an election's name"),
    ],
)  # fmt: skip
@in_virtual_time
async def test_what_cannot_work_is_said_in_a_sentence_with_exit_code_2(
    clock: VirtualClock, make: Callable[[], Manager], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await make().run_async(Cluster(clock).replica().world()) is ExitCode.CONFIGURATION
    assert problem in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("kubeconfig", [3, True, b"config"])
async def test_a_kubeconfig_that_is_no_path_is_said(kubeconfig: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert await told(kubeconfig=kubeconfig).run_async() is ExitCode.CONFIGURATION
    assert f"kubeconfig={kubeconfig!r} is no path" in caplog.text


@pytest.mark.parametrize("concurrency", [0, 10_000, 2.5, 2.0])
def test_a_concurrency_that_cannot_be_is_said_when_the_controller_is_added(concurrency: Any) -> None:
    spec = controller_for(SECRETS).options(concurrency=concurrency).reconcile(lambda context: None)
    with pytest.raises(ConfigurationError, match="use 1 to 1000"):
        Manager().add(spec)


def test_a_rate_limit_that_is_none_is_said_when_the_controller_is_added() -> None:
    spec = controller().options(rate_limit=5)
    with pytest.raises(ConfigurationError, match=r"has rate_limit=5: write RateLimit\(per_second=…\)"):
        Manager().add(spec)


def sharded(spec: Any) -> Any:
    return replace(spec, scope=Scope.SHARDED)


@in_virtual_time
async def test_what_can_run_nowhere_is_named(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    for manager, named in (
        (Manager().add(sharded(controller())), "controller 'secrets' is to run under a shard's lease"),
        (Manager().run_task(task, scope=Scope.SHARDED), "task 'task' is to run under a shard's lease"),
        (Manager().add(controller().on_leader()), "controller 'secrets' is to run on the leader"),
    ):
        assert await manager.run_async(Cluster(clock).replica().world()) is ExitCode.CONFIGURATION
        assert named in caplog.text


@pytest.mark.parametrize("add", [Manager.add_health_check, Manager.add_ready_check])
def test_a_check_that_would_have_to_be_awaited_is_refused(add: Callable[[Manager, str, Any], Manager]) -> None:
    async def check() -> None: ...

    with pytest.raises(ConfigurationError, match=r"the check 'db' is an async function.*write a plain one"):
        add(Manager(), "db", check)


def test_two_checks_of_one_name_are_refused() -> None:
    manager = Manager().add_ready_check("db", lambda: None).add_health_check("db", lambda: None)
    with pytest.raises(ConfigurationError, match="two checks called 'db': give the one that is yours another name"):
        manager.add_ready_check("db", lambda: "another database")


@pytest.mark.parametrize("ring", [None, "ring"])
def test_a_check_with_the_name_of_one_of_the_managers_own_is_refused_where_it_is_added(ring: str | None) -> None:
    """It has them only where it serves, hence in no test of the program."""
    manager = Manager(ring)
    for name in ("lease", "caches", "stopping"):
        with pytest.raises(ConfigurationError, match=f"the manager has a check called '{name}': give yours another"):
            manager.add_ready_check(name, lambda: None)
    with pytest.raises(ConfigurationError, match="the manager has a check called 'main-loop'"):
        manager.add_health_check("main-loop", lambda: None)
    manager.add_health_check("lease", lambda: None).add_ready_check("main-loop", lambda: None)


@in_virtual_time
async def test_the_managers_own_checks_are_the_ones_that_are_refused(clock: VirtualClock) -> None:
    manager = shard_of_ring(health_address="0", metrics_address="0").add(controller())
    running = asyncio.create_task(manager.run_async(replace(Cluster(clock).replica().world(), serve=True)))
    await asyncio.sleep(1)
    assert manager._probes.healthz.names == [MAIN_LOOP]
    assert manager._probes.readyz.names == sorted([LEASE, CACHES, STOPPING])
    manager.stopping.set()
    await running


def test_a_check_may_be_async_within() -> None:
    async def check() -> str:
        return "no answer"

    @functools.wraps(check)
    def plainly() -> str:
        return asyncio.run(check())

    Manager().add_ready_check("db", plainly)


@pytest.mark.parametrize(
    "say",
    [
        lambda manager: manager.add(controller()),
        lambda manager: manager.run_task(task),
        lambda manager: manager.cache(SECRETS, namespaces=["x"]),
    ],
    ids=["add", "run_task", "cache"],
)
@in_virtual_time
async def test_what_is_said_once_it_runs_is_refused(clock: VirtualClock, say: Callable[[Manager], object]) -> None:
    """Nobody would look at it."""
    manager = Manager().add(controller_for(CONFIGMAPS).reconcile(lambda context: None))
    running = asyncio.create_task(manager.run_async(Cluster(clock).replica().world()))
    await asyncio.sleep(1)
    with pytest.raises(ConfigurationError, match=r"(add|run_task|cache)\(\) comes too late: .* before run\(\)"):
        say(manager)
    assert len(manager.controllers) == 1
    manager.stopping.set()
    assert await running is ExitCode.OK


@in_virtual_time
async def test_a_manager_that_has_run_is_not_run_again(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    manager = Manager(election=ELECTION).add(controller_for(CONFIGMAPS).reconcile(lambda context: None))
    manager.stopping.set()
    world = Cluster(clock).replica().world()
    assert await manager.run_async(world) is ExitCode.OK
    manager.stopping.clear()
    assert await manager.run_async(world) is ExitCode.CONFIGURATION
    assert "this Manager has run already: make a new one" in caplog.text
    assert "metric" not in caplog.text
