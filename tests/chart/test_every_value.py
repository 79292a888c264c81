"""Each value by itself: it changes what is rendered, and a real API server takes the result.

So no value is without a test, and none can be described and have no effect.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster import AdminClient, AdminError
from localcluster.admin import path_of
from shardsdk.serving.x509 import make_authority
from tests.chart.helm import CONTROLLER, SHARDER, Documents, Helm, HelmFailed, merge, set_in
from tests.chart.options import OPTIONS, RING
from tests.chart.releases import Cluster
from tests.chart.test_values import CHARTS, EXAMPLE, values_of

MONITORING, NETWORK, POLICY = (OPTIONS[name] for name in ("monitoring", "network policy", "admission policy"))
MANAGER, SECRET = OPTIONS["certManager"], OPTIONS["secret"]
OTHER_CA = base64.b64encode(make_authority(datetime.now(UTC), timedelta(days=1)).certificate.pem).decode()
NONE: dict[str, Any] = {}
MONITORED = set_in("podMonitor.enabled", True)

#: By value: what it is set to, and what has to be set besides for it to matter.
Changes = dict[str, tuple[Any, dict[str, Any]]]
SHARDERS: Changes = {
    "replicas": (3, NONE),
    "image.repository": ("registry.example.com/sharder", NONE),
    "image.tag": ("x", NONE),
    "image.digest": ("sha256:" + "0" * 64, NONE),
    "image.pullPolicy": ("Always", NONE),
    "imagePullSecrets": ([{"name": "registry"}], NONE),
    "log.level": ("debug", NONE),
    "log.format": ("text", NONE),
    "config": ({"gracefulShutDown": "20s"}, NONE),
    "rings": (RING["rings"], NONE),
    "certificates.source": ("certManager", NONE),
    "certificates.certManager.issuerRef": (
        {"kind": "AWSPCAClusterIssuer", "name": "company", "group": "awspca.cert-manager.io"},
        MANAGER,
    ),
    "certificates.certManager.duration": ("1000h", MANAGER),
    "certificates.certManager.renewBefore": ("100h", MANAGER),
    "certificates.secret.name": ("other-tls", SECRET),
    "certificates.secret.caBundle": (OTHER_CA, SECRET),
    "crds.upgrade": (False, NONE),
    "crds.keep": (False, NONE),
    "uninstall.cleanup": (False, NONE),
    "hooks.resources": ({"limits": {"memory": "1Gi"}}, NONE),
    "hooks.activeDeadlineSeconds": (60, NONE),
    "hooks.podAnnotations": ({"note": "c"}, NONE),
    "hooks.podLabels": ({"team": "b"}, NONE),
    "rbac.create": (False, OPTIONS["no hooks"]),
    "rbac.viewer.create": (False, NONE),
    "rbac.viewer.aggregateToView": (True, NONE),
    "serviceAccount.create": (False, NONE),
    "serviceAccount.annotations": ({"note": "a"}, NONE),
    "resources": ({"limits": {"memory": "1Gi"}}, NONE),
    "podSecurityContext": ({"fsGroup": 1000}, NONE),
    "securityContext": ({"runAsUser": 1000}, NONE),
    "terminationGracePeriodSeconds": (60, NONE),
    "priorityAndFairness.enabled": (False, NONE),
    "podDisruptionBudget.enabled": (False, NONE),
    "podDisruptionBudget.maxUnavailable": ("50%", NONE),
    "topologySpreadConstraints": ([], NONE),
    "podAnnotations": ({"note": "b"}, NONE),
    "podLabels": ({"team": "a"}, NONE),
    "nodeSelector": ({"kubernetes.io/os": "linux"}, NONE),
    "tolerations": ([{"key": "dedicated", "operator": "Exists"}], NONE),
    "affinity": ({"podAntiAffinity": {}}, NONE),
    "priorityClassName": ("system-cluster-critical", NONE),
    "service.port": (8443, NONE),
    "service.annotations": ({"note": "d"}, NONE),
    "metrics.serviceMonitor.enabled": (True, NONE),
    "metrics.serviceMonitor.labels": ({"release": "other"}, MONITORING),
    "metrics.serviceMonitor.interval": ("1m", MONITORING),
    "metrics.serviceMonitor.scrapeTimeout": ("5s", MONITORING),
    "metrics.prometheusRule.enabled": (True, NONE),
    "metrics.prometheusRule.labels": ({"release": "other"}, MONITORING),
    "metrics.prometheusRule.disabled": (["SharderNoLeader"], MONITORING),
    "metrics.dashboard.enabled": (True, NONE),
    "metrics.dashboard.labels": ({"grafana_dashboard": "yes"}, MONITORING),
    "metrics.dashboard.annotations": ({"folder": "Other"}, MONITORING),
    "networkPolicy.enabled": (True, NONE),
    "networkPolicy.webhookFrom": ([{"ipBlock": {"cidr": "10.9.0.0/16"}}], NETWORK),
    "networkPolicy.metricsFrom": ([{"podSelector": {}}], NETWORK),
    "networkPolicy.apiServer.ports": ([8443], NETWORK),
    "networkPolicy.apiServer.cidrs": (["fd00::/8"], NETWORK),
    "admissionPolicy.enabled": (True, RING),
    "admissionPolicy.actions": (["Audit", "Warn"], POLICY),
    "admissionPolicy.failurePolicy": ("Ignore", POLICY),
    "admissionPolicy.resources": ([{"group": "batch", "resource": "jobs"}], POLICY),
    "admissionPolicy.shards": ([{"namespace": "a", "serviceAccount": "b"}], POLICY),
    "admissionPolicy.exempt.users": (["bob"], POLICY),
    "admissionPolicy.exempt.groups": (["admins"], POLICY),
}
CONTROLLERS: Changes = {
    "name": ("other", NONE),
    "ring.name": ("other", NONE),
    "ring.create": (False, NONE),
    "ring.assignment": ("Ranges", NONE),
    "ring.hashBy": ("UID", {"ring": {"assignment": "Ranges", "resources": [{"group": "", "resource": "secrets"}]}}),
    "ring.resources": ([{"group": "batch", "resource": "jobs"}], NONE),
    "ring.formerResources": ([{"group": "batch", "resource": "jobs"}], NONE),
    "ring.namespaceSelector": ({"matchLabels": {"team": "a"}}, NONE),
    "ring.watchUnassignedControlled": (False, NONE),
    "kind": ("Deployment", NONE),
    "replicas": (5, NONE),
    "image.repository": ("registry.example.com/controller", NONE),
    "image.tag": ("x", NONE),
    "image.digest": ("sha256:" + "0" * 64, NONE),
    "image.pullPolicy": ("Always", NONE),
    "imagePullSecrets": ([{"name": "registry"}], NONE),
    "command": (["python", "-m"], NONE),
    "args": (["controller"], NONE),
    "env": ([{"name": "A", "value": "b"}], NONE),
    "ports.health": (8082, NONE),
    "ports.metrics": (8083, NONE),
    "resources": ({"limits": {"memory": "1Gi"}}, NONE),
    "terminationGracePeriodSeconds": (60, NONE),
    "rbac.create": (False, NONE),
    "rbac.rules": ([{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]}], NONE),
    "rbac.namespaceRules": ([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}], NONE),
    "sharder.namespace": ("other", NONE),
    "sharder.serviceAccount": ("other", NONE),
    "serviceAccount.annotations": ({"note": "a"}, NONE),
    "priorityAndFairness.enabled": (False, NONE),
    "podDisruptionBudget.enabled": (False, NONE),
    "podDisruptionBudget.maxUnavailable": ("50%", NONE),
    "podSecurityContext": ({"fsGroup": 1000}, NONE),
    "securityContext": ({"runAsUser": 1000}, NONE),
    "topologySpreadConstraints": ([], NONE),
    "podAnnotations": ({"note": "b"}, NONE),
    "podLabels": ({"team": "a"}, NONE),
    "nodeSelector": ({"kubernetes.io/os": "linux"}, NONE),
    "tolerations": ([{"key": "dedicated", "operator": "Exists"}], NONE),
    "affinity": ({"podAntiAffinity": {}}, NONE),
    "priorityClassName": ("system-cluster-critical", NONE),
    "volumes": ([{"name": "a", "emptyDir": {}}], NONE),
    "volumeMounts": ([{"name": "a", "mountPath": "/a"}], {"volumes": [{"name": "a", "emptyDir": {}}]}),
    "podMonitor.enabled": (True, NONE),
    "podMonitor.labels": ({"release": "other"}, MONITORED),
    "podMonitor.interval": ("1m", MONITORED),
}
CHANGED = {SHARDER: SHARDERS, CONTROLLER: CONTROLLERS}
#: What only the upgrade of a release asks for; test_renamed_ring.py upgrades one with it and without.
ON_UPGRADE = {"ring.checkRenamed"}
EACH = pytest.mark.parametrize(
    ("chart", "path"), [(chart, path) for chart, values in CHANGED.items() for path in values],
    ids=lambda each: each.name if isinstance(each, Path) else each,
)  # fmt: skip
#: Types of other projects, whose API is not here.
FOREIGN = ("cert-manager.io/", "monitoring.coreos.com/")


def leaves(chart: Path) -> Iterator[str]:
    """The values that are no sections."""
    every = values_of(chart)
    yield from (each for each in sorted(every) if not any(other.startswith(f"{each}.") for other in every))


def changed(chart: Path, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values without and with it."""
    value, besides = CHANGED[chart][path]
    if chart is CONTROLLER:
        besides = merge(yaml.safe_load(EXAMPLE.read_text()), besides)
    return besides, merge(besides, set_in(path, value))


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_no_value_is_left_out(chart: Path) -> None:
    assert set(CHANGED[chart]) == set(leaves(chart)) - ON_UPGRADE, (
        f"say in this file what each value of {chart} is changed to, so that what it renders is seen to change"
    )


@EACH
def test_a_value_has_an_effect(helm: Helm, chart: Path, path: str) -> None:
    before, after = (helm.render(values, chart=chart) for values in changed(chart, path))

    assert after != before, f"nothing that {chart} renders depends on {path}: use it in templates, or take it away"


@pytest.mark.timeout(600)
async def test_a_real_api_server_takes_what_each_value_makes(cluster: Cluster, api: AdminClient) -> None:
    await cluster.plane.apply(SHARDER / "crds")
    seen: set[str] = set()
    refused = []
    for chart, path in ((chart, path) for chart, values in CHANGED.items() for path in values):
        for document in new_ones(cluster.helm.render(changed(chart, path)[1], chart=chart), seen):
            try:
                await accept(api, document)
            except AdminError as error:
                refused.append(f"{chart.name}: {path}: {document['kind']}: {error}")

    assert refused == []
    assert len(seen) > sum(map(len, CHANGED.values())), (
        "something was asked about each, and of what they have in common"
    )


def new_ones(documents: Documents, seen: set[str]) -> Documents:
    """What has not been judged yet."""
    found = []
    for document in documents:
        text = yaml.safe_dump(document)
        if text not in seen and not document["apiVersion"].startswith(FOREIGN):
            seen.add(text)
            found.append(document)
    return found


async def accept(api: AdminClient, document: dict[str, Any]) -> None:
    """Have it judged strictly, as if it were created.  Raises: AdminError."""
    resource = f"{document['apiVersion']}/{plural(document['kind'])}"
    namespace = document["metadata"].get("namespace")
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    await api.request("POST", path_of(resource, namespace), body=document, query=query)


def plural(kind: str) -> str:
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"


# -- together -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"service": {"port": 8080}}, "service.port is 8080, at which the Service has the metrics"),
        (
            {"config": {"metrics": {"bindAddress": ":8081"}}},
            "config.health.bindAddress and config.metrics.bindAddress both have port 8081",
        ),
        (
            {"config": {"webhook": {"server": {"port": 8080}}}},
            "config.metrics.bindAddress and config.webhook.server.port both have port 8080",
        ),
        (
            {"rbac": {"create": False}, "uninstall": {"cleanup": False}},
            "set crds.upgrade to false, and run `sharder crds --apply` before each upgrade",
        ),
        (
            {"rbac": {"create": False}, "crds": {"upgrade": False}},
            "set uninstall.cleanup to false, and run `sharder uninstall` when the release is gone",
        ),
        (
            {"podLabels": {"app.kubernetes.io/name": "x"}},
            "podLabels has app.kubernetes.io/name, a label that the chart",
        ),
        (
            {"podLabels": {"app.kubernetes.io/instance": "x", "helm.sh/chart": "x"}},
            "podLabels has app.kubernetes.io/instance, a label that the chart",
        ),
        (
            {"hooks": {"podLabels": {"app.kubernetes.io/component": "x"}}},
            "hooks.podLabels has app.kubernetes.io/component, a label that the chart",
        ),
        (
            {"metrics": {"dashboard": {"labels": {"helm.sh/chart": "x"}}}},
            "metrics.dashboard.labels has helm.sh/chart, a label that the chart",
        ),
        (
            {"metrics": {"prometheusRule": {"enabled": True, "disabled": ["SharderDwon"]}}},
            "there is no alert SharderDwon; there are SharderDown, SharderNoLeader",
        ),
        (
            {"config": {"gracefulShutDown": "30s"}},
            "terminationGracePeriodSeconds is 30, but a replica takes up to config.gracefulShutDown, 30s",
        ),
        (
            merge(POLICY, {"admissionPolicy": {"actions": ["Deny", "Warn"]}}),
            "admissionPolicy.actions has Deny and Warn",
        ),
        (
            {"metrics": {"serviceMonitor": {"enabled": True, "interval": "1m", "scrapeTimeout": "61s"}}},
            "metrics.serviceMonitor.scrapeTimeout is 61s, longer than interval, 1m",
        ),
        (
            set_in("certificates", {"source": "certManager", "certManager": {"issuerRef": {"kind": "ClusterIssuer"}}}),
            "certificates.certManager.issuerRef has no name",
        ),
    ],
)
def test_values_that_would_only_fail_later_are_refused_with_the_remedy(
    helm: Helm, values: dict[str, Any], said: str
) -> None:
    with pytest.raises(HelmFailed) as failed:
        helm.render(values)

    assert said in str(failed.value)
    assert str(failed.value).count("\n* ") == 1


@pytest.mark.parametrize(
    "values",
    [
        {"service": {"port": 8080}, "config": {"metrics": {"bindAddress": "0"}}},
        {"config": {"webhook": {"enabled": False, "server": {"port": 8080}}}},
    ],
)
def test_ports_of_what_is_off_meet_nobody(helm: Helm, values: dict[str, Any]) -> None:
    assert helm.render(values)
