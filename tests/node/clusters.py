"""The cluster that real pods run on: this machine's own, or the one that KUBECONFIG names.

Both are reached with nothing but a kubeconfig, kubectl and Helm, as a user
reaches them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from localcluster import AdminClient, ControlPlane, LocalClusterError
from localcluster.admin import path_of
from tests.chart.helm import NAMESPACE, SHARDER, Helm, merge

#: For pods to start, stop and move on a slow machine. Nothing is asserted about how long it takes.
PATIENCE_SECONDS: Final = 600.0
_LOOK_SECONDS: Final = 0.25
PODS: Final = "v1/pods"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reference:
    """An image as both charts take it."""

    repository: str
    tag: str
    pull: str

    @property
    def values(self) -> Object:
        return {"image": {"repository": self.repository, "tag": self.tag, "pullPolicy": self.pull}}


def read_reference(image: str) -> Reference:
    """Of `registry:5000/name:tag`."""
    repository, _, tag = image.rpartition(":")
    if not repository or "/" in tag:
        raise LocalClusterError(f"IMAGE={image} has no tag: write repository:tag")
    return Reference(repository, tag, "IfNotPresent")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster, its administrator, and the programs that work on it; `plane` when it is this machine's own."""

    admin: AdminClient
    kubeconfig: Path
    helm: Helm
    kubectl_command: tuple[str, ...]
    sharder: Reference
    examples: Reference
    plane: ControlPlane | None

    async def kubectl(self, *arguments: str) -> str:
        """Raises: LocalClusterError with what it said."""
        code, said = await self.try_kubectl(*arguments)
        if code:
            raise LocalClusterError(f"kubectl {' '.join(arguments)}: {said}")
        return said

    async def try_kubectl(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output of kubectl."""
        process = await asyncio.create_subprocess_exec(
            *self.kubectl_command, *arguments,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env={"HOME": str(self.helm.home), "KUBECONFIG": str(self.kubeconfig)},
        )  # fmt: skip
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode(errors="replace").strip()

    async def python(self, namespace: str, pod: str, code: str) -> Any:
        """What `code` prints as JSON in a pod's container."""
        return json.loads(await self.kubectl("exec", "--namespace", namespace, pod, "--", "python3", "-c", code))

    async def release(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run Helm; it waits until what it did is ready."""
        waits = (
            ()
            if arguments[0] in ("get", "history", "list", "status")
            else ("--wait", f"--timeout={PATIENCE_SECONDS:.0f}s")
        )
        return await self.helm.on(self.kubeconfig, *arguments, *waits, values=values)

    async def install_sharder(self, values: Mapping[str, Any] | None = None) -> str:
        """Install the sharder's chart; returns what Helm printed."""
        into = ("--namespace", NAMESPACE, "--create-namespace")
        return await self.release(
            "install", "sharder", str(SHARDER), *into, values=merge(self.sharder.values, values or {})
        )

    async def upgrade_sharder(self, values: Mapping[str, Any]) -> str:
        """Upgrade it to `values` alone."""
        return await self.release(
            "upgrade", "sharder", str(SHARDER), "--namespace", NAMESPACE, "--reset-values",
            values=merge(self.sharder.values, values),
        )  # fmt: skip

    async def ready_pods(self, namespace: str, labels: str) -> list[str]:
        """Names of the pods that are ready, and not on their way out."""
        pods = await self.admin.list(PODS, namespace, labels=labels)
        return sorted(pod["metadata"]["name"] for pod in pods if is_working(pod))

    async def working_pods(self, namespace: str, labels: str, count: int) -> list[str]:
        """Wait until so many pods are ready and no others are there; returns their names."""

        async def check() -> list[str]:
            pods = await self.admin.list(PODS, namespace, labels=labels)
            ready = sorted(pod["metadata"]["name"] for pod in pods if is_working(pod))
            if not len(pods) == len(ready) == count:
                raise Complaints(f"{len(ready)} of {len(pods)} pods are ready, not {count}")
            return ready

        found: list[str] = await until_right(check)
        return found


def is_working(pod: Object) -> bool:
    """Whether a pod is ready and not on its way out."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


async def evict(cluster: Cluster, namespace: str, pod: str) -> None:
    """Evict a pod, as draining a node does.  Raises: AdminError (429 when its budget refuses)."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    await cluster.admin.request("POST", path_of(PODS, namespace, pod, "eviction"), body=body)


async def evictable(cluster: Cluster, namespace: str, budget: str, labels: str, count: int) -> list[str]:
    """Wait until so many pods are ready and their budget lets one go; returns their names."""

    async def check() -> list[str]:
        found = await cluster.admin.get("policy/v1/poddisruptionbudgets", budget, namespace)
        ready = await cluster.ready_pods(namespace, labels)
        if (found.get("status") or {}).get("disruptionsAllowed") != 1 or len(ready) != count:
            raise Complaints(f"{ready} are ready, the budget says {found.get('status')}")
        return ready

    names: list[str] = await until_right(check)
    return names


@asynccontextmanager
async def cordoned(cluster: Cluster) -> AsyncIterator[None]:
    """While it is entered no new pod gets a node, so that nothing that was evicted is replaced."""

    async def close(closed: bool) -> None:
        for node in await cluster.admin.list("v1/nodes"):
            await cluster.admin.patch("v1/nodes", node["metadata"]["name"], {"spec": {"unschedulable": closed}})

    try:
        await close(True)
        yield
    finally:
        await close(False)


@asynccontextmanager
async def proxied(command: tuple[str, ...], kubeconfig: Path) -> AsyncIterator[AdminClient]:
    """A client of any cluster: kubectl knows how to authenticate, whatever the kubeconfig says."""
    process = await asyncio.create_subprocess_exec(
        *command, "proxy", "--port=0", f"--kubeconfig={kubeconfig}",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().split()[-1]
        async with AdminClient(f"http://{address}", b"", "") as admin:
            yield admin
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


class Complaints(Exception):
    """What is not yet as it should be."""


async def until_right(check: Any, seconds: float = PATIENCE_SECONDS) -> Any:
    """Ask `check` until it raises no Complaints, and return its answer.  Raises: the last Complaints.

    What it looks at has no event of its own: several resources at a time.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        try:
            return await check()
        except Complaints:
            if loop.time() > end:
                raise
        await asyncio.sleep(_LOOK_SECONDS)
