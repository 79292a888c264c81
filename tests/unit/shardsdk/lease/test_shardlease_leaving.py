"""ShardLease in virtual time: how it is left, what it refuses, and what it tells."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from shardsdk.errors import ConfigurationError, Forbidden, LeaseLost
from shardsdk.lease import pod
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.labels import INSTANCE_ANNOTATION, SHARDER_HOLDER
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.kube_configs import in_cluster, load, service_account
from tests.lease_rig import NAMESPACE, RING, SHARD, Rig, connecting, lose, stay


@in_virtual_time
async def test_it_waits_for_writes_under_way_before_it_releases(clock: VirtualClock) -> None:
    rig = Rig(clock)
    lease = rig.shard()
    held_meanwhile: list[str | None] = []

    async def settled() -> None:
        assert lease.fence.remaining() <= 0, "no further write may begin"
        await asyncio.sleep(8)
        held_meanwhile.append(rig.holder())

    lease.settle_first(settled)
    async with lease:
        await asyncio.sleep(1)
    assert held_meanwhile == [SHARD]
    assert rig.holder() == ""


@pytest.mark.parametrize("how", ["for ever", "error"])
@in_virtual_time
async def test_it_does_not_release_while_writes_may_be_under_way(
    clock: VirtualClock, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(clock)
    lease = rig.shard()

    async def settled() -> None:
        if how == "error":
            raise RuntimeError("nobody knows")
        await asyncio.Event().wait()

    lease.settle_first(settled)
    async with lease:
        await asyncio.sleep(1)
    assert rig.holder() == SHARD
    [line] = [each for each in caplog.records if "Writes may still be under way" in each.message]
    assert (line.exc_info is not None) is (how == "error"), "a stack for what nobody expects, a line for the rest"


@in_virtual_time
async def test_one_that_is_cancelled_again_while_its_writes_settle_renews_its_lease_no_more(
    clock: VirtualClock,
) -> None:
    """Nobody works under it, so another shard is to have its objects soon."""
    rig = Rig(clock)
    lease = rig.shard()

    async def settled() -> None:
        await asyncio.Event().wait()

    lease.settle_first(settled)
    task = asyncio.create_task(stay(lease))
    for _ in range(2):
        await asyncio.sleep(5)
        task.cancel()
    await asyncio.wait((task,))
    left = rig.lease()
    await asyncio.sleep(60)
    assert rig.lease() == left
    assert rig.holder() == SHARD, "a write may still be under way: it runs out"


@in_virtual_time
async def test_a_release_that_fails_at_first_is_tried_again(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api = rig.api()
    async with rig.shard(api):
        await asyncio.sleep(1)
        api.fault = Fault.UNANSWERED
        asyncio.get_running_loop().call_later(4, setattr, api, "fault", Fault.NONE)
    assert rig.holder() == ""


@in_virtual_time
async def test_without_an_api_server_it_ends_when_its_hold_would(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api = rig.api()
    async with rig.shard(api):
        api.fault = Fault.REFUSED
        began = clock.monotonic()
    assert clock.monotonic() - began <= 14
    assert rig.holder() == SHARD


@in_virtual_time
async def test_a_restart_grace_keeps_the_lease_for_the_next_of_its_name(clock: VirtualClock) -> None:
    rig = Rig(clock)
    async with rig.shard(restart_grace_seconds=60):
        pass
    lease = rig.lease()
    assert lease is not None
    assert (lease.holder, lease.instance, lease.spec.lease_duration_seconds) == (SHARD, "", 60)
    began = clock.monotonic()
    async with rig.shard(instance="uid-2"):
        assert clock.monotonic() - began < 0.1


@in_virtual_time
async def test_giving_up_while_waiting_leaves_the_other_alone(clock: VirtualClock) -> None:
    rig = Rig(clock)
    async with rig.shard(instance="uid-1"):
        task = asyncio.create_task(stay(rig.shard(instance="uid-2")))
        await asyncio.sleep(30)
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled()
        await asyncio.sleep(30)
        assert rig.holder() == SHARD


@in_virtual_time
async def test_giving_up_while_the_lease_is_being_created_leaves_none_in_our_name(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api = rig.api()
    api.delay = lambda: 0.5
    task = asyncio.create_task(stay(rig.shard(api)))
    await rig.until(lambda: rig.holder() == SHARD)
    task.cancel()
    await asyncio.wait((task,))
    assert rig.holder() == ""


@in_virtual_time
async def test_a_second_cancellation_ends_it_at_once(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api = rig.api()

    async def work() -> None:
        async with rig.shard(api):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await rig.until(lambda: rig.holder() == SHARD)
    api.fault = Fault.LOST
    task.cancel()
    await asyncio.sleep(1)
    assert not task.done()
    task.cancel()
    await asyncio.sleep(0.1)
    assert task.cancelled()


@in_virtual_time
async def test_an_api_server_that_is_not_there_yet_is_waited_for(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="shardsdk.lease")
    rig = Rig(clock)
    api = rig.api()
    api.fault = Fault.REFUSED
    asyncio.get_running_loop().call_later(60, setattr, api, "fault", Fault.NONE)
    async with rig.shard(api):
        assert 60 <= clock.monotonic() <= 63
    assert sum("connection refused" in record.getMessage() for record in caplog.records) == 1


@in_virtual_time
async def test_a_missing_permission_is_waited_for_and_named(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="shardsdk.lease")
    rig = Rig(clock)
    api = rig.api()
    api.error = Forbidden("may not get leases", status=403)
    asyncio.get_running_loop().call_later(60, setattr, api, "error", None)
    async with rig.shard(api):
        pass
    assert caplog.text.count("Could not acquire the lease default/shard-a yet: may not get leases") == 1


@in_virtual_time
async def test_a_lease_held_for_another_ring_by_this_process_is_an_error(clock: VirtualClock) -> None:
    rig = Rig(clock)
    async with rig.shard():
        other = ShardLease(
            connecting(rig.api()), "other", SHARD, NAMESPACE, instance="uid-1", threaded=False, clock=clock
        )
        with pytest.raises(ConfigurationError, match="names of their own"):
            await other.__aenter__()


@in_virtual_time
async def test_a_keeper_that_fails_costs_the_lease(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api = rig.api()
    lease = rig.shard(api)

    async def work() -> None:
        api.error = ZeroDivisionError("a bug")

    assert "the keeper of the lease default/shard-a failed: ZeroDivisionError" in await lose(lease, work)
    assert lease.fence.remaining() <= 0


@in_virtual_time
async def test_a_body_that_does_not_end_is_reported_when_its_hold_has(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api = rig.api()
    called: list[float] = []
    lease = rig.shard(api, on_deadline=lambda: called.append(clock.monotonic()))
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async def work() -> None:
        async with lease:
            api.fault = Fault.REFUSED
            await stubborn()

    task = asyncio.create_task(work())
    await rig.until(lambda: bool(called))
    assert called == [pytest.approx(lease.fence.ends_at)]
    release.set()
    with pytest.raises(LeaseLost):
        await task
    assert len(called) == 1


@in_virtual_time
async def test_a_body_that_ends_in_time_is_not_reported(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api = rig.api()
    called: list[float] = []

    async def work() -> None:
        api.fault = Fault.REFUSED

    await lose(rig.shard(api, on_deadline=lambda: called.append(0)), work)
    assert not called


@pytest.mark.parametrize(("fenced", "promised"), [(True, True), (False, False), (None, False)])
@in_virtual_time
async def test_the_lease_promises_a_fence_only_when_there_is_one(
    clock: VirtualClock, fenced: bool | None, promised: bool
) -> None:
    rig = Rig(clock)
    async with rig.shard(fenced=fenced):
        await asyncio.sleep(5)
        lease = rig.lease()
        assert lease is not None
        assert lease.fenced is promised


@in_virtual_time
async def test_it_is_entered_once(clock: VirtualClock) -> None:
    lease = Rig(clock).shard()
    async with lease:
        with pytest.raises(RuntimeError, match="once"):
            await lease.__aenter__()


@in_virtual_time
async def test_a_timeout_inside_the_body_is_the_bodys_own(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api = rig.api()

    async def work() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        api.fault = Fault.REFUSED
        async with asyncio.timeout(60):
            await asyncio.Event().wait()

    await lose(rig.shard(api), work)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@in_virtual_time
async def test_losing_the_lease_inside_a_task_group_ends_the_group(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api = rig.api()
    ended: list[str] = []

    async def child() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("child")

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
            api.fault = Fault.REFUSED

    await lose(rig.shard(api), work)
    assert ended == ["child"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("Upper", "lower-case"),
        ("x" * 64, "63"),
        ("a_b", "lower-case"),
        ("-a", "beginning"),
        (SHARDER_HOLDER, "sharder"),
    ],
)
def test_a_name_that_cannot_be_a_shards_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        ShardLease(lambda: None, RING, name, NAMESPACE)  # type: ignore[arg-type, return-value]


def test_defaults_come_from_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "team")
    monkeypatch.setenv("POD_UID", "uid-7")
    monkeypatch.setattr(pod, "hostname", lambda: "web-0")
    lease = ShardLease(lambda: None, RING)  # type: ignore[arg-type, return-value]
    assert (lease.name, lease.namespace) == ("web-0", "team")
    assert lease.instance.startswith("uid-7-")


async def test_the_namespace_is_that_of_the_pods_service_account_unless_somebody_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = await load(tmp_path, environ=in_cluster(service_account(tmp_path / "account")))
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    assert ShardLease(access, RING, SHARD).namespace == "pods-namespace"
    monkeypatch.setenv("POD_NAMESPACE", "team")
    assert ShardLease(access, RING, SHARD).namespace == "team"
    assert ShardLease(access, RING, SHARD, "given").namespace == "given"


def test_a_host_whose_name_no_shard_can_have_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod, "hostname", lambda: "My_Laptop")
    with pytest.raises(ConfigurationError, match=r"this host's name .* give it one: 'My_Laptop' .* lower-case"):
        ShardLease(lambda: None, RING, namespace=NAMESPACE)  # type: ignore[arg-type, return-value]


def test_outside_a_pod_each_process_is_an_instance_of_its_own_and_the_namespace_must_be_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    monkeypatch.delenv("POD_UID", raising=False)
    first, second = (ShardLease(lambda: None, RING, SHARD, NAMESPACE, rng=random.Random(n)) for n in (1, 2))  # type: ignore[arg-type, return-value]
    assert first.instance != second.instance
    with pytest.raises(ConfigurationError, match="POD_NAMESPACE"):
        ShardLease(lambda: None, RING, SHARD)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("seconds", [-1, 1.5, 3601])
def test_a_grace_is_whole_seconds_and_no_longer_than_a_lease_may_be(seconds: int) -> None:
    with pytest.raises(ConfigurationError, match="whole seconds, 0 to 3600"):
        ShardLease(lambda: None, RING, SHARD, NAMESPACE, restart_grace_seconds=seconds)  # type: ignore[arg-type, return-value]


def test_the_lease_of_a_shard_lasts_an_hour_at_most() -> None:
    ShardLease(lambda: None, RING, SHARD, NAMESPACE, timings=LeaseTimings.of(3600))  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigurationError, match=r"lease_duration is 3601 s.*use 3600 or less"):
        ShardLease(lambda: None, RING, SHARD, NAMESPACE, timings=LeaseTimings.of(3601))  # type: ignore[arg-type, return-value]


@in_virtual_time
async def test_the_instance_annotation_tells_processes_apart(clock: VirtualClock) -> None:
    rig = Rig(clock)
    async with rig.shard(instance="uid-9"):
        lease = rig.lease()
        assert lease is not None
        assert lease.instance == "uid-9"
        assert (lease.metadata.annotations or {})[INSTANCE_ANNOTATION] == f"uid-9@{lease.spec.renew_time}"
