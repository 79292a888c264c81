"""Shards as processes on a real control plane, under the rights of rbac/shard.yaml; the labels are made by hand."""

from __future__ import annotations

import asyncio
import base64
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from examples.checksum import Data, checksum
from localcluster import AdminClient, ControlPlane
from localcluster.ports import ReservedPort, reserve_port
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import ObjectMeta
from shardsdk.runtime.process import ExitCode
from tests.integration.busy_shard import STARTED

ROOT = Path(__file__).parents[2]
RING = parse_ring_name("checksum")
SECRETS = "v1/secrets"
CONFIGMAPS = "v1/configmaps"
LEASES = "coordination.k8s.io/v1/leases"
Object = dict[str, Any]


class ShardProcess:
    """A shard that runs, and what a test does to it."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, gate: Path) -> None:
        self.process = process
        self.port = port
        self.gate = gate

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def exit_code(self) -> int:
        async with asyncio.timeout(30):
            return await self.process.wait()

    async def ask(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
            return answer.status, await answer.text()

    async def until(self, path: str, text: str, status: int = 200) -> None:
        """Wait until the page says so."""
        async with asyncio.timeout(30):
            while True:
                with suppress(aiohttp.ClientError):
                    found, page = await self.ask(path)
                    if found == status and text in page:
                        return
                await asyncio.sleep(0.02)

    async def until_ready(self) -> None:
        await self.until("/readyz", "ok")


class Stage:
    """A namespace, its shards' ServiceAccount, and what lives there."""

    def __init__(self, admin: AdminClient, namespace: str, kubeconfig: Path, folder: Path) -> None:
        self.admin = admin
        self.namespace = namespace
        self.kubeconfig = kubeconfig
        self.folder = folder
        self.started: list[asyncio.subprocess.Process] = []
        self.ports: list[ReservedPort] = []

    async def start(self, module: str, *arguments: str, name: str = "shard-1") -> ShardProcess:
        port = reserve_port()
        self.ports.append(port)
        gate = self.folder / f"gate-{name}"
        log = (self.folder / f"{name}.log").open("a")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments, "--ring", RING.ring, "--name", name,
            "--namespace", self.namespace, "--kubeconfig", str(self.kubeconfig), cwd=ROOT, stdout=log, stderr=log,
        )  # fmt: skip
        log.close()
        self.started.append(process)
        return ShardProcess(process, port.number, gate)

    async def busy(self, behaviour: str, *arguments: str, name: str = "shard-1") -> ShardProcess:
        """A shard that works on its first Secret until the gate is opened."""
        port = reserve_port()
        self.ports.append(port)
        gate = self.folder / f"gate-{name}"
        shard = await self.start(
            "tests.integration.busy_shard", behaviour, "--gate", str(gate), "--address", f"127.0.0.1:{port.number}",
            *arguments, name=name,
        )  # fmt: skip
        shard.port = port.number
        await self.secret("work", shard=name)
        await self.until(SECRETS, "work", lambda thing: STARTED in (thing["metadata"].get("annotations") or {}))
        return shard

    async def secret(self, name: str, shard: str | None = "shard-1", **data: str) -> Object:
        labels = {} if shard is None else {RING.shard: shard}
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        return await self.admin.create(
            SECRETS, {"metadata": {"name": name, "labels": labels}, "data": encoded}, self.namespace
        )

    async def drain(self, name: str) -> None:
        patch = {"metadata": {"labels": {RING.drain: "true"}}}
        await self.admin.patch(SECRETS, name, patch, self.namespace)

    async def until(self, resource: str, name: str, holds: Any) -> Object:
        """Wait until the object of that name is there and `holds` of it."""

        def look(objects: list[Object]) -> Object | None:
            return next((each for each in objects if each["metadata"]["name"] == name and holds(each)), None)

        return await self.admin.eventually(resource, look, self.namespace)

    async def lease(self, name: str = "shard-1") -> Object:
        spec: Object = (await self.admin.get(LEASES, name, self.namespace))["spec"]
        return spec

    async def take_lease(self, name: str = "shard-1") -> None:
        """What the sharder does with the lease of a shard that has been silent for too long."""
        spec = {"holderIdentity": "shardlease-controller", "leaseDurationSeconds": 30}
        await self.admin.patch(LEASES, name, {"spec": spec}, self.namespace)

    def log(self, name: str = "shard-1") -> str:
        return (self.folder / f"{name}.log").read_text()

    async def end(self) -> None:
        for process in self.started:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        for port in self.ports:
            port.release()


@pytest_asyncio.fixture
async def stage(
    control_plane: ControlPlane, admin: AdminClient, namespace: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    rights = (ROOT / "rbac" / "shard.yaml").read_text()
    rights = rights.replace("namespace: default", f"namespace: {namespace}").replace(
        "name: checksum", f"name: {namespace}-shard"
    )
    await control_plane.apply(stdin=rights)
    kubeconfig = await control_plane.service_account_kubeconfig(
        namespace, f"{namespace}-shard", tmp_path / "kubeconfig"
    )
    made = Stage(admin, namespace, kubeconfig, tmp_path)
    yield made
    await made.end()
    for kind in ("clusterrolebindings", "clusterroles"):
        await admin.delete(f"rbac.authorization.k8s.io/v1/{kind}", f"{namespace}-shard")


def shard_of(thing: Object) -> str | None:
    value: str | None = (thing["metadata"].get("labels") or {}).get(RING.shard)
    return value


def version(thing: Object) -> int:
    return int(thing["metadata"]["resourceVersion"])


async def test_the_example_reconciles_its_own_secrets_and_labels_what_it_makes(stage: Stage) -> None:
    await stage.secret("mine", key="value")
    await stage.secret("other", shard="shard-2")
    await stage.secret("nobody", shard=None)
    await stage.start("examples.checksum", "--lease-seconds", "2")
    made = await stage.until(CONFIGMAPS, "mine-checksum", lambda thing: True)
    secret = await stage.admin.get(SECRETS, "mine", stage.namespace)
    assert made["data"]["sha256"] == checksum(Data(ObjectMeta(), secret["data"]))
    assert made["metadata"]["ownerReferences"][0]["uid"] == secret["metadata"]["uid"]
    assert shard_of(made) == "shard-1"

    changed = await stage.admin.patch(SECRETS, "mine", {"stringData": {"key": "another"}}, stage.namespace)
    wanted = checksum(Data(ObjectMeta(), changed["data"]))
    await stage.until(CONFIGMAPS, "mine-checksum", lambda thing: thing["data"]["sha256"] == wanted)

    await stage.admin.delete(CONFIGMAPS, "mine-checksum", stage.namespace)
    await stage.until(CONFIGMAPS, "mine-checksum", lambda thing: thing["metadata"]["uid"] != made["metadata"]["uid"])
    names = {each["metadata"]["name"] for each in await stage.admin.list(CONFIGMAPS, stage.namespace)}
    assert names - {"kube-root-ca.crt"} == {"mine-checksum"}


async def test_an_idle_object_is_given_away_at_once(stage: Stage) -> None:
    await stage.secret("mine")
    await stage.start("examples.checksum", "--lease-seconds", "2")
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
    shard = await stage.busy(behaviour)
    await stage.take_lease()
    assert await shard.exit_code() == ExitCode.LEASE_LOST
    shard.gate.touch()
    assert await stage.admin.find(CONFIGMAPS, "work-done", stage.namespace) is None
    assert (await stage.lease())["holderIdentity"] == "shardlease-controller"


async def test_a_process_that_slept_longer_than_its_lease_writes_nothing_any_more(stage: Stage) -> None:
    shard = await stage.busy("write")
    count = await stage.until(
        CONFIGMAPS, "work-count", lambda thing: int((thing.get("data") or {"count": 0})["count"]) > 10
    )
    shard.send(signal.SIGSTOP)
    await stage.take_lease()
    await asyncio.sleep(2.5)  # longer than its lease of 2 s
    asleep = await stage.admin.get(CONFIGMAPS, "work-count", stage.namespace)
    assert version(asleep) >= version(count)
    shard.send(signal.SIGCONT)
    assert await shard.exit_code() == ExitCode.LEASE_LOST
    awake = await stage.admin.get(CONFIGMAPS, "work-count", stage.namespace)
    assert version(awake) == version(asleep)


async def test_a_blocked_event_loop_loses_no_lease_and_shows_in_healthz(stage: Stage) -> None:
    shard = await stage.busy("block")
    await shard.until("/healthz", "[-]main-loop failed: the event loop has been blocked", status=500)
    assert (await stage.lease())["holderIdentity"] == "shard-1"
    shard.gate.touch()
    await stage.until(CONFIGMAPS, "work-done", lambda thing: True)
    await shard.until("/healthz", "ok")
    shard.send(signal.SIGTERM)
    assert await shard.exit_code() == ExitCode.OK


async def test_a_shard_waits_while_another_holds_its_lease(stage: Stage) -> None:
    first = await stage.busy("async")
    second = await stage.start("examples.checksum", "--lease-seconds", "2")
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
    async with asyncio.timeout(30):
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
    assert "free the port" in printed.decode()
