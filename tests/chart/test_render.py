"""What the sharder's chart renders: as the sources have it, and as the sharder reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sharder.config import SharderConfig, parse_config
from sharder.install import CRD_NAMES
from sharder.rbac import ring_role
from shardsdk.version import VERSION
from tests.chart.helm import CONTROLLER, NAMESPACE, SHARDER, Documents, Helm, find, is_hook, merge, select, set_in
from tests.chart.options import OPTIONS, RING
from tests.permissions import read_permissions

SOURCES = [each for name in ("sharder", "viewer") for each in yaml.safe_load_all(Path(f"rbac/{name}.yaml").read_text())]
RBAC = [document for document in SOURCES if document["kind"] != "Namespace"]
KINDS = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ServiceAccount"}


def bare(document: dict[str, Any]) -> dict[str, Any]:
    """Without what Helm's conventions add."""
    metadata = {key: value for key, value in document["metadata"].items() if key in ("name", "namespace")}
    return {**document, "metadata": metadata}


def rbac(documents: Documents) -> list[dict[str, Any]]:
    found = [bare(each) for each in documents if each["kind"] in KINDS and not is_hook(each)]
    # A habit of charts that the plain file does without: the pods ask for the token.
    return [{key: value for key, value in each.items() if key != "automountServiceAccountToken"} for each in found]


def by_name(documents: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def config_of(documents: Documents) -> SharderConfig:
    """As the sharder reads it; what it would warn of is none of the chart's."""
    loaded = parse_config(find(documents, "ConfigMap", "sharder")["data"]["config.yaml"], "config.yaml")
    assert loaded.without_effect == ()
    return loaded.config


# -- the sources are the sources ----------------------------------------------


def test_rbac_is_that_of_the_sources(helm: Helm) -> None:
    assert by_name(rbac(helm.render())) == by_name([bare(each) for each in RBAC])


def test_secure_metrics_bring_their_roles_and_nothing_else_does(helm: Helm) -> None:
    ours = [bare(each) for each in yaml.safe_load_all(Path("rbac/metrics.yaml").read_text())]
    assert by_name(rbac(helm.render(OPTIONS["secure metrics"]))) == by_name([bare(each) for each in RBAC] + ours)
    off = {"config": {"metrics": {"secure": True, "bindAddress": "0"}}}
    assert by_name(rbac(helm.render(off))) == by_name([bare(each) for each in RBAC])
    assert config_of(helm.render(OPTIONS["secure metrics"])).metrics.secure
    assert not config_of(helm.render()).metrics.secure


def test_without_a_webhook_secure_metrics_still_have_a_certificate(helm: Helm) -> None:
    off = merge(OPTIONS["secure metrics"], set_in("config.webhook.enabled", False))
    own = helm.render(off)
    assert find(own, "Role", "sharder")
    kept = helm.render(merge(off, OPTIONS["secret"]))
    volumes = find(kept, "Deployment")["spec"]["template"]["spec"]["volumes"]
    [mounted] = [each for each in volumes if each["name"] == "tls"]
    assert mounted["secret"]["secretName"] == "my-tls"
    assert find(helm.render(merge(off, OPTIONS["certManager"])), "Certificate", "sharder-webhook")


def test_the_crds_are_those_of_the_sources() -> None:
    ours = {path.name: path.read_bytes() for path in (SHARDER / "crds").iterdir()}
    sources = {path.name: path.read_bytes() for path in Path("crds").iterdir()}

    assert ours == sources, "copy them: cp crds/*.yaml charts/sharder/crds/"


def test_versions_are_the_projects() -> None:
    for chart in Path("charts").iterdir():
        about = yaml.safe_load((chart / "Chart.yaml").read_text())
        assert (about["version"], about["appVersion"]) == (VERSION, VERSION), chart


def test_a_rings_role_is_what_the_command_prints(helm: Helm) -> None:
    from sharder.core.ringspec import parse_ring

    controlled = [
        {"group": "batch", "resource": "jobs"},
        {"resource": "pods"},
        {"group": "batch", "resource": "cronjobs"},
    ]
    spec = {
        "resources": [
            {"group": "apps", "resource": "deployments", "controlledResources": controlled},
            {"resource": "secrets"},
        ]
    }
    documents = helm.render({"rings": {"many": spec}}, namespace="elsewhere")
    ring = parse_ring(find(documents, "ClusterRing", "many"))

    wanted = ring_role("many", ring.named, namespace="elsewhere", service_account="sharder")

    assert ring.name == "many"
    assert [bare(find(documents, each["kind"], each["metadata"]["name"])) for each in wanted] == [
        bare(each) for each in wanted
    ]
    assert ring.named == parse_ring({**find(documents, "ClusterRing", "many"), "spec": spec}).named


def test_of_a_ring_by_ranges_the_sharder_may_touch_nothing(helm: Helm) -> None:
    spec = {"assignment": "Ranges", "hashBy": "Namespace", "resources": [{"group": "", "resource": "secrets"}]}
    documents = helm.render({"rings": {"ranged": spec}})

    assert find(documents, "ClusterRing", "ranged")["spec"] == spec
    assert find(documents, "ClusterRole", "sharding:clusterring:ranged")["rules"] == []


def test_without_certificates_of_its_own_the_sharder_may_not_touch_secrets(helm: Helm) -> None:
    for values in (OPTIONS["certManager"], OPTIONS["secret"], OPTIONS["webhook off"]):
        [granted] = read_permissions([each for each in helm.render(values) if not is_hook(each)]).values()
        assert not [each for each in granted if each.resource == "secrets"]


def test_rbac_can_be_left_to_others(helm: Helm) -> None:
    others = merge(OPTIONS["no rbac"], RING)
    documents = helm.render(others)

    assert {each["kind"] for each in documents} & KINDS == set()
    assert select(documents, "ClusterRing")
    account = helm.render(merge(others, {"serviceAccount": {"create": True}}))
    assert {each["kind"] for each in account} & KINDS == {"ServiceAccount"}


def test_hooks_may_do_what_they_do_and_no_more(helm: Helm) -> None:
    hooks = [each for each in helm.render({"crds": {"keep": False}}) if is_hook(each)]
    granted = {
        account: {f"{each.verb} {each.resource} {each.namespace}/{each.name}" for each in permissions}
        for account, permissions in read_permissions(hooks).items()
    }
    crds = "customresourcedefinitions.apiextensions.k8s.io"
    webhooks = "mutatingwebhookconfigurations.admissionregistration.k8s.io"

    assert granted == {
        f"{NAMESPACE}/sharder-crds": {
            f"create {crds} /",
            *(f"{verb} {crds} /{name}" for verb in ("get", "patch") for name in CRD_NAMES),
        },
        f"{NAMESPACE}/sharder-cleanup": {
            f"list {webhooks} /",
            f"delete {webhooks} /",
            *(f"delete {crds} /{name}" for name in CRD_NAMES),
            "list leases.coordination.k8s.io /",
            "list clusterrings.sharding.timebertt.dev /",
            *(f"{verb} leases.coordination.k8s.io {NAMESPACE}/sharder" for verb in ("get", "delete")),
            f"delete secrets {NAMESPACE}/sharder-webhook-certificates",
        },
    }


# -- the configuration file -----------------------------------------------------


@pytest.mark.parametrize("option", OPTIONS)
def test_the_sharder_reads_the_configuration_of_every_option(helm: Helm, option: str) -> None:
    config_of(helm.render(OPTIONS[option]))


def test_defaults_leave_the_sharders_own_defaults_alone(helm: Helm) -> None:
    rendered = config_of(helm.render())
    service = {"namespace": NAMESPACE, "name": "sharder", "port": 443}

    assert rendered.webhook.config.client_config.render() == {"service": service}
    assert rendered == merge_service(SharderConfig(), rendered)


def merge_service(config: SharderConfig, rendered: SharderConfig) -> SharderConfig:
    """`config` with the Service spelled out; it is the default one."""
    from dataclasses import replace

    spelled = replace(config.webhook.config, client_config=rendered.webhook.config.client_config)
    return replace(config, webhook=replace(config.webhook, config=spelled))


def test_in_another_namespace_everything_points_there(helm: Helm) -> None:
    documents = helm.render(namespace="elsewhere")
    config = config_of(documents)

    assert config.leader_election.resource_namespace == "elsewhere"
    assert config.webhook.config.client_config.render()["service"]["namespace"] == "elsewhere"
    selector = config.webhook.config.namespace_selector
    assert selector is not None
    names = ("kube-system", "elsewhere", "default")
    assert [selector.matches({"kubernetes.io/metadata.name": name}) for name in names] == [False, False, True]
    namespaces = {each["metadata"].get("namespace", "elsewhere") for each in documents}
    subjects = {s["namespace"] for each in documents for s in each.get("subjects", ())}
    assert namespaces | subjects == {"elsewhere"}


def test_what_the_values_say_wins(helm: Helm) -> None:
    config = config_of(
        helm.render(
            {
                "config": {
                    "controller": {"sharder": {"syncPeriod": "2m"}},
                    "webhook": {
                        "config": {
                            "clientConfig": {"url": "https://sharder.example.com"},
                            "namespaceSelector": {"matchLabels": {"team": "a"}},
                        }
                    },
                }
            },
            namespace="elsewhere",
        )
    )

    assert config.controller.sharder.sync_period_seconds == 120
    assert config.webhook.config.client_config.render() == {"url": "https://sharder.example.com"}
    assert config.webhook.config.namespace_selector is not None
    assert config.webhook.config.namespace_selector.matches({"team": "a"})


def test_another_configuration_is_another_pod(helm: Helm) -> None:
    def checksum(values: dict[str, Any]) -> str:
        template = find(helm.render(values), "Deployment")["spec"]["template"]
        text: str = template["metadata"]["annotations"]["checksum/config"]
        return text

    assert checksum({}) == checksum({"replicas": 3})
    assert checksum({}) != checksum({"config": {"gracefulShutDown": "20s"}})


# -- ports and certificates -----------------------------------------------------


def test_ports_follow_the_configuration(helm: Helm) -> None:
    config = {
        "health": {"bindAddress": "[::]:7001"},
        "metrics": {"bindAddress": "0.0.0.0:7002"},
        "webhook": {"server": {"port": 7003}},
    }
    documents = helm.render({"config": config, "service": {"port": 8443}, "networkPolicy": {"enabled": True}})
    container = container_of(documents)
    service = {port["name"]: (port["port"], port["targetPort"]) for port in find(documents, "Service")["spec"]["ports"]}

    assert ports_of(container) == {"health": 7001, "metrics": 7002, "webhook": 7003}
    assert {container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("liveness", "readiness", "startup")} == {"health"}
    assert service == {"webhook": (8443, "webhook"), "metrics": (8080, "metrics")}
    assert config_of(documents).webhook.config.client_config.render()["service"]["port"] == 8443


def test_what_is_off_has_no_port(helm: Helm) -> None:
    config = {"metrics": {"bindAddress": "0"}, "webhook": {"enabled": False}}
    documents = helm.render({"config": config, "networkPolicy": {"enabled": True}})

    assert ports_of(container_of(documents)) == {"health": 8081}
    assert not select(documents, "Service")
    assert find(documents, "NetworkPolicy", "sharder")["spec"]["ingress"] == []


def container_of(documents: Documents) -> dict[str, Any]:
    [container] = find(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


def ports_of(container: dict[str, Any]) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container["ports"]}


def test_cert_managers_certificate_is_for_the_name_that_the_api_server_calls(helm: Helm) -> None:
    documents = helm.render(OPTIONS["certManager"])
    certificate = find(documents, "Certificate")["spec"]
    config = config_of(documents).webhook

    assert f"sharder.{NAMESPACE}.svc" in certificate["dnsNames"]
    assert certificate["issuerRef"]["name"] == find(documents, "Issuer")["metadata"]["name"]
    assert config.config.annotations == {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/sharder-webhook"}
    assert find(documents, "Certificate")["metadata"]["name"] == "sharder-webhook"
    assert config.config.client_config.ca_bundle is None, "cert-manager injects it"
    assert mounted(documents)[config.server.cert_dir] == {"secret": {"secretName": certificate["secretName"]}}


def test_an_issuer_of_ones_own_is_used(helm: Helm) -> None:
    own = {"kind": "ClusterIssuer", "name": "company", "group": "cert-manager.io"}
    documents = helm.render(merge(OPTIONS["certManager"], set_in("certificates.certManager.issuerRef", own)))

    assert find(documents, "Certificate")["spec"]["issuerRef"] == own
    assert not select(documents, "Issuer")


def test_a_secret_of_ones_own_is_mounted_and_its_ca_is_published(helm: Helm) -> None:
    documents = helm.render(OPTIONS["secret"])
    config = config_of(documents).webhook

    assert mounted(documents)[config.server.cert_dir] == {"secret": {"secretName": "my-tls"}}
    assert config.config.client_config.ca_bundle is not None
    assert config.config.client_config.ca_bundle.startswith(b"-----BEGIN CERTIFICATE-----")


def mounted(documents: Documents) -> dict[str, Any]:
    """Volumes by where they are mounted."""
    pod = find(documents, "Deployment")["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    found = {}
    for mount in pod["containers"][0]["volumeMounts"]:
        found[mount["mountPath"]] = {key: value for key, value in volumes[mount["name"]].items() if key != "name"}
    return found


# -- pods -------------------------------------------------------------------------


def test_pods_spread_and_one_may_be_away(helm: Helm) -> None:
    documents = helm.render()
    deployment = find(documents, "Deployment")["spec"]
    selector = deployment["selector"]["matchLabels"]
    pod = deployment["template"]

    assert deployment["replicas"] == 2
    assert selector.items() <= pod["metadata"]["labels"].items()
    assert find(documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == selector
    assert find(documents, "Service")["spec"]["selector"] == selector
    spread = pod["spec"]["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert all(each["labelSelector"]["matchLabels"] == selector for each in spread)


@pytest.mark.parametrize("chart", [SHARDER, CONTROLLER])
def test_replicas_are_spread_as_the_values_say(helm: Helm, chart: Path) -> None:
    one = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    own = {"labelSelector": {"matchLabels": {"team": "a"}}, "matchLabelKeys": ["pod-template-hash"]}
    values = {"topologySpreadConstraints": [one, one | own]}
    if chart == CONTROLLER:
        values = merge(yaml.safe_load((CONTROLLER / "examples" / "checksum.yaml").read_text()), values)
    (workload,) = [each for each in helm.render(values, chart=chart) if each["kind"] in ("Deployment", "StatefulSet")]
    filled, kept = workload["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert filled["labelSelector"] == workload["spec"]["selector"]
    assert kept == one | own


def test_a_stop_has_more_time_than_it_takes(helm: Helm) -> None:
    documents = helm.render()
    seconds = find(documents, "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]

    assert config_of(documents).graceful_shutdown_seconds < seconds


def test_user_and_group_can_be_left_to_the_cluster(helm: Helm) -> None:
    """OpenShift chooses them, and refuses a pod that names others."""
    named = ("runAsUser", "runAsGroup", "fsGroup")
    documents = helm.render({"podSecurityContext": dict.fromkeys(named)})
    pods = [each["spec"]["template"]["spec"] for each in documents if each["kind"] in ("Deployment", "Job")]
    assert len(pods) > 1
    for pod in pods:
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for container in pod["containers"]:
            assert not set(named) & set(container["securityContext"])


def test_hook_pods_are_no_replicas(helm: Helm) -> None:
    documents = helm.render()
    selector = find(documents, "Deployment")["spec"]["selector"]["matchLabels"].items()

    for job in select(documents, "Job"):
        assert not selector <= job["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({}, f"controller-sharding:{VERSION}"),
        ({"repository": "registry.example.com/a/b", "tag": "x"}, "registry.example.com/a/b:x"),
        ({"digest": "sha256:" + "0" * 64, "tag": "x"}, "controller-sharding@sha256:" + "0" * 64),
    ],
)
def test_the_image_is_named(helm: Helm, image: dict[str, str], reference: str) -> None:
    documents = helm.render({"image": image})
    templates = [each["spec"]["template"] for each in documents if each["kind"] in ("Deployment", "Job")]

    assert {template["spec"]["containers"][0]["image"] for template in templates} == {reference}
