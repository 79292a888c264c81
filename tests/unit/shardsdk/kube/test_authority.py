"""The file of an API server's CA is replaced while clients run; a real TLS server shows what they trust."""

from __future__ import annotations

import base64
import json
import logging
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from shardsdk.errors import ConfigurationError, ConnectionFailed
from shardsdk.kube.authority import AuthorityContext
from shardsdk.kube.certificates import load_pair
from shardsdk.kube.client import Client
from shardsdk.kube.credentials import RENEWAL_PAUSE_SECONDS
from shardsdk.kube.server import Access, direct_access
from tests.kube_configs import certificate, in_cluster, kubeconfig, load, service_account
from tests.kube_fakes import InstantClock
from tests.unit.shardsdk.kube.test_identities import plugin

ONE, TWO = certificate("one"), certificate("two")


class Shown:
    """An API server that shows what it is told to, on new connections; `seen` are the names of its visitors."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: list[str] = []
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.show(ONE)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def show(self, pair: tuple[str, str]) -> None:
        load_pair(self.context, *(text.encode() for text in pair))

    def welcome(self, *clients: tuple[str, str]) -> None:
        self.context.load_verify_locations(cadata="".join(each[0] for each in clients))
        self.context.verify_mode = ssl.CERT_REQUIRED

    async def answer(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        peer: dict[str, Any] = request.transport.get_extra_info("peercert") or {"subject": ()}
        self.seen += [pair[1] for part in peer["subject"] for pair in part]
        return web.json_response({})


@asynccontextmanager
async def serving() -> AsyncIterator[Shown]:
    server = Shown()
    app = web.Application()
    app.router.add_get("/{rest:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server.context).start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


async def ask(access: Access) -> None:
    """Over a connection of its own."""
    async with Client(access, clock=InstantClock()) as client:
        await client.raw("GET", "/version")


async def of_a_pod(folder: Path, server: Shown, authority: str = ONE[0]) -> tuple[Access, Path]:
    account = service_account(folder / "account")
    (account / "ca.crt").write_text(authority, encoding="utf-8")
    place = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
    return await load(folder, environ={**in_cluster(account), **place}), account / "ca.crt"


async def of_a_kubeconfig(
    folder: Path,
    server: Shown,
    user: dict[str, Any] | None = None,
    clock: InstantClock | None = None,
    authority: str = ONE[0],
) -> tuple[Access, Path]:
    (folder / "ca.crt").write_text(authority, encoding="utf-8")
    path = kubeconfig(folder, user or {"token": "t"}, server=server.url, **{"certificate-authority": "ca.crt"})
    return await load(folder, path, clock=clock or InstantClock()), folder / "ca.crt"


@pytest.mark.parametrize("configured", [of_a_pod, of_a_kubeconfig])
async def test_a_new_ca_counts_from_the_next_connection_and_one_taken_out_for_none(
    tmp_path: Path, configured: Any
) -> None:
    async with serving() as server:
        access, file = await configured(tmp_path, server)
        await ask(access)
        server.show(TWO)
        with pytest.raises(ConnectionFailed, match="did not sign its certificate: put the API server's CA there"):
            await ask(access)
        file.write_text(ONE[0] + TWO[0])
        await ask(access)
        server.show(ONE)
        await ask(access)
        file.write_text(TWO[0])
        with pytest.raises(ConnectionFailed, match="did not sign"):
            await ask(access)


async def test_one_client_goes_on_after_a_rotation(tmp_path: Path) -> None:
    async with serving() as server:
        access, file = await of_a_pod(tmp_path, server)
        server.show(TWO)
        async with Client(access, clock=InstantClock()) as client:
            with pytest.raises(ConnectionFailed):
                await client.raw("GET", "/version")
            file.write_text(TWO[0])
            await client.raw("GET", "/version")


@pytest.mark.parametrize("content", ["", "\n", "no certificate", ONE[0][:-40], None])
async def test_a_file_that_cannot_be_used_changes_nothing(
    tmp_path: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as server:
        access, file = await of_a_kubeconfig(tmp_path, server)
        file.unlink() if content is None else file.write_text(content)
        await ask(access)
        await ask(access)
        said = [record.message for record in caplog.records]
        assert len(said) == 1
        assert said[0].startswith("CA not read, the last one is used")
        file.write_text(TWO[0])
        server.show(TWO)
        await ask(access)


@pytest.mark.parametrize("configured", [of_a_pod, of_a_kubeconfig])
async def test_an_authority_that_another_has_signed_vouches_by_itself(tmp_path: Path, configured: Any) -> None:
    """As that of a company signs a cluster's; to Python before 3.13 it would vouch for nobody."""
    company = certificate("company", signs=True)
    cluster = certificate("cluster", by=company, signs=True)
    async with serving() as server:
        access, file = await configured(tmp_path, server)
        shown = certificate("server", by=cluster)
        server.show((shown[0] + cluster[0], shown[1]))
        file.write_text(cluster[0])
        await ask(access)
        file.write_text(certificate("another", signs=True)[0])
        with pytest.raises(ConnectionFailed, match="did not sign its certificate"):
            await ask(access)


@pytest.mark.parametrize("configured", [of_a_pod, of_a_kubeconfig])
async def test_comments_beside_certificates_may_be_in_any_language(tmp_path: Path, configured: Any) -> None:
    async with serving() as server:
        access, file = await configured(tmp_path, server, authority=f"# Zertifikat für Österreich\n{ONE[0]}")
        assert "für" in file.read_text(encoding="utf-8")
        await ask(access)


@pytest.mark.parametrize("content", ["", "no certificate"])
async def test_a_file_that_never_could_be_used_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "ca.crt").write_text(content)
    path = kubeconfig(tmp_path, {"token": "t"}, server="https://h:1", **{"certificate-authority": "ca.crt"})
    with pytest.raises(ConfigurationError, match="check certificate-authority"):
        await load(tmp_path, path)


@pytest.mark.parametrize("as_data", [True, False])
async def test_a_client_shows_its_certificate_also_by_a_new_ca(tmp_path: Path, as_data: bool) -> None:
    mine = certificate("mine")
    user = {"client-certificate": "my.crt", "client-key": "my.key"}
    for (name, named), text in zip(list(user.items()), mine, strict=True):
        (tmp_path / named).write_text(text)
        if as_data:
            user |= {f"{name}-data": base64.b64encode(text.encode()).decode()}
    async with serving() as server:
        server.welcome(mine)
        access, file = await of_a_kubeconfig(tmp_path, server, user)
        server.show(TWO)
        file.write_text(TWO[0])
        await ask(access)
        assert server.seen == ["mine"]


async def test_a_plugins_certificates_are_shown_by_whichever_ca_there_is(tmp_path: Path) -> None:
    first, second, clock = certificate("first"), certificate("second"), InstantClock()
    user = plugin(tmp_path, {"clientCertificateData": first[0], "clientKeyData": first[1]})
    async with serving() as server:
        server.welcome(first, second)
        access, file = await of_a_kubeconfig(tmp_path, server, user, clock)
        server.show(TWO)
        file.write_text(TWO[0])
        await ask(access)
        (tmp_path / "status").write_text(json.dumps({"clientCertificateData": second[0], "clientKeyData": second[1]}))
        clock.at += RENEWAL_PAUSE_SECONDS
        assert await access.credentials.renew(None)
        await ask(access)
        assert server.seen == ["first", "second"]


@pytest.mark.parametrize("shown_by", ["files", "a plugin"])
async def test_a_new_client_certificate_is_put_into_no_context_that_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown_by: str
) -> None:
    """OpenSSL crashes where another thread begins a connection with that meanwhile."""
    first, second, clock = certificate("first"), certificate("second"), InstantClock()
    used, shown = list[ssl.SSLContext](), list[bool]()
    wrap, load_chain = ssl.SSLContext.wrap_bio, ssl.SSLContext.load_cert_chain

    def wrap_bio(context: ssl.SSLContext, *args: Any, **options: Any) -> ssl.SSLObject:
        used.append(context)
        return wrap(context, *args, **options)

    def load_cert_chain(context: ssl.SSLContext, *args: Any) -> None:
        shown.append(any(context is each for each in used))
        load_chain(context, *args)

    def put(pair: tuple[str, str]) -> dict[str, Any]:
        if shown_by == "a plugin":
            return plugin(tmp_path, {"clientCertificateData": pair[0], "clientKeyData": pair[1]})
        user = {"client-certificate": "my.crt", "client-key": "my.key"}
        for named, text in zip(user.values(), pair, strict=True):
            (tmp_path / named).write_text(text)
        return user

    async with serving() as server:
        server.welcome(first, second)
        access, _ = await of_a_kubeconfig(tmp_path, server, put(first), clock)
        monkeypatch.setattr(ssl.SSLContext, "wrap_bio", wrap_bio)
        monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load_cert_chain)
        await ask(access)
        put(second)
        clock.at += RENEWAL_PAUSE_SECONDS
        assert await access.credentials.renew(None)
        await ask(access)
    assert server.seen == ["first", "second"]
    assert shown
    assert not any(shown)


class Made(ssl.SSLContext):
    """Says what it was made of."""

    def __new__(cls, *_: object) -> Made:
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, authority: str | None, pair: str) -> None:
        self.made_of = authority, pair


def in_a_thread(called: Callable[[], object], threads: list[threading.Thread]) -> None:
    """Call it there, and give it the time to go ahead if nothing keeps it from that."""
    threads.append(threading.Thread(target=called, daemon=True))
    threads[-1].start()
    threads[-1].join(0.2)


@pytest.mark.parametrize("meanwhile", ["a connection", "a certificate"])
def test_while_one_context_is_made_of_a_new_ca_threads_wait_and_use_one_that_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    file, pair, threads = tmp_path / "ca.crt", "first", list[threading.Thread]()
    made, used = list[Made](), list[tuple[str | None, str]]()
    monkeypatch.setattr(Made, "wrap_bio", lambda context, *_, **__: used.append(context.made_of))

    def make(authority: str | None) -> ssl.SSLContext:
        made.append(Made(authority, pair))
        latest = made[-1]
        if len(made) == 2:
            in_a_thread(shake_hands if meanwhile == "a connection" else show, threads)
        return latest

    def shake_hands() -> None:
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="h")

    def show() -> None:
        nonlocal pair
        pair = "second"
        context.remake()

    file.write_text(ONE[0])
    context = AuthorityContext(file, make)
    file.write_text(TWO[0])
    shake_hands()
    threads[0].join(10)
    shake_hands()
    assert {authority for authority, _ in used} == {TWO[0]}
    assert (len(made), used[-1][1]) == ((2, "first") if meanwhile == "a connection" else (3, "second"))


def test_a_handler_that_takes_its_time_keeps_no_other_connection_from_being_made(tmp_path: Path) -> None:
    """Such as that of the lease."""
    (tmp_path / "ca.crt").write_text(ONE[0])
    context = AuthorityContext(tmp_path / "ca.crt", lambda text: ssl.create_default_context(cadata=text))
    may_go_on, telling = threading.Event(), threading.Event()

    class Slow(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            telling.set()
            may_go_on.wait(10)

    def shake_hands() -> None:
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="h")

    slow, logger = Slow(), logging.getLogger("shardsdk.kube.authority")
    logger.addHandler(slow)
    try:
        (tmp_path / "ca.crt").unlink()
        telling_of_it = threading.Thread(target=shake_hands)
        telling_of_it.start()
        assert telling.wait(10)
        other = threading.Thread(target=shake_hands)
        other.start()
        other.join(5)
        went_on = not other.is_alive()
    finally:
        may_go_on.set()
        logger.removeHandler(slow)
    telling_of_it.join(10)
    other.join(10)
    assert went_on


async def test_a_file_is_found_also_after_the_program_has_changed_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ca.crt").write_text(ONE[0])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with serving() as server:
        access = direct_access(server.url, ca_file="ca.crt")
        monkeypatch.chdir(tmp_path / "elsewhere")
        await ask(access)
        assert not caplog.records


async def test_whose_certificate_was_not_signed_is_said_of_a_proxy_too(tmp_path: Path) -> None:
    async with serving() as proxy:
        cluster = {"server": "https://api.example:6443", "proxy-url": proxy.url, "certificate-authority": "ca.crt"}
        (tmp_path / "ca.crt").write_text(TWO[0])
        access = await load(tmp_path, kubeconfig(tmp_path, {"token": "t"}, **cluster))
        expected = f"did not sign the certificate of the proxy 127.0.0.1:{proxy.port}: add that one's CA there"
        with pytest.raises(ConnectionFailed, match=expected):
            await ask(access)


def test_what_nobody_asks_trusts_nobody(tmp_path: Path) -> None:
    """Should a library ever pass by what is made of the file."""
    (tmp_path / "ca.crt").write_text(ONE[0])
    context = AuthorityContext(tmp_path / "ca.crt", lambda text: ssl.create_default_context(cadata=text))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert ssl.SSLContext.cert_store_stats(context)["x509"] == 0
    assert context.cert_store_stats()["x509"] == 1
