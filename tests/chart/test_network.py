"""What the chart's NetworkPolicies let through: read back from a real API server, judged by tests/chart/network.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from localcluster import AdminClient
from localcluster.admin import path_of
from tests.chart.helm import NAMESPACE, Helm, HelmFailed, find, merge, select
from tests.chart.network import Direction, End, Pod, admitted, pod_of
from tests.chart.releases import Cluster

ON: dict[str, Any] = {"networkPolicy": {"enabled": True}}
WEBHOOK, METRICS, HEALTH, SSH = 9443, 8080, 8081, 22

CONTROL_PLANE = End("10.0.0.1")
ELSEWHERE = End("198.51.100.7")
PROMETHEUS = End("10.1.0.1", {"kubernetes.io/metadata.name": "monitoring", "team": "watch"}, {"app": "prometheus"})
GRAFANA = End("10.1.0.2", {"kubernetes.io/metadata.name": "monitoring", "team": "watch"}, {"app": "grafana"})
NEIGHBOUR = End("10.1.0.3", {"kubernetes.io/metadata.name": NAMESPACE}, {"app": "prometheus"})
STRANGER = End("10.1.0.4", {"kubernetes.io/metadata.name": "default"})
DNS = End("10.96.0.10")
ALL = (CONTROL_PLANE, ELSEWHERE, PROMETHEUS, GRAFANA, NEIGHBOUR, STRANGER)


@dataclass(frozen=True, slots=True)
class Net:
    """The policies of one rendering, as the API server returned them, and the pods that they are about."""

    policies: tuple[dict[str, Any], ...]
    sharder: Pod
    hooks: tuple[Pod, ...]

    def reached_by(self, port: int, *, pod: Pod | None = None, protocol: str = "TCP") -> set[str]:
        """Addresses of those in ALL that may connect to that port."""
        return {each.address for each in ALL if self._may("Ingress", each, port, pod, protocol)}

    def reaches(self, other: End, port: int, *, pod: Pod | None = None, protocol: str = "TCP") -> bool:
        """Whether the pod may connect there."""
        return self._may("Egress", other, port, pod, protocol)

    def _may(self, direction: Direction, other: End, port: int, pod: Pod | None, protocol: str) -> bool:
        return admitted(self.policies, pod or self.sharder, direction, other, port, protocol)


async def net(cluster: Cluster, api: AdminClient, *values: dict[str, Any]) -> Net:
    """Render with `values`, and have the API server judge and complete every policy and every pod's owner."""
    documents = cluster.helm.render(merge(*values))

    async def accepted(resource: str, document: dict[str, Any]) -> dict[str, Any]:
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        answer: dict[str, Any] = await api.request("POST", path_of(resource, NAMESPACE), body=document, query=query)
        return answer

    return Net(
        tuple([await accepted("networking.k8s.io/v1/networkpolicies", p) for p in select(documents, "NetworkPolicy")]),
        pod_of(await accepted("apps/v1/deployments", find(documents, "Deployment"))),
        tuple([pod_of(await accepted("batch/v1/jobs", job)) for job in select(documents, "Job")]),
    )


def addresses(*ends: End) -> set[str]:
    return {each.address for each in ends}


# -- in -------------------------------------------------------------------------


async def test_without_policies_everything_passes(cluster: Cluster, api: AdminClient) -> None:
    """The oracle can say yes; what the other tests forbid is forbidden by the policies."""
    found = await net(cluster, api)

    assert found.policies == ()
    assert found.reached_by(SSH) == addresses(*ALL)
    assert found.reaches(ELSEWHERE, SSH)


async def test_by_default_webhook_and_metrics_are_open_and_nothing_else(cluster: Cluster, api: AdminClient) -> None:
    found = await net(cluster, api, ON)

    assert found.reached_by(WEBHOOK) == addresses(*ALL), "an API server is no pod, so its address is not known"
    assert found.reached_by(METRICS) == addresses(*ALL)
    assert found.reached_by(SSH) == set()
    assert found.reached_by(WEBHOOK, protocol="UDP") == set()
    # Kubernetes admits a pod's own node whatever policies say, and with it the kubelet's probes.
    assert found.reached_by(HEALTH) == set()


async def test_the_webhook_can_be_kept_to_the_control_plane(cluster: Cluster, api: AdminClient) -> None:
    peers = [{"ipBlock": {"cidr": "10.0.0.0/28", "except": ["10.0.0.8/29"]}}]
    found = await net(cluster, api, ON, {"networkPolicy": {"webhookFrom": peers}})

    assert found.reached_by(WEBHOOK) == addresses(CONTROL_PLANE)
    assert found.reached_by(METRICS) == addresses(*ALL), "metricsFrom is for that"


@pytest.mark.parametrize(
    ("peers", "readers"),
    [
        ([{"namespaceSelector": {"matchLabels": {"team": "watch"}}}], {PROMETHEUS.address, GRAFANA.address}),
        (
            [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "prometheus"}}}],
            {PROMETHEUS.address, NEIGHBOUR.address},
        ),
        ([{"podSelector": {}}], {NEIGHBOUR.address}),
        ([{"podSelector": {}}, {"ipBlock": {"cidr": "198.51.100.0/24"}}], {NEIGHBOUR.address, ELSEWHERE.address}),
    ],
)
async def test_metrics_are_read_only_from_where_the_values_say(
    cluster: Cluster, api: AdminClient, peers: list[dict[str, Any]], readers: set[str]
) -> None:
    found = await net(cluster, api, ON, {"networkPolicy": {"metricsFrom": peers}})

    assert found.reached_by(METRICS) == readers
    assert found.reached_by(WEBHOOK) == addresses(*ALL)


async def test_ports_of_the_configuration_are_those_that_are_open(cluster: Cluster, api: AdminClient) -> None:
    config = {"metrics": {"bindAddress": ":7002"}, "webhook": {"server": {"port": 7003}}}
    found = await net(cluster, api, ON, {"config": config})

    assert [bool(found.reached_by(port)) for port in (7002, 7003, WEBHOOK, METRICS)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("config", "open_ports"),
    [
        ({"webhook": {"enabled": False}}, {METRICS}),
        ({"metrics": {"bindAddress": "0"}}, {WEBHOOK}),
        ({"webhook": {"enabled": False}, "metrics": {"bindAddress": "0"}}, set()),
    ],
)
async def test_what_is_off_is_closed(
    cluster: Cluster, api: AdminClient, config: dict[str, Any], open_ports: set[int]
) -> None:
    found = await net(cluster, api, ON, {"config": config})

    assert {port for port in (WEBHOOK, METRICS, HEALTH, SSH) if found.reached_by(port)} == open_ports


# -- out ------------------------------------------------------------------------


async def test_out_leads_to_the_api_server_and_dns_only(cluster: Cluster, api: AdminClient) -> None:
    found = await net(cluster, api, ON)

    assert len(found.hooks) == 2
    for pod in (found.sharder, *found.hooks):
        assert found.reaches(CONTROL_PLANE, 443, pod=pod)
        assert found.reaches(CONTROL_PLANE, 6443, pod=pod)
        for protocol in ("UDP", "TCP"):
            assert found.reaches(DNS, 53, pod=pod, protocol=protocol)
        assert not found.reaches(STRANGER, 8080, pod=pod)
        assert not found.reaches(CONTROL_PLANE, 443, pod=pod, protocol="UDP")


async def test_the_api_server_is_where_the_values_say(cluster: Cluster, api: AdminClient) -> None:
    server = {"ports": [8443], "cidrs": ["10.0.0.1/32", "fd00::/64"]}
    found = await net(cluster, api, ON, {"networkPolicy": {"apiServer": server}})

    for pod in (found.sharder, *found.hooks):
        assert found.reaches(CONTROL_PLANE, 8443, pod=pod)
        assert found.reaches(End("fd00::1"), 8443, pod=pod)
        assert not found.reaches(ELSEWHERE, 8443, pod=pod)
        assert not found.reaches(CONTROL_PLANE, 443, pod=pod)
        assert found.reaches(DNS, 53, pod=pod, protocol="UDP"), "names are resolved all the same"


async def test_nobody_reaches_the_hooks(cluster: Cluster, api: AdminClient) -> None:
    found = await net(cluster, api, ON)

    for pod in found.hooks:
        assert [port for port in (WEBHOOK, METRICS, HEALTH, SSH) if found.reached_by(port, pod=pod)] == []


# -- refused --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"ports": []}, "/networkPolicy/apiServer/ports"),
        ({"cidrs": ["10.0.0.1"]}, "/networkPolicy/apiServer/cidrs/0"),
        ({"cidrs": ["kubernetes.default"]}, "/networkPolicy/apiServer/cidrs/0"),
    ],
)
def test_values_that_would_open_everything_or_be_refused_later_are_refused(
    helm: Helm, server: dict[str, Any], said: str
) -> None:
    """Without ports a rule admits every port."""
    with pytest.raises(HelmFailed, match=said):
        helm.render({"networkPolicy": {"enabled": True, "apiServer": server}})
