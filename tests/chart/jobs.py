"""Plays the nodes for hook Jobs: runs what their pods would run, as the ServiceAccount that they run as.

The containers' arguments go to `python -m sharder` on this machine, and its exit code becomes the Job's state.  What
only a node could show (the image, the pod's security context) is not shown here.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from localcluster import AdminClient, AdminError, ControlPlane, LocalClusterError
from localcluster.installation import ROOT

JOBS = "batch/v1/jobs"


@dataclass(frozen=True, slots=True)
class Ran:
    """A Job that has run, and how it ended."""

    name: str
    arguments: tuple[str, ...]
    code: int
    output: str


class Jobs:
    """Runs every Job of the cluster, from entering to leaving; `ran` is what has run."""

    def __init__(self, plane: ControlPlane, admin: AdminClient) -> None:
        self.ran: list[Ran] = []
        self._plane = plane
        self._admin = admin
        self._seen: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            # The watch's connection is closed by the loop, in a later turn.
            await asyncio.sleep(0.05)

    async def _watch(self) -> None:
        async with asyncio.TaskGroup() as running:
            while True:
                async with aclosing(self._admin.changes(JOBS)) as changes:
                    async for event, job in changes:
                        uid = job["metadata"]["uid"]
                        if event != "DELETED" and uid not in self._seen:
                            self._seen.add(uid)
                            running.create_task(self._run(job))

    async def _run(self, job: dict[str, Any]) -> None:
        metadata, pod = job["metadata"], job["spec"]["template"]["spec"]
        try:
            kubeconfig = await self._plane.service_account_kubeconfig(metadata["namespace"], pod["serviceAccountName"])
        except LocalClusterError:
            # No pod comes up either.
            return
        arguments = pod["containers"][0]["args"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sharder", "--kubeconfig", str(kubeconfig), *arguments,
            cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        assert process.returncode is not None
        self.ran.append(Ran(metadata["name"], tuple(arguments), process.returncode, output.decode()))
        with contextlib.suppress(AdminError):
            await self._admin.patch(
                JOBS, metadata["name"], {"status": _status(process.returncode)}, metadata["namespace"],
                subresource="status",
            )  # fmt: skip


def _status(code: int) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def condition(kind: str) -> dict[str, str]:
        return {"type": kind, "status": "True", "lastTransitionTime": now, "lastProbeTime": now, "reason": "Played"}

    if code == 0:
        conditions = [condition("SuccessCriteriaMet"), condition("Complete")]
        return {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": conditions}
    return {"startTime": now, "failed": 1, "conditions": [condition("FailureTarget"), condition("Failed")]}
