"""Names and ports: whatever they look like, they render as what they are, are the certificate's, or are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from sharder.service import serving_names
from shardsdk.serving.certificate_spec import ServingNames
from tests.chart.helm import CONTROLLER, NAMESPACE, SHARDER, Documents, Helm, HelmFailed, find, merge, select, set_in
from tests.chart.options import OPTIONS, RING
from tests.chart.test_render import config_of

CHECKSUM: dict[str, Any] = yaml.safe_load((CONTROLLER / "examples" / "checksum.yaml").read_text())


# -- the certificate ------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "called"),
    [
        ({}, f"sharder.{NAMESPACE}.svc"),
        ({"url": "https://Sharder.example.com:8443/x"}, "sharder.example.com"),
        ({"url": "https://192.0.2.7:9443"}, "192.0.2.7"),
        ({"url": "https://[2001:db8::1]:9443"}, "2001:db8::1"),
        ({"service": {"name": "front"}}, f"front.{NAMESPACE}.svc"),
        ({"service": {"namespace": "edge"}}, "sharder.edge.svc"),
        ({"service": {"name": "front", "namespace": "edge", "port": 8443}}, "front.edge.svc"),
    ],
    ids=str,
)
def test_cert_managers_certificate_is_for_the_names_of_the_sharders_own(
    helm: Helm, client: dict[str, Any], called: str
) -> None:
    documents = helm.render(
        merge(OPTIONS["certManager"], OPTIONS["secure metrics"], set_in("config.webhook.config.clientConfig", client))
    )
    certificate = find(documents, "Certificate")["spec"]
    names = ServingNames.of(certificate.get("dnsNames", []) + certificate.get("ipAddresses", []))
    [endpoint] = find(documents, "ServiceMonitor")["spec"]["endpoints"]

    wanted = serving_names(config_of(documents))
    assert (names.dns, names.addresses) == (wanted.dns, wanted.addresses)
    assert set(certificate.get("dnsNames", ())) == names.dns, "addresses are no DNS names"
    assert called in names.dns | names.addresses
    assert endpoint["tlsConfig"]["serverName"] == called


# -- names that look like numbers -------------------------------------------------

#: Where Kubernetes and its operators take something that is no text.
UNTEXTUAL = {
    *("activeDeadlineSeconds", "backoffLimit", "failureThreshold", "periodSeconds", "revisionHistoryLimit"),
    *("terminationGracePeriodSeconds", "timeoutSeconds", "maxSkew", "maxSurge", "maxUnavailable", "replicas"),
    *("containerPort", "port", "targetPort", "fsGroup", "runAsGroup", "runAsUser", "matchingPrecedence", "size"),
    *("allowPrivilegeEscalation", "automountServiceAccountToken", "enableServiceLinks", "readOnly", "runAsNonRoot"),
    *("readOnlyRootFilesystem", "watchUnassignedControlled"),
}
NUMERIC = {"1000": "2000"}
PODS = {
    "image": {"repository": "1", "tag": "2"},
    "imagePullSecrets": [{"name": "3"}],
    "priorityClassName": "1000",
    "podLabels": NUMERIC,
    "podAnnotations": NUMERIC,
    "nodeSelector": NUMERIC,
    "serviceAccount": {"annotations": NUMERIC},
}


def sharders(helm: Helm) -> Iterator[Documents]:
    ring = RING["rings"]["checksum"]
    everything = merge(
        *(OPTIONS[name] for name in ("monitoring", "network policy", "admission policy", "secure metrics")),
        PODS,
        {"rings": {"2024": ring}, "service": {"annotations": NUMERIC}, "crds": {"keep": False}},
        {"metrics": {"serviceMonitor": {"labels": NUMERIC}, "dashboard": {"labels": NUMERIC, "annotations": NUMERIC}}},
    )
    yield helm.render(everything, release="1234", namespace="5678")
    for source in ("certManager", "secret"):
        certificates = merge(OPTIONS[source], {"certificates": {"secret": {"name": "77"}}})
        yield helm.render(merge(everything, certificates), release="1234", namespace="5678")
    url = set_in("config.webhook.config.clientConfig.url", "https://99")
    yield helm.render(merge(everything, OPTIONS["certManager"], url), release="1234", namespace="5678")


def controllers(helm: Helm) -> Iterator[Documents]:
    values = {
        **PODS,
        "ring": {"name": "2024", "resources": [{"group": "apps", "resource": "7"}], "watchUnassignedControlled": False},
        "sharder": {"namespace": "12", "serviceAccount": "34"},
        "podMonitor": {"enabled": True, "labels": NUMERIC},
    }
    yield helm.render(values, chart=CONTROLLER, release="1234", namespace="5678")
    ranges = merge(values, {"name": "a", "kind": "StatefulSet", "ring": {"assignment": "Ranges", "hashBy": "UID"}})
    yield helm.render(ranges, chart=CONTROLLER, release="1234", namespace="5678")


@pytest.mark.parametrize("rendered", [sharders, controllers], ids=[SHARDER.name, CONTROLLER.name])
def test_names_that_look_like_numbers_are_still_names(helm: Helm, rendered: Any) -> None:
    for documents in rendered(helm):
        wrong = [text for each in documents for text in untextual(each, each["kind"])]

        assert wrong == []
        named = {each["metadata"]["name"] for each in documents} | {
            value
            for each in documents
            for value in (each["metadata"].get("namespace"), *each["metadata"]["labels"].values())
        }
        assert {"1234", "5678", "sharding:clusterring:2024"} <= named
        assert find(documents, "ClusterRing", "2024")


def untextual(node: Any, path: str, key: str = "") -> Iterator[str]:
    """Where a document has something else than text without Kubernetes asking for it."""
    if isinstance(node, dict):
        for name, value in node.items():
            if not isinstance(name, str):
                yield f"{path}: the key {name!r}"
            yield from untextual(value, f"{path}.{name}", name)
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from untextual(value, f"{path}[{number}]", key)
    elif not isinstance(node, str) and key not in UNTEXTUAL:
        yield f"{path}: {node!r}"


# -- refused ------------------------------------------------------------------------


def refused(helm: Helm, values: dict[str, Any], **how: Any) -> str:
    """What is said about the one thing that is wrong."""
    with pytest.raises(HelmFailed) as failed:
        helm.render(values, **how)
    said = str(failed.value)
    assert said.count("\n* ") == 1, said
    return said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"podLabels": {"app.kubernetes.io/name": "x"}},
            "podLabels has app.kubernetes.io/name, a label that the chart",
        ),
        ({"podMonitor": {"labels": {"helm.sh/chart": "x"}}}, "podMonitor.labels has helm.sh/chart, a label that the"),
        (
            {"podMonitor": {"enabled": True}, "ports": {"metrics": 0}},
            "podMonitor is enabled, but ports.metrics is 0, so that there is nothing to read",
        ),
        ({"ring": {"name": "Foo_Bar"}}, "the ring's name Foo_Bar is none for a ClusterRing: set ring.name, of"),
        ({"ring": {"name": "a..b"}}, "the ring's name a..b is none for a ClusterRing"),
        ({"ring": {"name": "a" * 64}}, "is too long"),
        ({"ring": {"create": False, "name": "-a"}}, "the ring's name -a is none for a ClusterRing"),
        ({"name": "1st"}, "the name 1st is none for the Service of a StatefulSet: set name, of lower-case letters"),
    ],
)
def test_a_controllers_values_that_would_only_fail_later_are_refused_with_the_remedy(
    helm: Helm, values: dict[str, Any], said: str
) -> None:
    assert said in refused(helm, merge(CHECKSUM, values), chart=CONTROLLER)


@pytest.mark.parametrize("release", ["1234", "team.a"])
def test_a_release_whose_name_no_service_can_have_needs_a_name_for_its_stateful_set(helm: Helm, release: str) -> None:
    unnamed = merge(CHECKSUM, {"name": ""})

    assert "set name, of lower-case letters" in refused(helm, unnamed, chart=CONTROLLER, release=release)
    assert helm.render(merge(unnamed, {"name": "a"}), chart=CONTROLLER, release=release)
    deployed = helm.render(merge(unnamed, {"kind": "Deployment"}), chart=CONTROLLER, release=release)
    assert find(deployed, "Deployment", release)
    assert not select(deployed, "Service")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (set_in("config.health.bindAddress", ":0"), "config.health.bindAddress is :0, where no probe reaches it"),
        (set_in("config.metrics.bindAddress", ":0"), "config.metrics.bindAddress is :0, a port that nobody knows"),
        (set_in("config.health.bindAddress", ":65536"), "config.health.bindAddress has port 65536: use one of"),
        ({"podAnnotations": {"checksum/config": "x"}}, "podAnnotations has checksum/config, an annotation that the"),
        ({"admissionPolicy": {"enabled": True}, "rings": {"a": {}}}, "there is nothing to protect: declare rings with"),
        (
            {"admissionPolicy": {"enabled": True}, "rings": {"a": {"resources": []}}},
            "there is nothing to protect: declare rings with",
        ),
    ],
)
def test_a_sharders_values_that_would_only_fail_later_are_refused_with_the_remedy(
    helm: Helm, values: dict[str, Any], said: str
) -> None:
    assert said in refused(helm, values)


@pytest.mark.parametrize("grace", ["30s", "2m", "1m30s", "45.5s", "30000ms", ".5m", "+31s", "0.01h"])
def test_a_stop_that_may_take_longer_than_its_pods_get_is_refused(helm: Helm, grace: str) -> None:
    said = refused(helm, {"config": {"gracefulShutDown": grace}})

    assert f"terminationGracePeriodSeconds is 30, but a replica takes up to config.gracefulShutDown, {grace}" in said


@pytest.mark.parametrize("grace", ["0", "29.9s", "-1s", "29s999ms", "500ms"])
def test_a_stop_that_takes_less_is_none_of_the_charts_business(helm: Helm, grace: str) -> None:
    assert helm.render({"config": {"gracefulShutDown": grace}})
    assert helm.render({"config": {"gracefulShutDown": "2m"}, "terminationGracePeriodSeconds": 121})
