"""Proxies are found as programs in Go find them, and nobody reads their passwords."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from shardsdk.errors import ConfigurationError, ConnectionFailed
from shardsdk.kube.client import Client
from shardsdk.kube.proxies import Proxy, proxy_of
from shardsdk.kube.server import direct_access
from tests.kube_configs import kubeconfig, load
from tests.kube_fakes import CONFIGMAPS, refusing_proxy

ADDRESS = "http://proxy:3128"


@pytest.fixture(autouse=True)
def nobodys_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("host", "exceptions", "straight"),
    [
        ("api.example", "", False),
        ("localhost", "", True),
        ("a.localhost", "", False),
        ("127.8.0.1", "", True),
        ("::1", "", True),
        ("::ffff:127.0.0.1", "", True),
        ("api.example", "*", True),
        ("10.96.0.1", "else,*", True),
        # names
        ("api.example", "API.example ", True),
        ("api.example", "example", True),
        ("api.example", ".example", True),
        ("api.example", "*.example", True),
        ("example", "example", True),
        ("example", ".example", False),
        ("example", "*.example", False),
        ("myexample", "example", False),
        ("api.example", "api", False),
        # addresses
        ("10.96.0.1", "10.96.0.1", True),
        ("10.96.0.1", "0.1", False),
        ("fd00::1", "fd00:0::1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        # networks
        ("10.96.0.1", "else,10.0.0.0/8", True),
        ("10.96.0.1", "10.1.2.3/8", True),
        ("11.96.0.1", "10.0.0.0/8", False),
        ("fd00::1", "fd00::/8", True),
        ("fd00::1", "10.0.0.0/8", False),
        ("10.0.0.1", "10.0.0.0/255.0.0.0", False),
        ("10.0.0.1", "10.0.0.0/33", False),
        ("api.example", "10.0.0.0/8", False),
        # ports
        ("api.example", "api.example:6443", True),
        ("api.example", "api.example:443", False),
        ("api.example", ".example:6443", True),
        ("10.96.0.1", "10.96.0.1:6443", True),
        ("10.96.0.1", "10.96.0.1:443", False),
        ("fd00::1", "[fd00::1]:6443", True),
        ("fd00::1", "[fd00::1]:443", False),
        # what says nothing
        ("api.example", ",, ,:6443,/,[,]:,", False),
    ],
)
def test_exceptions_are_names_addresses_networks_and_ports(host: str, exceptions: str, straight: bool) -> None:
    environ = {"HTTPS_PROXY": ADDRESS, "NO_PROXY": exceptions}
    assert proxy_of(environ, "https", host, 6443) == (None if straight else Proxy("HTTPS_PROXY", ADDRESS))


@pytest.mark.parametrize(
    ("environ", "scheme", "found"),
    [
        ({}, "https", None),
        ({"HTTP_PROXY": ADDRESS}, "https", None),
        ({"HTTPS_PROXY": ADDRESS}, "http", None),
        ({"HTTP_PROXY": ADDRESS}, "http", Proxy("HTTP_PROXY", ADDRESS)),
        ({"https_proxy": ADDRESS}, "https", Proxy("https_proxy", ADDRESS)),
        ({"https_proxy": "http://other", "HTTPS_PROXY": ADDRESS}, "https", Proxy("HTTPS_PROXY", ADDRESS)),
        ({"https_proxy": ADDRESS, "HTTPS_PROXY": ""}, "https", Proxy("https_proxy", ADDRESS)),
        ({"HTTPS_PROXY": ADDRESS, "no_proxy": "example"}, "https", None),
        ({"HTTPS_PROXY": "proxy:3128"}, "https", Proxy("HTTPS_PROXY", ADDRESS)),
        ({"HTTPS_PROXY": "https://proxy"}, "https", Proxy("HTTPS_PROXY", "https://proxy")),
        ({"HTTPS_PROXY": "http://u:p@proxy"}, "https", Proxy("HTTPS_PROXY", "http://u:p@proxy")),
    ],
)
def test_a_proxy_is_that_of_the_scheme(environ: dict[str, str], scheme: str, found: Proxy | None) -> None:
    assert proxy_of(environ, scheme, "api.example", 6443) == found


async def test_proxies_are_those_of_kubeconfig_or_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", ADDRESS)
    monkeypatch.setenv("no_proxy", "10.0.0.0/8")
    assert direct_access("http://10.0.0.1:1").request_options == {}
    assert direct_access("http://127.0.0.1:1").request_options == {}
    assert direct_access("http://cluster.example:1").request_options == {"proxy": ADDRESS}
    named = kubeconfig(tmp_path, {}, **{"proxy-url": "http://own:1"})
    assert (await load(tmp_path, named)).request_options == {"proxy": "http://own:1"}


@pytest.mark.parametrize("address", ["sock://u:secret@proxy:1", "http://u:secret@:1", "http://u:secret@a..b", "://"])
async def test_an_address_that_is_none_is_refused_without_being_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    with pytest.raises(ConfigurationError, match="proxy-url is no address") as caught:
        await load(tmp_path, kubeconfig(tmp_path, {}, **{"proxy-url": address}))
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("HTTPS_PROXY", address)
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY of the environment is no address") as caught:
        direct_access("https://api.example:6443")
    assert "secret" not in str(caught.value)
    assert direct_access("https://127.0.0.1:6443").request_options == {}, "it is of no use there"


@pytest.mark.parametrize("scheme", ["socks5", "SOCKS5h", "socks4"])
async def test_of_a_socks_proxy_it_is_said_that_there_is_no_way_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    address = f"{scheme}://u:secret@proxy:1"
    with pytest.raises(ConfigurationError, match="proxy-url is a SOCKS proxy, which is not supported") as caught:
        await load(tmp_path, kubeconfig(tmp_path, {}, **{"proxy-url": address}))
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("HTTPS_PROXY", address)
    with pytest.raises(ConfigurationError, match=r"HTTPS_PROXY of the environment is a SOCKS proxy.* NO_PROXY"):
        direct_access("https://api.example:6443")


async def test_a_proxys_password_is_for_the_proxy_alone(tmp_path: Path) -> None:
    async with refusing_proxy() as (proxy, heard):
        cluster = {"server": "https://api.example:6443", "proxy-url": f"http://me:sec%2Fret@{proxy}"}
        access = await load(tmp_path, kubeconfig(tmp_path, {"token": "a-token", "as": "somebody"}, **cluster))
        async with Client(access) as client:
            with pytest.raises(ConnectionFailed, match="407") as caught:
                await client.get(CONFIGMAPS, "a", "n")
    assert "ret@" not in str(caught.value)
    presented = base64.b64encode(b"me:sec/ret").decode()
    assert f"\r\nProxy-Authorization: Basic {presented}\r\n" in heard[0]
    assert "a-token" not in heard[0], "which is for the API server"
    assert "somebody" not in heard[0]
