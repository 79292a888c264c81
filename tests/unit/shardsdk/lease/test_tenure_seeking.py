"""What a process that seeks its lease says while it does not get it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from shardsdk.errors import (
    ApiError,
    BadRequest,
    ConfigurationError,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
    ServerError,
    TooManyRequests,
)
from shardsdk.kube.api import Operation, T
from shardsdk.lease.election import LeaderElector
from shardsdk.lease.shardlease import ShardLease
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.processes import outside
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.election_rig import Candidates, running
from tests.lease_rig import RING, SHARD, Rig, connecting, stay

#: What a policy without a reason answers, a webhook without a code, and one with a strange code.
REFUSALS = (Invalid("denied", status=422), BadRequest("denied", status=400), MethodNotAllowed("denied", status=405))


class InEtcdsHands(MemoryApi):
    """What is created is answered with a 5xx, and is there some seconds later."""

    async def send(self, operation: Operation[T]) -> T:
        if operation.verb != "create":
            return await super().send(operation)
        self.delay = lambda: 2.0
        outside(super().send(operation))
        await asyncio.sleep(0.1)
        self.delay = lambda: 0.001
        raise ServerError("etcdserver: request timed out", status=500, reason="InternalError")


async def told(rig: Rig, api: MemoryApi, caplog: pytest.LogCaptureFixture, seconds: float = 60) -> list[str]:
    """What is told in a minute, or in `seconds`, at info and above."""
    caplog.set_level("INFO", logger="shardsdk.lease")
    task = asyncio.create_task(stay(rig.shard(api)))
    await asyncio.sleep(seconds)
    task.cancel()
    said = [record.getMessage().partition(" namespace=")[0] for record in caplog.records]
    await asyncio.wait((task,))
    return said


@in_virtual_time
async def test_an_api_server_that_never_answers_is_told_once(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(clock)
    api = rig.api()
    api.fault = Fault.LOST
    said = await told(rig, api, caplog)
    assert said == [f"Could not acquire the lease default/{SHARD} yet: no answer within 5.0 s"]
    assert len(api.requests) > 5


@in_virtual_time
async def test_a_creation_that_never_is_answered_is_told_once(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody's admission webhook for leases, say."""
    rig = Rig(clock)
    api = rig.api()
    api.on_request = lambda right: setattr(api, "fault", Fault.LOST if right.verb == "create" else Fault.NONE)
    said = await told(rig, api, caplog)
    assert said == [f"Could not acquire the lease default/{SHARD} yet: no answer within 5.0 s"]


@in_virtual_time
async def test_what_goes_on_is_told_again_each_minute(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    """Probes say nothing of a candidate that is refused, and whoever looks hours later looks at the latest lines."""
    rig = Rig(clock)
    api = rig.api()
    api.error = Forbidden("get leases: 403", status=403)
    said = await told(rig, api, caplog, 600)
    assert len(said) in (9, 10)
    assert set(said) == {f"Could not acquire the lease default/{SHARD} yet: get leases: 403"}


@in_virtual_time
async def test_each_reason_is_told_when_it_comes_up(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(clock)
    api = rig.api()
    api.error = TooManyRequests("slow down", status=429, retry_after_seconds=1.0)
    asyncio.get_running_loop().call_later(20, setattr, api, "fault", Fault.REFUSED)
    said = await told(rig, api, caplog)
    assert said == [
        f"Could not acquire the lease default/{SHARD} yet: slow down",
        f"Could not acquire the lease default/{SHARD} yet: connection refused",
    ]


@in_virtual_time
async def test_a_creation_that_is_executed_late_holds_the_lease_for_nobody_who_has_gone(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api = rig.api()
    api.on_request = lambda right: setattr(api, "delay", lambda: 4.0 if right.verb == "create" else 0.001)
    task = asyncio.create_task(stay(rig.shard(api)))
    await rig.until(lambda: bool(api.writes))
    assert rig.lease() is None
    task.cancel()
    await asyncio.wait((task,))
    await asyncio.sleep(60)
    assert rig.holder() == ""


@in_virtual_time
async def test_nor_does_one_that_was_answered_with_a_5xx(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api = InEtcdsHands(rig.server, clock)
    task = asyncio.create_task(stay(rig.shard(api)))
    await rig.until(lambda: bool(api.writes))
    await asyncio.sleep(0.5)
    assert rig.lease() is None
    task.cancel()
    await asyncio.wait((task,))
    await asyncio.sleep(60)
    assert rig.holder() == ""


@in_virtual_time
async def test_a_namespace_that_is_not_there_is_told_with_its_remedy_and_waited_for(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(clock)
    api = rig.api()
    missing = NotFound('namespaces "default" not found', status=404)
    api.on_request = lambda right: setattr(api, "error", missing if right.verb == "create" else None)
    said = await told(rig, api, caplog)
    assert said == [
        f"Could not acquire the lease default/{SHARD} yet: there is no namespace 'default' for the lease"
        f" default/{SHARD}: `kubectl create namespace default`"
    ]
    assert 5 < api.requests.count("create") <= 30, "as often as any other attempt"
    api.on_request, api.error = None, None
    async with rig.shard(api):
        assert rig.holder() == SHARD


@pytest.mark.parametrize("refusal", REFUSALS, ids=repr)
@in_virtual_time
async def test_a_shard_whose_lease_is_refused_waits_says_it_once_and_goes_on(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, refusal: ApiError
) -> None:
    rig = Rig(clock)
    api = rig.api()
    api.on_request = lambda right: setattr(api, "error", refusal if right.verb == "create" else None)
    said = await told(rig, api, caplog)
    # By 405 answers as well who is no API server.
    remedy = " — exempt this identity from the policy or the admission webhook that refuses it"
    known = not isinstance(refusal, MethodNotAllowed)
    assert said == [f"Could not acquire the lease default/{SHARD} yet: denied{remedy if known else ''}"]
    assert 5 < api.requests.count("create") <= 30, "as often as any other attempt"
    api.on_request, api.error = None, None
    async with rig.shard(api):
        assert rig.holder() == SHARD


@pytest.mark.parametrize("refusal", REFUSALS, ids=repr)
@in_virtual_time
async def test_so_does_a_candidate_also_where_the_lease_is_there(clock: VirtualClock, refusal: ApiError) -> None:
    world = Candidates(clock)
    first, _ = world.make("a")
    second, api = world.make("b")
    async with running(first.run(world.lead("a"))) as a:
        await world.until(lambda: first.is_leader)
        api.on_request = lambda right: setattr(api, "error", refusal if right.verb == "patch" else None)
        async with running(second.run(world.lead("b"))) as b:
            a.cancel()
            await asyncio.sleep(600)
            assert not b.done()
            api.on_request, api.error = None, None
            assert await world.until(lambda: second.is_leader) <= 2.5


@pytest.mark.parametrize(("namespace", "name"), [("default", "My Leader"), ("default", ""), ("Default", "leader")])
@in_virtual_time
async def test_what_cannot_be_a_lease_of_an_election_is_told_before_it_is_asked_for(
    clock: VirtualClock, namespace: str, name: str
) -> None:
    with pytest.raises(ConfigurationError, match="cannot be"):
        LeaderElector(Rig(clock).api(), namespace=namespace, name=name, clock=clock, rng=random.Random(1))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"identity": 5}, "5 cannot be the identity of a leader election's candidate"),
        ({"identity": ""}, "'' cannot be the identity"),
        ({"labels": {"a label": "x"}}, "'a label': 'x' cannot be a label"),
        ({"labels": {"team": "no label"}}, "'team': 'no label' cannot be a label"),
        ({"labels": {"team": 5}}, "'team': 5 cannot be a label"),
    ],
)
@in_virtual_time
async def test_nor_is_a_lease_sought_that_could_never_say_so(
    clock: VirtualClock, given: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        LeaderElector(Rig(clock).api(), namespace="a", name="b", clock=clock, rng=random.Random(1), **given)


@in_virtual_time
async def test_nor_does_a_shard_wait_for_a_namespace_that_cannot_be(clock: VirtualClock) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name"):
        ShardLease(connecting(Rig(clock).api()), RING, SHARD, "Default", clock=clock)
