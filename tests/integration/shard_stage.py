"""Programs of the SDK as processes on a real control plane, under the rights of rbac/shard.yaml."""

from __future__ import annotations

import asyncio
import base64
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from localcluster import AdminClient, ControlPlane
from localcluster.ports import ReservedPort, reserve_port
from shardsdk.protocol.labels import parse_ring_name
from tests.integration.busy_shard import STARTED

ROOT = Path(__file__).parents[2]
RING = parse_ring_name("checksum")
SECRETS = "v1/secrets"
CONFIGMAPS = "v1/configmaps"
LEASES = "coordination.k8s.io/v1/leases"
Object = dict[str, Any]
#: Time for what a slow machine does in a few seconds, the start of a process among it.
PATIENCE_SECONDS = 90.0


class ShardProcess:
    """A shard that runs, and what a test does to it."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, gate: Path) -> None:
        self.process = process
        self.port = port
        self.gate = gate

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def exit_code(self) -> int:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.process.wait()

    async def ask(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
            return answer.status, await answer.text()

    async def until(self, path: str, text: str, status: int = 200) -> None:
        """Wait until the page says so."""
        async with asyncio.timeout(PATIENCE_SECONDS):
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


@asynccontextmanager
async def set_shard_stage(
    control_plane: ControlPlane, admin: AdminClient, namespace: str, tmp_path: Path
) -> AsyncIterator[Stage]:
    rights = (ROOT / "rbac" / "shard.yaml").read_text()
    everywhere = f"sharding:objects:{namespace}:{namespace}-shard"
    rights = rights.replace("name: sharding:objects:default:checksum", f"name: {everywhere}")
    rights = rights.replace("namespace: default", f"namespace: {namespace}").replace(
        "name: checksum", f"name: {namespace}-shard"
    )
    await control_plane.apply(stdin=rights)
    kubeconfig = await control_plane.service_account_kubeconfig(
        namespace, f"{namespace}-shard", tmp_path / "kubeconfig"
    )
    made = Stage(admin, namespace, kubeconfig, tmp_path)
    try:
        yield made
    finally:
        await made.end()
    for kind in ("clusterrolebindings", "clusterroles"):
        await admin.delete(f"rbac.authorization.k8s.io/v1/{kind}", everywhere)
