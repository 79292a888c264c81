"""A SharderConfig file: what is accepted, what is refused and how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sharder.config import (
    API_VERSION,
    KIND,
    BindAddress,
    ClientConnection,
    HealthEndpoint,
    InvalidConfig,
    LeaderElection,
    Loaded,
    MetricsEndpoint,
    ServiceReference,
    SharderConfig,
    SharderController,
    WebhookServer,
    load_config,
    parse_config,
)
from sharder.core.problems import Problem
from sharder.core.selectors import all_namespaces_except
from sharder.service import replica_settings
from shardsdk.errors import ConfigurationError

GO_FILE = Path(__file__).parents[3] / "vectors" / "sharderconfig-go.yaml"
HEADER = {"apiVersion": API_VERSION, "kind": KIND}


def parse(**fields: Any) -> Loaded:
    return parse_config(yaml.safe_dump(HEADER | fields))


def problems_of(text: str) -> dict[str, str]:
    """Path to message and remedy of everything that is wrong with `text`."""
    with pytest.raises(InvalidConfig) as caught:
        parse_config(text)
    return {problem.path: f"{problem.message}; {problem.remedy}" for problem in caught.value.problems}


def wrong(**fields: Any) -> dict[str, str]:
    return problems_of(yaml.safe_dump(HEADER | fields))


# -- what a Go sharder's file says ------------------------------------------


def test_a_go_sharders_file_sets_everything_that_it_says() -> None:
    config = load_config(str(GO_FILE)).config
    assert (config.client_connection.qps, config.client_connection.burst) == (1000, 1200)
    assert config.leader_election == LeaderElection(
        lease_duration_seconds=30,
        renew_deadline_seconds=20,
        retry_period_seconds=2.5,
        resource_name="the-sharder",
        resource_namespace="my-sharding",
    )
    assert config.health.bind_address == BindAddress("127.0.0.1", 9081)
    assert config.metrics.bind_address == BindAddress("::1", 9080)
    assert config.controller.sharder == SharderController(sync_period_seconds=90, concurrent_moves=50)
    assert config.webhook.server == WebhookServer(
        cert_dir="/etc/sharder/certs", cert_name="webhook-server.pem", key_name="webhook-server-key.pem", port=10250
    )
    assert config.webhook.config.annotations == {"cert-manager.io/inject-ca-from": "my-sharding/webhook-server"}
    assert config.webhook.config.client_config.service == ServiceReference("my-sharding", "the-sharder", 8443)
    assert config.webhook.config.namespace_selector == all_namespaces_except("kube-system", "my-sharding")
    assert config.graceful_shutdown_seconds == 25


def test_settings_without_effect_here_are_accepted_and_told() -> None:
    told = {setting.path for setting in load_config(str(GO_FILE)).without_effect}
    assert told == {
        "clientConnection.kubeconfig",
        "clientConnection.acceptContentTypes",
        "clientConnection.contentType",
        "debugging.enableProfiling",
        "debugging.enableContentionProfiling",
    }


def test_a_burst_without_qps_is_told() -> None:
    assert [setting.path for setting in parse(clientConnection={"burst": 10}).without_effect] == [
        "clientConnection.burst"
    ]


def test_a_file_with_just_its_header_has_the_ecosystems_defaults() -> None:
    loaded = parse()
    assert loaded == Loaded(SharderConfig())
    config = loaded.config
    assert config.leader_election == LeaderElection(
        leader_elect=True,
        resource_lock="leases",
        lease_duration_seconds=15,
        renew_deadline_seconds=10,
        retry_period_seconds=2,
        resource_name="sharder",
        resource_namespace="sharding-system",
    )
    assert config.health == HealthEndpoint(BindAddress("", 8081))
    assert config.metrics == MetricsEndpoint(BindAddress("", 8080))
    assert config.controller.sharder == SharderController(300, 100, 10)
    assert (config.webhook.enabled, config.webhook.server.port) == (True, 9443)
    assert (config.webhook.server.cert_name, config.webhook.server.key_name) == ("tls.crt", "tls.key")
    assert config.webhook.config.client_config.render() == {
        "service": {"namespace": "sharding-system", "name": "sharder", "port": 443}
    }
    assert config.graceful_shutdown_limit == 15


def test_without_a_file_everything_has_its_default() -> None:
    assert load_config(None) == Loaded(SharderConfig())


@pytest.mark.parametrize(
    "fields",
    [
        {"leaderElection": None, "webhook": None, "health": None, "gracefulShutDown": None},
        {"leaderElection": {"leaseDuration": None, "resourceName": "", "leaderElect": None, "retryPeriod": "0s"}},
        {"metrics": {"bindAddress": ""}, "clientConnection": {"qps": None, "burst": 0}},
        {"webhook": {"config": {"clientConfig": {"service": None, "url": "", "caBundle": None}, "annotations": None}}},
        {"controller": {"sharder": {"syncPeriod": None, "concurrentMoves": None}}},
    ],
)
def test_null_and_empty_mean_the_default_as_in_go(fields: dict[str, Any]) -> None:
    assert parse(**fields).config == SharderConfig()


def test_json_says_the_same_as_yaml() -> None:
    raw = yaml.safe_load(GO_FILE.read_text())
    assert parse_config(json.dumps(raw, indent="\t")) == load_config(str(GO_FILE))


def test_a_base_url_replaces_the_service() -> None:
    config = parse(webhook={"config": {"clientConfig": {"url": "https://host.docker.internal:9443/"}}}).config
    assert config.webhook.config.client_config.render() == {"url": "https://host.docker.internal:9443/"}


def test_a_path_in_front_of_the_service_is_kept() -> None:
    service = {"namespace": "a", "name": "b", "path": "/proxy/"}
    config = parse(webhook={"config": {"clientConfig": {"service": service}}}).config
    assert config.webhook.config.client_config.render() == {"service": {**service, "port": 443}}


# -- our own fields ---------------------------------------------------------


def test_our_own_fields_are_read() -> None:
    config = parse(
        webhook={"enabled": False, "server": {"host": "127.0.0.1"}},
        controller={"sharder": {"webhookStalenessSeconds": 2}},
    ).config
    assert not config.webhook.enabled
    assert config.webhook.server.host == "127.0.0.1"
    assert config.controller.sharder.webhook_staleness_seconds == 2


def test_code_makes_the_same_configuration_by_attribute_names() -> None:
    made = SharderConfig(client_connection=ClientConnection(qps=5.0, burst=7), graceful_shutdown_seconds=1.5)
    assert parse(clientConnection={"qps": 5, "burst": 7}, gracefulShutDown="1500ms").config == made


def test_attribute_names_are_unknown_in_a_file() -> None:
    assert "leader_election" in wrong(leader_election={})


def test_a_negative_graceful_shutdown_has_no_limit() -> None:
    assert parse(gracefulShutDown="-1s").config.graceful_shutdown_limit is None
    assert parse(gracefulShutDown="0s").config.graceful_shutdown_limit == 0


# -- what is refused --------------------------------------------------------


def test_every_problem_is_told_at_once_with_path_and_remedy() -> None:
    told = problems_of(
        """
        apiVersion: config.sharding.timebertt.dev/v1alpha1
        kind: SharderConfg
        leaderElection: {leaseDuration: 5s, resourceLock: configmaps, leaseDuraton: 3s}
        controller: 3
        metrics: {bindAddress: ":8081"}
        webhook:
          server: {port: "9443", certdir: x}
          config:
            annotations: {a b: 1}
            clientConfig: {url: "http://x", caBundle: Zm9v, service: {namespace: A, port: 0}}
            namespaceSelector: {matchLabels: {a key: x}, matchExpressions: [{key: a, operator: Near}]}
        gracefulShutDown: 15
        """
    )
    assert set(told) == {
        "kind",
        "leaderElection",
        "leaderElection.resourceLock",
        "leaderElection.leaseDuraton",
        "controller",
        "metrics.bindAddress",
        "webhook.server.port",
        "webhook.server.certdir",
        "webhook.config.annotations['a b']",
        "webhook.config.clientConfig.url",
        "webhook.config.clientConfig.caBundle",
        "webhook.config.clientConfig.service.namespace",
        "webhook.config.clientConfig.service.port",
        "webhook.config.namespaceSelector.matchExpressions[0].operator",
        "webhook.config.namespaceSelector.matchLabels",
        "gracefulShutDown",
    }
    assert all("; " in problem and "\n" not in problem for problem in told.values())


def test_an_unknown_field_is_refused_and_the_nearest_named() -> None:
    assert wrong(leaderElection={"leaseDuraton": "3s"}) == {
        "leaderElection.leaseDuraton": "is unknown; did you mean leaseDuration?"
    }


def test_an_unknown_field_like_none_is_told_what_is_known() -> None:
    told = wrong(health={"xyzzy": 1})
    assert told == {"health.xyzzy": "is unknown; remove it; known here: bindAddress"}


def test_unknown_fields_with_null_are_refused_too() -> None:
    assert "webhook.serve" in wrong(webhook={"serve": None})


@pytest.mark.parametrize(
    ("election", "hint"),
    [
        ({"leaseDuration": "5s"}, "two replicas could lead at once"),
        ({"renewDeadline": "15s"}, "two replicas could lead at once"),
        ({"renewDeadline": "12.6s"}, "make renewDeadline shorter than 12.6s"),
        ({"leaseDuration": "5s", "renewDeadline": "4.2s"}, "make renewDeadline shorter than 4.2s"),
        ({"retryPeriod": "9s"}, "retryPeriod about a fifth"),
    ],
)
def test_timings_that_cannot_work_together_are_refused(election: dict[str, str], hint: str) -> None:
    assert hint in wrong(leaderElection=election)["leaderElection"]


@pytest.mark.parametrize(("lease", "deadline"), [("15s", "12590ms"), ("5s", "4190ms"), ("1s", "830ms")])
def test_timings_that_are_accepted_can_be_led_by(lease: str, deadline: str) -> None:
    settings = {"leaseDuration": lease, "renewDeadline": deadline, "retryPeriod": "100ms"}
    timings = replica_settings(parse(leaderElection=settings).config).timings
    assert timings.renew_deadline == float(deadline[:-2]) / 1000


def test_a_faulty_value_is_not_blamed_a_second_time() -> None:
    assert set(wrong(leaderElection={"leaseDuration": "soon", "renewDeadline": "20s"})) == {
        "leaderElection.leaseDuration"
    }


def test_two_servers_on_one_port_are_refused() -> None:
    assert set(wrong(health={"bindAddress": ":9443"})) == {"webhook.server.port"}


def test_a_webhook_that_is_off_and_any_free_port_clash_with_nothing() -> None:
    parse(health={"bindAddress": ":9443"}, webhook={"enabled": False})
    parse(health={"bindAddress": ":0"}, metrics={"bindAddress": ":0"})


def test_url_and_service_together_are_refused() -> None:
    config = {"clientConfig": {"url": "https://x", "service": {}}}
    assert "has both url and service" in wrong(webhook={"config": config})["webhook.config.clientConfig"]


@pytest.mark.parametrize("text", ["", "   \n", "# nothing\n", "[]", "just words", "3"])
def test_a_file_without_a_mapping_is_told_how_to_begin(text: str) -> None:
    assert "begin with `apiVersion:" in problems_of(text)["(file)"]


@pytest.mark.parametrize("text", ["a: [", "{", "a: b: c", "a: 1\n---\nb: 2\n", "\x00", "a: *b", "!!python/object:x {}"])
def test_broken_syntax_is_one_problem(text: str) -> None:
    assert "is neither YAML nor JSON" in problems_of(text)["(file)"]


@pytest.mark.parametrize("text", ["health: {}\nhealth: {}\n", '{"health": {}, "health": {}}'])
def test_a_field_written_twice_is_refused(text: str) -> None:
    assert any("stands twice" in problem for problem in problems_of(text).values())


@pytest.mark.parametrize("header", [{"apiVersion": "v1"}, {"kind": None}, {"apiVersion": ["x"]}])
def test_another_kind_of_file_is_refused(header: dict[str, Any]) -> None:
    (name,) = header
    assert list(problems_of(yaml.safe_dump(HEADER | header))) == [name]


def test_a_thousand_problems_are_counted_not_listed() -> None:
    told = wrong(**{f"field{number}": 1 for number in range(1000)})
    assert len(told) == 51
    assert "has 950 more problems" in told["(file)"]


def test_an_unreadable_file_is_told_by_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*nowhere.yaml: No such file"):
        load_config(str(tmp_path / "nowhere.yaml"))
    with pytest.raises(ConfigurationError, match="directory"):
        load_config(str(tmp_path))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        load_config(str(path))
    path.write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigurationError, match="no configuration file"):
        load_config(str(path))


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_paths = st.sampled_from(
    [
        "clientConnection", "clientConnection.qps", "clientConnection.burst", "leaderElection.leaderElect",
        "leaderElection.leaseDuration", "leaderElection.resourceName", "health", "metrics.bindAddress",
        "controller.sharder", "controller.sharder.concurrentMoves", "webhook.enabled", "webhook.server.port",
        "webhook.config.annotations", "webhook.config.clientConfig.url", "webhook.config.clientConfig.caBundle",
        "webhook.config.clientConfig.service", "webhook.config.namespaceSelector", "gracefulShutDown", "other",
    ]
)  # fmt: skip


@settings(deadline=None)
@given(values=st.dictionaries(_paths, _anything, max_size=4))
def test_whatever_stands_in_a_file_is_accepted_or_explained(values: dict[str, Any]) -> None:
    raw: dict[str, Any] = dict(HEADER)
    for path, value in values.items():
        section = raw
        *parents, name = path.split(".")
        for parent in parents:
            inner = section.get(parent)
            if not isinstance(inner, dict):
                inner = section[parent] = {}
            section = inner
        section[name] = value
    problems: tuple[Problem, ...] = ()
    try:
        parse_config(yaml.safe_dump(raw, allow_unicode=True))
    except InvalidConfig as error:
        problems = error.problems or (Problem("", "", ""),)
    assert all(problem.path and problem.message and problem.remedy for problem in problems)


def test_a_single_replica_holds_the_leaders_lease_as_well() -> None:
    loaded = parse(leaderElection={"leaderElect": False})
    assert [each.path for each in loaded.without_effect] == ["leaderElection.leaderElect"]
