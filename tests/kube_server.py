"""An HTTP server on the loopback interface that answers what a test tells it to."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qsl

from aiohttp import web

from shardsdk.kube.client import Client
from shardsdk.kube.server import direct_access

Answer = web.StreamResponse
Handler = Callable[[web.Request], Awaitable[Answer]]


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """Answers each request with the next of `answers`, or the last one again; `seen` are the requests."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[Handler] = []
        self.seen: list[Seen] = []
        self.arrived = asyncio.Event()
        #: Whether it answers `Expect: 100-continue`, as API servers do.
        self.confirms = True
        #: Whether it reads bodies.
        self.reads = True

    async def handle(self, request: web.Request) -> Answer:
        if "Expect" in request.headers and self.confirms and self.reads:
            await say_continue(request)
        body = await request.read() if self.reads else b""
        # Of a parameter that is given twice, an API server takes the first.
        query = dict(reversed(parse_qsl(request.query_string, keep_blank_values=True)))
        headers = {name.title(): value for name, value in request.headers.items()}
        self.seen.append(Seen(request.method, request.rel_url.raw_path, query, headers, body))
        self.arrived.set()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)


async def say_continue(request: web.Request) -> None:
    """Ask for the body."""
    writer = request._payload_writer  # as aiohttp's own applications do, which know their resources
    await writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    writer.output_size = 0


@asynccontextmanager
async def serving(*answers: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """A server until the block ends, by TLS with a `context`; hanging requests end with it."""
    server = Server()
    server.answers = list(answers)
    low = web.Server(cast("Any", server.handle))
    runner = web.ServerRunner(low, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    assert runner.addresses
    server.url = f"http{'s' if context else ''}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def says(body: object, status: int = 200, **headers: str) -> Handler:
    """JSON."""

    async def answer(_: web.Request) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(body, status=status, headers=named)

    return answer


def refuses(code: int, reason: str = "", message: str = "no", **more: Any) -> Handler:
    """A Status."""
    retry_after = {"Retry_After": str(more.pop("retry_after"))} if "retry_after" in more else {}
    return says({"kind": "Status", "code": code, "reason": reason, "message": message, **more}, code, **retry_after)


def streams(*pieces: bytes | asyncio.Event, breaks: bool = False) -> Handler:
    """Chunks of a watch; an event is waited for, and `breaks` cuts the connection at the end."""

    async def answer(request: web.Request) -> Answer:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for piece in pieces:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            else:
                await response.write(piece)
                await asyncio.sleep(0.001)
        if breaks and request.transport is not None:
            request.transport.abort()
        return response

    return answer


def hangs() -> Handler:
    """No answer at all."""

    async def answer(_: web.Request) -> Answer:
        await asyncio.sleep(3600)  # an event that nobody else knows would be garbage, and this task with it
        raise AssertionError

    return answer


def breaks_off() -> Handler:
    """Half an answer."""

    async def answer(request: web.Request) -> Answer:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"meta')
        assert request.transport is not None
        request.transport.abort()
        return response

    return answer


def line(kind: str, body: object) -> bytes:
    """One event of a watch."""
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


def config_map(name: str, version: int = 1, **more: Any) -> dict[str, Any]:
    """A config map as the API server writes it."""
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, **more}


def end_of_list(version: int) -> bytes:
    """The bookmark after the initial events."""
    meta = {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}
    return line("BOOKMARK", {"metadata": meta})


def page(names: Iterable[str], *, version: int = 10, token: str = "", empty_is_null: bool = True) -> dict[str, Any]:
    """A page of a list; Go writes an empty one as null."""
    items: list[dict[str, Any]] | None = [config_map(name) for name in names]
    if not items and empty_is_null:
        items = None
    meta = {"resourceVersion": str(version), **({"continue": token} if token else {})}
    return {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": meta, "items": items}


@asynccontextmanager
async def talking(*answers: Handler, **options: Any) -> AsyncIterator[tuple[Client, Server]]:
    """A client of such a server, with a token."""
    async with serving(*answers) as server, Client(direct_access(server.url, token="secret"), **options) as client:
        yield client, server


@asynccontextmanager
async def listener() -> AsyncIterator[tuple[socket.socket, str]]:
    """A socket of the loopback interface that takes connections, and its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        yield listening, f"http://127.0.0.1:{listening.getsockname()[1]}"


async def hear_headers(connection: socket.socket) -> bytes:
    """All that comes before the body."""
    heard = b""
    while b"\r\n\r\n" not in heard:
        heard += await asyncio.get_running_loop().sock_recv(connection, 1024)
    return heard
