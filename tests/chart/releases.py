"""A cluster on which tests install the chart, and the sharder as its pods would run it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from localcluster import AdminClient, AdminError, ControlPlane
from localcluster.installation import Process
from localcluster.ports import LOOPBACK, reserve_port
from localcluster.process import Supervisor
from tests.chart.helm import NAMESPACE, SHARDER, Helm, HelmFailed, merge
from tests.chart.jobs import Jobs

RINGS: Final = "sharding.timebertt.dev/v1alpha1/clusterrings"
CRDS: Final = "apiextensions.k8s.io/v1/customresourcedefinitions"
CRD: Final = "clusterrings.sharding.timebertt.dev"
WEBHOOKS: Final = "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
LEASES: Final = "coordination.k8s.io/v1/leases"
SECRETS: Final = "v1/secrets"
CONFIGMAPS: Final = "v1/configmaps"
START_SECONDS: Final = 120.0
#: For Jobs on a slow machine.
PATIENCE: Final = "120s"

#: A ring of the cluster's ConfigMaps.
CONFIG_RING: Final = {"resources": [{"group": "", "resource": "configmaps"}]}


@dataclass(slots=True)
class Cluster:
    """One control plane, its administrator, Helm, and who plays its nodes for Jobs."""

    plane: ControlPlane
    admin: AdminClient
    helm: Helm
    jobs: Jobs
    releases: list[str] = field(default_factory=list)

    async def prepare(self) -> None:
        """Make the namespace."""
        with contextlib.suppress(AdminError):
            await self.admin.namespace(NAMESPACE)

    async def clean(self) -> None:
        """Remove everything that a test may have left."""
        for namespace in dict.fromkeys(self.releases):
            with contextlib.suppress(HelmFailed):
                await self.run("uninstall", "sharder", "--namespace", namespace, "--no-hooks")
        for ring in await self._list(RINGS):
            await self.admin.delete(RINGS, ring["metadata"]["name"])
        for hook in ("sharder-crds", "sharder-cleanup"):
            await self.admin.delete("rbac.authorization.k8s.io/v1/clusterroles", hook)
            await self.admin.delete("rbac.authorization.k8s.io/v1/clusterrolebindings", hook)
            for resource in ("batch/v1/jobs", "v1/serviceaccounts"):
                await self.admin.delete(resource, hook, NAMESPACE, options={"propagationPolicy": "Background"})
        await self.admin.delete(SECRETS, "sharder-webhook-certificates", NAMESPACE)
        for lease in await self.admin.list(LEASES, NAMESPACE):
            await self.admin.delete(LEASES, lease["metadata"]["name"], NAMESPACE)
        for webhook in await self.admin.list(WEBHOOKS):
            await self.admin.delete(WEBHOOKS, webhook["metadata"]["name"])

    async def _list(self, resource: str) -> list[dict[str, Any]]:
        try:
            return await self.admin.list(resource)
        except AdminError:
            return []

    async def run(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run Helm as the administrator.  Raises: HelmFailed."""
        return await self.helm.on(self.plane.admin_kubeconfig, *arguments, values=values)

    async def install(
        self, *arguments: str, values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE
    ) -> str:
        """Install the chart as release `sharder`."""
        self.releases.append(namespace)
        return await self.run(
            "install", "sharder", str(SHARDER), "--namespace", namespace, "--create-namespace", "--timeout", PATIENCE,
            *arguments, values=values,
        )  # fmt: skip

    async def upgrade(self, *arguments: str, values: Mapping[str, Any] | None = None, chart: Path = SHARDER) -> str:
        """Upgrade it to `values` alone."""
        return await self.run(
            "upgrade", "sharder", str(chart), "--namespace", NAMESPACE, "--timeout", PATIENCE, "--reset-values",
            *arguments, values=values,
        )  # fmt: skip

    async def uninstall(self, *arguments: str) -> str:
        """Uninstall it."""
        return await self.run("uninstall", "sharder", "--namespace", NAMESPACE, "--timeout", PATIENCE, *arguments)

    async def config(self) -> str:
        """The configuration file that the release's pods would be given."""
        text: str = (await self.admin.get(CONFIGMAPS, "sharder", NAMESPACE))["data"]["config.yaml"]
        return text


@dataclass(frozen=True, slots=True)
class Ports:
    """Free ports for one replica on this machine, and the values that make the chart use them."""

    webhook: int
    health: int
    metrics: int

    def values(self, **config: Any) -> dict[str, Any]:
        """A quick stop, these ports, and a webhook that is called on this machine: there is no Service to route."""
        election = {"retryPeriod": "500ms"}
        own = {
            "leaderElection": election,
            "gracefulShutDown": "8s",
            "health": {"bindAddress": f":{self.health}"},
            "metrics": {"bindAddress": f":{self.metrics}"},
            "webhook": {
                "server": {"port": self.webhook},
                "config": {"clientConfig": {"url": f"https://{LOOPBACK}:{self.webhook}"}},
            },
        }
        return {"config": merge(own, config)}


@contextlib.contextmanager
def free_ports() -> Any:
    """Ports that stay reserved."""
    reserved = [reserve_port() for _ in range(3)]
    try:
        yield Ports(*(port.number for port in reserved))
    finally:
        for port in reserved:
            port.release()


@asynccontextmanager
async def running(
    cluster: Cluster, ports: Ports, *, mount: Callable[[str], str] = lambda config: config
) -> AsyncIterator[Process]:
    """The release's sharder as a process: its configuration file, its ServiceAccount; ready when it is yielded.

    `mount` turns paths inside the container into paths here.
    """
    kubeconfig = await cluster.plane.service_account_kubeconfig(NAMESPACE, "sharder")
    supervisor = Supervisor()
    failed = True
    try:
        file = supervisor.folder / "config.yaml"
        file.write_text(mount(await cluster.config()))
        [deployment] = await cluster.admin.list("apps/v1/deployments", NAMESPACE)
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        _, *others = container["args"]
        argv = [sys.executable, "-m", "sharder", "--kubeconfig", str(kubeconfig), f"--config={file}", *others]
        process = Process("sharder", argv, supervisor)
        process.start()
        await _ready(process, ports)
        yield process
        failed = False
    finally:
        supervisor.close(keep_logs=failed)


async def _ready(process: Process, ports: Ports) -> None:
    async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as session:
        while process.running:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"http://{LOOPBACK}:{ports.health}/readyz") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.05)
    raise process.failure("ended while it was starting")


def ring_is(condition: str, status: str = "True") -> Callable[[list[dict[str, Any]]], bool]:
    """Whether the only ring's condition has that status."""

    def holds(rings: list[dict[str, Any]]) -> bool:
        conditions = [each for ring in rings for each in (ring.get("status") or {}).get("conditions") or ()]
        return any(each["type"] == condition and each["status"] == status for each in conditions)

    return holds
