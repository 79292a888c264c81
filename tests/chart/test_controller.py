"""The chart for sharded controllers: the roles of the sources, a shard's surroundings, both kinds of workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sharder.core.ringspec import parse_ring
from sharder.rbac import ring_role
from shardsdk.cli import main
from tests.chart.helm import CONTROLLER, Documents, Helm, HelmFailed, find, merge, select, set_in
from tests.permissions import read_files, read_permissions

CHECKSUM: dict[str, Any] = yaml.safe_load((CONTROLLER / "examples" / "checksum.yaml").read_text())


def render(helm: Helm, *values: dict[str, Any], namespace: str = "default", release: str = "checksum") -> Documents:
    return helm.render(merge(CHECKSUM, *values), chart=CONTROLLER, namespace=namespace, release=release)


@pytest.fixture
def example(helm: Helm) -> Documents:
    return render(helm)


def workload_of(documents: Documents) -> dict[str, Any]:
    [workload] = [each for each in documents if each["kind"] in ("Deployment", "StatefulSet")]
    return workload


def pod_of(documents: Documents) -> dict[str, Any]:
    pod: dict[str, Any] = workload_of(documents)["spec"]["template"]["spec"]
    return pod


def test_the_examples_permissions_are_those_of_the_sources(example: Documents) -> None:
    sources = read_permissions(read_files(Path("rbac/shard.yaml")))
    granted = read_permissions(example)

    assert granted["default/checksum"] == sources["default/checksum"]


def test_a_shard_gets_the_role_that_its_command_prints(helm: Helm, capsys: pytest.CaptureFixture[str]) -> None:
    resources = [
        {
            "group": "apps",
            "resource": "deployments",
            "controlledResources": [{"group": "apps", "resource": "replicasets"}],
        },
        {"group": "", "resource": "secrets", "controlledResources": [{"group": "", "resource": "configmaps"}]},
    ]
    rendered = render(helm, {"ring": {"resources": resources}, "rbac": {"rules": []}}, namespace="team")
    arguments = ["rbac", "--ring", "checksum", "--namespace", "team", "--main", "deployments.apps,secrets"]

    assert main([*arguments, "--controlled", "replicasets.apps,configmaps", "--controlled-verbs", ""]) == 0

    printed = read_permissions(yaml.safe_load_all(capsys.readouterr().out))
    assert read_permissions(rendered)["team/checksum"] == printed["team/checksum"]


def test_finalizers_are_granted_of_what_controls_others_alone(helm: Helm) -> None:
    resources = [
        {"group": "apps", "resource": "deployments", "controlledResources": [{"group": "", "resource": "pods"}]},
        {"group": "", "resource": "secrets", "controlledResources": [{"group": "", "resource": "configmaps"}]},
        {"group": "apps", "resource": "daemonsets"},
    ]
    granted = read_permissions(render(helm, {"ring": {"resources": resources}}))["default/checksum"]

    assert {each.resource for each in granted if each.verb == "update"} == {
        "deployments.apps/finalizers", "secrets/finalizers",
    }  # fmt: skip


def test_the_sharder_gets_the_role_that_its_command_prints(example: Documents) -> None:
    ring = parse_ring(find(example, "ClusterRing", "checksum"))

    for wanted in ring_role("checksum", ring.named):
        rendered = find(example, wanted["kind"], wanted["metadata"]["name"])
        assert {key: value for key, value in rendered.items() if key != "metadata"} == {
            key: value for key, value in wanted.items() if key != "metadata"
        }


def test_a_shard_knows_where_it_is_and_who_it_is(example: Documents) -> None:
    [container] = pod_of(example)["containers"]
    fields = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}

    assert fields == {"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name", "POD_UID": "metadata.uid"}
    assert container["args"][:2] == ["examples.checksum", "--ring=checksum"]


def test_a_stateful_set_starts_its_shards_side_by_side(example: Documents) -> None:
    workload = workload_of(example)

    assert workload["kind"] == "StatefulSet"
    assert workload["spec"]["podManagementPolicy"] == "Parallel"
    assert find(example, "Service")["metadata"]["name"] == workload["spec"]["serviceName"]


def test_labels_of_the_charts_own_are_refused_where_it_sets_them(helm: Helm) -> None:
    version = {"helm.sh/chart": "mine"}
    with pytest.raises(HelmFailed, match=r"podMonitor.labels has helm.sh/chart, a label that the chart sets itself"):
        render(helm, {"podMonitor": {"labels": version}})
    with pytest.raises(HelmFailed, match=r"podLabels has app.kubernetes.io/component, a label that the chart"):
        render(helm, {"podLabels": {"app.kubernetes.io/component": "mine"}})
    assert (
        version.items()
        <= workload_of(render(helm, {"podLabels": version}))["spec"]["template"]["metadata"]["labels"].items()
    )


def test_a_deployment_is_the_same_pod(helm: Helm, example: Documents) -> None:
    documents = render(helm, {"kind": "Deployment"})

    assert workload_of(documents)["kind"] == "Deployment"
    assert pod_of(documents) == pod_of(example)
    assert not select(documents, "Service")


def test_everything_that_selects_pods_selects_these(helm: Helm) -> None:
    documents = render(helm, {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}})
    workload = workload_of(documents)["spec"]
    labels = workload["template"]["metadata"]["labels"].items()
    selectors = [
        workload["selector"]["matchLabels"],
        find(documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        find(documents, "PodMonitor")["spec"]["selector"]["matchLabels"],
        find(documents, "Service")["spec"]["selector"],
        *(each["labelSelector"]["matchLabels"] for each in pod_of(documents)["topologySpreadConstraints"]),
    ]

    assert all(selector.items() <= labels for selector in selectors)
    assert len({tuple(sorted(selector.items())) for selector in selectors}) == 1


def test_what_the_controller_does_for_a_living_is_granted_where_it_is_asked(helm: Helm) -> None:
    pods = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}]
    granted = read_permissions(render(helm, set_in("rbac.namespaceRules", pods), namespace="team"))["team/checksum"]

    assert {(each.verb, each.namespace) for each in granted if each.resource == "pods"} == {("delete", "team")}
    assert {each.namespace for each in granted if each.resource == "leases.coordination.k8s.io"} == {"team"}
    assert {each.namespace for each in granted if each.resource == "configmaps"} == {""}


def test_a_ring_that_somebody_else_declares_is_left_alone(helm: Helm) -> None:
    documents = render(helm, {"ring": {"create": False, "name": "shared"}})

    assert not select(documents, "ClusterRing")
    assert [each["metadata"]["name"] for each in select(documents, "ClusterRole")] == ["checksum"]
    assert ("patch", "secrets") in {
        (each.verb, each.resource) for each in read_permissions(documents)["default/checksum"]
    }


def test_roles_can_be_left_to_others(helm: Helm) -> None:
    kinds = {each["kind"] for each in render(helm, {"rbac": {"create": False}})}

    assert kinds == {"ClusterRing", "FlowSchema", "PodDisruptionBudget", "Service", "ServiceAccount", "StatefulSet"}


def test_names_come_from_the_release_unless_given(helm: Helm) -> None:
    documents = render(helm, {"name": "", "image": {"digest": "sha256:" + "1" * 64}}, release="team-a")

    names = {each["metadata"]["name"] for each in documents}
    assert names == {"team-a", "sharding:clusterring:team-a", "team-a-leases"}
    assert pod_of(documents)["containers"][0]["image"].endswith("@sha256:" + "1" * 64)


def test_the_ring_says_what_the_values_say(helm: Helm) -> None:
    selector = {"matchLabels": {"team": "a"}}
    documents = render(helm, {"ring": {"namespaceSelector": selector, "watchUnassignedControlled": False}})

    assert find(documents, "ClusterRing")["spec"] == {
        "resources": CHECKSUM["ring"]["resources"],
        "namespaceSelector": selector,
        "watchUnassignedControlled": False,
    }


def test_a_ring_by_ranges_lets_the_sharder_touch_nothing(helm: Helm) -> None:
    documents = render(helm, {"ring": {"assignment": "Ranges", "hashBy": "Namespace"}})

    ring = find(documents, "ClusterRing")
    assert ring["spec"] == {
        "assignment": "Ranges",
        "hashBy": "Namespace",
        "resources": CHECKSUM["ring"]["resources"],
    }
    assert find(documents, "ClusterRole", f"sharding:clusterring:{ring['metadata']['name']}")["rules"] == []


def test_without_a_health_port_there_are_no_probes(helm: Helm) -> None:
    [container] = pod_of(render(helm, {"ports": {"health": 0, "metrics": 0}}))["containers"]

    assert not {"livenessProbe", "readinessProbe", "startupProbe", "ports"} & container.keys()


def test_it_can_be_a_part_of_another_chart(helm: Helm, tmp_path: Path) -> None:
    """As its README shows it."""
    readme = (CONTROLLER / "README.md").read_text()
    blocks = [yaml.safe_load(block.split("```")[0]) for block in readme.split("```yaml\n")[1:]]
    [dependencies] = [block for block in blocks if "dependencies" in block]
    [values] = [block for block in blocks if "controller" in block]
    dependencies["dependencies"][0]["repository"] = f"file://{CONTROLLER.resolve()}"
    parent = tmp_path / "parent"
    parent.mkdir()
    about = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", **dependencies}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(about))
    (parent / "values.yaml").write_text(yaml.safe_dump(values))
    helm.run("dependency", "build", "--skip-refresh", str(parent))

    documents = helm.render(chart=parent, release="any")

    assert workload_of(documents)["metadata"]["name"] == "my-controller"
    assert find(documents, "ClusterRing")["metadata"]["name"] == "my-controller"


def test_the_least_that_its_readme_shows_is_enough(helm: Helm) -> None:
    readme = (CONTROLLER / "README.md").read_text()
    least = yaml.safe_load(readme.split("```yaml\n")[1].split("```")[0])

    documents = helm.render(least, chart=CONTROLLER, release="mine")

    assert workload_of(documents)["kind"] == "Deployment"
    assert find(documents, "ClusterRing")["spec"]["resources"] == least["ring"]["resources"]
