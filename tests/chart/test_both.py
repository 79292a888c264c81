"""Both charts together: the sharder and a sharded controller, each as its chart says, share a cluster's Secrets.

Pods are processes of this machine, with the arguments, environment and ServiceAccount that the charts give them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from localcluster import AdminClient
from localcluster.installation import ROOT
from shardsdk.protocol.labels import parse_ring_name
from tests.chart.helm import CONTROLLER
from tests.chart.releases import CONFIGMAPS, LEASES, RINGS, SECRETS, Cluster, free_ports, ring_is, running

EXAMPLE = CONTROLLER / "examples" / "checksum.yaml"
SPACE = "default"
RING = parse_ring_name("checksum")
SHARDS = ("checksum-0", "checksum-1", "checksum-2")


@contextlib.asynccontextmanager
async def controller(cluster: Cluster) -> AsyncIterator[None]:
    """The example's release in namespace `default`."""
    command = ("install", "checksum", str(CONTROLLER), "--namespace", SPACE, "--values", str(EXAMPLE))
    await cluster.run(*command)
    try:
        yield
    finally:
        await cluster.run("uninstall", "checksum", "--namespace", SPACE)


@contextlib.asynccontextmanager
async def pods(cluster: Cluster) -> AsyncIterator[None]:
    """What the StatefulSet's pods would run."""
    [workload] = await cluster.admin.list("apps/v1/statefulsets", SPACE)
    pod = workload["spec"]["template"]["spec"]
    [container] = pod["containers"]
    kubeconfig = await cluster.plane.service_account_kubeconfig(SPACE, pod["serviceAccountName"])
    # Three pods share this machine's ports.
    arguments = [each for each in container["args"] if not each.startswith(("--health", "--metrics"))]
    assert len(arguments) == len(container["args"]) - 2
    names = {each["name"] for each in container["env"]}
    assert names == {"POD_NAMESPACE", "POD_NAME", "POD_UID"}
    processes = []
    for shard in SHARDS:
        environment = {**os.environ, "POD_NAMESPACE": SPACE, "POD_NAME": shard, "POD_UID": f"uid-of-{shard}"}
        processes.append(
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", *arguments, f"--name={shard}", f"--kubeconfig={kubeconfig}",
                cwd=ROOT, env=environment, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )
        )  # fmt: skip
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        codes = [await process.wait() for process in processes]
        assert codes == [0, 0, 0], "each shard hands its objects over and stops in order"


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_controller_from_its_chart_works_under_a_sharder_from_its_chart(
    cluster: Cluster, api: AdminClient
) -> None:
    with free_ports() as ports:
        await cluster.install("--no-hooks", values=ports.values())
        async with controller(cluster), running(cluster, ports), pods(cluster):
            await api.eventually(RINGS, ring_is("Ready"))
            await api.eventually(LEASES, all_hold, SPACE)
            for number in range(30):
                body = {"metadata": {"name": f"s{number}"}, "stringData": {"key": str(number)}}
                await api.create(SECRETS, body, SPACE)

            made = await api.eventually(CONFIGMAPS, checksums, SPACE, timeout_seconds=60)

            secrets = {each["metadata"]["name"]: shard_of(each) for each in await api.list(SECRETS, SPACE)}
            assert set(secrets.values()) <= set(SHARDS)
            assert len(set(secrets.values())) > 1, "work is shared"
            assert all(shard_of(each) == secrets[each["metadata"]["ownerReferences"][0]["name"]] for each in made)
            for number in range(30):
                await api.delete(SECRETS, f"s{number}", SPACE)


def all_hold(leases: list[dict[str, Any]]) -> bool:
    return {each["spec"].get("holderIdentity") for each in leases} >= set(SHARDS)


def checksums(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = [each for each in found if each["metadata"]["name"].endswith("-checksum")]
    return made if len(made) == 30 and all(shard_of(each) for each in made) else []


def shard_of(item: dict[str, Any]) -> str | None:
    return (item["metadata"].get("labels") or {}).get(RING.shard)


def test_the_example_says_how_it_is_installed() -> None:
    text = EXAMPLE.read_text()

    assert f"--values {EXAMPLE}" in text
    assert yaml.safe_load(text)["kind"] == "StatefulSet"
