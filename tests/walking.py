"""A shell walks through the commands of a page, in order, as its reader would; on a real control plane.

A block whose first line is `# NAME.yaml` or `# NAME.py` becomes that file, with
free ports in the place of those that the page names.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
import sys
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from localcluster import find_binaries
from tests.ports import free_port

ROOT = Path(__file__).parents[1]
#: Ports that the pages' files name; a test takes free ones.
PORTS = ("8080", "8081", "9443")
#: What a reader has in the checkout.
FOLDERS = ("charts", "crds", "rbac", "examples")


def section_of(text: str, heading: str) -> str:
    """A page's part from that line to the next heading of the same depth.  Raises: ValueError when it is not there."""
    start = text.index(f"{heading}\n")
    end = text.find(f"\n{heading.split()[0]} ", start)
    return text[start:] if end < 0 else text[start : end + 1]


def runtime_directory(folder: Path) -> Path:
    """Where a test's processes can be asked: not among those of other tests, nor of the user.

    Beside the test's folder, whose own path is too long for a socket in it when pytest
    is in its hundredth run, or the test's name is long.
    """
    return folder.parent / f"{zlib.crc32(folder.name.encode()):x}"


async def walk(
    folder: Path, files: Mapping[str, str], commands: Iterable[str], seconds: float
) -> tuple[int | None, str]:
    """Run `commands` in `folder`; returns the exit code (`None`: not done after `seconds`) and what they printed."""
    ports = {port: str(free_port()) for port in PORTS}
    for name, text in files.items():
        (folder / name).write_text(re.sub("|".join(PORTS), lambda found: ports[found[0]], text))
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name)
    tools = make_tools(folder / "tools")
    environment = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "KUBEBUILDER_ASSETS": str(tools),
        "PYTHONPATH": str(ROOT),
        # Where `localcluster up` notes what runs: not among the user's own.
        "XDG_CACHE_HOME": str(folder / "cache"),
        "HOME": str(folder),
        "XDG_RUNTIME_DIR": str(runtime_directory(folder)),
    }
    # -m: job control, so that `%1` means what it does at a prompt.
    script = "\n".join(["set -eumx -o pipefail", *commands])
    try:
        return await run(script, folder, environment, seconds)
    finally:
        await run("python -m localcluster down", folder, environment, seconds)


async def run(script: str, folder: Path, environment: Mapping[str, str], seconds: float) -> tuple[int | None, str]:
    """Run a script in a session of its own, and end what it left in the background."""
    log = folder / "output.log"
    with log.open("ab") as output:
        shell = await asyncio.create_subprocess_exec(
            "bash", "-c", script, cwd=folder, env=environment, stdout=output, stderr=output,
            stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(seconds):
                code: int | None = await shell.wait()
        except TimeoutError:
            code = None
        finally:
            end_session(shell.pid)
            await shell.wait()
    return code, log.read_text()


def end_session(leader: int) -> None:
    """Kill every process of a session: with job control each command has a group of its own."""
    for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        with contextlib.suppress(ValueError, ProcessLookupError, PermissionError):
            if os.getsid(int(entry.name)) == leader:
                os.kill(int(entry.name), signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def make_tools(folder: Path) -> Path:
    """The commands that a user has: Kubernetes' programs, and what the wheel brings."""
    binaries = find_binaries()
    folder.mkdir()
    for name, command in {
        "etcd": binaries.etcd,
        "kube-apiserver": binaries.kube_apiserver,
        "kube-controller-manager": binaries.kube_controller_manager,
        "kubectl": binaries.kubectl,
        "sharder": (sys.executable, "-m", "sharder"),
        "shardsdk": (sys.executable, "-m", "shardsdk"),
        "kubectl-sharding": (sys.executable, "-m", "sharder.kubectl"),
        "python": (sys.executable,),
    }.items():
        tool = folder / name
        tool.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        tool.chmod(0o755)
    return folder
