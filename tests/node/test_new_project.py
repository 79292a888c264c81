"""What `shardsdk new` writes is built by its Dockerfile, and installed by the commands of its README, on real pods."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from docsite.pages import blocks_of
from localcluster.images import build_folder
from localcluster.installation import ROOT
from tests.node.clusters import PATIENCE_SECONDS, Cluster
from tests.node.operators import shardsdk
from tests.walking import make_tools, run

NAME: Final = "pages"
PODS: Final = f"app.kubernetes.io/name={NAME}"
#: The image that its README builds.
IMAGE: Final = f"registry.example.com/{NAME}:0.1.0"
#: Stands for the image of Python that its Dockerfile names, which is elsewhere; and has this checkout's wheel, which a
#: package index would have.
STAND_IN: Final = "localhost/python-stand-in:1"
PYTHON: Final = """
ARG BUILD_BASE
FROM ${BUILD_BASE}
ARG PIP_INDEX_URL=
ARG PIP_FIND_LINKS=
ARG PIP_CERT=
COPY wheels/ /wheels/
ENV PIP_INDEX_URL=${PIP_INDEX_URL} PIP_CERT=${PIP_CERT} PIP_FIND_LINKS="/wheels ${PIP_FIND_LINKS}" \\
    PIP_BREAK_SYSTEM_PACKAGES=1
RUN ln -s python3 /usr/bin/python
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * PATIENCE_SECONDS)]


@pytest_asyncio.fixture
async def project(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Path]:
    """The project, and its image on the node."""
    if cluster.plane is None:
        pytest.skip("makes images of its own: for the cluster that these tests make themselves")
    folder, base = tmp_path / NAME, tmp_path / "python"
    code, said = await shardsdk(cluster, tmp_path, "new", NAME, "--folder", str(folder))
    assert code == 0, said
    base.mkdir()
    (base / "Dockerfile").write_text(PYTHON)
    wheel = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(base / "wheels")]
    await asyncio.to_thread(subprocess.run, wheel, cwd=ROOT, check=True, capture_output=True)
    await asyncio.to_thread(build_folder, base, STAND_IN)
    dockerfile = folder / "Dockerfile"
    first, *rest = dockerfile.read_text().splitlines()
    assert first.startswith("FROM docker.io/library/python:")
    dockerfile.write_text("\n".join([f"FROM {STAND_IN}", *rest, ""]))
    image, archive = await asyncio.to_thread(build_folder, folder, IMAGE)
    assert image == IMAGE
    await cluster.plane.node.load(archive)
    yield folder
    await cluster.try_kubectl("delete", "--ignore-not-found", "--filename", str(folder / "example.yaml"))
    for kind in ("crd", "clusterrole", "clusterrolebinding"):
        await cluster.try_kubectl("delete", kind, "--selector", PODS)
    await cluster.try_kubectl("delete", "crd", "pages.example.com")
    await cluster.try_kubectl("delete", "namespace", NAME)


async def test_a_new_project_is_built_and_installed_as_its_readme_says(cluster: Cluster, project: Path) -> None:
    tools = make_tools(project.parent / "tools")
    # As at a prompt: what a make that runs the tests leaves here would have another make tell its folders on stdout.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))} | {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "KUBECONFIG": str(cluster.kubeconfig),
    }
    blocks = [block.commands for block in blocks_of("README.md", (project / "README.md").read_text())]
    (install,) = [commands for commands in blocks if any("kubectl apply --server-side" in each for each in commands)]
    assert install[0].split() == ["make", "image", f"IMAGE={IMAGE}"], "what the fixture has done"

    script = "\n".join(["set -eux -o pipefail", *install[1:], "kubectl apply -f example.yaml"])
    code, said = await run(script, project, environment, PATIENCE_SECONDS)
    assert code == 0, said
    await cluster.working_pods(NAME, PODS, 2)
    await cluster.kubectl("wait", "--for=condition=Ready", f"--timeout={PATIENCE_SECONDS:.0f}s", "page/first")
    shown = await cluster.kubectl("get", "configmap/first", "--output=jsonpath={.data.text}")
    assert shown
    assert f" text: {shown}" in (project / "example.yaml").read_text()
