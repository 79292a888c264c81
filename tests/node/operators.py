"""Operators on real pods, as `shardsdk manifests` prints them and kubectl applies them."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from localcluster import AdminError
from localcluster.images import TARGETS, build_folder
from localcluster.installation import ROOT
from shardsdk.version import VERSION
from tests.node.clusters import Cluster, Complaints, until_right
from tests.walking import runtime_directory

NAME: Final = "websites"
PODS: Final = f"app.kubernetes.io/name={NAME}"
FILE: Final = "examples/website.py"
WEBSITES: Final = "example.com/v1/websites"
#: Of an image that has the operator in it, as its user would make one.
DOCKERFILE: Final = f"""
FROM localhost/{TARGETS["examples"]}:{VERSION}
COPY website.py /app/website.py
ENTRYPOINT ["/opt/sharder/bin/python3", "-m", "shardsdk", "run", "/app/website.py"]
"""


async def build_operator(cluster: Cluster, folder: Path, text: str, image: str) -> tuple[str, str]:
    """Write an operator into `folder`, and make an image of it; its file and the image's full name.

    Skips where the tests do not make the cluster themselves.
    """
    if cluster.plane is None:
        pytest.skip("makes an image of its own: for the cluster that these tests make themselves")
    file = folder / "website.py"
    file.write_text(text)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    full, archive = await asyncio.to_thread(build_folder, folder, image)
    await cluster.plane.node.load(archive)
    return str(file), full


async def shardsdk(cluster: Cluster, folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the command as somebody who has kubectl and the cluster's kubeconfig."""
    kubectl = folder / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec {shlex.join(cluster.kubectl_command)} "$@"\n')
    kubectl.chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shardsdk", *arguments, cwd=ROOT,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder),
             "KUBECONFIG": str(cluster.kubeconfig), "XDG_RUNTIME_DIR": str(runtime_directory(folder))},
    )  # fmt: skip
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


@asynccontextmanager
async def installed_operator(
    cluster: Cluster, folder: Path, file: str, image: str, *options: str, websites: Sequence[str] = (NAME,)
) -> AsyncIterator[None]:
    """The operator in a namespace whose pods have to be restricted; its Websites are in the namespaces `websites`."""
    code, text = await shardsdk(cluster, folder, "manifests", file, "--image", image, "-n", NAME, *options)
    assert code == 0, text
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await cluster.admin.create("v1/namespaces", {"metadata": {"name": NAME, "labels": labels}})
    manifests = folder / "manifests.yaml"
    manifests.write_text(text)
    try:
        await cluster.kubectl("apply", "--server-side", "--filename", str(manifests))
        yield
    finally:
        # Nobody takes a finalizer off, or answers a webhook, once the operator is gone.
        configurations = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
        await cluster.kubectl("delete", configurations, "--selector", PODS)
        for namespace in websites:
            await cluster.try_kubectl("--namespace", namespace, "delete", "websites", "--all", "--timeout=60s")
            for each in await cluster.admin.list(WEBSITES, namespace):
                await cluster.admin.patch(
                    WEBSITES, each["metadata"]["name"], {"metadata": {"finalizers": None}}, namespace
                )
        await cluster.kubectl("delete", "--ignore-not-found", "--filename", str(manifests))
        # Gone, not going: the next test makes them anew.
        await cluster.kubectl("delete", "namespaces", *sorted({NAME, *websites}), "--ignore-not-found")


def website(html: str, name: str = "home") -> dict[str, Any]:
    """A Website as it is sent."""
    return {"apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": name}, "spec": {"html": html}}


async def until_accepted(write: Callable[[], Awaitable[Any]]) -> None:
    """Write, as soon as its webhook is answered: a Service takes a moment to know which pods there are."""

    async def attempt() -> None:
        try:
            await write()
        except AdminError as error:
            if error.status == 500:
                raise Complaints(str(error)) from error
            raise

    await until_right(attempt)
