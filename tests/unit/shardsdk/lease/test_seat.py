"""A seat is one living process's, and says to the next that the last is dead."""

from __future__ import annotations

import asyncio
import errno
import gc
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.kube.server import direct_access
from shardsdk.lease import seat
from shardsdk.lease.claim import Claim, render_create
from shardsdk.lease.incarnation import Incarnation
from shardsdk.lease.seat import SeatTaken, instance_in_pod, take_seat
from shardsdk.lease.shardlease import LeaseState, ShardLease
from shardsdk.protocol.leases import RELEASED_DURATION_SECONDS
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.lease_rig import NAMESPACE, RING, Rig, connecting

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract Unix sockets are Linux's")

PROGRAM = """
import os, sys, time
from shardsdk.lease.seat import take_seat
taken = take_seat("https://here", "default", sys.argv[1], os.environ.get("POD_UID", ""))
print(taken.instance if taken else "none", flush=True)
if len(sys.argv) > 2 and os.fork():
    os._exit(0)
sys.stdin.read()
"""


@contextmanager
def sitting(name: str, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that tries to take a seat; which instance it is."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, name, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def name() -> str:
    return f"shard-{uuid.uuid4()}"


def test_a_process_that_is_killed_is_succeeded_by_the_next_under_its_instance(name: str) -> None:
    with sitting(name) as (process, instance):
        assert instance.startswith("seat-")
        with pytest.raises(SeatTaken):
            take_seat("https://here", "default", name)
        process.kill()
        process.wait()
        mine = take_seat("https://here", "default", name)
        assert mine is not None
        assert mine.instance == instance
        mine.give_up()


def test_a_process_whose_child_lives_on_is_not_dead_yet(name: str) -> None:
    """The child has its connections as well."""
    with sitting(name, "fork") as (process, instance):
        process.wait()
        assert instance.startswith("seat-")
        with pytest.raises(SeatTaken):
            take_seat("https://here", "default", name)


def test_a_container_that_restarts_in_its_pod_is_the_same_instance_and_a_second_one_beside_it_is_not(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_UID", "uid-1")
    with sitting(name) as (process, instance):
        assert instance.startswith("uid-1-")
        with pytest.raises(SeatTaken):
            take_seat("https://here", "default", name, "uid-1")
        for uid in ("uid-2", ""):  # on the network of its host there are other pods, and processes in none
            other = take_seat("https://here", "default", name, uid)
            assert other is not None
            other.give_up()
        process.kill()
        process.wait()
        mine = take_seat("https://here", "default", name, "uid-1")
        assert mine is not None
        assert mine.instance == instance
        mine.give_up()


@pytest.mark.parametrize("uid", ["", "uid-1"])
def test_seats_differ_by_api_server_namespace_and_name(name: str, uid: str) -> None:
    """And so do their instances, which two may not say at once: one server may be reached by two URLs."""
    seats = [
        take_seat(*where, uid)
        for where in (
            ("https://here", "default", name),
            ("https://there", "default", name),
            ("https://here", "other", name),
            ("https://here", "default", f"{name}-2"),
        )
    ]
    instances = {each.instance for each in seats if each is not None}
    for each in seats:
        assert each is not None
        each.give_up()
    assert len(instances) == 4


@pytest.mark.parametrize("missing", ["_BOOT_ID", "_NETWORK"])
def test_where_the_kernel_does_not_say_which_it_is_there_is_no_seat(
    name: str, missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(seat, missing, tmp_path / "absent")
    assert take_seat("https://here", "default", name) is None


def test_another_boot_and_another_network_are_another_instance(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    instances = set()
    (tmp_path / "boot").write_text("another")
    (tmp_path / "network").touch()
    for changes in ({}, {"_BOOT_ID": tmp_path / "boot"}, {"_NETWORK": tmp_path / "network"}):
        with monkeypatch.context() as patch:
            for what, path in changes.items():
                patch.setattr(seat, what, path)
            taken = take_seat("https://here", "default", name)
            assert taken is not None
            taken.give_up()
            instances.add(taken.instance)
    assert len(instances) == 3


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[seat.Seat]]:
    """The seats that this process keeps until it ends: here, until the end of the test."""
    seats: list[seat.Seat] = []
    monkeypatch.setattr(seat, "_KEPT", seats)
    yield seats
    for each in seats:
        each.give_up()


def test_a_seat_that_is_kept_is_nobody_elses_as_long_as_the_process_lives(name: str, kept: list[seat.Seat]) -> None:
    taken = take_seat("https://here", "default", name)
    assert taken is not None
    taken.keep()
    del taken
    gc.collect()
    with pytest.raises(SeatTaken):
        take_seat("https://here", "default", name)


def reached(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A server that is found at every URL."""
    rig = Rig(clock)
    rig.server.create(CLUSTERRINGS, {"metadata": {"name": RING}, "spec": {}})
    monkeypatch.setattr("shardsdk.kube.client.Client", lambda *_, **__: connecting(rig.api())())
    return rig


def shard_of(rig: Rig, name: str, url: str = "https://here", instance: str | None = None) -> ShardLease:
    access, rng = direct_access(url), random.Random(1)
    return ShardLease(
        access, RING, name, NAMESPACE, instance=instance, clock=rig.clock, rng=rng, threaded=False, ranges=True
    )


@pytest.mark.parametrize("uid", ["", "uid-1"])
@pytest.mark.parametrize("writes", ["settled", "unsettled", "in doubt"])
@in_virtual_time
async def test_a_shard_whose_writes_may_still_be_executed_has_no_successor_in_its_process(
    clock: VirtualClock, writes: str, uid: str, name: str, kept: list[seat.Seat], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successor in its seat would go on with the lease at once."""
    monkeypatch.setenv("POD_UID", uid)
    shard = partial(shard_of, reached(clock, monkeypatch), name)

    async def settled() -> None:
        if writes == "in doubt":
            raise RuntimeError("nobody knows")
        if writes == "unsettled":
            await asyncio.Event().wait()

    first, second = shard(), shard()
    first.settle_first(settled)
    async with first:
        assert first.instance.startswith(f"{uid}-" if uid else "seat-")
    async with second:
        assert (second.instance == first.instance) is (writes == "settled")


async def test_a_twin_on_the_same_machine_is_another_instance(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_UID", raising=False)
    access = direct_access("http://127.0.0.1:1")  # nobody answers: they wait for their lease

    async def enter(lease: ShardLease) -> None:
        async with lease:
            raise AssertionError("nobody answers")

    async def instances(leases: list[ShardLease]) -> list[str]:
        tasks = [asyncio.create_task(enter(lease)) for lease in leases]
        await asyncio.sleep(0)
        found = [lease.instance for lease in leases]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return found

    first, second = await instances([ShardLease(access, RING, name, NAMESPACE) for _ in range(2)])
    assert first.startswith("seat-")
    assert not second.startswith("seat-")
    assert await instances([ShardLease(access, RING, name, NAMESPACE)]) == [first], "it was given up"
    given = ShardLease(access, RING, name, NAMESPACE, instance="uid-1")
    assert await instances([given]) == ["uid-1"]
    monkeypatch.setenv("POD_UID", "uid-2")
    for _ in range(2):  # the second time as a container that has restarted
        first, second = await instances([ShardLease(access, RING, name, NAMESPACE) for _ in range(2)])
        assert first.startswith("uid-2-")
        assert not second.startswith("uid-")


@pytest.mark.parametrize("forked", [False, True])
@in_virtual_time
async def test_of_two_workers_of_a_pod_one_has_the_lease_until_it_ends(
    clock: VirtualClock, forked: bool, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a server with two of them, of two containers, or of two managers in one process."""
    monkeypatch.setenv("POD_UID", "uid-1")
    rig = Rig(clock)

    def shard() -> ShardLease:
        return ShardLease(connecting(rig.api()), RING, name, NAMESPACE, clock=clock, threaded=False)

    one, other = shard(), shard()
    if forked:  # with all that was loaded before
        monkeypatch.setattr("os.getpid", lambda: -1)
    async with one:
        assert one.instance.startswith("uid-1-")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60), other:
                raise AssertionError("both have it")
        assert one.state is LeaseState.HELD
        assert "run one worker of a name, or give each a shard name" in caplog.text
    async with shard() as again:
        assert again.instance == one.instance


@pytest.mark.parametrize("end", ["in order", "killed"])
@in_virtual_time
async def test_a_worker_that_waits_has_the_lease_and_the_seat_once_the_first_is_gone(
    clock: VirtualClock, end: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that whoever is started after it goes on at once, too."""
    monkeypatch.setenv("POD_UID", "uid-1")
    rig = reached(clock, monkeypatch)
    with sitting(name) as (first, instance):
        held = Claim(NAMESPACE, name, name, 600, instance=instance, ring=RING)
        rig.server.create(LEASES, render_create(held, clock.now()))
        waiting, ended = shard_of(rig, name), asyncio.Event()

        async def work() -> None:
            async with waiting:
                await ended.wait()

        working = asyncio.create_task(work())
        await asyncio.sleep(60)
        assert waiting.state is LeaseState.WAITING
        assert waiting.instance != instance
        first.kill()
        first.wait()
        if end == "in order":
            rig.meddle({"spec": {"holderIdentity": "", "leaseDurationSeconds": RELEASED_DURATION_SECONDS}}, name)
        await rig.until(lambda: waiting.state is LeaseState.HELD, 5)
        lease = rig.lease(name)
        assert lease is not None
        assert (waiting.instance, lease.instance) == (instance, instance)
        with pytest.raises(SeatTaken):
            take_seat("https://here", NAMESPACE, name, "uid-1")
        ended.set()
        await working
    free = take_seat("https://here", NAMESPACE, name, "uid-1")
    assert free is not None
    free.give_up()


@in_virtual_time
async def test_a_worker_that_waits_no_more_takes_no_seat(
    clock: VirtualClock, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keeper may look at the Lease once more, in a thread."""
    first = take_seat("https://here", NAMESPACE, name)
    assert first is not None
    incarnation = Incarnation(RING, name, NAMESPACE, "https://here", None, random.Random(1))
    monkeypatch.delenv("POD_UID", raising=False)
    incarnation.begin()
    assert not incarnation.succeed()
    incarnation.end(settled=True)
    first.give_up()
    assert not incarnation.succeed()
    again = take_seat("https://here", NAMESPACE, name)
    assert again is not None
    again.give_up()


@pytest.mark.parametrize("other", ["another URL", "another source"])
@in_virtual_time
async def test_of_two_processes_of_a_pod_that_reach_one_server_otherwise_one_has_the_lease(
    clock: VirtualClock, other: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_UID", "uid-1")
    rig = reached(clock, monkeypatch)
    second = (
        shard_of(rig, name, "https://127.0.0.1:6443")
        if other == "another URL"
        else ShardLease(connecting(rig.api()), RING, name, NAMESPACE, clock=clock, threaded=False)
    )
    async with shard_of(rig, name) as first:
        assert second.instance != first.instance
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60), second:
                raise AssertionError("both have it")
        assert first.state is LeaseState.HELD


@in_virtual_time
async def test_a_forked_process_of_one_that_was_given_an_instance_is_not_its_pods(
    clock: VirtualClock, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever gave one may have given the UID, to others as well."""
    monkeypatch.setenv("POD_UID", "uid-1")
    rig = reached(clock, monkeypatch)
    given = shard_of(rig, name, instance="uid-1")
    monkeypatch.setattr("os.getpid", lambda: -1)
    async with given:
        assert given.instance.startswith("seat-")
        free = take_seat("https://here", NAMESPACE, name, "uid-1")
        assert free is not None, "it is for those that were given none"
        free.give_up()


@in_virtual_time
async def test_a_manager_of_another_ring_is_told_to_take_another_name_and_not_to_wait(
    clock: VirtualClock, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("POD_UID", "uid-1")
    rig = reached(clock, monkeypatch)
    other = ShardLease(
        direct_access("https://here"), "other", name, NAMESPACE, clock=clock, threaded=False, ranges=True
    )
    async with shard_of(rig, name):
        with pytest.raises(ConfigurationError, match="give each ring's shards names of their own"):
            await other.__aenter__()
    assert "at work here already" not in caplog.text


@pytest.mark.parametrize("uid", ["", "uid-1"])
async def test_where_the_kernel_refuses_a_seat_nobody_passes_for_its_pods_process(
    uid: str, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("POD_UID", uid)
    incarnation = Incarnation(RING, name, NAMESPACE, "https://here", None, random.Random(1))
    with monkeypatch.context() as patch:
        no_memory = Mock(side_effect=OSError(errno.ENOMEM, "Cannot allocate memory"))
        patch.setattr(f"socket.socket.{'bind' if uid else '__init__'}", no_memory)
        assert not incarnation.begin().startswith(("uid-1", "seat-"))
        assert not incarnation.succeed()
        assert "cannot be told" in caplog.text
        assert "Cannot allocate memory" in caplog.records[-1].__dict__["error"]
    assert incarnation.succeed()
    assert incarnation.instance.startswith("uid-1-" if uid else "seat-")
    incarnation.end(settled=True)


async def test_where_there_are_no_seats_the_uid_alone_has_to_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_UID", "uid-1")
    monkeypatch.setattr("sys.platform", "darwin")
    assert take_seat("https://here", "default", name, "uid-1") is None
    incarnation = Incarnation(RING, name, NAMESPACE, None, None, random.Random(1))
    assert incarnation.begin() == incarnation.instance == instance_in_pod("", NAMESPACE, name, "uid-1")
    incarnation.end(settled=True)
