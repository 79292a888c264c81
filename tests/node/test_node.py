"""A node of this machine leaves nothing on it, however it ends, and another one next to it does not notice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from localcluster import ControlPlane
from localcluster.node import is_ready
from localcluster.process import sweep
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
        await admin.eventually("v1/serviceaccounts", bool, "default", timeout_seconds=600)
        await admin.create("v1/pods", POD, "default")
        await admin.eventually(
            "v1/pods", lambda pods: pods[0]["status"]["phase"] == "Running", "default", timeout_seconds=600
        )
        print(plane.folder, plane.node.interface, plane.supervisor_pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(4 * PATIENCE_SECONDS),
    pytest.mark.skipif(
        bool(IMAGE), reason="not tested: what a node leaves on this machine; IMAGE is for another cluster"
    ),
]


@pytest.mark.parametrize("killed", ["owner", "owner and supervisor"])
async def test_when_its_owner_is_killed_everything_goes(plane: ControlPlane, killed: str) -> None:
    """The supervisor cleans up; where it is killed, too, the next start on this machine does."""
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, stdout=asyncio.subprocess.PIPE)
    assert owner.stdout is not None
    words = (await owner.stdout.readline()).decode().split()
    assert len(words) == 3, "the node did not start; what went wrong is above"
    folder, link, supervisor = Path(words[0]), Path("/sys/class/net", words[1]), int(words[2])
    group = folder.name
    assert there(link), "a node is joined to the machine by an interface"
    assert processes(group), "a node has processes"
    assert groups(group), "a node has control groups"

    if "supervisor" in killed:
        os.kill(supervisor, signal.SIGKILL)
    owner.send_signal(signal.SIGKILL)
    await owner.wait()

    async def gone() -> None:
        if "supervisor" in killed:
            sweep()
        left = [*processes(group), *groups(group), *there(folder, link)]
        if left:
            raise Complaints(f"left behind: {left}")

    await until_right(gone)
    async with plane.admin() as admin:
        assert [is_ready(node) for node in await admin.list("v1/nodes")] == [True]
    assert there(Path("/sys/class/net", plane.node.interface))
    assert processes(plane.folder.name)


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
