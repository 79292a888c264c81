from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import pytest_asyncio

from shardsdk.process import accepting
from shardsdk.serving import connections
from shardsdk.serving import server as server_module
from shardsdk.serving.published import Published
from shardsdk.serving.server import WebhookServer
from tests.unit.shardsdk.serving.serving import make_certificates, publish, serving, trusting

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
REQUEST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSING = REQUEST.replace(b"Host", b"Connection: close\r\nHost")


class Held:
    """Answers a request as soon as `open` is set, and it is there unless it `refuses` all of them."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.refuses = False
        self.read = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        more = not self.refuses
        while more:
            message = await receive()
            self.read += len(message.get("body", b""))
            more = message.get("more_body", False)
        await self.open.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


class Stage:
    """A server, and connections to it."""

    def __init__(self, server: WebhookServer, app: Held, trust: ssl.SSLContext) -> None:
        self.server, self.app, self.trust = server, app, trust
        self._opened: list[Streams] = []

    async def connect(self, *, tls: bool = True) -> Streams:
        opened = await asyncio.open_connection("127.0.0.1", self.server.port, ssl=self.trust if tls else None)
        self._opened.append(opened)
        return opened

    def close(self) -> None:
        for _, writer in self._opened:
            writer.transport.abort()

    @property
    def connections(self) -> set[connections.Connection]:
        return cast("set[connections.Connection]", self.server._server.server_state.connections)

    async def fall_silent(self, request: bytes) -> ssl.SSLSocket:
        """Who takes the beginning of an answer, and from then on no part in anything."""

        def ask() -> ssl.SSLSocket:
            opened = socket.create_connection(("127.0.0.1", self.server.port), timeout=10)
            caller = self.trust.wrap_socket(opened, server_hostname="127.0.0.1")
            caller.sendall(request)
            assert caller.recv(8) == b"HTTP/1.1"
            return caller

        return await asyncio.to_thread(ask)

    async def ask(self, streams: Streams, request: bytes = REQUEST + b"{}") -> bytes:
        streams[1].write(request)
        return await streams[0].readuntil(b"\r\n\r\n")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who says nothing for a moment is closed; otherwise nobody is, in the time that a test takes."""
    monkeypatch.setattr(server_module, "KEEP_ALIVE_SECONDS", 0.5)


@pytest_asyncio.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr(server_module, "WAITING_MAX", 3)
    monkeypatch.setattr(accepting, "HANDSHAKES_MAX", 3)
    published, stored, app = Published(), make_certificates(), Held()
    publish(published, stored)
    async with serving(app, published) as server:
        made = Stage(server, app, trusting(stored))
        yield made
        app.open.set()
        made.close()


async def ended(streams: Streams) -> bytes:
    """What still comes until the server closes."""
    try:
        return await streams[0].read()
    except ConnectionError:
        return b""


async def test_who_has_waited_longest_makes_room(stage: Stage) -> None:
    first, *others = [await stage.connect() for _ in range(4)]
    assert await ended(first) == b""
    for each in others:
        assert (await stage.ask(each)).startswith(b"HTTP/1.1 200")


async def test_who_has_asked_again_waits_anew(stage: Stage) -> None:
    asking, silent, _ = [await stage.connect() for _ in range(3)]
    await stage.ask(asking)
    await stage.connect()
    assert await ended(silent) == b""
    assert (await stage.ask(asking)).startswith(b"HTTP/1.1 200")


async def test_who_has_been_answered_makes_no_room_for_those_who_say_nothing(stage: Stage) -> None:
    asking = await stage.connect()
    await stage.ask(asking)
    for first in [await stage.connect() for _ in range(8)][:5]:
        assert await ended(first) == b""
    assert (await stage.ask(asking)).startswith(b"HTTP/1.1 200")


async def test_who_has_been_answered_and_says_no_more_leaves_room_for_those_who_come(stage: Stage) -> None:
    asked = [await stage.connect() for _ in range(3)]
    for each in asked:
        await stage.ask(each)
    newcomer = await stage.connect()
    assert await ended(asked[0]) == b""
    for each in (newcomer, *asked[1:]):
        assert (await stage.ask(each)).startswith(b"HTTP/1.1 200")


async def test_a_request_that_is_being_answered_makes_no_room(stage: Stage) -> None:
    stage.app.open.clear()
    busy = await stage.connect()
    answer = asyncio.create_task(stage.ask(busy))
    while not stage.server._server.server_state.tasks:
        await asyncio.sleep(0.01)
    half = await stage.connect()
    half[1].write(REQUEST)
    for _ in range(4):
        await stage.connect()
    assert await ended(half) == b"", "half a request is no request"
    stage.app.open.set()
    assert (await answer).startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("impatient")
async def test_a_request_that_never_ends_its_head_is_closed_however_busily_it_sends(stage: Stage) -> None:
    slow = await stage.connect()
    slow[1].write(b"POST / HTTP/1.1\r\n")
    closed = asyncio.create_task(ended(slow))
    while not closed.done():
        slow[1].write(b"X-A: b\r\n")
        await asyncio.wait([closed], timeout=0.05)
    assert await closed == b""


async def test_a_head_of_any_length_is_refused(stage: Stage) -> None:
    greedy = await stage.connect()
    greedy[1].write(b"POST / HTTP/1.1\r\n" + b"X-A: b\r\n" * (connections.HEAD_BYTES_MAX // 8 + 1))
    assert (await ended(greedy)).startswith(b"HTTP/1.1 400")


async def test_who_does_not_even_begin_the_handshake_makes_room(stage: Stage) -> None:
    first, *_ = [await stage.connect(tls=False) for _ in range(4)]
    assert await ended(first) == b""
    assert (await stage.ask(await stage.connect())).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("piece", [b"a: b\r\n", b"aaaaaa"], ids=["many", "one without end"])
async def test_trailers_of_any_length_are_cut(stage: Stage, piece: bytes) -> None:
    greedy = await stage.connect()
    greedy[1].write(CHUNKED + b"2\r\n{}\r\n0\r\n")
    with contextlib.suppress(ConnectionError):
        for _ in range(32):
            greedy[1].write(piece * 10_000)
            await greedy[1].drain()
    assert await asyncio.wait_for(ended(greedy), 10) == b""


async def test_trailers_are_passed_over(stage: Stage) -> None:
    polite = await stage.connect()
    for _ in range(2):
        answer = await stage.ask(polite, CHUNKED + b"2\r\n{}\r\n0\r\nX-Sum: 1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")


async def test_a_body_may_come_in_many_pieces(stage: Stage) -> None:
    piece, count = b"x" * 1000, 200
    caller = await stage.connect()
    caller[1].write(CHUNKED + b"3E8\r\n")
    for number in range(1, count + 1):
        caller[1].write(piece + (b"\r\n3E8\r\n" if number < count else b"\r\n"))
        while stage.app.read < number * len(piece):
            await asyncio.sleep(0)
    assert (await stage.ask(caller, b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_what_has_been_answered_before_its_end_is_not_waited_for_long(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REST_SECONDS", 0.1, raising=False)
    stage.app.refuses = True
    early = await stage.connect()
    await stage.ask(early)
    for each in stage.connections:
        each.timeout_keep_alive = 60
    await stage.ask(early, REQUEST + b"{")
    assert await asyncio.wait_for(ended(early), 10) == b""


async def test_what_has_been_answered_before_its_end_may_come_and_the_next_one_too(stage: Stage) -> None:
    stage.app.refuses = True
    early = await stage.connect()
    await stage.ask(early, REQUEST + b"{")
    early[1].write(b"}")
    assert (await stage.ask(early)).startswith(b"HTTP/1.1 200")


async def test_who_takes_no_part_in_the_end_of_a_connection_is_not_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "CLOSE_SECONDS", 0.05, raising=False)
    with await stage.fall_silent(CLOSING + b"{}"):
        async with asyncio.timeout(10):
            while stage.connections:
                await asyncio.sleep(0.01)


async def test_connections_that_are_being_closed_make_room(stage: Stage) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(6):
            held.enter_context(await stage.fall_silent(CLOSING + b"{}"))
        async with asyncio.timeout(10):
            while len(stage.connections) > 3:
                await asyncio.sleep(0.01)
        assert (await stage.ask(await stage.connect())).startswith(b"HTTP/1.1 200")


async def test_nothing_is_kept_of_who_is_gone_before_the_answer(stage: Stage) -> None:
    stage.app.open.clear()
    _, writer = await stage.connect()
    writer.write((REQUEST + b"{}") * 2)
    while not stage.server._server.server_state.tasks:
        await asyncio.sleep(0.01)
    (waiting,) = (each._waiting for each in stage.connections)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    async with asyncio.timeout(10):
        while stage.connections:
            await asyncio.sleep(0.01)
        stage.app.open.set()
        while stage.server._server.server_state.tasks:
            await asyncio.sleep(0.01)
    assert not waiting._strangers
    assert not waiting._answered


async def test_what_strangers_get_wrong_is_told_once_in_a_while_and_of_whom(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    upgrade = REQUEST.replace(b"Host", b"Connection: Upgrade\r\nUpgrade: h2c\r\nHost")
    for request in (upgrade + b"{}", b"nonsense\r\n\r\n", upgrade + b"{}", b"G\r\n\r\n"):
        await stage.ask(await stage.connect(), request)
    (told,) = caplog.records
    assert told.msg.startswith("Request refused before a webhook was asked")
    assert vars(told)["reason"] == "Invalid HTTP request received."
    assert vars(told)["peer"] == "127.0.0.1"
