"""Configuration is found in the stated order, and identities stay current."""

from __future__ import annotations

import base64
import os
import pwd
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from shardsdk.errors import ConfigurationError, ConnectionFailed
from shardsdk.kube.access import answering
from shardsdk.kube.client import Client
from tests.kube_configs import authorization, certificate, in_cluster, kubeconfig, load, read, service_account, write
from tests.kube_server import Answer, breaks_off, serving

# Where it is looked for


async def test_the_order_is_explicit_then_environment_then_pod_then_home(tmp_path: Path) -> None:
    explicit = kubeconfig(tmp_path, {"token": "explicit"})
    from_environment = kubeconfig(tmp_path, {"token": "environment"}, name="environment")
    home = tmp_path / "home"
    kubeconfig(home / ".kube", {"token": "home"})
    pod = service_account(tmp_path / "account")
    everything = {"HOME": str(home), "KUBECONFIG": from_environment, **in_cluster(pod)}
    in_pod = {"HOME": str(home), **in_cluster(pod)}
    found = [
        await load(tmp_path, Path(explicit), environ=everything),
        await load(tmp_path, environ=everything),
        await load(tmp_path, environ=in_pod),
        await load(tmp_path, environ={"HOME": str(home)}),
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


async def test_of_several_files_the_first_that_says_something_counts(tmp_path: Path) -> None:
    files = [kubeconfig(tmp_path / name, {"tokenFile": "token"}, name="config") for name in ("first", "second")]
    for name in ("first", "second"):
        (tmp_path / name / "token").write_text(f"of-the-{name}")
    content = read(files[0]) | {"contexts": None, "current-context": ""}
    write(files[0], content)
    access = await load(tmp_path, os.pathsep.join(files))
    assert await authorization(access) == "Bearer of-the-first", "and its paths are relative to it"
    assert access.namespace == "team"
    write(files[0], {**content, "current-context": "elsewhere"})
    with pytest.raises(ConfigurationError, match="object with name elsewhere"):
        await load(tmp_path, os.pathsep.join(files))


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
        await load(tmp_path, context="x", environ={"HOME": str(tmp_path), **in_cluster(pod)})


# What can be wrong with it


async def test_nothing_configured_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="pass a kubeconfig, set KUBECONFIG, run in a pod"):
        await load(tmp_path)


async def test_nor_is_anything_configured_for_a_user_without_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As containers may run, under a number that no file knows."""

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(ConfigurationError, match=r"pass a kubeconfig, set KUBECONFIG, run in a pod.*and set HOME"):
        await load(tmp_path, environ={})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{]", "config is no YAML: look at line 1, column 2;"),
        ("a: 1\n\tb: 2", "config is no YAML: look at line 2, column 1;"),
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
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("section", "setting", "value", "said"),
    [
        ("clusters", "insecure-skip-tls-verify", "false", "insecure-skip-tls-verify is neither true nor false"),
        ("clusters", "insecure-skip-tls-verify", 0, "insecure-skip-tls-verify is neither true nor false"),
        ("clusters", "server", ["https://h:1"], "server is no text"),
        ("clusters", "certificate-authority-data", 12, "certificate-authority-data is no text"),
        ("clusters", "certificate-authority-data", "LS0t-_==", "certificate-authority-data is no Base64"),
        ("clusters", "certificate-authority-data", "LS0tLS1", "certificate-authority-data is no Base64"),
        ("clusters", "certificate-authority", {}, "certificate-authority is no text"),
        ("users", "token", 12345, "token is no text; what looks like a number has to be in quotes"),
        ("users", "password", 0, "password is no text"),
        ("users", "exec", "login --now", "exec is no map"),
        ("users", "exec", ["login"], "exec is no map"),
        ("users", "auth-provider", "oidc", "auth-provider is no map"),
        ("users", "as-groups", "system:masters", "as-groups is no list of texts"),
        ("users", "as-groups", [1], "as-groups is no list of texts"),
        ("users", "as-user-extra", ["scopes"], "as-user-extra is no map"),
        ("users", "as-user-extra", {"scopes": "view"}, "scopes is no list of texts"),
        ("contexts", "namespace", 5, "namespace is no text"),
        ("contexts", "user", ["u"], "user is no text"),
    ],
)
async def test_a_setting_of_another_kind_is_named(
    tmp_path: Path, section: str, setting: str, value: object, said: str
) -> None:
    path = kubeconfig(tmp_path, {"username": "me"}, server="https://h:1")
    content = read(path)
    content[section][0][section.removesuffix("s")][setting] = value
    write(path, content)
    with pytest.raises(ConfigurationError, match=said):
        await load(tmp_path, path)


async def test_a_date_is_text_as_to_kubectl(tmp_path: Path) -> None:
    path = tmp_path / "config"
    kubeconfig(tmp_path, {"token": "t"})
    path.write_text(path.read_text().replace("namespace: team", "namespace: 2024-01-01"))
    assert (await load(tmp_path, str(path))).namespace == "2024-01-01"


@pytest.mark.parametrize("section", ["contexts", "clusters", "users"])
@pytest.mark.parametrize("value", [{"name": "here"}, ["here"], "here"])
async def test_a_section_that_is_no_list_is_named(tmp_path: Path, section: str, value: object) -> None:
    path = kubeconfig(tmp_path, {})
    write(path, read(path) | {section: value})
    with pytest.raises(ConfigurationError, match=f"its {section} are no list of maps, each with a name"):
        await load(tmp_path, path)


async def test_base64_may_be_broken_into_lines(tmp_path: Path) -> None:
    ca = base64.encodebytes(certificate()[0].encode()).decode()
    path = kubeconfig(tmp_path, {}, server="https://h:1", **{"certificate-authority-data": ca})
    assert (await load(tmp_path, path)).ssl.cert_store_stats()["x509"] == 1


async def test_who_has_no_user_is_nobody_as_with_kubectl(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": "t"})
    content = read(path)
    for user in (None, "", "another"):
        content["contexts"][0]["context"]["user"] = user
        write(path, content)
        assert await authorization(await load(tmp_path, path)) is None


async def test_a_kubeconfig_that_is_not_there_is_an_error_even_in_a_pod(tmp_path: Path) -> None:
    pod = service_account(tmp_path / "account")
    with pytest.raises(ConfigurationError, match="no such file"):
        await load(tmp_path, environ={"KUBECONFIG": "/absent", **in_cluster(pod)})


async def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="https://HOST:PORT"):
        await load(tmp_path, kubeconfig(tmp_path, {}, server="localhost:6443"))


@pytest.mark.parametrize("host", ["a..example", ".example", f"{'a' * 64}.example", "[a]@"])
async def test_a_host_that_no_network_could_have_is_refused(tmp_path: Path, host: str) -> None:
    for setting in ("server", "proxy-url"):
        with pytest.raises(ConfigurationError, match=rf"{setting} .*is no address"):
            await load(tmp_path, kubeconfig(tmp_path, {}, **{setting: f"https://{host}:1"}))


@pytest.mark.parametrize("name", ["a..example", ".example", "a" * 64])
async def test_a_name_that_tls_could_not_ask_for_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"tls-server-name .* is no name of a host"):
        await load(tmp_path, kubeconfig(tmp_path, {}, server="https://h:1", **{"tls-server-name": name}))


@pytest.mark.parametrize("host", ["h", "example.", "[fd00::1]", "10.0.0.1", "bücher.example", f"{'a' * 63}.example"])
async def test_any_other_host_is_none_of_our_business(tmp_path: Path, host: str) -> None:
    assert (await load(tmp_path, kubeconfig(tmp_path, {}, server=f"https://{host}:1"))).host == f"https://{host}:1"


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


async def test_what_a_kubeconfig_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "client.crt").write_text(certificate()[0])
    with pytest.raises(ConfigurationError, match="client-certificate and client-key go together"):
        await load(tmp_path, kubeconfig(tmp_path, {"client-certificate": "client.crt"}, server="https://h:1"))
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    with pytest.raises(ConfigurationError, match="client-key: there is no file"):
        await load(tmp_path, kubeconfig(tmp_path, user, server="https://h:1"))
    with pytest.raises(ConfigurationError, match="its cluster has no server"):
        await load(tmp_path, kubeconfig(tmp_path, {}, server=""))


async def test_a_key_in_the_kubeconfig_stays_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.listdir(tmp_path)
    shown, key = (base64.b64encode(text.encode()).decode() for text in certificate())
    user = {"client-certificate-data": shown, "client-key-data": key}
    path = kubeconfig(tmp_path, user, server="https://h:1")
    await load(tmp_path, path)
    assert sorted(os.listdir(tmp_path)) == sorted([*before, Path(path).name])


async def test_only_what_has_to_be_written_for_a_moment_needs_a_directory_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "absent")])
    files = dict(zip(("client-certificate", "client-key"), certificate(), strict=True))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    await load(tmp_path, kubeconfig(tmp_path, {"token": "t"}, server="https://h:1"))
    await load(tmp_path, kubeconfig(tmp_path, {name: name for name in files}, server="https://h:1"))
    data = {f"{name}-data": base64.b64encode(text.encode()).decode() for name, text in files.items()}
    with pytest.raises(ConfigurationError, match=r"written to a file for a moment.*; have TMPDIR name a directory"):
        await load(tmp_path, kubeconfig(tmp_path, data, server="https://h:1"))


async def test_a_pod_without_token_says_what_to_check(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="automountServiceAccountToken"):
        await load(tmp_path, environ=in_cluster(tmp_path))
    pod = service_account(tmp_path / "account")
    (pod / "token").write_text(" \n")
    with pytest.raises(ConfigurationError, match="token"):
        await load(tmp_path, environ=in_cluster(pod))


# TLS and proxies


async def test_certificates_are_verified_unless_the_kubeconfig_says_otherwise(tmp_path: Path) -> None:
    ca = base64.b64encode(certificate()[0].encode()).decode()
    strict = await load(tmp_path, kubeconfig(tmp_path, {}, server="https://h:1", **{"certificate-authority-data": ca}))
    assert strict.ssl.verify_mode is ssl.CERT_REQUIRED
    assert strict.ssl.check_hostname
    assert strict.ssl.cert_store_stats()["x509"] == 1
    named = base64.b64encode(("# Főtanúsítvány\n" + certificate()[0]).encode()).decode()
    bundle = kubeconfig(tmp_path, {}, server="https://h:1", **{"certificate-authority-data": named})
    assert (await load(tmp_path, bundle)).ssl.cert_store_stats()["x509"] == 1, "comments are no part of it"
    unsafe: dict[str, Any] = {"insecure-skip-tls-verify": True, "tls-server-name": "x"}
    lax = kubeconfig(tmp_path, {}, server="https://h:1", **unsafe)
    access = await load(tmp_path, lax)
    assert access.ssl.verify_mode is ssl.CERT_NONE
    assert access.request_options == {"server_hostname": "x"}
    both = kubeconfig(tmp_path, {}, server="https://h:1", **unsafe, **{"certificate-authority-data": ca})
    with pytest.raises(ConfigurationError, match="certificate-authority, which insecure-skip-tls-verify would not"):
        await load(tmp_path, both)


def test_a_pod_does_not_load_the_kubernetes_package(tmp_path: Path) -> None:
    """It takes 16 MiB of each shard and a third of a second of its start."""
    code = (
        "import asyncio, sys; from shardsdk.kube.access import load_access;"
        "print(asyncio.run(load_access()).host, 'kubernetes' in sys.modules)"
    )
    pod = service_account(tmp_path / "account")
    environment = {**in_cluster(pod), "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["https://10.0.0.1:443", "False"]


@pytest.mark.parametrize(
    ("user", "loaded"),
    [({"token": "t"}, "False"), ({"auth-provider": {"name": "other"}, "token": "t"}, "True")],
)
def test_a_kubeconfig_loads_the_kubernetes_package_for_its_providers_only(
    tmp_path: Path, user: dict[str, Any], loaded: str
) -> None:
    """It is half of the time that `kubectl sharding` takes to start."""
    code = (
        "import asyncio, sys; from shardsdk.kube.access import load_access;"
        "headers = asyncio.run(asyncio.run(load_access()).headers());"
        "print(headers['Authorization'], 'kubernetes' in sys.modules)"
    )
    environment = {
        "KUBECONFIG": kubeconfig(tmp_path, user),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HOME": str(tmp_path),
    }
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["Bearer", "t", loaded]


async def test_a_pod_in_a_network_of_version_6(tmp_path: Path) -> None:
    pod = service_account(tmp_path / "account")
    access = await load(tmp_path, environ={**in_cluster(pod), "KUBERNETES_SERVICE_HOST": "fd00::1"})
    assert access.host == "https://[fd00::1]:443"


@pytest.mark.parametrize("address", ["fe80::1%25eth0", "fe80::1%eth0", "FE80:0::1%25eth0"])
async def test_the_zone_of_an_address_is_for_connecting_and_in_no_certificate(tmp_path: Path, address: str) -> None:
    access = await load(tmp_path, kubeconfig(tmp_path, {}, server=f"https://[{address}]:6443/a%25b"))
    assert access.host == f"https://[{address.replace('%25', '%')}]:6443/a%25b"
    assert access.request_options == {"server_hostname": "fe80::1"}


# Whether anybody is there


async def ask(folder: Path, server: str) -> str:
    """What a command says that is not answered."""
    access = await load(folder, kubeconfig(folder, {"token": "t"}, server=server))
    with pytest.raises(ConnectionFailed) as caught, answering(access):
        async with Client(access) as client:
            await client.raw("GET", "/version")
    return str(caught.value)


async def test_an_api_server_that_cannot_be_reached_is_to_be_started_or_named(tmp_path: Path) -> None:
    said = await ask(tmp_path, "http://127.0.0.1:1")
    assert said.startswith(f"no API server answers at http://127.0.0.1:1 (kubeconfig {tmp_path / 'config'}): GET /vers")
    assert said.endswith("start that cluster, or name another by --kubeconfig or --context")


async def test_one_that_is_not_trusted_or_breaks_off_is_there(tmp_path: Path) -> None:
    async def leave(request: web.Request) -> Answer:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    (tmp_path / "server.crt").write_text("".join(certificate()))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "server.crt")
    async with (
        serving(breaks_off(), context=context) as untrusted,
        serving(leave) as left,
        serving(breaks_off()) as cut,
    ):
        servers = {untrusted: "certificate verify failed", left: "isconnected", cut: "broke during the answer"}
        for server, why in servers.items():
            said = await ask(tmp_path, server.url)
            assert said.startswith("GET /version: ")
            assert why in said
            assert "start that cluster" not in said
