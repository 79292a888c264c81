"""This project installed on a control plane of this machine: sharder replicas and shards as processes.

Does: what the chart does on a cluster (CRD, roles, ServiceAccounts), and what
nodes do (start processes, each under its own identity, with a port of its own;
a forwarder plays the Service in front of the sharders).  Every process runs
with a ServiceAccount's token, never as administrator.

Refuses: to hide anything: a process that ends unasked is an error that names
its log.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import yaml

from localcluster.control_plane import ControlPlane
from localcluster.errors import ComponentFailed
from localcluster.forwarder import POLL_SECONDS as PROBE_SECONDS
from localcluster.forwarder import Backend, Forwarder
from localcluster.ports import LOOPBACK, ReservedPort, reserve_port
from localcluster.process import Supervised, Supervisor

ROOT: Final = Path(__file__).resolve().parent.parent
#: Time for a Python process to start on a loaded machine.
START_SECONDS: Final = 120.0
#: Time for one to stop in order; each ends itself sooner if something keeps it, and its exit code says so.
STOP_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.05
#: They trust the authorities that their kubeconfigs name.  Loading the system's, as importing aiohttp does, is a
#: quarter of what that takes.
NO_AUTHORITIES: Final = {"SSL_CERT_FILE": os.devnull}


class Process(Supervised):
    """A program of this project."""

    def __init__(
        self, name: str, argv: Sequence[str], supervisor: Supervisor, environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(name, argv, supervisor)
        self.environment = dict(environment or {})

    def start(self) -> None:
        """Start the process."""
        own = {"HOME": str(self._supervisor.folder), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self.pid = self._supervisor.start(self.name, self.argv, own | NO_AUTHORITIES | self.environment)

    async def stop(self) -> int:
        """Ask it to stop in order (SIGTERM) and wait; returns its exit code."""
        self._supervisor.signal(self.name, signal.SIGTERM)
        return await self.ended()

    async def ended(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """Wait for its end; returns the exit code (negative: by which signal).

        Raises: TimeoutError.
        """
        await self._supervisor.ended(self.name, timeout_seconds)
        code = self._supervisor.exit_code(self.name)
        assert code is not None
        return code

    def failure(self, what: str) -> ComponentFailed:
        """An error that names the log and quotes its end."""
        return self._supervisor.failure(self.name, what)


@dataclass(frozen=True, slots=True)
class Sharder:
    """A sharder replica and its addresses."""

    process: Process
    health_url: str
    metrics_url: str
    webhook_port: int

    @property
    def backend(self) -> Backend:
        """The replica as the forwarder knows it."""
        return Backend(LOOPBACK, self.webhook_port, f"{self.health_url}/readyz")


@dataclass(frozen=True, slots=True)
class SharderTimings:
    """Settings that tests and demo make shorter than the defaults; seconds."""

    lease_duration: float = 3.0
    renew_deadline: float = 2.0
    retry_period: float = 0.5
    staleness: float = 3.0
    sync_period: float = 300.0
    graceful_shutdown: float = 10.0

    @classmethod
    def for_lease(cls, lease_duration: float) -> Self:
        """The defaults with a lease of that many seconds, and in proportion what has to fit into it."""
        usual = cls()
        factor = lease_duration / usual.lease_duration
        return cls(
            lease_duration=lease_duration,
            renew_deadline=round(usual.renew_deadline * factor, 3),
            retry_period=round(usual.retry_period * factor, 3),
            staleness=round(usual.staleness * factor, 3),
        )


@dataclass(slots=True)
class Installation:
    """The project on `plane`; an async context manager that ends its processes.

    Sharders find the API server as in a pod, unless `sharder_kubeconfig` says otherwise;
    `sharder_module` is what they run, `probe_seconds` how often each is asked whether it is ready.
    """

    plane: ControlPlane
    timings: SharderTimings = field(default_factory=SharderTimings)
    webhook: bool = True
    config: Mapping[str, Any] = field(default_factory=dict)
    sharders: dict[str, Sharder] = field(default_factory=dict)
    shards: dict[str, Process] = field(default_factory=dict)
    sharder_kubeconfig: Path | None = None
    sharder_module: str = "sharder"
    probe_seconds: float = PROBE_SECONDS
    _identity: dict[str, str] = field(default_factory=dict)
    _supervisor: Supervisor = field(default_factory=Supervisor)
    _forwarder: Forwarder = field(init=False)
    _ports: list[ReservedPort] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._forwarder = Forwarder(poll_seconds=self.probe_seconds)

    async def __aenter__(self) -> Self:
        await self._forwarder.__aenter__()
        await self.plane.apply(ROOT / "crds", ROOT / "rbac" / "sharder.yaml")
        self._identity = await self.plane.service_account_environment("sharding-system", "sharder")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._supervisor.close(keep_logs=error is not None)
        for port in self._ports:
            port.release()
        await self._forwarder.__aexit__(kind, error, trace)

    @property
    def logs(self) -> Path:
        """The folder with the processes' logs."""
        return self._supervisor.logs

    @property
    def forwarder(self) -> Forwarder:
        """What plays the Service in front of the sharders."""
        return self._forwarder

    # -- sharder -----------------------------------------------------------

    async def start_sharder(
        self, name: str, *, wait: bool = True, environment: Mapping[str, str] | None = None
    ) -> Sharder:
        """Start a replica (its `environment` on top of a pod's), and wait until it is ready unless told otherwise."""
        ports = [reserve_port() for _ in range(3)]
        self._ports += ports
        health, metrics, webhook = (port.number for port in ports)
        path = self._supervisor.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(self._config(health, metrics, webhook)))
        argv = [sys.executable, "-m", self.sharder_module, "--config", str(path)]
        if self.sharder_kubeconfig is not None:
            argv += ["--kubeconfig", str(self.sharder_kubeconfig)]
        process = Process(name, argv, self._supervisor, {**self._identity, **(environment or {})})
        replica = Sharder(process, f"http://{LOOPBACK}:{health}", f"http://{LOOPBACK}:{metrics}", webhook)
        self.sharders[name] = replica
        process.start()
        self._forward()
        if wait:
            await self.ready(replica)
        return replica

    def _config(self, health: int, metrics: int, webhook: int) -> dict[str, Any]:
        timings = self.timings
        base: dict[str, Any] = {
            "apiVersion": "config.sharding.timebertt.dev/v1alpha1",
            "kind": "SharderConfig",
            "leaderElection": {
                "leaseDuration": f"{timings.lease_duration}s",
                "renewDeadline": f"{timings.renew_deadline}s",
                "retryPeriod": f"{timings.retry_period}s",
            },
            "health": {"bindAddress": f"{LOOPBACK}:{health}"},
            "metrics": {"bindAddress": f"{LOOPBACK}:{metrics}"},
            "controller": {
                "sharder": {
                    "syncPeriod": f"{timings.sync_period}s",
                    "webhookStalenessSeconds": timings.staleness,
                }
            },
            "webhook": {
                "enabled": self.webhook,
                "server": {"host": LOOPBACK, "port": webhook},
                "config": {"clientConfig": {"url": f"https://{LOOPBACK}:{self._forwarder.port}"}},
            },
            "gracefulShutDown": f"{timings.graceful_shutdown}s",
        }
        return base | dict(self.config)

    async def ready(self, replica: Sharder, timeout_seconds: float = START_SECONDS) -> None:
        """Wait until a replica is ready.

        Raises: ComponentFailed when it ended, or is not ready by then; with what it waits for.
        """
        said = "never answered"
        try:
            async with asyncio.timeout(timeout_seconds), aiohttp.ClientSession() as session:
                while replica.process.running:
                    try:
                        async with session.get(f"{replica.health_url}/readyz?verbose") as answer:
                            said = await answer.text()
                            if answer.status == 200:
                                break
                    except aiohttp.ClientError:
                        pass
                    await asyncio.sleep(POLL_SECONDS)
                else:
                    raise replica.process.failure("ended while it was starting")
        except TimeoutError as error:
            raise replica.process.failure(f"is not ready after {timeout_seconds:.0f} s ({said})") from error
        if self.webhook:
            await self._wait_forwarded(replica)

    async def _wait_forwarded(self, replica: Sharder) -> None:
        async with asyncio.timeout(START_SECONDS):
            while replica.backend not in self._forwarder.ready:
                await asyncio.sleep(POLL_SECONDS)

    async def leader(self) -> Sharder:
        """The replica that leads, as its metrics say.

        Raises: TimeoutError.
        """
        async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as session:
            while True:
                for replica in self.sharders.values():
                    if replica.process.running and await _leads(session, replica):
                        return replica
                await asyncio.sleep(POLL_SECONDS)

    async def metrics(self, replica: Sharder) -> str:
        """What a replica's /metrics says."""
        async with aiohttp.ClientSession() as session, session.get(f"{replica.metrics_url}/metrics") as answer:
            return await answer.text()

    async def forget_sharder(self, name: str) -> None:
        """Take a replica that has ended out of the Service."""
        self.sharders.pop(name, None)
        self._forward()

    def _forward(self) -> None:
        self._forwarder.replace([each.backend for each in self.sharders.values()])

    # -- rings and shards --------------------------------------------------

    async def ring(self, name: str, spec: Mapping[str, Any]) -> None:
        """Declare a ring, with the role that lets the sharder place its objects."""
        manifest = {
            "apiVersion": "sharding.timebertt.dev/v1alpha1",
            "kind": "ClusterRing",
            "metadata": {"name": name},
            "spec": dict(spec),
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sharder", "rbac", "-f", "-",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip
        roles, _ = await process.communicate(json.dumps(manifest).encode())
        await self.plane.apply(stdin=roles.decode())
        await self.plane.apply(stdin=json.dumps(manifest))

    async def start_shard(
        self,
        name: str,
        *,
        module: str,
        arguments: Sequence[str] = (),
        kubeconfig: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a shard: a Python module that takes --name and --kubeconfig."""
        argv = [sys.executable, "-m", module, "--name", name, *arguments]
        if kubeconfig is not None:
            argv += ["--kubeconfig", str(kubeconfig)]
        process = Process(name, argv, self._supervisor, environment)
        self.shards[name] = process
        process.start()
        return process


async def _leads(session: aiohttp.ClientSession, replica: Sharder) -> bool:
    try:
        async with session.get(f"{replica.metrics_url}/metrics") as answer:
            lines = (await answer.text()).splitlines()
    except aiohttp.ClientError:
        return False
    return any(line.startswith("leader_election_master_status{") and line.endswith(" 1.0") for line in lines)
