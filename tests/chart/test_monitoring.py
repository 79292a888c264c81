"""Alerts and dashboard ask for metrics that the sharder has, by labels that these have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from sharder.core.shards import State
from sharder.telemetry import Telemetry
from shardsdk.protocol.objects import GroupResource
from tests.chart.helm import NAMESPACE, SHARDER, Helm, find, merge, select
from tests.chart.options import OPTIONS

ALERTS = yaml.safe_load((SHARDER / "files" / "alerts.yaml").read_text())
DASHBOARD = json.loads((SHARDER / "files" / "dashboard.json").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]

#: Of other programs: the API server, the collectors that every Python process has, Prometheus itself.
FOREIGN = {
    "apiserver_admission_webhook_fail_open_count": {"name"},
    "process_cpu_seconds_total": set[str](),
    "process_resident_memory_bytes": set[str](),
    "ALERTS": {"alertname", "alertstate"},
}
#: What Prometheus adds to every series; the cluster where it has several.
ADDED = {"job", "instance", "cluster"}
_SELECTOR = re.compile(r"\b((?:controller_sharding|leader_election|process|apiserver)_\w+|ALERTS)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPED = re.compile(r"\b(?:by|on|without)\s*\(([^)]*)\)")


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in RULES)
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


@pytest.fixture(scope="module")
def labels_of() -> dict[str, set[str]]:
    """The labels of every series that the sharder shows, as a scrape would find them."""
    telemetry = Telemetry.create()
    metrics = telemetry.metrics
    ring, resource = metrics.ring("r"), metrics.resource("r", GroupResource("", "secrets"))
    ring.set_shards([State.READY])
    metrics.ring_conditions("r", {"Ready": True})
    metrics.crash_detection_suspended("r", False)
    metrics.webhook_answered("r", "assigned", 0.1)
    metrics.api_called("get", 200, 0.1)
    metrics.certificate_loaded(True)
    metrics.certificate_expires(datetime.now(UTC))
    metrics.leading("sharder", True)
    del resource
    found: dict[str, set[str]] = dict(FOREIGN)
    for family in telemetry.registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_every_query_asks_for_what_there_is(expression: str, labels_of: dict[str, set[str]]) -> None:
    asked = [(name, set(_MATCHER.findall(selector))) for name, selector in _SELECTOR.findall(expression)]
    known = ADDED.union(*(labels_of[name] for name, _ in asked))
    grouped = {label.strip() for group in _GROUPED.findall(expression) for label in group.split(",")}

    assert asked
    assert all(selected <= labels_of[name] | ADDED for name, selected in asked)
    assert grouped - {""} <= known


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any], labels_of: dict[str, set[str]]) -> None:
    annotations = rule["annotations"]
    shown = set(re.findall(r"\$labels\.(\w+)", annotations["summary"] + annotations["description"]))
    kept = {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", rule["expr"]) for label in group.split(",")}

    assert rule["labels"]["severity"] in ("critical", "warning")
    assert len(annotations["description"]) > 60
    assert shown <= kept, "a label that the query drops would be shown empty"


def test_what_matters_has_an_alert() -> None:
    watched = " ".join(rule["expr"] for rule in RULES)

    for metric in (
        "unassigned_objects",
        "stranded_objects",
        "oldest_drain_age_seconds",
        "unheld_ranges",
        "overlapping_ranges",
        "controller_sharding_shards",
        'ring_condition{type="Ready"}',
        "webhook_requests_total",
        "certificate_expiry_timestamp_seconds",
        "leader_election_master_status",
    ):
        assert metric in watched


def test_available_shards_are_the_states_that_count_as_available() -> None:
    available = "|".join(state.value for state in State if state.available)
    queries = [each for each in expressions() if "state=~" in each]

    assert queries
    assert all(f'state=~"{available}"' in each for each in queries)


def test_the_dashboards_panels_are_described_and_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert panel["type"] == "row" or panel["description"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_chart_hands_out_these_files_as_they_are(helm: Helm) -> None:
    documents = helm.render(OPTIONS["monitoring"])
    rule = find(documents, "PrometheusRule")
    config = find(documents, "ConfigMap", "sharder-dashboard")

    kept = [each for each in RULES if each["alert"] != "SharderDown"]
    assert [each for group in rule["spec"]["groups"] for each in group["rules"]] == kept
    assert json.loads(config["data"]["sharder.json"]) == DASHBOARD
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert config["metadata"]["annotations"] == {"folder": "Controllers"}
    assert {each["metadata"]["labels"].get("release") for each in (rule, find(documents, "ServiceMonitor"))} == {
        "prometheus"
    }


@pytest.mark.parametrize(
    ("source", "secret"),
    [(None, "sharder-webhook-certificates"), ("certManager", "sharder-webhook-tls"), ("secret", "my-tls")],
)
def test_prometheus_sends_its_token_to_secure_metrics_and_trusts_their_certificate(
    helm: Helm, source: str | None, secret: str
) -> None:
    values = merge(OPTIONS["secure metrics"], OPTIONS[source] if source else {})
    [endpoint] = find(helm.render(values), "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["bearerTokenFile"] == "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert endpoint["tlsConfig"] == {
        "serverName": f"sharder.{NAMESPACE}.svc",
        "ca": {"secret": {"name": secret, "key": "ca.crt"}},
    }
    [plain] = find(helm.render(OPTIONS["monitoring"]), "ServiceMonitor")["spec"]["endpoints"]
    assert not plain.keys() & {"scheme", "bearerTokenFile", "tlsConfig"}


def test_prometheus_finds_the_replicas_by_their_service(helm: Helm) -> None:
    documents = helm.render(OPTIONS["monitoring"])
    monitor, service = find(documents, "ServiceMonitor")["spec"], find(documents, "Service")

    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert not select(helm.render(), "ServiceMonitor")
