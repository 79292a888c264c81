"""A password or a token that somebody configured is in no message, wherever it was written."""

from __future__ import annotations

import base64
import traceback
from functools import partial
from pathlib import Path

import pytest

from shardsdk.errors import ConfigurationError, ConnectionFailed
from shardsdk.kube.client import Client
from shardsdk.kube.server import Server, direct_access
from tests.kube_configs import kubeconfig, load
from tests.kube_fakes import CONFIGMAPS, refusing_proxy


@pytest.mark.parametrize("user", ["ann:s3cret@", "s3cret@", ":s3cret@"])
async def test_a_password_in_the_address_is_refused_and_not_shown(tmp_path: Path, user: str) -> None:
    for server, said in (
        (f"https://{user}h:1", "give them as username and password of the user"),
        (f"https://{user}h:port", "is no address; write it as https://HOST:PORT"),
        (f"{user}h:1", "is no address; write it as https://HOST:PORT"),
    ):
        with pytest.raises(ConfigurationError, match=said) as caught:
            await load(tmp_path, kubeconfig(tmp_path, {}, server=server))
        assert "s3cret" not in str(caught.value)
        with pytest.raises(ConfigurationError, match=said) as caught:
            direct_access(server)
        assert "s3cret" not in str(caught.value)


async def test_no_repr_shows_who_we_are(tmp_path: Path) -> None:
    proxy = {"server": "http://h:1/?token=s3cret", "proxy-url": "http://me:s3cret@proxy:1"}
    for user in ({"token": "s3cret"}, {"username": "ann", "password": "s3cret"}):
        shown = repr(await load(tmp_path, kubeconfig(tmp_path, user, **proxy)))
        assert "s3cret" not in shown
        assert base64.b64encode(b"ann:s3cret").decode() not in shown
        assert "namespace='team', origin='kubeconfig " in shown
    certificate = partial(print, "s3cret")  # as a kubeconfig's is, which is bound to the user
    server = Server("http://h:1/s3cret", client_certificate=certificate, proxy="http://me:s3cret@proxy:1")
    assert "s3cret" not in repr(server)


@pytest.mark.parametrize("password", ["*s3cret", "!s3cret", "!s3cret!word", "a: s3cret: b", "'s3cret\\n\n- b"])
async def test_a_password_without_quotes_that_is_no_yaml_is_told_by_line_and_column(
    tmp_path: Path, password: str
) -> None:
    path = tmp_path / "config"
    path.write_text(f"users:\n- name: u\n  user:\n    password: {password}\n")
    with pytest.raises(
        ConfigurationError, match=r"config is no YAML: look at line [4567], column \d+; check it"
    ) as caught:
        await load(tmp_path, str(path))
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("user", ["me:s3cret", ":s3cret", "s3cret"])
async def test_a_proxy_that_refuses_a_password_does_not_have_it_shown(tmp_path: Path, user: str) -> None:
    async with refusing_proxy() as (proxy, heard):
        cluster = {"server": "https://api.example:6443", "proxy-url": f"http://{user}@{proxy}"}
        async with Client(await load(tmp_path, kubeconfig(tmp_path, {}, **cluster))) as client:
            with pytest.raises(ConnectionFailed, match="407") as caught:
                await client.get(CONFIGMAPS, "a", "n")
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    presented = base64.b64encode((user if ":" in user else f"{user}:").encode()).decode()
    assert f"\r\nProxy-Authorization: Basic {presented}\r\n" in heard[0]
