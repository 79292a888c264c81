"""`shardsdk manifests` and `shardsdk crd` print what an operator needs, and no more."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardsdk.admission import Serving
from shardsdk.cli import main
from shardsdk.protocol.namespaces import CoveredNamespaces
from tests.permissions import Permission, read_permissions
from tests.printed_manifests import LEASES, complaint, folder, named, of_kind, printed, write

__all__ = ["folder"]  # applies to all tests of this file


def test_an_elected_operator_is_two_pods_and_what_they_may_do(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    made = printed("-n", "team", capsys=capsys)
    assert named(made) == [
        "CustomResourceDefinition sites.example.com", "ServiceAccount sites", "Role sites", "RoleBinding sites",
        "ClusterRole sharding:objects:team:sites", "ClusterRoleBinding sharding:objects:team:sites",
        "Deployment sites", "PodDisruptionBudget sites",
    ]  # fmt: skip
    spec = of_kind(made, "Deployment")["spec"]
    assert spec["replicas"] == 2
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    (container,) = spec["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/sites:1"
    assert "args" not in container
    assert {each["metadata"].get("namespace", "team") for each in made} == {"team"}


def test_it_may_do_what_it_was_declared_with_and_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    granted = read_permissions(printed("-n", "team", capsys=capsys))
    assert granted.keys() == {"team/sites"}
    everywhere = {each for each in granted["team/sites"] if not each.namespace}
    assert {each.resource for each in everywhere} == {
        "sites.example.com", "sites.example.com/status", "sites.example.com/finalizers", "configmaps", "events",
    }  # fmt: skip
    within = granted["team/sites"] - everywhere
    assert within >= LEASES
    assert {each.resource for each in within} == {"leases.coordination.k8s.io", "events"}
    assert not {each for each in granted["team/sites"] if each.verb == "*" or each.resource == "*"}


def test_one_namespace_takes_no_cluster_role(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    made = printed("-n", "team", "--watch-namespace", "pages", capsys=capsys)
    assert not [each for each in made if each["kind"].startswith("ClusterRole")]
    assert {each.namespace for each in read_permissions(made)["team/sites"]} == {"team", "pages"}
    (container,) = of_kind(made, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--watch-namespace=pages"]


def test_what_is_in_no_namespace_takes_a_cluster_role_beside_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    write("watch_namespace='pages'")
    text = Path("sites.py").read_text().replace("import ConfigMap", "import ConfigMap, Node")
    Path("sites.py").write_text(text + "\n\nsite.watches(Node, to=lambda node: [])\n")
    granted = read_permissions(printed("-n", "team", capsys=capsys))["team/sites"]
    reads = {Permission("nodes", verb) for verb in ("get", "list", "watch")}
    assert {each for each in granted if not each.namespace} == reads


def test_a_namespace_that_the_operator_names_is_not_told_again(capsys: pytest.CaptureFixture[str]) -> None:
    write("watch_namespace='pages'")
    made = printed(capsys=capsys)
    assert not [each for each in made if each["kind"].startswith("ClusterRole")]
    assert "args" not in of_kind(made, "Deployment")["spec"]["template"]["spec"]["containers"][0]


def test_a_sharded_operator_brings_its_ring(capsys: pytest.CaptureFixture[str]) -> None:
    write("sharded=True")
    made = printed("-n", "team", "--sharder", "system/mine", capsys=capsys)
    assert of_kind(made, "ClusterRing")["spec"]["resources"] == [
        {
            "group": "example.com",
            "resource": "sites",
            "controlledResources": [{"group": "", "resource": "configmaps"}],
        }
    ]
    assert of_kind(made, "Deployment")["spec"]["replicas"] == 3
    granted = read_permissions(made)
    assert {(each.resource, each.verb) for each in granted["system/mine"]} == {
        (resource, verb) for resource in ("sites.example.com", "configmaps") for verb in ("list", "watch", "patch")
    }
    assert Permission("clusterrings.sharding.timebertt.dev", "get", "", "sites") in granted["team/sites"]
    (rule,) = of_kind(made, "FlowSchema")["spec"]["rules"]
    assert rule["subjects"][0]["serviceAccount"] == {"namespace": "team", "name": "sites"}


def test_the_ring_alone_takes_no_image(capsys: pytest.CaptureFixture[str]) -> None:
    write("sharded=True")
    assert main(["manifests", "sites.py", "--ring-only"]) == 0
    made = list(yaml.safe_load_all(capsys.readouterr().out))
    role = "sharding:clusterring:sites"
    assert named(made) == ["ClusterRing sites", f"ClusterRole {role}", f"ClusterRoleBinding {role}"]
    assert "give --helm or --ring-only" in complaint(
        "manifests", "sites.py", "--ring-only", "--helm", "chart", capsys=capsys
    )


def test_the_ring_of_shards_that_see_some_namespaces_covers_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    write("sharded=True")
    made = printed("--watch-namespace", "shop", "--watch-namespace", "pages", capsys=capsys)
    covered = CoveredNamespaces.parse(of_kind(made, "ClusterRing")["spec"]["namespaceSelector"])
    assert covered == CoveredNamespaces(frozenset({"shop", "pages"}), frozenset())


@pytest.mark.parametrize("how", [(), ("--hash-by", "Namespace")])
def test_the_ring_of_an_operator_that_names_its_namespace_covers_that(
    how: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    write("sharded=True, watch_namespace='pages'")
    spec = of_kind(printed(*how, capsys=capsys), "ClusterRing")["spec"]
    assert CoveredNamespaces.parse(spec["namespaceSelector"]).only == frozenset({"pages"})


def test_shards_that_keep_their_names_are_a_stateful_set(capsys: pytest.CaptureFixture[str]) -> None:
    write("sharded=True")
    made = printed("--stateful", "--replicas", "5", "--arg=--log-level=debug", capsys=capsys)
    found = of_kind(made, "StatefulSet")["spec"]
    assert (found["replicas"], found["serviceName"], found["podManagementPolicy"]) == (5, "sites", "Parallel")
    assert of_kind(made, "Service")["spec"]["clusterIP"] == "None"
    assert found["template"]["spec"]["containers"][0]["args"] == ["--log-level=debug", "--restart-grace=60"]


@pytest.mark.parametrize(("declared", "options"), [("", ()), ("sharded=True", ()), ("sharded=True", ("--stateful",))])
def test_pods_are_probed_and_go_one_at_a_time(
    declared: str, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """tests/node evicts them."""
    write(declared)
    made = printed(*options, capsys=capsys)
    workload = of_kind(made, "StatefulSet" if options else "Deployment")["spec"]
    budget = of_kind(made, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == workload["selector"]
    assert workload["selector"]["matchLabels"].items() <= workload["template"]["metadata"]["labels"].items()
    (container,) = workload["template"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    probed = {name: container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")}
    assert {name: each["path"] for name, each in probed.items()} == {
        "livenessProbe": "/healthz", "readinessProbe": "/readyz",
    }  # fmt: skip
    assert {ports.get(each["port"], each["port"]) for each in probed.values()} == {8081}


def test_the_same_is_printed_each_time() -> None:
    write("sharded=True")
    command = [sys.executable, "-m", "shardsdk", "manifests", "sites.py", "--image", "i:1"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[4])}
    texts = {
        subprocess.run(command, env={**environment, "PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1
    assert not re.search(rb"[&*]id\d", texts.pop()), "anchors are nothing for people"


def test_pods_are_restricted(capsys: pytest.CaptureFixture[str]) -> None:
    """tests/integration has the API server's own word for it."""
    write()
    pod = of_kind(printed(capsys=capsys), "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert {each["name"] for each in container["env"]} == {"POD_NAMESPACE", "POD_NAME", "POD_UID"}
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {"health": 8081, "metrics": 8080}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-n", "Team"], "'Team' cannot be the name of a namespace"),
        (["--watch-namespace", "a.b"], "'a.b' cannot be the name of a namespace"),
        (["--stateful"], "operator 'sites' is not sharded; a StatefulSet is for shards"),
        (["--sharder", "sharder"], "--sharder 'sharder' is not NAMESPACE/NAME"),
    ],
)
def test_wrong_input_is_one_line_that_says_what_to_write(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write()
    assert says in complaint("manifests", "sites.py", "--image", "i:1", *arguments, capsys=capsys)


def test_pods_need_an_image_and_a_ring_shards(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    assert "name what its pods run: --image IMAGE" in complaint("manifests", "sites.py", capsys=capsys)
    says = "operator 'sites' is not sharded; --ring-only is for the ring of one that is"
    assert says in complaint("manifests", "sites.py", "--ring-only", capsys=capsys)


def test_a_manager_has_no_manifests(capsys: pytest.CaptureFixture[str]) -> None:
    Path("sites.py").write_text("from shardsdk import Manager\nmanager = Manager()\n")
    assert "manager is a Manager, of which nobody knows what it is to do" in complaint(
        "manifests", "sites.py", "--image", "i:1", capsys=capsys
    )


# -- definitions ------------------------------------------------------------------


def test_definitions_are_those_of_its_own_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    assert main(["crd", "sites.py"]) == 0
    (definition,) = yaml.safe_load_all(capsys.readouterr().out)
    assert definition["metadata"]["name"] == "sites.example.com"
    assert definition == of_kind(printed(capsys=capsys), "CustomResourceDefinition")


def test_an_operator_of_other_peoples_kinds_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    text = Path("sites.py").read_text().replace("reconcile(Site, owns=[ConfigMap])", "reconcile(ConfigMap)")
    Path("sites.py").write_text(text.replace("-> SiteStatus", "-> None"))
    assert complaint("crd", "sites.py", capsys=capsys).endswith(
        "has no custom resources of its own, so there is nothing to define"
    )


# -- as a chart --------------------------------------------------------------------


def test_a_chart_keeps_its_version_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    """tests/chart renders it."""
    write()
    arguments = ("manifests", "sites.py", "--image", "registry.example.com:5000/sites:1.2", "--helm", "chart")
    assert main(arguments) == 0
    values = yaml.safe_load(Path("chart/values.yaml").read_text())
    assert values["image"] == {
        "repository": "registry.example.com:5000/sites", "tag": "1.2", "digest": "", "pullPolicy": "IfNotPresent",
    }  # fmt: skip
    about = Path("chart/Chart.yaml")
    about.write_text(
        about.read_text().replace("version: 0.1.0", "version: 3.0.0").replace("description: ", "description: x")
    )
    Path("chart/values.yaml").write_text("")
    assert main(arguments) == 0
    assert "\nversion: 3.0.0\n" in about.read_text()
    assert "description: The operator" in about.read_text()
    assert Path("chart/values.yaml").read_text()


@pytest.mark.parametrize("image", ["registry.example.com:5000/sites", "sites"])
def test_a_chart_wants_to_know_which_image(image: str, capsys: pytest.CaptureFixture[str]) -> None:
    write()
    said = complaint("manifests", "sites.py", "--image", image, "--helm", "chart", capsys=capsys)
    assert "names no tag: say which one, as in registry.example.com/sites:1.0.0" in said


def test_a_folder_with_something_else_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    said = complaint("manifests", "sites.py", "--image", "i:1", "--helm", ".", capsys=capsys)
    assert said.endswith(". is there and holds no chart; name another folder, or empty this one")


WEBHOOK = """

from shardsdk.admission import Review


@operator.validate(Site)
def check(review: Review[Site]) -> None: ...
"""


def test_webhooks_bring_a_service_a_port_and_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    assert not any("Webhook" in each["kind"] or each["kind"] == "Service" for each in printed(capsys=capsys))
    Path("sites.py").write_text(Path("sites.py").read_text() + WEBHOOK)
    made = printed("-n", "team", "--watch-namespace", "a", capsys=capsys)
    assert named(made)[-2:] == ["Service sites-webhooks", "ValidatingWebhookConfiguration sites"]
    service, configuration = made[-2:]
    pod = of_kind(made, "Deployment")["spec"]["template"]
    ports = {each["name"]: each["containerPort"] for each in pod["spec"]["containers"][0]["ports"]}
    assert ports[service["spec"]["ports"][0]["targetPort"]] == 9443
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    [hook] = configuration["webhooks"]
    called = hook["clientConfig"]["service"]
    assert (called["name"], called["namespace"]) == (service["metadata"]["name"], "team")
    assert hook["namespaceSelector"]["matchExpressions"][0]["values"] == ["a"]
    granted = {(each.resource, each.verb, each.namespace, each.name) for each in read_permissions(made)["team/sites"]}
    assert ("secrets", "patch", "team", "sites-webhook-certificates") in granted
    configurations = "validatingwebhookconfigurations.admissionregistration.k8s.io"
    assert {each for each in granted if each[0] == configurations} == {
        (configurations, verb, "", "sites") for verb in ("get", "patch")
    }


def test_a_chart_has_its_webhooks_where_it_is_released(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    Path("sites.py").write_text(Path("sites.py").read_text() + WEBHOOK)
    assert main(["manifests", "sites.py", "--image", "registry.example.com/sites:1", "--helm", "chart"]) == 0
    template = Path("chart/templates/webhooks.yaml").read_text()
    assert template.count("namespace: '{{ .Release.Namespace }}'") == 2
    assert "containerPort: 9443" in Path("chart/templates/workload.yaml").read_text()


# -- with cert-manager ---------------------------------------------------------------


def write_with_webhook(arguments: str = "") -> None:
    write(arguments)
    Path("sites.py").write_text(Path("sites.py").read_text() + WEBHOOK)


def test_cert_manager_makes_the_certificate_where_it_is_looked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_with_webhook()
    made = printed("-n", "team", "--cert-manager", capsys=capsys)
    names = named(made)
    assert names[5:11] == [
        "ClusterRoleBinding sharding:objects:team:sites",
        "Issuer sites-webhook-selfsigned", "Certificate sites-webhook-authority",
        "Issuer sites-webhook-authority", "Certificate sites-webhooks", "Deployment sites",
    ]  # fmt: skip
    selfsigned, authority, issuer, certificate = made[6:10]
    assert certificate["spec"]["dnsNames"][0] == "sites-webhooks.team.svc"
    assert certificate["spec"]["issuerRef"]["name"] == issuer["metadata"]["name"]
    assert issuer["spec"]["ca"]["secretName"] == authority["spec"]["secretName"]
    assert authority["spec"]["issuerRef"]["name"] == selfsigned["metadata"]["name"]
    assert authority["spec"]["privateKey"]["rotationPolicy"] == "Never", "what it signed stays good when it is renewed"
    pod = of_kind(made, "Deployment")["spec"]["template"]["spec"]
    (volume,) = [each for each in pod["volumes"] if each.get("secret") == {"secretName": "sites-webhook-tls"}]
    assert certificate["spec"]["secretName"] == "sites-webhook-tls"
    (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if each["name"] == volume["name"]]
    within = tmp_of(pod)
    for name in ("tls.crt", "tls.key"):
        file = Path("pod") / Path(mount["mountPath"]).relative_to(within) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    monkeypatch.setattr("tempfile.tempdir", str(Path("pod").resolve()))
    assert Path(Serving().certificates()) == Path("pod").resolve() / Path(mount["mountPath"]).relative_to(within)


def tmp_of(pod: dict[str, Any]) -> str:
    """Where a pod keeps temporary files."""
    (found,) = [each["mountPath"] for each in pod["containers"][0]["volumeMounts"] if each["name"] == "tmp"]
    return str(found)


def test_cert_manager_injects_its_authority_so_that_the_operator_needs_no_rights_for_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_with_webhook()
    made = printed("-n", "team", "--cert-manager", capsys=capsys)
    configuration = of_kind(made, "ValidatingWebhookConfiguration")
    of_aks = {"admissions.enforcer/disabled": "true"}
    assert configuration["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": "team/sites-webhooks", **of_aks
    }  # fmt: skip
    resources = {each.resource for each in read_permissions(made)["team/sites"]}
    assert not [each for each in resources if "secrets" in each or "webhookconfigurations" in each]
    without = of_kind(printed("-n", "team", capsys=capsys), "ValidatingWebhookConfiguration")
    assert without["metadata"]["annotations"] == of_aks


@pytest.mark.parametrize(
    ("issuer", "reference"),
    [
        ("company", {"group": "cert-manager.io", "kind": "Issuer", "name": "company"}),
        ("ClusterIssuer/company", {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "company"}),
        ("StepIssuer.certmanager.step.sm/x", {"group": "certmanager.step.sm", "kind": "StepIssuer", "name": "x"}),
    ],
)
def test_an_issuer_that_there_is_signs_it(
    issuer: str, reference: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_with_webhook()
    made = printed("--issuer", issuer, capsys=capsys)
    assert "Issuer" not in {each["kind"] for each in made}
    assert of_kind(made, "Certificate")["spec"]["issuerRef"] == reference


@pytest.mark.parametrize("issuer", ["", "/", "ClusterIssuer/", "/company", "Cluster-Issuer/company", "My_Issuer"])
def test_an_issuer_without_a_name_is_refused(issuer: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_with_webhook()
    said = complaint("manifests", "sites.py", "--image", "i:1", "--issuer", issuer, capsys=capsys)
    assert "names no issuer; write NAME (of an Issuer), or KIND/NAME as in ClusterIssuer/company" in said


@pytest.mark.parametrize("option", [["--cert-manager"], ["--issuer", "company"]])
def test_an_operator_without_webhooks_needs_no_certificate(
    option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write()
    said = complaint("manifests", "sites.py", "--image", "i:1", *option, capsys=capsys)
    assert f"has no webhooks, which are all that it would take a certificate for: leave {option[0]} away" in said
