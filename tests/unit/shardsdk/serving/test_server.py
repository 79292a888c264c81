from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import socket
import ssl
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from shardsdk.errors import ConfigurationError
from shardsdk.process.health import Address
from shardsdk.serving.published import Published
from shardsdk.serving.server import SettingNames, WebhookServer, bind
from tests.unit.shardsdk.serving.manual_clock import ManualClock
from tests.unit.shardsdk.serving.serving import connect, make_certificates, publish, serving, trusting

NAMED = SettingNames(host="webhook.server.host", port="webhook.server.port")


class Echo:
    """Answers with what it got; `hold` keeps requests running, `running` counts them."""

    def __init__(self) -> None:
        self.hold = asyncio.Event()
        self.hold.set()
        self.begun = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.begun.set()
        await self.hold.wait()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def url(server: WebhookServer) -> str:
    return f"https://127.0.0.1:{server.port}/"


async def shake_hands(
    server: WebhookServer, trust: ssl.SSLContext, name: str | None, version: ssl.TLSVersion
) -> x509.Certificate:
    """The certificate that a client gets which sends `name`, or none at all (as by IP address)."""
    trust.minimum_version = trust.maximum_version = version
    trust.check_hostname = name is not None
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust, server_hostname=name or "")
    connection = writer.get_extra_info("ssl_object")
    der = connection.getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return x509.load_der_x509_certificate(der)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("name", [None, "127.0.0.1", "localhost"])
async def test_every_handshake_gets_the_newest_certificate(name: str | None, version: ssl.TLSVersion) -> None:
    published, old, new = Published(), make_certificates(), make_certificates()
    publish(published, old)
    async with serving(Echo(), published) as server:
        assert await shake_hands(server, trusting(old), name, version) == old.serving.certificate.parsed
        publish(published, new)
        assert await shake_hands(server, trusting(new), name, version) == new.serving.certificate.parsed
        with pytest.raises(ssl.SSLCertVerificationError):
            await shake_hands(server, trusting(old), name, version)


async def test_a_handshake_before_the_first_certificate_is_refused_and_the_next_one_works() -> None:
    published, stored = Published(), make_certificates()
    async with serving(Echo(), published) as server, connect(trusting(stored)) as client:
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.post(url(server), data=b"early")
        publish(published, stored)
        async with client.post(url(server), data=b"now") as answer:
            assert await answer.read() == b"now"


async def test_a_server_name_of_any_bytes_is_no_matter() -> None:
    published, stored = Published(), make_certificates()
    publish(published, stored)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = trusting(stored).wrap_bio(incoming, outgoing, server_hostname="some-name")
    with contextlib.suppress(ssl.SSLWantReadError):
        caller.do_handshake()
    hello = outgoing.read()
    assert hello.count(b"some-name") == 1
    async with serving(Echo(), published) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(hello.replace(b"some-name", b"some\xff\xfeame"))
        assert await reader.readexactly(1) == b"\x16", "a handshake, no alert"
        writer.close()


async def test_tls_1_1_is_refused() -> None:
    published, stored = Published(), make_certificates()
    publish(published, stored)
    assert published.newest().minimum_version == ssl.TLSVersion.TLSv1_2


async def test_no_request_fails_while_certificates_change() -> None:
    published, generations = Published(), [make_certificates() for _ in range(10)]
    publish(published, generations[0])
    answered = 0
    done = asyncio.Event()

    async def call(server: WebhookServer, *, reuse: bool) -> None:
        nonlocal answered
        connector = aiohttp.TCPConnector(ssl=trusting(*generations), force_close=not reuse)
        async with aiohttp.ClientSession(connector=connector) as client:
            for number in itertools.count():
                async with client.post(url(server), data=str(number)) as answer:
                    assert await answer.text() == str(number)
                answered += 1
                if done.is_set():
                    return

    async with serving(Echo(), published) as server, asyncio.TaskGroup() as group:
        for index in range(8):
            group.create_task(call(server, reuse=index % 2 == 0))
        for generation in generations[1:] * 5:
            before = answered
            publish(published, generation)
            while answered < before + 16:
                await asyncio.sleep(0)
        done.set()


async def test_connections_are_used_again() -> None:
    published, stored = Published(), make_certificates()
    publish(published, stored)
    opened = 0

    async def count(*_: Any) -> None:
        nonlocal opened
        opened += 1

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(count)
    connector = aiohttp.TCPConnector(ssl=trusting(stored))
    async with (
        serving(Echo(), published) as server,
        aiohttp.ClientSession(connector=connector, trace_configs=[trace]) as client,
    ):
        for _ in range(20):
            async with client.post(url(server), data=b"again") as answer:
                assert "connection" not in answer.headers
                await answer.read()
    assert opened == 1


async def test_an_orderly_stop_loses_no_request() -> None:
    """Callers go where the Service sends them, a moment late; what they send to the leaving replica is answered."""
    published, stored, clock = Published(), make_certificates(), ManualClock()
    publish(published, stored)
    callers, closes = 8, 0
    moved: set[int] = set()

    async with serving(Echo(), published, clock) as leaving, serving(Echo(), published) as staying:
        target, stopped = [leaving], asyncio.Event()

        async def call(caller: int) -> None:
            nonlocal closes
            async with connect(trusting(stored), connections=1) as client:
                while not stopped.is_set():
                    server = target[0]
                    async with client.post(url(server), data=b"x" * 5000) as answer:
                        assert answer.status == 200
                        assert len(await answer.read()) == 5000
                        closes += answer.headers.get("connection") == "close"
                    if server is staying:
                        moved.add(caller)

        async with asyncio.TaskGroup() as group:
            for caller in range(callers):
                group.create_task(call(caller))
            stop = group.create_task(leaving.stop_gracefully(1.0))
            await clock.asleep()
            while closes < 3 * callers:
                await asyncio.sleep(0)
            target[0] = staying
            while len(moved) < callers:
                await asyncio.sleep(0)
            clock.jump(timedelta(seconds=1))
            await stop
            stopped.set()


async def test_a_stop_says_connection_close_at_once_and_finishes_what_runs() -> None:
    published, stored, app = Published(), make_certificates(), Echo()
    publish(published, stored)
    async with serving(app, published) as server, connect(trusting(stored)) as client:
        app.hold.clear()
        request = asyncio.create_task(client.post(url(server), data=b"slow"))
        await app.begun.wait()
        stop = asyncio.create_task(server.stop_gracefully(0.0))
        await asyncio.sleep(0.2)
        assert not stop.done()
        app.hold.set()
        answer = await request
        assert await answer.read() == b"slow"
        await stop
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.post(url(server), data=b"late")


async def test_answers_say_connection_close_while_stopping() -> None:
    published, stored, clock = Published(), make_certificates(), ManualClock()
    publish(published, stored)
    async with serving(Echo(), published, clock) as server, connect(trusting(stored)) as client:
        async with client.post(url(server), data=b"before") as answer:
            assert "connection" not in answer.headers
        stop = asyncio.create_task(server.stop_gracefully(1.0))
        await clock.asleep()
        async with client.post(url(server), data=b"during") as answer:
            assert answer.headers["connection"] == "close"
        clock.jump(timedelta(seconds=1))
        await stop


async def test_a_server_that_nobody_calls_stops_before_its_time() -> None:
    published, stored, clock = Published(), make_certificates(), ManualClock()
    publish(published, stored)
    async with serving(Echo(), published, clock) as server:
        stop = asyncio.create_task(server.stop_gracefully(3600.0, quiet_seconds=1.0))
        await clock.asleep()
        clock.jump(timedelta(seconds=1))
        await stop


@pytest.mark.parametrize("running", [False, True], ids=["comes", "is being answered"])
async def test_a_server_serves_on_while_a_call(running: bool) -> None:
    published, stored, clock, app = Published(), make_certificates(), ManualClock(), Echo()
    publish(published, stored)
    quiet = timedelta(seconds=1)
    async with serving(app, published, clock) as server, connect(trusting(stored)) as client:
        stop = asyncio.create_task(server.stop_gracefully(3.0, quiet_seconds=1.0))
        await clock.asleep()
        if running:
            app.hold.clear()
        call = asyncio.create_task(client.post(url(server), data=b"late"))
        await (app.begun.wait() if running else call)
        await clock.pass_by(quiet)
        async with client.post(url(server), data=b"later") if not running else contextlib.nullcontext() as answer:
            assert answer is None or answer.status == 200
        await clock.pass_by(quiet)
        assert not stop.done()
        app.hold.set()
        assert (await call).status == 200
        clock.jump(quiet)
        await stop


async def test_what_has_begun_is_not_waited_for_any_longer_than_said() -> None:
    published, stored, app = Published(), make_certificates(), Echo()
    publish(published, stored)
    app.hold.clear()
    async with serving(app, published, finish_seconds=0) as server, connect(trusting(stored)) as client:
        call = asyncio.create_task(client.post(url(server), data=b"slow"))
        await app.begun.wait()
        await server.stop_gracefully(0.0)
        with pytest.raises(aiohttp.ClientError):
            await call


async def test_a_connection_that_never_asks_anything_does_not_hold_up_the_stop() -> None:
    published, stored = Published(), make_certificates()
    publish(published, stored)
    async with serving(Echo(), published, finish_seconds=3600) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(stored))
        async with asyncio.timeout(50):
            await server.stop_gracefully(0.0)
        writer.close()


async def test_signals_stay_with_the_service() -> None:
    published = Published()
    publish(published, make_certificates())
    before = signal.getsignal(signal.SIGTERM)
    async with serving(Echo(), published) as server, connect(trusting(make_certificates())):
        await asyncio.sleep(0)
        assert signal.getsignal(signal.SIGTERM) is before
        assert server.port


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x00" * 300,
        b"GET / HTTP/9.9\r\n\r\n",
        b"\xff" * 100_000,
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ],
)
@pytest.mark.parametrize("encrypted", [True, False])
async def test_garbage_on_the_wire_harms_nobody_else(garbage: bytes, encrypted: bool) -> None:
    published, stored = Published(), make_certificates()
    publish(published, stored)
    async with serving(Echo(), published) as server, connect(trusting(stored)) as client:
        trust = trusting(stored) if encrypted else None
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust)
        writer.write(garbage)
        if garbage:
            with contextlib.suppress(ConnectionError):
                assert (await reader.read())[:12] in (b"", b"HTTP/1.1 400") or not encrypted
        writer.close()
        async with client.post(url(server), data=b"fine") as answer:
            assert await answer.read() == b"fine"


def test_an_occupied_port_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port} .*webhook.server.port"):
            bind(Address("127.0.0.1", port), NAMED)
        with pytest.raises(ConfigurationError, match=f"port {port} of all addresses"):
            bind(Address("", port))


@pytest.mark.parametrize("address", [Address("192.0.2.1", 0), Address("127.0.0.1", 70_000)])
def test_an_address_that_is_not_ours_is_refused(address: Address) -> None:
    with pytest.raises(ConfigurationError, match=r"webhook\.server"):
        bind(address, NAMED)


async def test_a_cancelled_server_frees_its_port() -> None:
    published = Published()
    publish(published, make_certificates())
    async with serving(Echo(), published) as server:
        port = server.port
    with bind(Address("127.0.0.1", port)) as again:
        assert again.getsockname()[1] == port


def test_answers_are_sent_without_waiting_for_receipts() -> None:
    with bind(Address("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_server_that_nobody_calls_is_not_woken_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn's would look ten times a second whether it should exit."""

    async def sleep(seconds: float) -> None:
        raise AssertionError(f"slept for {seconds} s")

    monkeypatch.setattr("uvicorn.server.asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    published, stored = Published(), make_certificates()
    publish(published, stored)
    async with serving(Echo(), published) as server, connect(trusting(stored)) as client:
        async with client.post(url(server), data=b"hello") as answer:
            assert await answer.read() == b"hello"
        async with client.post(url(server), data=b"again") as answer:
            assert await answer.read() == b"again"
