"""The chart that `shardsdk manifests --helm` writes renders to what `shardsdk manifests` prints."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster import AdminClient
from shardsdk.cli import main
from tests.cert_manager import cert_manager_types
from tests.chart.helm import Helm, HelmFailed, parse
from tests.chart.releases import RINGS, Cluster
from tests.sites import write_sites

CLUSTER_ROLES = "rbac.authorization.k8s.io/v1/clusterroles"
IMAGE = "registry.example.com/sites:1"


@pytest.fixture(params=["", "sharded=True"], ids=["elected", "sharded"])
def chart(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    path = [*sys.path]
    write_sites(tmp_path, request.param)
    assert main(["manifests", str(tmp_path / "sites.py"), "--image", IMAGE, "--helm", str(tmp_path / "chart")]) == 0
    yield tmp_path / "chart"
    sys.path[:] = path
    sys.modules.pop("sites", None)


def rendered(helm: Helm, chart: Path, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    text = helm.run("template", "sites", str(chart), "--namespace", "team", "--include-crds", values=values)
    return parse(text)


def key_of(document: dict[str, Any]) -> tuple[str, ...]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def test_it_passes_lint(helm: Helm, chart: Path) -> None:
    assert "0 chart(s) failed" in helm.lint(chart)


def test_it_renders_to_the_manifests(helm: Helm, chart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["manifests", str(chart.parent / "sites.py"), "--image", IMAGE, "-n", "team"]) == 0
    printed = {key_of(each): each for each in yaml.safe_load_all(capsys.readouterr().out)}
    found = {key_of(each): each for each in rendered(helm, chart)}
    for each in found.values():
        if each["kind"] == "Deployment":
            assert each["spec"]["template"]["spec"]["containers"][0].pop("imagePullPolicy") == "IfNotPresent"
    assert found == printed


def test_every_value_has_its_place(helm: Helm, chart: Path) -> None:
    values = {
        "replicas": 7,
        "image": {"digest": "sha256:" + "0" * 64, "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "args": ["--log-level=debug"],
        "env": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"memory": "1Gi"}},
        "serviceAccount": {"annotations": {"a": "b"}},
        "podAnnotations": {"c": "d"},
        "nodeSelector": {"e": "f"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
    }
    assert yaml.safe_load((chart / "values.yaml").read_text()).keys() - {"sharder"} == values.keys()
    found = rendered(helm, chart, values)
    (deployment,) = [each["spec"] for each in found if each["kind"] == "Deployment"]
    pod, metadata = deployment["template"]["spec"], deployment["template"]["metadata"]
    (container,) = pod["containers"]
    assert deployment["replicas"] == 7
    assert container["image"] == f"registry.example.com/sites@{values['image']['digest']}"  # type: ignore[index]
    assert container["imagePullPolicy"] == "Always"
    assert container["args"] == values["args"]
    assert container["env"][-1] == {"name": "A", "value": "b"}
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    assert metadata["annotations"] == values["podAnnotations"]
    for name in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert pod[name] == values[name]
    (account,) = [each for each in found if each["kind"] == "ServiceAccount"]
    assert account["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize("chart", ["sharded=True"], indirect=True)
def test_the_rings_role_is_for_the_sharder_that_there_is(helm: Helm, chart: Path) -> None:
    found = rendered(helm, chart, {"sharder": {"namespace": "here", "serviceAccount": "mine"}})
    bound = {each["metadata"]["name"]: each for each in found if each["kind"] == "ClusterRoleBinding"}
    (subject,) = bound["sharding:clusterring:sites"]["subjects"]
    assert (subject["namespace"], subject["name"]) == ("here", "mine")


WEBHOOK = """

@operator.validate(Site)
def check(review: object) -> None: ...
"""


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[Path]:
    """The chart of an operator for whose webhook cert-manager makes the certificate."""
    path = [*sys.path]
    file = write_sites(tmp_path)
    file.write_text(file.read_text() + WEBHOOK)
    arguments = ("--image", IMAGE, "--cert-manager", "--helm", str(tmp_path / "chart"))
    assert main(["manifests", str(file), *arguments]) == 0
    yield tmp_path / "chart"
    sys.path[:] = path
    sys.modules.pop("sites", None)


def test_with_cert_manager_it_renders_to_the_manifests(
    helm: Helm, certified: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "0 chart(s) failed" in helm.lint(certified)
    company = {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "company"}
    for option, values in (("--cert-manager", {}), ("--issuer=ClusterIssuer/company", {"issuerRef": company})):
        capsys.readouterr()
        assert main(["manifests", str(certified.parent / "sites.py"), "--image", IMAGE, "-n", "team", option]) == 0
        printed = {key_of(each): each for each in yaml.safe_load_all(capsys.readouterr().out)}
        found = {key_of(each): each for each in rendered(helm, certified, values)}
        found[("Deployment", "team", "sites")]["spec"]["template"]["spec"]["containers"][0].pop("imagePullPolicy")
        assert found == printed


def test_written_again_it_has_no_more_than_the_operator(
    helm: Helm, certified: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A configuration of webhooks that stayed would refuse what users write: nobody answers."""
    folder, former = certified.parent, certified / "crds" / "pages.example.com.yaml"
    former.write_text((certified / "crds" / "sites.example.com.yaml").read_text().replace("site", "page"))
    (certified / "templates" / "extra.yaml").write_text("# Somebody's own.\n")
    (certified / "crds" / "extra.yaml").write_text("# Somebody's own.\n")
    file = write_sites(folder)
    sys.modules.pop("sites")

    assert main(["manifests", str(file), "--image", IMAGE, "--helm", str(certified)]) == 0

    said = capsys.readouterr().err
    for gone in ("templates/webhooks.yaml", "templates/certificates.yaml", "crds/pages.example.com.yaml"):
        assert f"removed {certified}/{gone}" in said
    assert (certified / "templates" / "extra.yaml").exists()
    assert (certified / "crds" / "extra.yaml").exists()
    assert "extra" not in said
    assert main(["manifests", str(file), "--image", IMAGE, "-n", "team"]) == 0
    printed = {key_of(each) for each in yaml.safe_load_all(capsys.readouterr().out)}
    assert {key_of(each) for each in rendered(helm, certified)} == printed


@pytest.mark.parametrize("chart", [""], indirect=True)
def test_what_somebody_else_has_written_stays_and_is_named(chart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under a name that an operator with webhooks would take."""
    own = chart / "templates" / "webhooks.yaml"
    own.write_text("# Somebody's own.\n")
    arguments = ["manifests", str(chart.parent / "sites.py"), "--image", IMAGE, "--helm", str(chart)]

    assert main(arguments) == 0

    assert own.read_text() == "# Somebody's own.\n"
    assert f"{own} stays, but is not of this operator any more; is it yours?" in capsys.readouterr().err


@pytest.mark.parametrize("chart", [""], indirect=True)
def test_a_tag_that_yaml_reads_as_a_number_is_refused(helm: Helm, chart: Path) -> None:
    with pytest.raises(HelmFailed, match="tag is a number; put it in quotes"):
        rendered(helm, chart, {"image": {"tag": 20260101}})
    (found,) = [each for each in rendered(helm, chart, {"image": {"tag": "20260101"}}) if each["kind"] == "Deployment"]
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example.com/sites:20260101"


@pytest.mark.parametrize("nothing", ["", None])
def test_an_autoscaler_has_the_number_of_pods_to_itself(helm: Helm, chart: Path, nothing: str | None) -> None:
    for replicas in (nothing, 0, 7):
        (found,) = [each for each in rendered(helm, chart, {"replicas": replicas}) if each["kind"] == "Deployment"]
        assert found["spec"].get("replicas", nothing) == replicas


async def test_a_cluster_with_cert_manager_takes_it(cluster: Cluster, certified: Path) -> None:
    await cluster.plane.apply(stdin=yaml.safe_dump_all(cert_manager_types()))
    text = cluster.helm.run("template", "sites", str(certified), "--namespace", "default", "--include-crds")
    said = await cluster.plane.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text
    )
    assert said.count("serverside-applied") == len(parse(text))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("chart", ["sharded=True"], indirect=True)
async def test_what_a_ring_lists_no_more_stays_in_the_sharders_role(
    cluster: Cluster, api: AdminClient, chart: Path
) -> None:
    await cluster.plane.apply(Path("crds"))
    sites, configmaps = ("example.com", "sites"), ("", "configmaps")
    kept = [{"group": "", "resource": "configmaps", "controlled": True}, {"group": "", "resource": "pods"}]
    file = chart.parent / "sites.py"
    release = ("sites", str(chart), "--namespace", "default")
    await cluster.run("install", *release)
    try:
        file.write_text(file.read_text().replace(", owns=[ConfigMap]", ""))
        sys.modules.pop("sites")
        assert main(["manifests", str(file), "--image", IMAGE, "--helm", str(chart)]) == 0
        for placed, granted in ((kept, [configmaps, sites]), (kept, [configmaps, sites]), ([], [sites])):
            ring = await api.patch(RINGS, "sites", {"status": {"placedResources": placed}}, subresource="status")
            assert ring["status"]["placedResources"] == placed
            await cluster.run("upgrade", *release)
            rules = (await api.get(CLUSTER_ROLES, "sharding:clusterring:sites"))["rules"]
            found = [(group, each) for rule in rules for group in rule["apiGroups"] for each in rule["resources"]]
            # Nothing twice, and nothing that somebody has only written into the status.
            assert sorted(found) == granted
    finally:
        await cluster.run("uninstall", "sites", "--namespace", "default")
