"""Values: every one documented, typos and contradictions refused with a word about the remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sharder.config.file import parse_config
from sharder.config.reference import entries
from sharder.config.schema import SharderConfig
from tests.chart.helm import CONTROLLER, SHARDER, Helm, HelmFailed, find, merge, set_in
from tests.chart.options import OPTIONS, RING

EXAMPLE = CONTROLLER / "examples" / "checksum.yaml"
#: What Kubernetes itself describes: the schema lets it pass as it is.
CHARTS = [SHARDER, CONTROLLER]


def schema_of(chart: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((chart / "values.schema.json").read_text())
    return found


def paths(schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every named value of a schema, with what it says of it."""
    for name, node in schema.get("properties", {}).items():
        yield prefix + name, node
        yield from paths(node, f"{prefix}{name}.")


def values_of(chart: Path) -> set[str]:
    """Every value that values.yaml shows, down to what the schema leaves open."""
    schema = dict(paths(schema_of(chart)))

    def walk(values: dict[str, Any], prefix: str) -> Iterator[str]:
        for name, value in values.items():
            yield prefix + name
            if isinstance(value, dict) and "properties" in schema[prefix + name]:
                yield from walk(value, f"{prefix}{name}.")

    return set(walk(yaml.safe_load((chart / "values.yaml").read_text()), ""))


# -- documented -------------------------------------------------------------------


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_every_value_is_shown_with_its_default_and_described(chart: Path) -> None:
    #: Filled in from elsewhere: the configuration's reference, the ring's own documentation, Helm, cert-manager.
    elsewhere = ("config.", "ring.namespaceSelector.", "global", "enabled", "certificates.certManager.issuerRef.")
    described = {path: node for path, node in paths(schema_of(chart)) if not path.startswith(elsewhere)}

    assert values_of(chart) == set(described)
    assert not [path for path, node in described.items() if not node.get("description")]


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_values_yaml_says_what_every_section_is_for(chart: Path) -> None:
    text = (chart / "values.yaml").read_text().splitlines()
    comments = sum(line.lstrip().startswith("# ") for line in text)

    assert comments >= len(yaml.safe_load("\n".join(text)))


def test_the_configurations_schema_has_the_fields_of_the_code() -> None:
    def fields(section: type[Any], prefix: str = "") -> Iterator[str]:
        for name, entry in entries(section).items():
            yield prefix + name
            if entry.section is not None:
                yield from fields(entry.section, f"{prefix}{name}.")

    schema = {path for path, _ in paths(schema_of(SHARDER)["properties"]["config"])}

    assert {path for path in schema if "namespaceSelector." not in path} == set(fields(SharderConfig))


def test_a_rings_schema_is_that_of_the_crd() -> None:
    crd = yaml.safe_load(Path("crds/clusterrings.yaml").read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    ring = schema_of(SHARDER)["properties"]["rings"]["additionalProperties"]
    former = ring["properties"].pop("formerResources")

    follow = "bring charts/*/values.schema.json to what crds/clusterrings.yaml says: fields, descriptions and limits"
    assert plain(ring) == plain(spec), follow
    own = schema_of(CONTROLLER)["properties"]["ring"]["properties"]
    assert own["formerResources"] == former, "of the roles, not of the ring"
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert shape(former) == shape(status["placedResources"]), "one is copied to the other"
    assert not [key for key in spec["properties"] if key not in own], follow
    assert plain({key: own[key] for key in spec["properties"]}) == plain(spec["properties"]), follow


def plain(node: Any) -> Any:
    """A schema without what JSON Schema has no word for, and without what is said about unknown fields."""
    if isinstance(node, dict):
        dropped = ("default", "additionalProperties") if "properties" in node else ("default",)
        return {
            key: plain(value)
            for key, value in node.items()
            if not key.startswith("x-kubernetes") and key not in dropped
        }
    return [plain(each) for each in node] if isinstance(node, list) else node


def shape(node: Any) -> Any:
    """A schema without descriptions."""
    if isinstance(node, dict):
        return {
            key: shape(value)
            for key, value in plain(node).items()
            if key not in ("description", "additionalProperties")
        }
    return node


# -- linted -----------------------------------------------------------------------


def test_the_chart_lints_with_every_option_on(helm: Helm) -> None:
    helm.lint(SHARDER)
    helm.lint(SHARDER, merge(*(OPTIONS[name] for name in ("monitoring", "network policy", "admission policy", "pods"))))
    helm.lint(SHARDER, OPTIONS["certManager"])


def test_the_controllers_chart_lints_with_its_example_and_without_values(helm: Helm) -> None:
    helm.lint(CONTROLLER, yaml.safe_load(EXAMPLE.read_text()))
    helm.lint(CONTROLLER)


# -- refused ----------------------------------------------------------------------


def sections_of(chart: Path) -> list[str]:
    """The values that hold others."""
    every = values_of(chart)
    return sorted(each for each in every if any(other.startswith(f"{each}.") for other in every))


@pytest.mark.parametrize(
    ("chart", "path"),
    [(SHARDER, each) for each in (*sections_of(SHARDER), "config", "terminationGracePeriodSeconds")]
    + [(CONTROLLER, each) for each in (*sections_of(CONTROLLER), "kind")],
    ids=lambda each: each.name if isinstance(each, Path) else each,
)
def test_a_section_that_null_takes_away_is_named(helm: Helm, chart: Path, path: str) -> None:
    values = yaml.safe_load(EXAMPLE.read_text()) if chart is CONTROLLER else {}

    said = refused(helm, merge(values, set_in(path, None)), chart)

    assert f"missing property '{path.rpartition('.')[2]}'" in said


def refused(helm: Helm, values: dict[str, Any], chart: Path = SHARDER) -> str:
    with pytest.raises(HelmFailed) as failed:
        helm.render(values, chart=chart)
    return str(failed.value)


def test_all_that_a_schema_can_see_is_told_at_once(helm: Helm) -> None:
    said = refused(
        helm,
        {
            "replcas": 3,
            "image": {"digest": "abc", "pullPolicy": "Sometimes"},
            "config": {"gracefulShutDown": 15, "webhok": {}, "health": {"bindAddress": "8081"}},
            "rings": {"a": {"resources": [{"resource": "Secrets"}, {"resource": "pods", "contolledResources": []}]}},
            "certificates": {"source": "vault"},
        },
    )

    for word in (
        "'replcas' not allowed",
        "/image/digest",
        "/image/pullPolicy",
        "/config/gracefulShutDown': got number, want string",
        "'webhok' not allowed",
        "/config/health/bindAddress",
        "'Secrets' does not match pattern",
        "'contolledResources' not allowed",
        "'selfManaged', 'certManager', 'secret'",
    ):
        assert word in said


def test_all_that_contradicts_is_told_at_once_with_its_remedy(helm: Helm) -> None:
    said = refused(
        helm,
        {
            "config": {
                "leaderElection": {"resourceNamespace": "kube-system"},
                "health": {"bindAddress": "127.0.0.1:8081"},
                "metrics": {"bindAddress": "0"},
                "webhook": {"server": {"certDir": "/certs"}},
            },
            "certificates": {"source": "secret"},
            "metrics": {"serviceMonitor": {"enabled": True}},
            "admissionPolicy": {"enabled": True},
        },
    )

    for word in (
        "resourceNamespace is kube-system: the sharder's lease and Secret belong into the release's namespace",
        "bindAddress is 127.0.0.1:8081, where no probe reaches it: use one such as :8081",
        "config.metrics.bindAddress turns metrics off: change one of them",
        "config.webhook.server.certDir is set, but certificates.source is secret, which mounts its own: leave certDir",
        "say which one in certificates.secret.name",
        "give its CA in certificates.secret.caBundle",
        "there is nothing to protect: declare rings with resources, or list admissionPolicy.resources",
    ):
        assert word in said
    assert said.count("\n* ") == 7


#: As in the configuration file of the Go sharder's own installation.
GO_ANNOTATIONS = {"cert-manager.io/inject-ca-from": "sharding-system/webhook-server"}


@pytest.mark.parametrize(
    ("source", "word"),
    [
        (
            "certManager",
            "but the certificate of this chart is sharding-system/sharder-webhook: leave the annotation out",
        ),
        (
            "selfManaged",
            "certificates.source is selfManaged, so that the sharder writes its own CA there: leave it out",
        ),
    ],
)
def test_a_ca_that_another_certificate_brings_is_refused(helm: Helm, source: str, word: str) -> None:
    config = {"webhook": {"config": {"annotations": GO_ANNOTATIONS}}}

    assert word in refused(helm, {"certificates": {"source": source}, "config": config})


def test_the_charts_own_annotation_may_be_written_out(helm: Helm) -> None:
    own = {"cert-manager.io/inject-ca-from": "sharding-system/sharder-webhook"}
    values = {"certificates": {"source": "certManager"}}

    assert helm.render({**values, "config": {"webhook": {"config": {"annotations": own}}}}) == helm.render(values)


def test_a_folder_for_certificates_in_which_nothing_is_mounted_is_refused(helm: Helm) -> None:
    said = refused(helm, {"config": {"webhook": {"server": {"certDir": "/certs"}}}})

    assert "certDir is set, but nothing is mounted there: leave it out" in said


#: What fits no pod, or what the sharder itself refuses at its start.
USELESS: dict[str, tuple[dict[str, Any], str]] = {
    "a webhook that nobody reaches": (
        set_in("config.webhook.server.host", "127.0.0.1"),
        "config.webhook.server.host is 127.0.0.1, where the API server does not reach it: leave it out",
    ),
    "... under its name": (set_in("config.webhook.server.host", "localhost"), "the API server does not reach it"),
    "... by IPv6": (set_in("config.webhook.server.host", "::1"), "the API server does not reach it"),
    "metrics that nobody reaches": (
        {"metrics": {"serviceMonitor": {"enabled": True}}, **set_in("config.metrics.bindAddress", "127.0.0.1:8080")},
        "but config.metrics.bindAddress is 127.0.0.1:8080, where Prometheus does not reach it: use one such as :8080",
    ),
    "a port that the Service does not have": (
        set_in("config.webhook.config.clientConfig.service.port", 8443),
        "clientConfig.service.port is 8443, but the Service of this chart has 443: leave it out, or set service.port",
    ),
    "a lease shorter than its deadline": (
        set_in("config.leaderElection.leaseDuration", "5s"),
        "config.leaderElection.renewDeadline is 10s, no shorter than leaseDuration, 5s",
    ),
    "a deadline longer than its lease": (
        set_in("config.leaderElection.renewDeadline", "1m"),
        "config.leaderElection.renewDeadline is 1m, no shorter than leaseDuration, 15s",
    ),
    "a CA that is no base64": (
        {"certificates": {"source": "secret", "secret": {"name": "x", "caBundle": "-----BEGIN CERTIFICATE-----\nx"}}},
        "certificates.secret.caBundle is not the base64 of a PEM file with certificates",
    ),
    "a CA that is none": (
        {"certificates": {"source": "secret", "secret": {"name": "x", "caBundle": "aGVsbG8="}}},
        "certificates.secret.caBundle is not the base64 of a PEM file with certificates",
    ),
    "a CA in the configuration that is none": (
        set_in("config.webhook.config.clientConfig.caBundle", "LS0tCg=="),
        "config.webhook.config.clientConfig.caBundle is not the base64 of a PEM file with certificates",
    ),
    "a URL without TLS": (set_in("config.webhook.config.clientConfig.url", "http://a"), "clientConfig/url"),
    "an address that is none": (set_in("config.metrics.bindAddress", ":::8080"), "/config/metrics/bindAddress"),
    "a health address that is none": (set_in("config.health.bindAddress", "a b:8080"), "/config/health/bindAddress"),
    "a lease's name that is none": (set_in("config.leaderElection.resourceName", "A B"), "resourceName"),
    "In without values": (
        set_in("config.webhook.config.namespaceSelector.matchExpressions", [{"key": "a", "operator": "In"}]),
        "missing property 'values'",
    ),
    "Exists with values": (
        set_in(
            "config.webhook.config.namespaceSelector.matchExpressions",
            [{"key": "a", "operator": "Exists", "values": ["b"]}],
        ),
        "matchExpressions/0/values",
    ),
}


@pytest.mark.parametrize("title", USELESS)
def test_a_configuration_that_never_works_in_a_pod_is_refused(helm: Helm, title: str) -> None:
    values, said = USELESS[title]

    assert said in refused(helm, values)


@pytest.mark.parametrize(
    "values",
    [
        {"config": {"webhook": {"enabled": False, "server": {"host": "127.0.0.1"}}}},
        set_in("config.metrics.bindAddress", "127.0.0.1:8080"),
        set_in("config.metrics.bindAddress", "[::]:8080"),
        set_in("config.webhook.config.clientConfig.service", {"name": "mine", "port": 8443}),
        {"service": {"port": 8443}, **set_in("config.webhook.config.clientConfig.service.port", 8443)},
        set_in("config.webhook.config.clientConfig.url", "https://a.example:8443/webhooks"),
        set_in("config.webhook.config.clientConfig", {"url": "", "caBundle": ""}),
        set_in("config.leaderElection", {"leaseDuration": "1m", "renewDeadline": "40s", "resourceName": ""}),
        set_in("config.leaderElection", {"leaseDuration": "0", "renewDeadline": "0s"}),
        set_in("config.webhook.config.namespaceSelector.matchExpressions", [{"key": "a", "operator": "Exists"}]),
    ],
)
def test_what_may_work_passes(helm: Helm, values: dict[str, Any]) -> None:
    configuration = find(helm.render(values), "ConfigMap", "sharder")["data"]["config.yaml"]

    parse_config(configuration)  # the sharder itself would refuse it here


@pytest.mark.parametrize("address", ["0", "localhost:8081", "[::1]:8081", "127.1.2.3:80"])
def test_probes_must_be_able_to_reach_the_health_server(helm: Helm, address: str) -> None:
    assert "where no probe reaches it" in refused(helm, set_in("config.health.bindAddress", address))


@pytest.mark.parametrize("name", ["a" * 41 + ".b", "a" * 41 + "-b"])
def test_a_ring_name_that_makes_no_label_is_refused(helm: Helm, name: str) -> None:
    said = refused(helm, {"rings": {name: RING["rings"]["checksum"]}})

    assert f"rings.{name}: the name's first 42 characters end in a dot or dash" in said


@pytest.mark.parametrize("name", ["A", "a" * 64, "-a", "a_b"])
def test_a_ring_name_that_is_none_is_refused(helm: Helm, name: str) -> None:
    assert "invalid propertyName" in refused(helm, {"rings": {name: RING["rings"]["checksum"]}})


def test_an_older_kubernetes_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmFailed, match=r"requires kubeVersion: >=1\.30"):
        helm.run("template", "sharder", str(SHARDER), "--kube-version", "1.29.5")


def test_a_controller_without_its_essentials_is_told_what_is_missing(helm: Helm) -> None:
    said = refused(helm, {}, CONTROLLER)

    assert "image.repository is missing" in said
    assert "image.tag is missing" in said
    assert "ring.resources is empty" in said


def test_a_controllers_bad_names_are_refused(helm: Helm) -> None:
    good = yaml.safe_load(EXAMPLE.read_text())

    assert "too long for shards to be named after it" in refused(helm, good | {"name": "a" * 53}, CONTROLLER)
    assert "set ring.name" in refused(helm, merge(good, set_in("ring.name", "a" * 41 + "-b")), CONTROLLER)
    assert "got string, want array" in refused(helm, good | {"args": "examples.checksum"}, CONTROLLER)
