from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from shardsdk.serving import accepting, connections
from shardsdk.serving import server as server_module
from shardsdk.serving.published import Published
from shardsdk.serving.server import WebhookServer
from tests.unit.shardsdk.serving.serving import make_certificates, publish, serving, trusting

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
REQUEST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n"


class Held:
    """Answers a request as soon as it is there and `open` is set."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
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

    async def ask(self, streams: Streams, request: bytes = REQUEST + b"{}") -> bytes:
        streams[1].write(request)
        return await streams[0].readuntil(b"\r\n\r\n")


@pytest_asyncio.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr(server_module, "WAITING_MAX", 3)
    monkeypatch.setattr(accepting, "HANDSHAKES_MAX", 3)
    monkeypatch.setattr(server_module, "KEEP_ALIVE_SECONDS", 0.5)
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
