"""Every command in the README works: a shell walks through them, in order, on a real control plane.

A block whose first line is `# NAME.yaml` or `# NAME.py` becomes that file; a
`sh` block is run line by line.  A command that cannot run inside a test run is
in ELSEWHERE, with the file that runs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from localcluster import find_binaries

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()

#: Command -> the file that runs it, and the words there that show it.
ELSEWHERE = {
    "make demo": ("tests/e2e/test_demo.py", "make demo"),
    "make test": (".ci/run", "make test"),
    "make setup": ("Makefile", "$(READY): "),
    ". .venv/bin/activate": (".ci/environment.py", '"venv"'),
}
#: Ports that the README's files name; a test takes free ones.
PORTS = ("8080", "8081", "9443")
SECONDS = 90


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language and its text."""

    language: str
    text: str

    @property
    def file(self) -> str:
        """The file that it becomes; empty for one that is shown or run."""
        first = re.match(r"# (\S+\.(?:yaml|py))\n", self.text)
        return first[1] if first else ""

    @property
    def commands(self) -> list[str]:
        """The commands of a `sh` block."""
        lines = self.text.replace("\\\n", " ").splitlines() if self.language == "sh" else []
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [Block(language, text) for language, text in FENCED.findall(README)]
COMMANDS = [command for block in BLOCKS for command in block.commands]


def test_every_block_is_shown_kept_or_run() -> None:
    assert not [block for block in BLOCKS if not (block.file or block.commands or block.language == "text")]


@pytest.mark.parametrize("command", [command for command in ELSEWHERE if command in COMMANDS])
def test_command_that_is_not_run_here_is_run_elsewhere(command: str) -> None:
    file, words = ELSEWHERE[command]
    assert words in (ROOT / file).read_text()


def test_links_point_to_files() -> None:
    targets = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert [target for target in targets if not (ROOT / target.partition("#")[0]).exists()] == []


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
async def test_commands_work_one_after_the_other(tmp_path: Path) -> None:
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    for block in BLOCKS:
        if block.file:
            text = re.sub("|".join(PORTS), lambda found: ports[found[0]], block.text)
            (tmp_path / block.file).write_text(text)
    for name in ("crds", "rbac", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    tools = make_tools(tmp_path / "tools")
    environment = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "KUBEBUILDER_ASSETS": str(tools),
        "PYTHONPATH": str(ROOT),
        # Where `localcluster up` notes what runs: not among the user's own.
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
    }
    script = "\n".join(["set -eux -o pipefail", *(command for command in COMMANDS if command not in ELSEWHERE)])

    try:
        code, output = await run(script, tmp_path, environment)
    finally:
        await run("python -m localcluster down", tmp_path, environment)

    assert code == 0, output


async def run(script: str, folder: Path, environment: dict[str, str]) -> tuple[int | None, str]:
    """Run a script in a session of its own, and end what it left in the background."""
    log = folder / "output.log"
    with log.open("wb") as output:
        shell = await asyncio.create_subprocess_exec(
            "bash", "-c", script, cwd=folder, env=environment, stdout=output, stderr=output,
            stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(SECONDS):
                code: int | None = await shell.wait()
        except TimeoutError:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            await shell.wait()
    return code, log.read_text()


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
        "kubectl-sharding": (sys.executable, "-m", "sharder.kubectl"),
        "python": (sys.executable,),
    }.items():
        tool = folder / name
        tool.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        tool.chmod(0o755)
    return folder


def free_ports(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [str(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
