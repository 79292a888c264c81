"""A node of this machine leaves nothing on it, however it ends."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from tests.node.clusters import PATIENCE_SECONDS, Complaints, until_right
from tests.node.conftest import IMAGE

#: Starts a node with a pod of the pause image on it, says where, and waits to be killed.
OWNER = """
import asyncio
from localcluster import ControlPlane, Node

POD = {
    "metadata": {"name": "waits"},
    "spec": {"containers": [{"name": "main", "image": "localhost/pause:1", "imagePullPolicy": "Never"}]},
}

async def main():
    async with ControlPlane(node=Node()) as plane, plane.admin() as admin:
        await admin.eventually("v1/serviceaccounts", bool, "default", timeout_seconds=240)
        await admin.create("v1/pods", POD, "default")
        await admin.eventually(
            "v1/pods", lambda pods: pods[0]["status"]["phase"] == "Running", "default", timeout_seconds=240
        )
        print(plane.folder, plane.node.interface, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(4 * PATIENCE_SECONDS),
    pytest.mark.skipif(bool(IMAGE), reason="these tests run on a cluster that was given"),
]


async def test_when_its_owner_is_killed_everything_goes() -> None:
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, stdout=asyncio.subprocess.PIPE)
    assert owner.stdout is not None
    words = (await owner.stdout.readline()).decode().split()
    assert len(words) == 2, "the node did not start; what went wrong is above"
    folder, link = Path(words[0]), Path("/sys/class/net", words[1])
    group = folder.name
    assert there(link), "a node is joined to the machine by an interface"
    assert processes(group), "a node has processes"
    assert groups(group), "a node has control groups"

    owner.send_signal(signal.SIGKILL)
    await owner.wait()

    async def gone() -> None:
        left = [*processes(group), *groups(group), *there(folder, link)]
        if left:
            raise Complaints(f"left behind: {left}")

    await until_right(gone)


def there(*paths: Path) -> list[Path]:
    """Those that exist."""
    return [path for path in paths if path.exists()]


def processes(group: str) -> list[str]:
    """Command lines of processes that were started in the folder or are in the control group of that name."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if group in command or group in (process / "cgroup").read_text():
                found.append(command)
        except OSError:
            continue
    return found


def groups(name: str) -> list[Path]:
    """Control groups of that name, in any hierarchy."""
    return [*Path("/sys/fs/cgroup").glob(name), *Path("/sys/fs/cgroup").glob(f"*/{name}")]
