"""Configuration is found in the stated order, and identities stay current."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shardsdk.errors import ConfigurationError
from shardsdk.kube.access import Access, direct_access, load_access
from shardsdk.kube.credentials import (
    RENEWAL_PAUSE_SECONDS,
    TOKEN_FILE_PERIOD_SECONDS,
    FileCredentials,
    Issued,
    IssuedCredentials,
)
from tests.kube_fakes import InstantClock


def certificate(name: str = "test") -> tuple[str, str]:
    """A self-signed certificate and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return built.public_bytes(serialization.Encoding.PEM).decode(), pem.decode()


def kubeconfig(folder: Path, user: dict[str, Any], *, name: str = "config", **cluster: Any) -> str:
    """Write a kubeconfig with one context, `here`, in namespace `team`."""
    cluster.setdefault("server", "http://127.0.0.1:8001")
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return str(path)


def read(path: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(Path(path).read_text())
    return content


def write(path: str, content: dict[str, Any]) -> None:
    Path(path).write_text(yaml.safe_dump(content))


def service_account(folder: Path) -> Path:
    """The files of a pod's ServiceAccount."""
    folder.mkdir()
    (folder / "token").write_text("pod-token\n")
    (folder / "ca.crt").write_text(certificate()[0])
    (folder / "namespace").write_text("pods-namespace")
    return folder


IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


async def load(tmp_path: Path, kubeconfig: str | None = None, **options: Any) -> Access:
    options.setdefault("environ", {"HOME": str(tmp_path / "home")})
    options.setdefault("clock", InstantClock())
    return await load_access(kubeconfig, **options)


async def authorization(access: Access) -> str | None:
    return (await access.headers()).get("Authorization")


# Where it is looked for


async def test_the_order_is_explicit_then_environment_then_pod_then_home(tmp_path: Path) -> None:
    explicit = kubeconfig(tmp_path, {"token": "explicit"})
    from_environment = kubeconfig(tmp_path, {"token": "environment"}, name="environment")
    home = tmp_path / "home"
    kubeconfig(home / ".kube", {"token": "home"})
    pod = service_account(tmp_path / "account")
    everything = {"HOME": str(home), "KUBECONFIG": from_environment, **IN_CLUSTER}
    in_pod = {"HOME": str(home), **IN_CLUSTER}
    found = [
        await load(tmp_path, explicit, environ=everything, service_account=pod),
        await load(tmp_path, environ=everything, service_account=pod),
        await load(tmp_path, environ=in_pod, service_account=pod),
        await load(tmp_path, environ={"HOME": str(home)}, service_account=pod),
    ]
    assert [await authorization(access) for access in found] == [
        "Bearer explicit",
        "Bearer environment",
        "Bearer pod-token",
        "Bearer home",
    ]
    assert [access.namespace for access in found] == ["team", "team", "pods-namespace", "team"]
    assert found[2].host == "https://10.0.0.1:443"
    assert explicit in found[0].origin


async def test_several_files_are_merged(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path, {"token": "t"}, name="first")
    content = read(first)
    second = tmp_path / "second"
    second.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "users": content.pop("users")}))
    write(first, content)
    assert await authorization(await load(tmp_path, f"{first}:{second}:{tmp_path / 'absent'}")) == "Bearer t"


async def test_another_context_may_be_chosen(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": "t"})
    content = read(path)
    content["contexts"].append({"name": "there", "context": {"cluster": "d", "user": "v"}})
    content["clusters"].append({"name": "d", "cluster": {"server": "http://127.0.0.1:9/"}})
    content["users"].append({"name": "v", "user": {"username": "me", "password": "secret"}})
    write(path, content)
    access = await load(tmp_path, path, context="there")
    assert (access.host, access.namespace) == ("http://127.0.0.1:9", "default")
    assert await authorization(access) == "Basic " + base64.b64encode(b"me:secret").decode()


async def test_a_context_is_never_looked_for_in_a_pod(tmp_path: Path) -> None:
    pod = service_account(tmp_path / "account")
    with pytest.raises(ConfigurationError, match="KUBECONFIG"):
        await load(tmp_path, context="x", environ={"HOME": str(tmp_path), **IN_CLUSTER}, service_account=pod)


# What can be wrong with it


async def test_nothing_configured_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="pass a kubeconfig, set KUBECONFIG, run in a pod"):
        await load(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{]", "cannot be used"),
        ("", "cannot be used"),
        ("[1, 2]", "cannot be used"),
        ("apiVersion: v1\nkind: Config\n", "cannot be used"),
        ("current-context: x\ncontexts: []\nclusters: []\n", "object with name x"),
        ("current-context: x\ncontexts: [{name: x, context: {cluster: y}}]\nclusters: []\n", "object with name y"),
        ("current-context: x\ncontexts: [{name: x}]\n", "cannot be used"),
    ],
)
async def test_a_malformed_kubeconfig_says_how_to_check_it(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=said) as caught:
        await load(tmp_path, str(path))
    assert "kubectl config view" in str(caught.value)
    assert str(path) in str(caught.value)


async def test_a_kubeconfig_that_is_not_there_is_an_error_even_in_a_pod(tmp_path: Path) -> None:
    pod = service_account(tmp_path / "account")
    with pytest.raises(ConfigurationError, match="no such file"):
        await load(tmp_path, environ={"KUBECONFIG": "/absent", **IN_CLUSTER}, service_account=pod)


async def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="https://HOST:PORT"):
        await load(tmp_path, kubeconfig(tmp_path, {}, server="localhost:6443"))


async def test_a_broken_certificate_is_refused(tmp_path: Path) -> None:
    broken = base64.b64encode(b"no certificate").decode()
    with pytest.raises(ConfigurationError, match="certificate-authority"):
        await load(tmp_path, kubeconfig(tmp_path, {}, server="https://h:1", **{"certificate-authority-data": broken}))
    with pytest.raises(ConfigurationError, match="cannot be used"):
        await load(tmp_path, kubeconfig(tmp_path, {}, server="https://h:1", **{"certificate-authority": "absent"}))


async def test_certificate_and_key_must_belong_together(tmp_path: Path) -> None:
    (mine, _), (_, other) = certificate(), certificate()
    encoded = [base64.b64encode(text.encode()).decode() for text in (mine, other)]
    user = {"client-certificate-data": encoded[0], "client-key-data": encoded[1]}
    with pytest.raises(ConfigurationError, match="one pair"):
        await load(tmp_path, kubeconfig(tmp_path, user, server="https://h:1"))


async def test_a_pod_without_token_says_what_to_check(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="automountServiceAccountToken"):
        await load(tmp_path, environ=IN_CLUSTER, service_account=tmp_path)
    pod = service_account(tmp_path / "account")
    (pod / "token").write_text(" \n")
    with pytest.raises(ConfigurationError, match="token"):
        await load(tmp_path, environ=IN_CLUSTER, service_account=pod)


# TLS and proxies


async def test_certificates_are_verified_unless_the_kubeconfig_says_otherwise(tmp_path: Path) -> None:
    ca = base64.b64encode(certificate()[0].encode()).decode()
    strict = await load(tmp_path, kubeconfig(tmp_path, {}, server="https://h:1", **{"certificate-authority-data": ca}))
    assert strict.ssl.verify_mode is ssl.CERT_REQUIRED
    assert strict.ssl.check_hostname
    unsafe: dict[str, Any] = {"insecure-skip-tls-verify": True, "tls-server-name": "x"}
    lax = kubeconfig(tmp_path, {}, server="https://h:1", **unsafe)
    access = await load(tmp_path, lax)
    assert access.ssl.verify_mode is ssl.CERT_NONE
    assert access.request_options == {"server_hostname": "x"}


async def test_proxies_are_those_of_kubeconfig_or_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert direct_access("http://127.0.0.1:1").request_options == {}
    assert direct_access("http://cluster.example:1").request_options == {"proxy": "http://proxy:3128"}
    named = kubeconfig(tmp_path, {}, **{"proxy-url": "http://own:1"})
    assert (await load(tmp_path, named)).request_options == {"proxy": "http://own:1"}


# Identities that change


async def test_a_token_file_is_read_again_every_minute_and_on_rejection(tmp_path: Path) -> None:
    clock = InstantClock()
    (tmp_path / "token").write_text("one\n")
    access = await load(tmp_path, kubeconfig(tmp_path, {"tokenFile": "token"}), clock=clock)
    assert await authorization(access) == "Bearer one"
    (tmp_path / "token").write_text("two\n")
    assert await authorization(access) == "Bearer one"
    clock.at += TOKEN_FILE_PERIOD_SECONDS
    assert await authorization(access) == "Bearer two"
    assert not await access.credentials.renew("Bearer two")
    (tmp_path / "token").write_text("three")
    assert await access.credentials.renew("Bearer two")
    assert await authorization(access) == "Bearer three"


async def test_a_pods_token_is_read_again(tmp_path: Path) -> None:
    clock = InstantClock()
    pod = service_account(tmp_path / "account")
    access = await load(tmp_path, environ=IN_CLUSTER, service_account=pod, clock=clock)
    (pod / "token").write_text("next")
    clock.at += TOKEN_FILE_PERIOD_SECONDS
    assert await authorization(access) == "Bearer next"


async def test_a_token_file_that_is_just_being_replaced_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    clock = InstantClock()
    credentials = FileCredentials(path, clock)
    for spoil in (
        path.unlink,
        lambda: path.write_text(""),
        lambda: path.write_text("a b"),
        lambda: path.write_bytes(b"\xff"),
    ):
        spoil()
        clock.at += TOKEN_FILE_PERIOD_SECONDS
        assert await credentials.header() == "Bearer one"
        path.write_text("one")
    assert caplog.text.count("Token file not read") == 4


PLUGIN = """
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
count = int((folder / "runs").read_text() or 0) + 1 if (folder / "runs").exists() else 1
(folder / "runs").write_text(str(count))
status = json.loads((folder / "status").read_text())
status = {key: value.replace("COUNT", str(count)) for key, value in status.items()}
if os.environ.get("FAIL") or (folder / "fail").exists():
    sys.exit("no login session: run `login` first")
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""


def plugin(folder: Path, status: dict[str, str]) -> dict[str, Any]:
    """A user with an exec plugin that counts its runs."""
    (folder / "plugin.py").write_text(PLUGIN)
    (folder / "status").write_text(json.dumps(status))
    command = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(folder / "plugin.py"), str(folder)],
        "interactiveMode": "Never",
    }
    return {"exec": command}


def runs(folder: Path) -> int:
    return int((folder / "runs").read_text())


async def test_a_plugin_is_asked_again_before_its_token_runs_out(tmp_path: Path) -> None:
    clock = InstantClock()
    expires = (clock.now() + timedelta(minutes=50)).strftime("%Y-%m-%dT%H:%M:%SZ")
    user = plugin(tmp_path, {"token": "COUNT", "expirationTimestamp": expires})
    access = await load(tmp_path, kubeconfig(tmp_path, user), clock=clock)
    assert [await authorization(access) for _ in range(3)] == ["Bearer 1"] * 3
    clock.at += 44 * 60
    assert await authorization(access) == "Bearer 1"
    clock.at += 2 * 60
    assert await authorization(access) == "Bearer 1", "a renewal in time holds nobody up"
    async with asyncio.timeout(30):
        while await authorization(access) != "Bearer 2":
            await asyncio.sleep(0.01)
    assert runs(tmp_path) == 2


async def test_a_plugins_token_that_has_run_out_is_waited_for(tmp_path: Path) -> None:
    clock = InstantClock()
    expires = (clock.now() + timedelta(minutes=50)).strftime("%Y-%m-%dT%H:%M:%SZ")
    user = plugin(tmp_path, {"token": "COUNT", "expirationTimestamp": expires})
    access = await load(tmp_path, kubeconfig(tmp_path, user), clock=clock)
    clock.at += 51 * 60
    assert await authorization(access) == "Bearer 2"


async def test_a_plugins_token_without_expiry_is_used_until_it_is_rejected(tmp_path: Path) -> None:
    clock = InstantClock()
    access = await load(tmp_path, kubeconfig(tmp_path, plugin(tmp_path, {"token": "COUNT"})), clock=clock)
    clock.at += 1_000_000
    assert await authorization(access) == "Bearer 1"
    assert await access.credentials.renew("Bearer 1")
    assert await authorization(access) == "Bearer 2"
    assert await access.credentials.renew("Bearer 1"), "somebody else has renewed it meanwhile"
    assert not await access.credentials.renew("Bearer 2"), "a plugin is not run in a loop"
    clock.at += RENEWAL_PAUSE_SECONDS
    assert await access.credentials.renew("Bearer 2")
    assert runs(tmp_path) == 3


async def test_a_plugin_that_fails_says_why(tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "t"})
    user["exec"]["env"] = [{"name": "FAIL", "value": "1"}]
    with pytest.raises(ConfigurationError, match="no login session"):
        await load(tmp_path, kubeconfig(tmp_path, user))
    user = plugin(tmp_path, {"nothing": "useful"})
    with pytest.raises(ConfigurationError, match="neither token nor"):
        await load(tmp_path, kubeconfig(tmp_path, user))
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "absent-plugin"}}
    with pytest.raises(ConfigurationError, match="absent-plugin"):
        await load(tmp_path, kubeconfig(tmp_path, user))


async def test_a_plugin_that_fails_later_keeps_its_last_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = InstantClock()
    access = await load(tmp_path, kubeconfig(tmp_path, plugin(tmp_path, {"token": "COUNT"})), clock=clock)
    (tmp_path / "fail").touch()
    clock.at += RENEWAL_PAUSE_SECONDS
    assert not await access.credentials.renew("Bearer 1")
    assert await authorization(access) == "Bearer 1"
    assert "Credentials not renewed" in caplog.text


async def test_a_plugins_path_is_relative_to_its_kubeconfig(tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "t"})
    script = tmp_path / "bin" / "login"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path}/plugin.py {tmp_path}\n")
    script.chmod(0o755)
    user["exec"] |= {"command": "bin/login", "args": None}
    assert await authorization(await load(tmp_path, kubeconfig(tmp_path, user))) == "Bearer t"


async def test_a_plugin_may_issue_client_certificates(tmp_path: Path) -> None:
    pair = certificate()
    user = plugin(tmp_path, {"clientCertificateData": pair[0], "clientKeyData": pair[1]})
    clock = InstantClock()
    access = await load(tmp_path, kubeconfig(tmp_path, user, server="https://h:1"), clock=clock)
    assert await access.headers() == {}
    clock.at += RENEWAL_PAUSE_SECONDS
    assert await access.credentials.renew(None), "a new certificate may be tried"
    other = certificate()[1]
    (tmp_path / "status").write_text(json.dumps({"clientCertificateData": pair[0], "clientKeyData": other}))
    clock.at += RENEWAL_PAUSE_SECONDS
    assert not await access.credentials.renew(None), "a pair that does not fit never reaches the live context"


def id_token(expires: datetime) -> str:
    """What an OIDC provider issues, unsigned."""
    claims = base64.urlsafe_b64encode(json.dumps({"exp": int(expires.timestamp())}).encode()).decode().rstrip("=")
    return f"header.{claims}.signature"


async def test_an_oidc_provider_is_asked_whether_its_token_is_still_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes.aio.config import kube_config

    fresh = id_token(datetime(2100, 1, 1, tzinfo=UTC))

    async def refresh(self: object, provider: Any) -> None:
        provider["config"].value["id-token"] = fresh

    state = {"expired": False}
    monkeypatch.setattr(kube_config.KubeConfigLoader, "_refresh_oidc", refresh)
    monkeypatch.setattr(kube_config, "_is_expired", lambda _: state["expired"])
    old = id_token(datetime(2099, 1, 1, tzinfo=UTC))
    clock = InstantClock()
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": old, "client-id": "c", "refresh-token": "r"}}}
    access = await load(tmp_path, kubeconfig(tmp_path, user), clock=clock)
    assert await authorization(access) == f"Bearer {old}"
    state["expired"] = True
    clock.at += 61
    await authorization(access)
    async with asyncio.timeout(5):
        while await authorization(access) != f"Bearer {fresh}":
            await asyncio.sleep(0.001)


async def test_only_one_renewal_runs_at_a_time() -> None:
    clock = InstantClock()
    gate, asked = asyncio.Event(), []

    async def issue(rejected: bool) -> Issued:
        asked.append(rejected)
        await gate.wait()
        return Issued("new")

    credentials = IssuedCredentials(issue, Issued("old"), clock)
    clock.at += RENEWAL_PAUSE_SECONDS
    first = asyncio.ensure_future(credentials.renew("old"))
    while not asked:
        await asyncio.sleep(0)
    assert not await credentials.renew("old")
    assert await credentials.header() == "old"
    gate.set()
    assert await first
    assert asked == [True]


async def test_a_short_lived_token_is_renewed_at_a_fifth_of_its_life() -> None:
    clock = InstantClock()
    asked: list[bool] = []

    async def issue(rejected: bool) -> Issued:
        asked.append(rejected)
        return Issued(f"t{len(asked)}", clock.now() + timedelta(seconds=100))

    credentials = IssuedCredentials(issue, await issue(False), clock)
    clock.at += 79
    await credentials.header()
    await asyncio.sleep(0)
    assert len(asked) == 1
    clock.at += 2
    await credentials.header()
    await asyncio.sleep(0)
    assert asked == [False, False]
    assert await credentials.header() == "t2"


async def test_threads_share_one_access_and_one_renewal(tmp_path: Path) -> None:
    """A shard's keeper has a thread, an event loop and a client of its own."""
    clock = InstantClock()
    access = await load(tmp_path, kubeconfig(tmp_path, plugin(tmp_path, {"token": "COUNT"})), clock=clock)
    clock.at += RENEWAL_PAUSE_SECONDS

    async def use() -> tuple[bool, str | None]:
        return await access.credentials.renew("Bearer 1"), await authorization(access)

    results = await asyncio.gather(*(asyncio.to_thread(asyncio.run, use()) for _ in range(4)))
    assert (True, "Bearer 2") in results
    assert {header for _, header in results} <= {"Bearer 1", "Bearer 2"}
    assert runs(tmp_path) == 2
