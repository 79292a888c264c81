"""Identities stay current: token files, exec plugins, OIDC."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import socket
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.kube.credentials import (
    RENEWAL_PAUSE_SECONDS,
    TOKEN_FILE_PERIOD_SECONDS,
    FileCredentials,
    Issued,
    IssuedCredentials,
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


@pytest.mark.parametrize("script", ["exec cat", "cat; echo"], ids=["itself", "its helper"])
@pytest.mark.parametrize("interactive", [False, True], ids=["alone", "at a terminal"])
async def test_a_plugin_that_hangs_is_ended_with_the_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, interactive: bool
) -> None:
    """One would be left behind at each renewal otherwise; and nobody waits for a helper that holds on to its output."""
    if interactive:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    made: asyncio.Queue[asyncio.subprocess.Process] = asyncio.Queue()
    create = asyncio.create_subprocess_exec
    ours, theirs = socket.socketpair()

    async def note(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await create(*arguments, **options, stdin=theirs)
        theirs.close()
        made.put_nowait(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", note)
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]}
    with ours:
        loading = asyncio.ensure_future(load(tmp_path, kubeconfig(tmp_path, {"exec": plugin})))
        process = await made.get()
        loading.cancel()
        await asyncio.wait((loading,))
        assert process.returncode == -signal.SIGKILL
        for output in (process.stdout, process.stderr):
            assert output is not None
            assert await output.read() == b""
        if not interactive:
            # Nobody is left who could write to it; whoever had to be left ends as it is closed.
            ours.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(ours, 1) == b""


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
    async with asyncio.timeout(30):
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
