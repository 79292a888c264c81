"""Shards as processes on a real control plane, under the rights of rbac/shard.yaml; the labels are made by hand."""

from __future__ import annotations

import asyncio
import base64
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from examples.checksum import checksum
from localcluster import AdminClient, ControlPlane
from shardsdk.kinds import Secret
from shardsdk.process.process import ExitCode
from tests.integration.busy_shard import STARTED
from tests.integration.shard_stage import (
    CONFIGMAPS,
    LEASES,
    PATIENCE_SECONDS,
    RING,
    ROOT,
    SECRETS,
    Object,
    Stage,
    set_shard_stage,
)


@pytest_asyncio.fixture
async def stage(
    control_plane: ControlPlane, admin: AdminClient, namespace: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    async with set_shard_stage(control_plane, admin, namespace, tmp_path) as made:
        yield made


#: Of shards whose lease is to run out, or that are to outlast one.
SHORT = ("--lease-seconds", "5")


def shard_of(thing: Object) -> str | None:
    value: str | None = (thing["metadata"].get("labels") or {}).get(RING.shard)
    return value


def secret_with(data: dict[str, str]) -> Secret:
    return Secret("", data={key: base64.b64decode(value) for key, value in data.items()})


def version(thing: Object) -> int:
    return int(thing["metadata"]["resourceVersion"])


async def test_the_example_reconciles_its_own_secrets_and_labels_what_it_makes(stage: Stage) -> None:
    await stage.secret("mine", key="value")
    await stage.secret("other", shard="shard-2")
    await stage.secret("nobody", shard=None)
    await stage.start("examples.checksum")
    made = await stage.until(CONFIGMAPS, "mine-checksum", lambda thing: True)
    secret = await stage.admin.get(SECRETS, "mine", stage.namespace)
    assert made["data"]["sha256"] == checksum(secret_with(secret["data"]))
    assert made["metadata"]["ownerReferences"][0]["uid"] == secret["metadata"]["uid"]
    assert shard_of(made) == "shard-1"

    changed = await stage.admin.patch(SECRETS, "mine", {"stringData": {"key": "another"}}, stage.namespace)
    wanted = checksum(secret_with(changed["data"]))
    await stage.until(CONFIGMAPS, "mine-checksum", lambda thing: thing["data"]["sha256"] == wanted)

    await stage.admin.delete(CONFIGMAPS, "mine-checksum", stage.namespace)
    await stage.until(CONFIGMAPS, "mine-checksum", lambda thing: thing["metadata"]["uid"] != made["metadata"]["uid"])
    names = {each["metadata"]["name"] for each in await stage.admin.list(CONFIGMAPS, stage.namespace)}
    assert names - {"kube-root-ca.crt"} == {"mine-checksum"}


async def test_an_idle_object_is_given_away_at_once(stage: Stage) -> None:
    await stage.secret("mine")
    await stage.start("examples.checksum")
    await stage.until(CONFIGMAPS, "mine-checksum", lambda thing: True)
    await stage.drain("mine")
    given = await stage.until(SECRETS, "mine", lambda thing: not thing["metadata"].get("labels"))
    assert shard_of(given) is None


@pytest.mark.parametrize("behaviour", ["async", "thread"])
async def test_a_drain_is_acknowledged_only_after_the_reconcile_has_ended(stage: Stage, behaviour: str) -> None:
    shard = await stage.busy(behaviour)
    await stage.drain("work")
    await shard.until("/metrics", 'shardsdk_drains_waiting{resource="secrets"} 1.0')
    shard.gate.touch()
    given = await stage.until(SECRETS, "work", lambda thing: not thing["metadata"].get("labels"))
    done = await stage.admin.get(CONFIGMAPS, "work-done", stage.namespace)
    assert version(done) < version(given)


async def test_sigterm_lets_the_reconcile_end_and_then_releases_the_lease(stage: Stage) -> None:
    shard = await stage.busy("async")
    assert (await stage.lease())["holderIdentity"] == "shard-1"
    shard.send(signal.SIGTERM)
    await shard.until("/readyz", "stopping", status=500)
    assert (await stage.lease())["holderIdentity"] == "shard-1"
    shard.gate.touch()
    assert await shard.exit_code() == ExitCode.OK
    lease = await stage.admin.get(LEASES, "shard-1", stage.namespace)
    assert not lease["spec"].get("holderIdentity")
    assert lease["spec"]["leaseDurationSeconds"] == 1
    done = await stage.admin.get(CONFIGMAPS, "work-done", stage.namespace)
    assert version(done) < version(lease)


async def test_the_second_signal_ends_the_process_at_once(stage: Stage) -> None:
    shard = await stage.busy("thread")
    shard.send(signal.SIGTERM)
    await shard.until("/readyz", "stopping", status=500)
    shard.send(signal.SIGTERM)
    assert await shard.exit_code() == 128 + signal.SIGTERM
    assert (await stage.lease())["holderIdentity"] == "shard-1"


async def test_a_function_that_never_returns_keeps_neither_process_nor_lease(stage: Stage) -> None:
    shard = await stage.busy("thread", "--grace-seconds", "0.5")
    shard.send(signal.SIGTERM)
    assert await shard.exit_code() == ExitCode.STUCK
    # Not released: the lease runs out, since its work may not have ended.
    assert (await stage.lease())["holderIdentity"] == "shard-1"


@pytest.mark.parametrize("behaviour", ["async", "thread", "block"])
async def test_a_lost_lease_ends_the_process_without_a_further_write(stage: Stage, behaviour: str) -> None:
    shard = await stage.busy(behaviour, *SHORT)
    await stage.take_lease()
    assert await shard.exit_code() == ExitCode.LEASE_LOST
    shard.gate.touch()
    assert await stage.admin.find(CONFIGMAPS, "work-done", stage.namespace) is None
    assert (await stage.lease())["holderIdentity"] == "shardlease-controller"


async def test_a_process_that_slept_longer_than_its_lease_writes_nothing_any_more(stage: Stage) -> None:
    shard = await stage.busy("write", *SHORT)
    count = await stage.until(
        CONFIGMAPS, "work-count", lambda thing: int((thing.get("data") or {"count": 0})["count"]) > 10
    )
    shard.send(signal.SIGSTOP)
    await stage.take_lease()
    await asyncio.sleep(5.5)  # longer than its lease
    asleep = await stage.admin.get(CONFIGMAPS, "work-count", stage.namespace)
    assert version(asleep) >= version(count)
    shard.send(signal.SIGCONT)
    assert await shard.exit_code() == ExitCode.LEASE_LOST
    awake = await stage.admin.get(CONFIGMAPS, "work-count", stage.namespace)
    assert version(awake) == version(asleep)


async def test_a_blocked_event_loop_loses_no_lease_and_shows_in_healthz(stage: Stage) -> None:
    shard = await stage.busy("block", *SHORT)
    await shard.until("/healthz", "[-]main-loop failed: the event loop has been blocked", status=500)
    assert (await stage.lease())["holderIdentity"] == "shard-1"
    shard.gate.touch()
    await stage.until(CONFIGMAPS, "work-done", lambda thing: True)
    await shard.until("/healthz", "ok")
    shard.send(signal.SIGTERM)
    assert await shard.exit_code() == ExitCode.OK


async def test_a_shard_waits_while_another_holds_its_lease(stage: Stage) -> None:
    first = await stage.busy("async")
    second = await stage.start("examples.checksum")
    await stage.secret("more")
    await stage.until(SECRETS, "more", lambda thing: STARTED in (thing["metadata"].get("annotations") or {}))
    assert await stage.admin.find(CONFIGMAPS, "more-checksum", stage.namespace) is None
    first.gate.touch()
    first.send(signal.SIGTERM)
    assert await first.exit_code() == ExitCode.OK
    await stage.until(CONFIGMAPS, "more-checksum", lambda thing: True)
    second.send(signal.SIGTERM)
    assert await second.exit_code() == ExitCode.OK


async def test_sigterm_while_waiting_for_the_lease_ends_the_wait(stage: Stage) -> None:
    spec = {"holderIdentity": "shardlease-controller", "leaseDurationSeconds": 60}
    await stage.admin.create(LEASES, {"metadata": {"name": "shard-1"}, "spec": spec}, stage.namespace)
    shard = await stage.start("examples.checksum", "--health", "127.0.0.1:0")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "Waiting for the" not in stage.log():
            await asyncio.sleep(0.02)
    shard.send(signal.SIGTERM)
    assert await shard.exit_code() == ExitCode.OK


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kubeconfig", "/does/not/exist"], "/does/not/exist"),
        (["--ring", "a" * 64], "use 1 to 63"),
    ],
)
async def test_a_configuration_that_cannot_work_is_said_so(stage: Stage, arguments: list[str], message: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "examples.checksum", "--ring", RING.ring, "--name", "shard-1", "--namespace", "default",
        "--kubeconfig", str(stage.kubeconfig), *arguments, cwd=ROOT, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    stage.started.append(process)
    _, printed = await process.communicate()
    assert process.returncode == ExitCode.CONFIGURATION
    assert message in printed.decode()
    assert "Traceback" not in printed.decode()


async def test_an_occupied_port_is_said_so(stage: Stage) -> None:
    shard = await stage.busy("async")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "examples.checksum", "--ring", RING.ring, "--name", "shard-2", "--namespace",
        stage.namespace, "--kubeconfig", str(stage.kubeconfig), "--health", f"127.0.0.1:{shard.port}", cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    stage.started.append(process)
    _, printed = await process.communicate()
    assert process.returncode == ExitCode.CONFIGURATION
    assert "another process does" in printed.decode()
    assert "--health or health_address" in printed.decode()
