"""`sharder rbac RING` against a real API server: what it prints is what the sharder's identity lacks."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from localcluster import AdminClient, ControlPlane, LocalClusterError

RINGS = "sharding.timebertt.dev/v1alpha1/clusterrings"
RING = {"apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing"}


@pytest_asyncio.fixture
async def ring(control_plane: ControlPlane, admin: AdminClient, namespace: str) -> AsyncIterator[str]:
    await control_plane.apply(Path("crds"))
    spec = {
        "resources": [
            {"resource": "secrets", "controlledResources": [{"resource": "configmaps"}]},
            {"group": "policy", "resource": "poddisruptionbudgets"},
        ]
    }
    await admin.create(RINGS, {**RING, "metadata": {"name": namespace}, "spec": spec})
    yield namespace
    await admin.delete(RINGS, namespace)


async def sharder(*arguments: str, kubeconfig: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "sharder", *arguments),
        env=os.environ | {"KUBECONFIG": kubeconfig},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def may(plane: ControlPlane, verb: str, resource: str, kubeconfig: Path) -> bool:
    try:
        await plane.kubectl("auth", "can-i", verb, resource, "--all-namespaces", "--quiet", kubeconfig=kubeconfig)
    except LocalClusterError:
        return False
    return True


async def test_applying_what_it_prints_grants_list_watch_and_patch_on_the_rings_resources(
    control_plane: ControlPlane, admin: AdminClient, ring: str
) -> None:
    await control_plane.apply(Path("rbac/sharder.yaml"))
    identity = await control_plane.service_account_kubeconfig("sharding-system", "sharder")
    assert not await may(control_plane, "list", "poddisruptionbudgets.policy", identity)
    code, printed, complaints = await sharder("rbac", ring, kubeconfig=str(control_plane.admin_kubeconfig))
    assert (code, complaints) == (0, "")
    await control_plane.apply(stdin=printed)
    try:
        await admin.until_allowed(
            "patch", "policy/v1/poddisruptionbudgets", user="system:serviceaccount:sharding-system:sharder"
        )
        for resource in ("secrets", "configmaps", "poddisruptionbudgets.policy"):
            granted = {v for v in ("list", "watch", "patch") if await may(control_plane, v, resource, identity)}
            assert granted == {"list", "watch", "patch"}
        assert not await may(control_plane, "delete", "poddisruptionbudgets.policy", identity)
        assert not await may(control_plane, "list", "pods", identity)
    finally:
        for kind in ("clusterroles", "clusterrolebindings"):
            await admin.delete(f"rbac.authorization.k8s.io/v1/{kind}", f"sharding:clusterring:{ring}")


async def test_a_ring_that_is_not_there_is_one_clear_line(control_plane: ControlPlane, ring: str) -> None:
    code, printed, complaints = await sharder("rbac", "no-such-ring", kubeconfig=str(control_plane.admin_kubeconfig))
    assert (code, printed) == (2, "")
    (line,) = complaints.splitlines()
    assert line.startswith("sharder: there is no ClusterRing 'no-such-ring' at https://")


async def test_a_missing_permission_is_one_line_that_names_the_rule(control_plane: ControlPlane, ring: str) -> None:
    nobody = control_plane.kubeconfig("nobody", [])
    code, printed, complaints = await sharder("rbac", ring, kubeconfig=str(nobody))
    assert (code, printed) == (1, "")
    (line,) = complaints.splitlines()
    assert "clusterrings" in line
    assert "sharding.timebertt.dev" in line
    assert "get" in line
