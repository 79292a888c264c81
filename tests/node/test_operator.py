"""What `shardsdk manifests` prints of examples/website.py, on real pods: two replicas, of which one leads."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from localcluster.installation import ROOT
from tests.node.clusters import PATIENCE_SECONDS, Cluster, Complaints, until_right

NAME: Final = "websites"
PODS: Final = f"app.kubernetes.io/name={NAME}"
FILE: Final = "examples/website.py"
#: For the entry point of the image with the examples, `python -m`.
ARGUMENTS: Final = ("shardsdk", "run", f"/opt/examples/{FILE}")
WEBSITES: Final = "example.com/v1/websites"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * PATIENCE_SECONDS)]


async def shardsdk(cluster: Cluster, folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the command as somebody who has kubectl and the cluster's kubeconfig."""
    kubectl = folder / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec {shlex.join(cluster.kubectl_command)} "$@"\n')
    kubectl.chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shardsdk", *arguments, cwd=ROOT,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder),
             "KUBECONFIG": str(cluster.kubeconfig), "XDG_RUNTIME_DIR": str(folder)},
    )  # fmt: skip
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


@pytest_asyncio.fixture
async def installed(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Cluster]:
    """The operator in a namespace whose pods have to be restricted."""
    image = f"{cluster.examples.repository}:{cluster.examples.tag}"
    arguments = [f"--arg={each}" for each in ARGUMENTS]
    code, text = await shardsdk(cluster, tmp_path, "manifests", FILE, "--image", image, "-n", NAME, *arguments)
    assert code == 0, text
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await cluster.admin.create("v1/namespaces", {"metadata": {"name": NAME, "labels": labels}})
    (tmp_path / "manifests.yaml").write_text(text)
    await cluster.kubectl("apply", "--server-side", "--filename", str(tmp_path / "manifests.yaml"))
    yield cluster
    # Nobody takes a finalizer off once the operator is gone.
    await cluster.try_kubectl("--namespace", NAME, "delete", "websites", "--all", "--timeout=60s")
    for each in await cluster.admin.list(WEBSITES, NAME):
        await cluster.admin.patch(WEBSITES, each["metadata"]["name"], {"metadata": {"finalizers": None}}, NAME)
    await cluster.kubectl("delete", "--filename", str(tmp_path / "manifests.yaml"))
    await cluster.admin.delete("v1/namespaces", NAME)


async def test_an_operator_works_as_its_manifests_install_it(installed: Cluster, tmp_path: Path) -> None:
    cluster, admin = installed, installed.admin
    await cluster.working_pods(NAME, PODS, 2)
    await admin.create(WEBSITES, website("<h1>one</h1>"), NAME)
    await page_is(cluster, "<h1>one</h1>")
    [deployment] = [
        each for each in await admin.list("apps/v1/deployments", NAME) if each["metadata"]["name"] == "home"
    ]
    assert deployment["metadata"]["ownerReferences"][0]["kind"] == "Website"
    assert {each["metadata"]["name"] for each in await admin.list("v1/services", NAME)} == {"home"}

    leader = await leading(cluster)
    await lines_are_json(cluster, leader)
    explained = await shardsdk(
        cluster, tmp_path, "explain", FILE, "website/home", "-n", NAME, "--pod", f"{NAME}/{leader}"
    )
    assert explained == (0, f"websites.example.com: {NAME}/home: waits for its next event\n")

    await admin.delete("v1/pods", leader, NAME)
    await leading(cluster, after=leader)
    await admin.patch(WEBSITES, "home", {"spec": {"html": "<h1>two</h1>"}}, NAME)
    await page_is(cluster, "<h1>two</h1>")
    await cluster.working_pods(NAME, PODS, 2)

    await cluster.kubectl("--namespace", NAME, "delete", "website/home", "--wait", "--timeout=120s")
    await until_right(lambda: no_page(cluster))
    events = await admin.list("v1/events", NAME)
    assert "TakenDown" in {each["reason"] for each in events}


def website(html: str) -> dict[str, Any]:
    spec = {"html": html}
    return {"apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": "home"}, "spec": spec}


async def page_is(cluster: Cluster, html: str) -> None:
    """Wait until the page is kept, and its Website says how many of its pods are ready (none: nobody pulls images)."""

    async def check() -> None:
        pages = {each["metadata"]["name"]: each.get("data") for each in await cluster.admin.list("v1/configmaps", NAME)}
        found = await cluster.admin.get(WEBSITES, "home", NAME)
        status = found.get("status") or {}
        conditions = {each["type"]: each["observedGeneration"] for each in status.get("conditions", ())}
        if pages.get("home") != {"index.html": html} or conditions.get("Ready") != found["metadata"]["generation"]:
            raise Complaints(f"the pages are {pages}, the status is {status}")

    await until_right(check)


async def no_page(cluster: Cluster) -> None:
    names = {each["metadata"]["name"] for each in await cluster.admin.list("v1/configmaps", NAME)}
    if "home" in names:
        raise Complaints(f"there are {names}")


async def leading(cluster: Cluster, *, after: str = "") -> str:
    """Wait until a pod leads, and not that one; returns its name."""

    async def check() -> str:
        lease = await cluster.admin.get("coordination.k8s.io/v1/leases", NAME, NAME)
        holder = (lease["spec"].get("holderIdentity") or "").rpartition("_")[0]
        pods = {each["metadata"]["name"] for each in await cluster.admin.list("v1/pods", NAME)}
        if holder not in pods - {after}:
            raise Complaints(f"{holder!r} leads")
        return str(holder)

    pod: str = await until_right(check)
    return pod


async def lines_are_json(cluster: Cluster, pod: str) -> None:
    """In a pod a line of the log is one object."""
    lines = (await cluster.kubectl("--namespace", NAME, "logs", pod)).splitlines()
    said = [json.loads(line) for line in lines]
    assert {"Running", "Leader is working"} <= {each["message"] for each in said}
    assert not [each for each in said if each["level"] in ("error", "critical")]
