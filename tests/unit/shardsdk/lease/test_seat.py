"""A seat is one living process's, and says to the next that the last is dead."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardsdk.kube.server import direct_access
from shardsdk.lease import seat
from shardsdk.lease.seat import take_seat
from shardsdk.lease.shardlease import ShardLease
from tests.lease_rig import NAMESPACE, RING

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract Unix sockets are Linux's")

PROGRAM = """
import os, sys, time
from shardsdk.lease.seat import take_seat
taken = take_seat("https://here", "default", sys.argv[1])
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
        assert take_seat("https://here", "default", name) is None
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
        assert take_seat("https://here", "default", name) is None


def test_seats_differ_by_api_server_namespace_and_name(name: str) -> None:
    seats = [
        take_seat(*where)
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
    assert await instances([ShardLease(access, RING, name, NAMESPACE)]) == ["uid-2"]
