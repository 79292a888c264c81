"""Commands of the reference pages work, in the order in which they stand there.

There is one control plane for all pages, with a sharder, the ring `checksum` and
two of its shards, as processes; the page that ends with their removal comes last.
What only pods can answer is compared with kubectl's own help instead.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from docsite.pages import blocks_of, read_pages
from localcluster import ControlPlane, find_binaries
from localcluster.installation import Installation, SharderTimings
from tests.walking import FOLDERS, make_tools, run

PAGES = ("kubectl.md", "shards-in-python.md", "security.md", "monitoring.md", "troubleshooting.md", "operations.md")
#: Begin of commands that Helm is asked about in tests/docs/test_blocks.py, or that need pods.
RENDERED = ("helm install", "helm upgrade", "helm uninstall")
PODS = (
    *(f"kubectl -n sharding-system {verb}" for verb in ("rollout", "logs")),
    *(f"kubectl -n my-namespace {verb}" for verb in ("rollout", "scale")),
)
#: Here the sharder is a process with the command on the PATH; tests/node/test_readme.py does it in a pod.
IN_A_POD = "kubectl -n sharding-system exec -i deploy/sharder -- "
SECONDS = 300


def commands_of(page: str) -> list[str]:
    return [command for block in blocks_of(page, read_pages()[page]) for command in block.commands]


def to_run(page: str) -> list[str]:
    commands = [each.replace(IN_A_POD, "") for each in commands_of(page)]
    return [each for each in commands if not each.startswith((*RENDERED, *PODS))]


def test_every_page_with_commands_is_run() -> None:
    others = {"tutorial.md"}
    pages = {page for page in read_pages() if commands_of(page) and not page.startswith("sdk/")}
    assert pages == {*PAGES, *others}
    assert [page for page in PAGES if any(each.startswith("sharder uninstall") for each in to_run(page))] == [PAGES[-1]]


@pytest.mark.parametrize(
    "command", sorted({each for page in PAGES for each in commands_of(page) if each.startswith(PODS)})
)
def test_kubectl_knows_the_command(command: str) -> None:
    kubectl = str(find_binaries().kubectl[0]), *find_binaries().kubectl[1:]
    words = [word for word in command.split()[1:] if word not in ("-n", "sharding-system")]
    verbs = [word for word in words if re.fullmatch(r"[a-z]+", word)]
    told = subprocess.run([*kubectl, *verbs, "--help"], capture_output=True, text=True, check=True).stdout

    assert all(f"{flag.partition('=')[0]}" in told for flag in words if flag.startswith("--"))


@pytest.mark.slow
@pytest.mark.timeout(len(PAGES) * SECONDS)
async def test_commands_work_one_after_the_other(fresh_control_plane: ControlPlane, tmp_path: Path) -> None:
    for name in FOLDERS:
        shutil.copytree(name, tmp_path / name)

    async with Installation(fresh_control_plane, SharderTimings.for_lease(15)) as installation:
        replica = await installation.start_sharder("sharder")
        await start_shards(installation)
        last: list[str] = []
        for page in filter(to_run, PAGES):
            for block in blocks_of(page, read_pages()[page]):
                if block.file:
                    (tmp_path / block.file).write_text(block.text)
            first, last = split_at(to_run(page), "sharder uninstall")
            code, output = await run(script(first), tmp_path, environment(fresh_control_plane, tmp_path), SECONDS)
            assert code == 0, f"{page}:\n{output}"
        # A sharder that runs would make again what this removes.
        await replica.process.stop()
        code, output = await run(script(last), tmp_path, environment(fresh_control_plane, tmp_path), SECONDS)
        assert code == 0, output


async def start_shards(installation: Installation) -> None:
    plane = installation.plane
    resources = {"group": "", "resource": "secrets", "controlledResources": [{"group": "", "resource": "configmaps"}]}
    await plane.apply(Path("rbac/shard.yaml"))
    await installation.ring("checksum", {"resources": [resources]})
    await plane.kubectl("create", "secret", "generic", "a", "--from-literal=key=value")
    kubeconfig = await plane.service_account_kubeconfig("default", "checksum")
    for name in ("one", "two"):
        arguments = ("--ring", "checksum", "--namespace", "default")
        await installation.start_shard(name, module="examples.checksum", arguments=arguments, kubeconfig=kubeconfig)
    await plane.kubectl("wait", "--for=create", "--timeout=120s", "configmap/a-checksum")


def split_at(commands: list[str], first_of_second: str) -> tuple[list[str], list[str]]:
    at = next((at for at, each in enumerate(commands) if each.startswith(first_of_second)), len(commands))
    return commands[:at], commands[at:]


def script(commands: list[str]) -> str:
    # What these find amiss is their answer, not a failure.
    lines = [f"{each} || test $? -eq 1" if each.startswith("kubectl sharding") else each for each in commands]
    return "\n".join(["set -eux -o pipefail", *lines])


def environment(plane: ControlPlane, folder: Path) -> dict[str, str]:
    tools = folder / "tools"
    if not tools.exists():
        make_tools(tools)
    return {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path.cwd()),
        "KUBECONFIG": str(plane.admin_kubeconfig),
        "HOME": str(folder),
    }
