"""What the charts leave to others: a chart that they are a part of, an autoscaler, whoever makes accounts and roles."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster import AdminClient
from tests.chart.helm import CONTROLLER, NAMESPACE, SHARDER, Documents, Helm, HelmFailed, find, merge
from tests.chart.options import OPTIONS
from tests.chart.releases import CONFIG_RING, RINGS, Cluster, free_ports, ring_is, running
from tests.chart.test_values import EXAMPLE

CHECKSUM: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
VALUES: dict[Path, dict[str, Any]] = {SHARDER: {}, CONTROLLER: CHECKSUM}
OWN = [each for each in yaml.safe_load_all(Path("rbac/sharder.yaml").read_text()) if each]
ROLES = "rbac.authorization.k8s.io/v1"

charts = pytest.mark.parametrize("chart", [SHARDER, CONTROLLER], ids=lambda chart: chart.name)


def workload_of(documents: Documents) -> dict[str, Any]:
    [workload] = [each for each in documents if each["kind"] in ("Deployment", "StatefulSet")]
    return workload


@charts
@pytest.mark.parametrize("enabled", [True, False])
def test_a_chart_that_it_is_a_part_of_may_leave_it_out(helm: Helm, tmp_path: Path, chart: Path, enabled: bool) -> None:
    parent = tmp_path / "parent"
    shutil.copytree(chart, parent / "charts" / chart.name)
    version = yaml.safe_load((chart / "Chart.yaml").read_text())["version"]
    dependency = {"name": chart.name, "version": version, "condition": f"{chart.name}.enabled"}
    about = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [dependency]}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(about))

    documents = helm.render({chart.name: {**VALUES[chart], "enabled": enabled}}, chart=parent)

    assert bool(documents) == enabled


@charts
def test_another_version_of_the_chart_replaces_no_pod(helm: Helm, tmp_path: Path, chart: Path) -> None:
    later = tmp_path / chart.name
    shutil.copytree(chart, later)
    about = yaml.safe_load((later / "Chart.yaml").read_text())
    (later / "Chart.yaml").write_text(yaml.safe_dump({**about, "version": "99.0.0", "appVersion": "99"}))
    values = merge(VALUES[chart], {"image": {"tag": "1"}})

    before, after = (workload_of(helm.render(values, chart=each)) for each in (chart, later))

    assert before["metadata"]["labels"] != after["metadata"]["labels"]
    assert before["spec"] == after["spec"]


@charts
def test_a_rings_resources_have_their_group(helm: Helm, chart: Path) -> None:
    """The API server fills the empty one in, and whoever compares lists with manifests (Argo CD) finds a difference."""
    ring = {"resources": [{"resource": "secrets", "controlledResources": [{"resource": "configmaps"}]}]}
    values = {"rings": {"one": ring}} if chart == SHARDER else merge(CHECKSUM, {"ring": ring})

    assert find(helm.render(values, chart=chart), "ClusterRing")["spec"]["resources"] == [
        {
            "group": "",
            "resource": "secrets",
            "controlledResources": [{"group": "", "resource": "configmaps"}],
        }
    ]


def test_an_autoscaler_has_the_number_of_shards_to_itself(helm: Helm) -> None:
    found = workload_of(helm.render(merge(CHECKSUM, {"replicas": ""}), chart=CONTROLLER))
    assert "replicas" not in found["spec"]
    none = workload_of(helm.render(merge(CHECKSUM, {"replicas": 0}), chart=CONTROLLER))
    assert none["spec"]["replicas"] == 0


@charts
def test_null_is_no_number_of_replicas(helm: Helm, chart: Path) -> None:
    """It does not outlast an upgrade that keeps the installation's values."""
    with pytest.raises(HelmFailed, match="missing property 'replicas'"):
        helm.render(merge(VALUES[chart], {"replicas": None}), chart=chart)


@pytest.mark.timeout(600)
async def test_the_number_that_an_autoscaler_sets_outlasts_upgrades(cluster: Cluster, api: AdminClient) -> None:
    await cluster.plane.apply(Path("crds"))
    controller = ("checksum", str(CONTROLLER), "--namespace", "default")
    kept = ("upgrade", *controller, "--reset-then-reuse-values")

    async def number() -> int:
        replicas: int = (await api.get("apps/v1/statefulsets", "checksum", "default"))["spec"]["replicas"]
        return replicas

    await cluster.run("install", *controller, values=merge(CHECKSUM, {"replicas": 3}))
    try:
        await cluster.run(*kept, values={"replicas": ""})
        assert await number() == 1
        await api.patch("apps/v1/statefulsets", "checksum", {"spec": {"replicas": 7}}, "default")
        for again in ({"replicas": ""}, {"podAnnotations": {"a": "b"}}):
            await cluster.run(*kept, values=again)
            assert await number() == 7
    finally:
        await cluster.run("uninstall", "checksum", "--namespace", "default")


@pytest.mark.timeout(600)
async def test_values_that_are_kept_from_an_older_chart_assign_as_the_ring_does(
    cluster: Cluster, api: AdminClient
) -> None:
    await cluster.plane.apply(Path("crds"))
    controller = ("checksum", str(CONTROLLER), "--namespace", "default")
    older = dict.fromkeys(("assignment", "hashBy", "watchUnassignedControlled"))
    await cluster.run("install", *controller, values=merge(CHECKSUM, {"replicas": ""}))
    try:
        ring = (await api.get(RINGS, "checksum"))["spec"]
        scaled = {"spec": {"replicas": 7}}
        await api.patch("apps/v1/statefulsets", "checksum", scaled, "default")
        notes = await cluster.run("upgrade", *controller, "--reuse-values", values={"ring": older})
        assert (await api.get(RINGS, "checksum"))["spec"] == ring
        workload = await api.get("apps/v1/statefulsets", "checksum", "default")
        assert workload["spec"]["replicas"] == 7, "it is the autoscaler's"
        assert "has as many shards of ring checksum as its autoscaler says" in notes
    finally:
        await cluster.run("uninstall", "checksum", "--namespace", "default")


@pytest.mark.timeout(600)
async def test_roles_and_account_of_somebody_elses_making_are_enough(cluster: Cluster, api: AdminClient) -> None:
    """In the order that values.yaml says."""
    await cluster.plane.apply(Path("crds"))
    await cluster.plane.apply(stdin=yaml.safe_dump_all(OWN))
    try:
        with free_ports() as ports:
            values = merge(OPTIONS["no rbac"], ports.values(), {"rings": {"one": CONFIG_RING}})
            await cluster.install(values=values)
            async with running(cluster, ports):
                # It leads, and may say so; the ring's own role is somebody else's as well.
                await api.eventually(RINGS, ring_is("Ready", "False"))
            await cluster.upgrade(values=values)
            await cluster.uninstall()
        assert cluster.jobs.ran == []
        assert await api.find("v1/serviceaccounts", "sharder", NAMESPACE), "it is not the release's"
    finally:
        for each in OWN[1:]:
            resource = f"{'v1' if each['apiVersion'] == 'v1' else ROLES}/{each['kind'].lower()}s"
            await api.delete(resource, each["metadata"]["name"], each["metadata"].get("namespace"))


@pytest.mark.timeout(600)
async def test_the_account_that_a_release_has_made_is_not_taken_from_its_sharder(
    cluster: Cluster, api: AdminClient
) -> None:
    others = merge(OPTIONS["no rbac"], {"serviceAccount": {"create": True}})
    await cluster.install("--skip-crds", values=others)

    with pytest.raises(HelmFailed, match=r"this release has made the ServiceAccount.*leave it true"):
        await cluster.upgrade(values=OPTIONS["no rbac"])

    await cluster.upgrade(values=others)
    assert await api.find("v1/serviceaccounts", "sharder", NAMESPACE)
