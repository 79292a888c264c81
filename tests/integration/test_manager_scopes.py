"""Elected and sharded controllers in processes on a real control plane."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from localcluster.ports import reserve_port
from shardsdk.process.process import ExitCode
from tests.integration.scoped_manager import BACKLOG, DISK, ELECTION, NOTED, TIMES
from tests.integration.shard_stage import (
    CONFIGMAPS,
    LEASES,
    ROOT,
    SECRETS,
    Object,
    ShardProcess,
    Stage,
    set_shard_stage,
)

BINDINGS = "rbac.authorization.k8s.io/v1/clusterrolebindings"
LEADS = f'leader_election_master_status{{name="{ELECTION}"}} 1.0'
FOLLOWS = f'leader_election_master_status{{name="{ELECTION}"}} 0.0'


@pytest_asyncio.fixture
async def stage(
    control_plane: ControlPlane, admin: AdminClient, namespace: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    async with set_shard_stage(control_plane, admin, namespace, tmp_path) as made:
        yield made


async def start(stage: Stage, name: str, mode: str = "elected", *arguments: str) -> ShardProcess:
    port = reserve_port()
    stage.ports.append(port)
    address = f"127.0.0.1:{port.number}"
    shard = await stage.start(
        "tests.integration.scoped_manager", mode, "--address", address, *arguments, name=name
    )  # fmt: skip
    shard.port = port.number
    return shard


async def until_noted(stage: Stage, secret: str, by: str, times: int = 1) -> Object:
    def noted(thing: Object) -> bool:
        annotations: dict[str, Any] = thing["metadata"].get("annotations") or {}
        return annotations.get(NOTED) == by and int(annotations[TIMES]) >= times

    return await stage.until(SECRETS, secret, noted)


async def until_holder(stage: Stage, holder: str, lease: str = ELECTION) -> Object:
    return await stage.until(LEASES, lease, lambda thing: (thing["spec"].get("holderIdentity") or "") == holder)


async def until_told(stage: Stage, *messages: str) -> None:
    """Wait until Events of the election say so."""

    def told(events: list[Object]) -> bool:
        return set(messages) <= {each["message"] for each in events if each["reason"] == "LeaderElection"}

    await stage.admin.eventually("v1/events", told, stage.namespace)


async def lead_and_follow(stage: Stage) -> tuple[ShardProcess, ShardProcess]:
    first = await start(stage, "one")
    await until_holder(stage, "one")
    second = await start(stage, "two")
    await first.until("/metrics", LEADS)
    await second.until_ready()
    await second.until("/metrics", FOLLOWS)
    return first, second


async def test_one_replica_works_and_another_takes_over_when_it_is_killed(stage: Stage) -> None:
    await stage.secret("a", shard=None)
    first, second = await lead_and_follow(stage)
    await until_noted(stage, "a", "one")
    await until_told(stage, "one became leader")
    first.send(signal.SIGKILL)
    await first.exit_code()
    await until_noted(stage, "a", "two", times=2)
    await second.until("/metrics", LEADS)
    lease = await until_holder(stage, "two")
    assert lease["spec"]["leaseTransitions"] >= 1
    second.send(signal.SIGTERM)
    assert await second.exit_code() == ExitCode.OK
    await until_holder(stage, "")
    await until_told(stage, "one became leader", "two became leader", "two stopped leading")


async def test_a_leader_that_stops_in_order_hands_over_at_once(stage: Stage) -> None:
    await stage.secret("a", shard=None)
    first, second = await lead_and_follow(stage)
    first.send(signal.SIGTERM)
    assert await first.exit_code() == ExitCode.OK
    await until_holder(stage, "two")
    await stage.secret("late", shard=None)
    await until_noted(stage, "late", "two")
    second.send(signal.SIGTERM)
    assert await second.exit_code() == ExitCode.OK


async def test_a_replica_that_waits_ends_at_a_signal(stage: Stage) -> None:
    _, second = await lead_and_follow(stage)
    second.send(signal.SIGTERM)
    assert await second.exit_code() == ExitCode.OK
    assert (await stage.admin.get(LEASES, ELECTION, stage.namespace))["spec"]["holderIdentity"] == "one"


async def test_a_lost_election_ends_the_process_non_zero(stage: Stage) -> None:
    first = await start(stage, "one")
    await until_holder(stage, "one")
    await first.until("/metrics", LEADS)
    await stage.take_lease(ELECTION)
    assert await first.exit_code() == ExitCode.LEASE_LOST
    assert (await stage.admin.get(LEASES, ELECTION, stage.namespace))["spec"]["holderIdentity"] != "one"


async def test_a_leader_that_blocks_its_loop_ends_and_another_leads(stage: Stage) -> None:
    first = await start(stage, "one")
    await until_holder(stage, "one")
    await stage.secret("block", shard=None)
    assert await first.exit_code() == ExitCode.LEASE_LOST
    assert "process ends at once" in stage.log("one")


async def test_a_leader_that_slept_longer_than_its_lease_writes_nothing_any_more(stage: Stage) -> None:
    first, _ = await lead_and_follow(stage)
    first.send(signal.SIGSTOP)
    await until_holder(stage, "two")
    await stage.secret("meanwhile", shard=None)
    await until_noted(stage, "meanwhile", "two")
    first.send(signal.SIGCONT)
    assert await first.exit_code() == ExitCode.LEASE_LOST
    noted = await stage.admin.get(SECRETS, "meanwhile", stage.namespace)
    assert noted["metadata"]["annotations"][NOTED] == "two"


async def test_a_shard_may_be_a_candidate_as_well_and_ends_with_either_lease(stage: Stage) -> None:
    await stage.secret("mine", shard="one")
    await stage.secret("other", shard="two")
    first = await start(stage, "one", "mixed")
    await until_noted(stage, "mine", "one")
    await until_noted(stage, "other", "one")
    await stage.until(CONFIGMAPS, "mine-made", lambda thing: True)
    assert await stage.admin.find(CONFIGMAPS, "other-made", stage.namespace) is None
    await first.until_ready()
    await stage.take_lease(ELECTION)
    assert await first.exit_code() == ExitCode.LEASE_LOST
    await until_holder(stage, "", "one")


async def test_the_same_when_the_shards_lease_is_lost(stage: Stage) -> None:
    first = await start(stage, "one", "mixed")
    await until_holder(stage, "one")
    await first.until_ready()
    await stage.take_lease("one")
    assert await first.exit_code() == ExitCode.LEASE_LOST
    await until_holder(stage, "")


async def test_a_users_http_server_pushes_requests(stage: Stage) -> None:
    await stage.secret("a", shard=None)
    port = reserve_port()
    stage.ports.append(port)
    first = await start(stage, "one", "elected", "--push-port", str(port.number))
    await until_noted(stage, "a", "one")
    async with aiohttp.ClientSession() as session:
        answer = await session.post(f"http://127.0.0.1:{port.number}/push/a")
        assert answer.status == 202
    await until_noted(stage, "a", "one", times=2)
    first.send(signal.SIGTERM)
    assert await first.exit_code() == ExitCode.OK


async def until_objects_may_be_seen(stage: Stage, allowed: bool) -> None:
    """Wait until the API server knows whether the shards may list objects."""
    user = f"system:serviceaccount:{stage.namespace}:{stage.namespace}-shard"
    await stage.admin.until_allowed("list", "v1/secrets", user=user, groups=(), allowed=allowed)


async def test_readyz_names_the_lease_and_the_caches_while_they_are_missing(stage: Stage) -> None:
    held = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}
    await stage.admin.create(LEASES, {"metadata": {"name": "one"}, "spec": held}, stage.namespace)
    first = await start(stage, "one", "mixed")
    await first.until("/readyz", "[-]lease failed: waits for the lease", status=500)
    await first.until("/readyz", "[-]caches failed: not started", status=500)

    rights = await stage.admin.get(BINDINGS, f"sharding:objects:{stage.namespace}:{stage.namespace}-shard")
    await stage.admin.delete(BINDINGS, f"sharding:objects:{stage.namespace}:{stage.namespace}-shard")
    await until_objects_may_be_seen(stage, False)
    released = {"holderIdentity": "", "leaseDurationSeconds": 1}
    await stage.admin.patch(LEASES, "one", {"spec": released}, stage.namespace)
    await first.until("/readyz/lease", "ok")
    await first.until("/readyz", "forbidden", status=500)
    status, page = await first.ask("/readyz")
    assert status == 500
    lease, caches, *others = page.splitlines()
    assert lease == "[+]lease ok"
    assert caches.startswith("[-]caches failed: ")
    assert others == ["[+]stopping ok", "readyz check failed"]
    assert await first.ask("/healthz") == (200, "ok")

    kept = {"metadata": {"name": rights["metadata"]["name"]}, **{key: rights[key] for key in ("roleRef", "subjects")}}
    await stage.admin.create(BINDINGS, kept)
    await first.until_ready()
    assert await first.ask("/readyz/caches") == (200, "ok")
    first.send(signal.SIGTERM)
    assert await first.exit_code() == ExitCode.OK


async def test_a_users_own_checks_are_asked_as_well(stage: Stage, tmp_path: Path) -> None:
    first = await start(stage, "one", "elected", "--checks", str(tmp_path))
    await first.until_ready()
    for asked, other, name in (("/readyz", "/healthz", BACKLOG), ("/healthz", "/readyz", DISK)):
        await first.until(f"{asked}?verbose", f"[+]{name} ok")
        (tmp_path / name).write_text("too full")
        await first.until(asked, f"[-]{name} failed: too full", status=500)
        assert (await first.ask(f"{asked}/{name}"))[0] == 500
        assert await first.ask(other) == (200, "ok")
        (tmp_path / name).unlink()
        await first.until(asked, "ok")
        assert await first.ask(f"{asked}/{name}") == (200, "ok")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--address", "8080"], 'is not "host:port"'), (["--kubeconfig", "/does/not/exist"], "/does/not/exist")],
)
async def test_a_configuration_that_cannot_work_is_said_so(stage: Stage, arguments: list[str], message: str) -> None:
    given = ["--ring", "r", "--name", "one", "--namespace", "default", "--kubeconfig", str(stage.kubeconfig)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.scoped_manager", "elected", *given, "--address", "127.0.0.1:0",
        *arguments, cwd=ROOT, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    stage.started.append(process)
    _, printed = await process.communicate()
    assert process.returncode == ExitCode.CONFIGURATION
    assert message in printed.decode()
    assert "Traceback" not in printed.decode()
