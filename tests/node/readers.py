"""What a reader of the documentation does on a cluster: types its commands, into one shell, as they are written.

The shell has the programs that the pages ask for, and `python -m localcluster`
finds the tests' own cluster running.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localcluster import ControlPlane
from localcluster.binaries import cache_home
from localcluster.node import name_image
from localcluster.node_programs import find_node_programs
from localcluster.running import DEFAULT_NAME, Running, remember
from tests.chart.helm import NAMESPACE
from tests.node.clusters import PATIENCE_SECONDS, Cluster, Reference
from tests.walking import FOLDERS, ROOT, make_tools, run

#: What the local test of each page runs, or what prepares a machine. The pages say more about none of them.
ON_THE_MACHINE = ("make ", ". .venv/bin/activate", "python -m localcluster down", "kill $(jobs -p)")


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody with a checkout in `folder` and a shell."""

    plane: ControlPlane
    folder: Path
    environment: Mapping[str, str]

    @staticmethod
    def sit_down(cluster: Cluster, plane: ControlPlane, folder: Path) -> Reader:
        """Lay out what a reader has."""
        for name in FOLDERS:
            shutil.copytree(ROOT / name, folder / name)
        tools = make_tools(folder / "tools")
        helm = tools / "helm"
        helm.write_text(f'#!/bin/sh\nexec {shlex.quote(str(cluster.helm.program))} "$@"\n')
        helm.chmod(0o755)
        # Where pip goes, and whom it trusts, is the user's own.
        environment = os.environ | {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "KUBECONFIG": str(cluster.kubeconfig),
            **{name: str(folder / "helm") for name in ("HELM_CONFIG_HOME", "HELM_DATA_HOME")},
            "KUBECACHEDIR": str(folder / "kubectl"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        # All that is kept between runs, but not which clusters of the user's run.
        cache = cache_home(environment)
        cache.mkdir(parents=True)
        for entry in cache_home(os.environ).iterdir():
            if entry.name != "running":
                (cache / entry.name).symlink_to(entry)
        remember(Running(DEFAULT_NAME, plane.folder, plane.url), environment)
        return Reader(plane, folder, environment)

    async def type(self, commands: Iterable[str], files: Mapping[str, str] | None = None) -> None:
        """Save the files and run the commands, but for those that are about the machine; each has to succeed."""
        for name, text in (files or {}).items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        typed = [each for each in commands if not each.startswith(ON_THE_MACHINE)]
        script = "\n".join(["set -eumx -o pipefail", *typed])
        code, output = await run(script, self.folder, self.environment, PATIENCE_SECONDS)
        assert code == 0, output

    async def call_image(self, image: Reference, name: str) -> None:
        """Let the node have an image under the name by which a page calls it."""
        await name_image(self.plane.folder, f"{image.repository}:{image.tag}", name, find_node_programs())


async def clear(cluster: Cluster) -> None:
    """Uninstall what a page installs, and delete the objects that it makes."""
    for name, namespace in (("checksum", "default"), ("sharder", NAMESPACE)):
        found = await cluster.release("list", "--namespace", namespace, "--short")
        if name in found.split():
            await cluster.release("uninstall", name, "--namespace", namespace)
    await cluster.kubectl("delete", "secrets,configmaps", "--namespace=default", "--field-selector", _NOT_THE_AUTHORITY)


#: Kubernetes makes that one again, in its own time.
_NOT_THE_AUTHORITY: Final = "metadata.name!=kube-root-ca.crt"
