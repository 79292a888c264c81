"""Client certificates in files are replaced while clients run; a real TLS server sees who comes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from shardsdk.contrib.kopf_relay import Relay
from shardsdk.errors import Unauthorized
from shardsdk.kube.certificates import CERTIFICATE_PERIOD_SECONDS, CertificateFiles
from shardsdk.kube.client import Client
from shardsdk.kube.server import Access
from tests.kube_configs import certificate, kubeconfig, load
from tests.kube_fakes import InstantClock
from tests.unit.shardsdk.kube.test_identities import plugin


class Visitors:
    """A server that lets in who shows one of the `welcome` certificates; `seen` are the names of all."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.welcome: set[str] = {"one", "two"}
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        peer: dict[str, Any] = request.transport.get_extra_info("peercert")
        name = dict(pair for part in peer["subject"] for pair in part)["commonName"]
        self.seen.append(name)
        if name not in self.welcome:
            return web.json_response({"kind": "Status", "reason": "Unauthorized", "message": "who?"}, status=401)
        return web.json_response({})


def write(folder: Path, pair: tuple[str, str]) -> None:
    (folder / "client.crt").write_text(pair[0])
    (folder / "client.key").write_text(pair[1])


@asynccontextmanager
async def serving(folder: Path, *clients: tuple[str, str]) -> AsyncIterator[Visitors]:
    visitors = Visitors()
    mine = certificate("server")
    (folder / "server.crt").write_text(mine[0])
    (folder / "server.key").write_text(mine[1])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata="".join(each[0] for each in clients))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    app = web.Application()
    app.router.add_get("/{rest:.*}", visitors.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    visitors.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield visitors
    finally:
        await runner.cleanup()


def config(folder: Path, visitors: Visitors) -> str:
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    cluster: dict[str, Any] = {"insecure-skip-tls-verify": True}
    return kubeconfig(folder, user, server=visitors.url, **cluster)


async def test_new_connections_show_the_certificate_that_is_there_now(tmp_path: Path) -> None:
    one, two, clock = certificate("one"), certificate("two"), InstantClock()
    write(tmp_path, one)
    async with serving(tmp_path, one, two) as visitors:
        access = await load(tmp_path, config(tmp_path, visitors), clock=clock)
        async with Client(access, clock=clock) as client:
            await client.raw("GET", "/a")
        write(tmp_path, two)
        async with Client(access, clock=clock) as client:
            await client.raw("GET", "/b")
        clock.at += CERTIFICATE_PERIOD_SECONDS
        async with Client(access, clock=clock) as client:
            await client.raw("GET", "/c")
        assert visitors.seen == ["one", "one", "two"]


async def test_a_rejected_certificate_is_replaced_at_once_by_its_successor(tmp_path: Path) -> None:
    one, two, clock = certificate("one"), certificate("two"), InstantClock()
    write(tmp_path, one)
    async with serving(tmp_path, one, two) as visitors:
        access = await load(tmp_path, config(tmp_path, visitors), clock=clock)
        async with Client(access, clock=clock) as client:
            await client.raw("GET", "/a")
            visitors.welcome = {"two"}
            with pytest.raises(Unauthorized):
                await client.raw("GET", "/b")
            write(tmp_path, two)
            await client.raw("GET", "/c")
        assert visitors.seen == ["one", "one", "one", "two"]


async def by_client(client: Client, path: str) -> None:
    await client.raw("GET", path)


async def by_relay(relay: Relay, path: str) -> None:
    async with await relay.request("GET", f"{relay.access.host}{path}") as response:
        await response.read()


@pytest.mark.parametrize(("program", "ask"), [(Client, by_client), (Relay, by_relay)])
async def test_no_connection_from_before_is_used_once_the_certificate_was_replaced(
    tmp_path: Path, program: Callable[[Access], Any], ask: Callable[[Any, str], Awaitable[None]]
) -> None:
    """The old certificate runs out long after that, and as many requests would fail as connections are open."""
    one, two, clock = certificate("one"), certificate("two"), InstantClock()
    write(tmp_path, one)
    async with serving(tmp_path, one, two) as visitors:
        access = await load(tmp_path, config(tmp_path, visitors), clock=clock)
        async with program(access) as session:
            await asyncio.gather(*(ask(session, f"/{number}") for number in range(4)))
            write(tmp_path, two)
            clock.at += CERTIFICATE_PERIOD_SECONDS
            await ask(session, "/noticed")
            clock.at += 3600
            visitors.welcome = {"two"}
            for number in range(4):
                await ask(session, f"/{number}")
        assert visitors.seen == ["one"] * 4 + ["two"] * 5


async def test_one_rejection_replaces_a_plugins_certificate_for_all_connections(tmp_path: Path) -> None:
    one, two, clock = certificate("one"), certificate("two"), InstantClock()
    user = plugin(tmp_path, {"clientCertificateData": one[0], "clientKeyData": one[1]})
    async with serving(tmp_path, one, two) as visitors:
        options: dict[str, Any] = {"insecure-skip-tls-verify": True}
        access = await load(tmp_path, kubeconfig(tmp_path, user, server=visitors.url, **options), clock=clock)
        async with Client(access, clock=clock) as client:
            await asyncio.gather(*(client.raw("GET", f"/{number}") for number in range(4)))
            plugin(tmp_path, {"clientCertificateData": two[0], "clientKeyData": two[1]})
            clock.at += CERTIFICATE_PERIOD_SECONDS
            visitors.welcome = {"two"}
            for number in range(4):
                await client.raw("GET", f"/{number}")
        assert visitors.seen == ["one"] * 5 + ["two"] * 4


async def test_a_pair_that_does_not_fit_yet_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, two, clock = certificate("one"), certificate("two"), InstantClock()
    write(tmp_path, one)
    async with serving(tmp_path, one, two) as visitors:
        access = await load(tmp_path, config(tmp_path, visitors), clock=clock)
        assert isinstance(access.credentials, CertificateFiles)
        (tmp_path / "client.crt").write_text(two[0])  # the key follows in a moment
        assert not await access.credentials.renew(None)
        assert "the last one is used" in caplog.text
        (tmp_path / "client.crt").unlink()
        clock.at += CERTIFICATE_PERIOD_SECONDS
        async with Client(access, clock=clock) as client:
            await client.raw("GET", "/a")
        write(tmp_path, two)
        assert await access.credentials.renew(None)
        clock.at += CERTIFICATE_PERIOD_SECONDS
        assert not await access.credentials.renew(None), "it is the same"
        async with Client(access, clock=clock) as client:
            await client.raw("GET", "/b")
        assert visitors.seen == ["one", "two"]


async def test_a_token_goes_with_a_certificate(tmp_path: Path) -> None:
    write(tmp_path, certificate("one"))
    user = {"client-certificate": "client.crt", "client-key": "client.key", "token": "t"}
    access = await load(tmp_path, kubeconfig(tmp_path, user, server="https://h:1"), clock=InstantClock())
    assert await access.headers() == {"Authorization": "Bearer t"}
    assert not await access.credentials.renew("Bearer t")
