"""An operator that goes from elected to sharded, or back: the form that comes later waits.

That they never work at once, whatever happens, is in tests/properties/test_changeover.py.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import pytest

from shardsdk import Context, LeaseTimings, Operator, Scope
from shardsdk.errors import Forbidden
from shardsdk.kinds import CustomResource, resource_of
from shardsdk.process.changeover import LOOK_SECONDS, TELL_SECONDS
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.protocol.labels import LEASE_RING_LABEL, parse_ring_name
from shardsdk.protocol.objects import LEASES
from shardsdk.rbac import Right
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unsharded_rig import Replica

TIMINGS = LeaseTimings(6, 4, 1)
WAITS = "This operator still runs in its other form; waiting until that has ended"
BLINDED = "It can no longer be seen whether this operator runs in its other form; waiting until it can"
GOES_ON = "This operator does not run in its other form any more; going on"


class Page(CustomResource[None], group="example.com", version="v1"):
    """What both forms reconcile."""


@dataclass
class Pod:
    """A process, and when it began to work, and which pages it did."""

    replica: Replica
    manager: Manager
    main: asyncio.Task[ExitCode]

    def works(self) -> bool:
        return bool(self.replica.reconciled)

    def ready(self) -> bool:
        """As far as what a test sees of it: `/readyz` is not served in memory."""
        return self.manager._check_caches() is None and (not self.manager.ring or self.manager._check_lease() is None)

    async def stop(self) -> None:
        self.manager.stopping.set()
        assert await self.main is ExitCode.OK


@dataclass
class Stage:
    """One API server with a page of the shard `one`."""

    clock: VirtualClock

    def __post_init__(self) -> None:
        self.server = MemoryServer()
        self.pods = 0
        labels = {parse_ring_name("pages").shard: "one"}
        metadata = {"name": "home", "namespace": "default", "labels": labels}
        self.server.create(resource_of(Page), {"metadata": metadata})

    def start(
        self, *, sharded: bool, shard: str = "one", replica: Replica | None = None, leads_besides: bool = False
    ) -> Pod:
        self.pods += 1
        replica = replica or Replica(self.clock, self.server, self.pods)
        operator = Operator("pages", sharded=sharded, timings=TIMINGS)

        @operator.reconcile(Page)
        async def note(ctx: Context[Page]) -> None:
            replica.reconciled.append(ctx.name)

        if leads_besides:

            @operator.task(scope=Scope.LEADER)
            async def idle(api: object) -> None:
                await asyncio.Event().wait()

        manager = operator.manager(namespace="default", shard=shard if sharded else None)
        return Pod(replica, manager, replica.start(manager))

    def holder(self, lease: str) -> str:
        return str(self.server.get(LEASES, lease, "default")["spec"].get("holderIdentity") or "")


def awaited(pod: Pod) -> float | None:
    return pod.manager.metrics.registry.get_sample_value("shardsdk_other_form_awaited")


class Unpermitted(Replica):
    """One that may not see Leases, while it is told so."""

    unpermitted = True

    def refuse(self, right: Right) -> None:
        if self.unpermitted and right.resource == LEASES.group_resource and right.verb in ("get", "list"):
            raise Forbidden("leases is forbidden", status=403)


@pytest.mark.parametrize("sharded", [False, True], ids=["to shards", "back to a leader"])
@in_virtual_time
async def test_the_form_that_comes_waits_for_the_one_that_is_there(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, sharded: bool
) -> None:
    caplog.set_level(logging.INFO)
    stage = Stage(clock)
    old = stage.start(sharded=sharded)
    await clock.sleep(5)
    new = stage.start(sharded=not sharded)
    await clock.sleep(60)
    assert (old.works(), new.works()) == (True, False)
    assert new.ready(), "a rolling update would never end the old one otherwise"
    (told,) = [each for each in caplog.records if each.msg == WAITS]
    assert told.levelno == logging.WARNING
    assert told.__dict__["held"].startswith("one by one" if sharded else "pages by ")
    assert f"kubectl delete lease {'one' if sharded else 'pages'} -n default" in told.__dict__["remedy"]
    assert awaited(new) == 1
    assert told.__dict__["held"] in await new.manager._probes.debug._waits()
    await clock.sleep(TELL_SECONDS)
    assert [each.msg for each in caplog.records].count(WAITS) == 2
    await old.stop()
    await clock.sleep(2 * LOOK_SECONDS)
    assert (new.works(), awaited(new)) == (True, 0)
    assert [each.msg for each in caplog.records].count(GOES_ON) == 1
    await new.stop()


@pytest.mark.parametrize("sharded", [False, True])
@in_virtual_time
async def test_one_that_has_crashed_is_waited_for_until_its_lease_has_run_out(
    clock: VirtualClock, sharded: bool
) -> None:
    stage = Stage(clock)
    old = stage.start(sharded=sharded)
    await clock.sleep(5)
    new = stage.start(sharded=not sharded)
    await clock.sleep(5)
    old.replica.cut_off()
    await clock.sleep(TIMINGS.lease_duration - TIMINGS.retry_period)
    assert not new.works()
    await clock.sleep(TIMINGS.retry_period + 2 * LOOK_SECONDS)
    assert new.works()
    assert sharded or stage.holder("pages") == "", "else whichever shard comes next would wait as long"
    await new.stop()
    assert await old.main is ExitCode.LEASE_LOST


@pytest.mark.parametrize("sharded", [False, True])
@in_virtual_time
async def test_one_that_waits_is_stopped_at_once(clock: VirtualClock, sharded: bool) -> None:
    stage = Stage(clock)
    old = stage.start(sharded=sharded)
    await clock.sleep(5)
    new = stage.start(sharded=not sharded)
    await clock.sleep(5)
    began = clock.monotonic()
    await new.stop()
    assert clock.monotonic() - began < 1
    assert not new.works()
    await old.stop()


@in_virtual_time
async def test_a_shard_that_was_too_late_gives_its_lease_up_for_the_leader(clock: VirtualClock) -> None:
    stage = Stage(clock)
    slow = Replica(clock, stage.server, 7, delay=lambda: 0.5)
    shard = stage.start(sharded=True, replica=slow)
    while not stage.server.select(LEASES):
        await clock.sleep(0.1)
    # It has its lease now, and does not know yet.
    leader = stage.start(sharded=False)
    await clock.sleep(20)
    assert (leader.works(), shard.works()) == (True, False)
    assert stage.holder("one") == ""
    await leader.stop()
    await clock.sleep(10)
    assert shard.works()
    await shard.stop()


@in_virtual_time
async def test_a_leader_that_may_not_list_leases_says_so_and_goes_on(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    class WithoutList(Unpermitted):
        def refuse(self, right: Right) -> None:
            if right.verb == "list":
                super().refuse(right)

    caplog.set_level(logging.INFO)
    stage = Stage(clock)
    shard = stage.start(sharded=True)
    await clock.sleep(5)
    leader = stage.start(sharded=False, replica=WithoutList(clock, stage.server, 9))
    await clock.sleep(60)
    assert leader.works()
    (told,) = [each for each in caplog.records if "cannot be seen" in each.msg]
    assert (
        told.msg
        == "It cannot be seen whether this operator runs in its other form as well; both would do the same work"
    )
    assert "grant get and list of leases in namespace default" in told.__dict__["remedy"]
    assert GOES_ON not in [each.msg for each in caplog.records]
    await leader.stop()
    await shard.stop()


@pytest.mark.parametrize("sharded", [False, True])
@in_virtual_time
async def test_an_api_server_that_does_not_answer_is_asked_until_it_does(clock: VirtualClock, sharded: bool) -> None:
    stage = Stage(clock)
    away = Replica(clock, stage.server, 8)
    pod = stage.start(sharded=sharded, replica=away)
    away.reading = Fault.REFUSED
    await clock.sleep(60)
    for api in away.apis:
        api.fault = Fault.NONE
    away.reading = Fault.NONE
    await clock.sleep(60)
    assert pod.works()
    await pod.stop()


@in_virtual_time
async def test_what_waits_for_nobody(clock: VirtualClock) -> None:
    stage = Stage(clock)
    # A lease that is called like the operator's, and is a shard's of an earlier version.
    metadata = {"name": "pages", "namespace": "default", "labels": {LEASE_RING_LABEL: "pages"}}
    stage.server.create(
        LEASES, {"metadata": metadata, "spec": {"holderIdentity": "pages", "leaseDurationSeconds": 3600}}
    )
    another = stage.start(sharded=True)
    await clock.sleep(5)
    assert another.works()
    await another.stop()
    stage.server.delete(LEASES, "pages", "default")
    # Those of a sharded one that has a leader as well hold both leases themselves.
    leading = stage.start(sharded=True, shard="two", leads_besides=True)
    await clock.sleep(5)
    assert stage.holder("pages") != ""
    both = stage.start(sharded=True, leads_besides=True)
    await clock.sleep(5)
    assert both.works()
    await both.stop()
    await leading.stop()


@in_virtual_time
async def test_a_shard_that_is_called_like_its_operator_is_refused(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert await Stage(clock).start(sharded=True, shard="pages").main is ExitCode.CONFIGURATION
    assert "give the shard another name (`--shard pages-0`)" in caplog.text


@in_virtual_time
async def test_a_leader_that_has_the_lease_of_a_shard_of_its_name_is_waited_for_and_does_not_wait_for_itself(
    clock: VirtualClock,
) -> None:
    stage = Stage(clock)
    metadata = {"name": "pages", "namespace": "default", "labels": {LEASE_RING_LABEL: "pages", "team": "a"}}
    stage.server.create(LEASES, {"metadata": metadata, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
    leader = stage.start(sharded=False)
    await clock.sleep(10)
    assert leader.works()
    # Without it the sharder would take over no lease of a shard called so any more.
    assert stage.server.get(LEASES, "pages", "default")["metadata"]["labels"] == metadata["labels"]
    shard = stage.start(sharded=True)
    await clock.sleep(20)
    assert not shard.works()
    await leader.stop()
    await shard.stop()


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("waits", [False, True], ids=["at its start", "while it waits"])
@in_virtual_time
async def test_what_an_api_server_refuses_after_an_outage_is_not_believed(
    clock: VirtualClock, sharded: bool, waits: bool
) -> None:
    """It has just started then.  Of several servers another may still let the other form renew its lease."""
    stage = Stage(clock)
    old = stage.start(sharded=sharded)
    await clock.sleep(5)
    replica = Replica(clock, stage.server, 9)
    new = stage.start(sharded=not sharded, replica=replica)
    if waits:
        await clock.sleep(10)
    while not replica.apis:
        await clock.sleep(0.001)
    looking = replica.apis[:] if waits and not sharded else replica.apis[-1:]
    for api in looking if waits else ():
        api.fault = Fault.REFUSED
    await clock.sleep(3.5 if sharded else 12)
    replica.starting = True
    for api in replica.apis:
        api.fault = Fault.NONE
    await clock.sleep(2)
    replica.starting = False
    await clock.sleep(20)
    assert (old.works(), new.works()) == (True, False)
    await old.stop()
    await new.stop()


@pytest.mark.parametrize("sharded", [False, True])
@in_virtual_time
async def test_one_that_may_not_see_leases_any_more_waits_and_says_so(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, sharded: bool
) -> None:
    stage = Stage(clock)
    old = stage.start(sharded=sharded)
    await clock.sleep(5)
    replica = Unpermitted(clock, stage.server, 9)
    replica.unpermitted = False
    new = stage.start(sharded=not sharded, replica=replica)
    await clock.sleep(10)
    replica.unpermitted = True
    await clock.sleep(60)
    assert not new.works()
    assert BLINDED in [each.msg for each in caplog.records]
    replica.unpermitted = False
    await old.stop()
    await clock.sleep(20)
    assert new.works()
    await new.stop()


@in_virtual_time
async def test_a_leader_that_is_stopped_while_it_waits_begins_no_task(clock: VirtualClock) -> None:
    stage = Stage(clock)
    shard = stage.start(sharded=True)
    await clock.sleep(5)
    operator, ran = Operator("pages", timings=TIMINGS), list[str]()

    @operator.task()
    async def work(api: object) -> None:
        ran.append("task")

    manager = operator.manager(namespace="default")
    main = Replica(clock, stage.server, 5).start(manager)
    await clock.sleep(10)
    manager.stopping.set()
    assert await main is ExitCode.OK
    assert ran == []
    await shard.stop()
