"""Identities stay current: token files and exec plugins."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import socket
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.kube import credentials, subprocesses
from shardsdk.kube.credentials import (
    RENEWAL_PAUSE_SECONDS,
    TOKEN_FILE_PERIOD_SECONDS,
    FileCredentials,
)
from tests.kube_configs import authorization, certificate, in_cluster, kubeconfig, load, service_account
from tests.kube_fakes import InstantClock


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
    access = await load(tmp_path, environ=in_cluster(pod), clock=clock)
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


async def test_a_plugins_token_that_has_run_out_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "EXPIRED_WAIT_SECONDS", 30.0)
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


def note_commands(monkeypatch: pytest.MonkeyPatch, stdin: socket.socket) -> asyncio.Queue[asyncio.SubprocessTransport]:
    """Each command that is started from now on; the first reads from `stdin`."""
    made: asyncio.Queue[asyncio.SubprocessTransport] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    start = loop.subprocess_exec

    async def note(*arguments: Any, **options: Any) -> Any:
        transport, protocol = await start(*arguments, **options | {"stdin": stdin})
        stdin.close()
        made.put_nowait(transport)
        return transport, protocol

    monkeypatch.setattr(loop, "subprocess_exec", note)
    return made


def all_pipes_closed(process: asyncio.SubprocessTransport) -> bool:
    pipes = [process.get_pipe_transport(number) for number in (1, 2)]
    return all(pipe is not None and pipe.is_closing() for pipe in pipes)


@pytest.mark.parametrize("script", ["exec cat", "cat; echo"], ids=["itself", "its helper"])
@pytest.mark.parametrize("interactive", [False, True], ids=["alone", "at a terminal"])
async def test_a_plugin_that_hangs_is_ended_with_the_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, interactive: bool
) -> None:
    """One would be left behind at each renewal otherwise; and nobody waits for a helper that holds on to its output."""
    monkeypatch.setattr(subprocesses, "REAP_SECONDS", 40.0)
    if interactive:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    ours, theirs = socket.socketpair()
    made = note_commands(monkeypatch, theirs)
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]}
    with ours:
        loading = asyncio.ensure_future(load(tmp_path, kubeconfig(tmp_path, {"exec": plugin})))
        process = await made.get()
        loading.cancel()
        await asyncio.wait((loading,))
        assert process.get_returncode() == -signal.SIGKILL
        assert all_pipes_closed(process)
        if not interactive:
            # Nobody is left who could write to it; whoever had to be left ends as it is closed.
            ours.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(ours, 1) == b""


async def test_what_a_plugin_leaves_behind_is_not_waited_for_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent, say, which holds on to the plugin's output: the answer counts, and nothing stays open here."""
    monkeypatch.setattr(subprocesses, "DRAIN_SECONDS", 0.01)
    ours, theirs = socket.socketpair()
    made = note_commands(monkeypatch, theirs)
    version = "client.authentication.k8s.io/v1"
    said = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": "t"}})
    script = f"exec 3<&0; cat <&3 & echo '{said}'"  # a shell has what it leaves behind read from nowhere else
    user = {"exec": {"apiVersion": version, "command": "sh", "args": ["-c", script]}}
    with ours:
        access = await load(tmp_path, kubeconfig(tmp_path, user))
        assert await authorization(access) == "Bearer t"
        assert all_pipes_closed(made.get_nowait())
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(1)  # the other end is still open


async def test_a_plugin_is_told_of_its_cluster_if_it_asks_for_that(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(certificate()[0])
    script = tmp_path / "plugin"
    script.write_text(f'#!/bin/sh\nprintf %s "$KUBERNETES_EXEC_INFO" >{tmp_path}/asked\nexit 1\n')
    script.chmod(0o755)
    asks = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin", "provideClusterInfo": True}
    cluster: dict[str, Any] = {
        "server": "https://h:1",
        "certificate-authority": "ca.pem",
        "tls-server-name": "name",
        "proxy-url": "http://p:2",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}],
    }
    for user in (asks, asks | {"provideClusterInfo": False}):
        with pytest.raises(ConfigurationError, match="returned 1"):
            await load(tmp_path, kubeconfig(tmp_path, {"exec": user}, **cluster))
        told = json.loads((tmp_path / "asked").read_text())["spec"].get("cluster")
        assert told == (
            {
                "server": "https://h:1",
                "certificate-authority-data": base64.b64encode((tmp_path / "ca.pem").read_bytes()).decode(),
                "tls-server-name": "name",
                "proxy-url": "http://p:2",
                "config": {"audience": "a"},
            }
            if user is asks
            else None
        )


async def test_a_plugin_that_is_not_installed_says_how_to_install_it(tmp_path: Path) -> None:
    user = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "absent-plugin",
        "installHint": "get it by:\n  brew install it\n",
    }
    with pytest.raises(ConfigurationError, match="absent-plugin'; get it by: brew install it; run it by hand"):
        await load(tmp_path, kubeconfig(tmp_path, {"exec": user}))


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


async def test_threads_share_one_access_and_one_renewal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard's keeper has a thread, an event loop and a client of its own."""
    monkeypatch.setattr(credentials, "BLOCKED_SECONDS", 120.0)  # a busy machine's loops are slow, and not blocked
    clock = InstantClock()
    access = await load(tmp_path, kubeconfig(tmp_path, plugin(tmp_path, {"token": "COUNT"})), clock=clock)
    clock.at += RENEWAL_PAUSE_SECONDS

    async def use() -> tuple[bool, str | None]:
        return await access.credentials.renew("Bearer 1"), await authorization(access)

    results = await asyncio.gather(*(asyncio.to_thread(asyncio.run, use()) for _ in range(4)))
    assert (True, "Bearer 2") in results
    assert {header for _, header in results} <= {"Bearer 1", "Bearer 2"}
    assert runs(tmp_path) == 2
