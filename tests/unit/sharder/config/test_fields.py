"""Single values of a configuration: durations, addresses, URLs, certificates; and the printed reference."""

from __future__ import annotations

import base64
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from sharder.config import (
    BindAddress,
    HealthEndpoint,
    InvalidConfig,
    SharderConfig,
    WebhookClientConfig,
    parse_config,
    render_reference,
)
from sharder.config.durations import parse_duration, render_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15s", 15), ("1m30s", 90), ("1.5h", 5400), ("250ms", 0.25), ("0", 0), ("+0", 0), ("0s", 0), (".5s", 0.5),
        ("1.s", 1), ("-1s", -1), ("+1s", 1), ("1h2m3.004s", 3723.004), ("100us", 1e-4), ("100µs", 1e-4),
        ("100μs", 1e-4), ("7ns", 7e-9), ("1s1s", 2), ("2562047h47m16.854775807s", 9223372036.854775807),
    ],
)  # fmt: skip
def test_durations_are_read_as_go_reads_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "1", "s", ".s", "1 s", " 1s", "1s ", "1S", "--1s", "1m30", "٣s", "2562047h47m16.854775808s", "1e3s"]
)
def test_what_go_does_not_read_as_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@settings(deadline=None)
@given(st.integers(min_value=-(2**62), max_value=2**62))
def test_a_rendered_duration_reads_back(nanoseconds: int) -> None:
    seconds = nanoseconds / 1e9
    assert math.isclose(parse_duration(render_duration(seconds)), seconds, rel_tol=1e-12, abs_tol=1e-9)


def test_durations_are_rendered_for_people() -> None:
    shown = [render_duration(seconds) for seconds in (0, 0.25, 2.5, 15, 90, 300, 5400, 3600, -1)]
    assert shown == ["0s", "250ms", "2.5s", "15s", "1m30s", "5m", "1h30m", "1h", "-1s"]


def with_field(path: str, value: Any) -> SharderConfig:
    raw: Any = value
    for name in reversed(path.split(".")):
        raw = {name: raw}
    return parse_config(yaml.safe_dump(_HEADER | raw)).config


_HEADER = {"apiVersion": "config.sharding.timebertt.dev/v1alpha1", "kind": "SharderConfig"}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":7000", BindAddress("", 7000)),
        ("127.0.0.1:7000", BindAddress("127.0.0.1", 7000)),
        ("localhost:0", BindAddress("localhost", 0)),
        ("[::1]:7000", BindAddress("::1", 7000)),
        ("0", BindAddress(enabled=False)),
    ],
)
def test_addresses_are_read_as_go_writes_them(text: str, address: BindAddress) -> None:
    read = with_field("health.bindAddress", text).health.bind_address
    assert read == address
    assert str(read) == text


@pytest.mark.parametrize(
    "value",
    [
        0,
        8080,
        "8080",
        "::1:80",
        "a b:1",
        ":65536",
        ":99999",
        ":http",
        "/tmp/x",
        ["x"],
        "a..b:1",
        "a\0b:1",
        "é:1",
        ".:1",
    ],
)
def test_other_addresses_are_refused(value: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"health\.bindAddress: .*(write|use)"):
        with_field("health.bindAddress", value)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%eth0", "localhost", "a_b.example.org"])
def test_the_webhook_listens_on_an_address_or_a_name(host: str) -> None:
    assert with_field("webhook.server.host", host).webhook.server.host == host


@pytest.mark.parametrize("url", ["https://x", "https://x:9443/", "https://10.0.0.1/sharder", "https://[::1]:9443"])
def test_urls_that_the_api_server_calls_are_accepted(url: str) -> None:
    assert with_field("webhook.config.clientConfig.url", url).webhook.config.client_config.url == url


@pytest.mark.parametrize(
    "url", ["http://x", "https://", "x", "https://a@x", "https://x?y", "https://x#y", "https://x:z", "https://[x", 7]
)
def test_other_urls_are_refused(url: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"clientConfig\.url"):
        with_field("webhook.config.clientConfig.url", url)


def test_a_ca_bundle_is_decoded_and_checked() -> None:
    pem = make_certificate()
    encoded = base64.encodebytes(pem + pem).decode()
    assert with_field("webhook.config.clientConfig.caBundle", encoded).webhook.config.client_config == (
        WebhookClientConfig(ca_bundle=pem + pem)
    )


@pytest.mark.parametrize("value", ["%%%", "Zm9v", base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode(), 7, "//4="])
def test_a_ca_bundle_without_certificates_is_refused(value: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"caBundle: .*base64 of a PEM file"):
        with_field("webhook.config.clientConfig.caBundle", value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("leaderElection.resourceName", "A"),
        ("leaderElection.resourceNamespace", "a.b"),
        ("leaderElection.leaseDuration", "500ms"),
        ("leaderElection.leaseDuration", "15500ms"),
        ("leaderElection.leaderElect", "yes"),
        ("controller.sharder.syncPeriod", "-1s"),
        ("controller.sharder.concurrentMoves", 0),
        ("controller.sharder.concurrentMoves", 10.5),
        ("controller.sharder.webhookStalenessSeconds", "10s"),
        ("controller.sharder.webhookStalenessSeconds", math.nan),
        ("clientConnection.qps", math.inf),
        ("clientConnection.qps", "100"),
        ("clientConnection.burst", True),
        ("webhook.server.certName", 1),
        ("webhook.server.host", "a..b"),
        ("webhook.server.host", "a\0b"),
        ("webhook.server.host", "[::1]"),
        ("webhook.server.port", 65_536),
        ("webhook.config.annotations", []),
        ("webhook.config.annotations.x", None),
        ("webhook.config.clientConfig.service.path", "no-slash"),
        ("webhook.config.clientConfig.service.name", "-x"),
    ],
)
def test_values_that_cannot_be_are_refused_at_their_path(path: str, value: Any) -> None:
    with pytest.raises(InvalidConfig) as caught:
        with_field(path, value)
    (problem,) = caught.value.problems
    assert problem.path in (path, "webhook.config.annotations['x']")


def test_code_may_give_plain_seconds_and_addresses() -> None:
    config = SharderConfig(health=HealthEndpoint(BindAddress("127.0.0.1", 1)), graceful_shutdown_seconds=2)
    assert (config.health.bind_address.port, config.graceful_shutdown_seconds) == (1, 2.0)


def test_the_reference_lists_every_field_with_default_and_meaning() -> None:
    rows = [row.split(" | ") for row in render_reference().splitlines()[2:]]
    shown = {row[0].strip("| `"): row[1] for row in rows}
    assert shown["leaderElection.leaseDuration"] == "`15s`"
    assert shown["metrics.bindAddress"] == '`":8080"`'
    assert shown["webhook.enabled"] == "`true`"
    assert shown["controller.sharder.webhookStalenessSeconds"] == "`10`"
    assert shown["webhook.config.clientConfig.service.name"] == "`sharder`"
    assert shown["gracefulShutDown"] == "`15s`"
    assert all(len(row) == 3 and len(row[2]) > 10 for row in rows)


def test_the_page_in_docs_has_the_reference_as_the_code_prints_it() -> None:
    page = Path(__file__).parents[4] / "docs" / "configuration.md"
    assert page.read_text().endswith(f"\n\n{render_reference()}")


def make_certificate() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=10_000))
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)
