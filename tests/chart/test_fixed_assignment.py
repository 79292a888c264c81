"""How a ring assigns cannot be changed: an upgrade that tries leaves the roles by which the ring works as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster import AdminClient
from tests.chart.helm import CONTROLLER, HelmFailed, merge
from tests.chart.releases import CONFIG_RING, Cluster

ROLES = ("clusterroles", "roles")
GROUP = "rbac.authorization.k8s.io/v1"
CHECKSUM: dict[str, Any] = yaml.safe_load((CONTROLLER / "examples" / "checksum.yaml").read_text())
LABELS = {"assignment": "Labels"}
RANGES = {"assignment": "Ranges", "hashBy": "Namespace"}
BY_UID = {"assignment": "Ranges", "hashBy": "UID"}
SINGLE = {"resources": CONFIG_RING["resources"]}


async def roles(api: AdminClient) -> dict[tuple[str, str], Any]:
    """The rules of every role that is not Kubernetes' own."""
    return {
        (resource, role["metadata"]["name"]): role.get("rules")
        for resource in ROLES
        for role in await api.list(f"{GROUP}/{resource}")
        if "kubernetes.io/bootstrapping" not in role["metadata"].get("labels", {})
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("is_", "wanted", "word"),
    [
        (LABELS, RANGES, "assignment is Ranges, but the ring checksum on the cluster has Labels"),
        (RANGES, LABELS, "assignment is Labels, but the ring checksum on the cluster has Ranges"),
        (RANGES, BY_UID, "hashBy is UID, but the ring checksum on the cluster has Namespace"),
    ],
    ids=["to ranges", "to labels", "hashed otherwise"],
)
async def test_an_upgrade_that_assigns_otherwise_leaves_the_roles(
    cluster: Cluster, api: AdminClient, is_: dict[str, Any], wanted: dict[str, Any], word: str
) -> None:
    await cluster.plane.apply(Path("crds"))
    controller = ("checksum", str(CONTROLLER), "--namespace", "default")
    ring = merge(CHECKSUM, {"ring": {"resources": SINGLE["resources"]}})
    await cluster.run("install", *controller, values=merge(ring, {"ring": is_}))
    try:
        before = await roles(api)
        with pytest.raises(HelmFailed, match=f"ring.{word}, which cannot be changed: keep it, or stop the ring's"):
            await cluster.run("upgrade", *controller, values=merge(ring, {"ring": wanted}))
        assert await roles(api) == before
        # What stays may be written again, in other words.
        await cluster.run("upgrade", *controller, values=merge(ring, {"ring": is_}))
        assert await roles(api) == before
    finally:
        await cluster.run("uninstall", "checksum", "--namespace", "default")


@pytest.mark.timeout(600)
async def test_an_upgrade_of_the_sharder_that_assigns_otherwise_leaves_the_roles(
    cluster: Cluster, api: AdminClient
) -> None:
    await cluster.install("--no-hooks", values={"rings": {"one": CONFIG_RING}})
    before = await roles(api)
    with pytest.raises(
        HelmFailed, match=r"rings\.one\.assignment is Ranges, but the ring one on the cluster has Labels"
    ):
        await cluster.upgrade("--no-hooks", values={"rings": {"one": {**CONFIG_RING, **RANGES}}})
    assert await roles(api) == before
    await cluster.upgrade("--no-hooks", values={"rings": {"one": {**CONFIG_RING, **LABELS}}})
    assert await roles(api) == before
