"""A network between one process and the API server, and what can be wrong with it.

Bytes go through unread, TLS included, unless the proxy is given a certificate: then it reads the first line of each
request, and can answer some by itself.  What it lets pass it does not change, so `Expect: 100-continue` and the time
limits that begin with it are between the process and the API server in either case.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakSet

from localcluster.forwarder import reset
from localcluster.ports import LOOPBACK

_CHUNK_BYTES: Final = 1 << 16
_REQUEST: Final = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.1\r\n")
_REASONS: Final = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError"}


class Net(Enum):
    """What becomes of bytes."""

    #: They arrive.
    OPEN = "open"
    #: Connections are refused, and those that there are reset.
    CUT = "cut"
    #: Nothing arrives and nobody is told: packets are dropped.
    BLACK_HOLE = "black hole"
    #: What the process sends arrives, what it is sent does not.
    HALF_OPEN = "half open"


@dataclass(frozen=True, slots=True)
class Storm:
    """Requests that are answered here: this share of those whose method is named, by one of these codes."""

    codes: tuple[int, ...]
    share: float = 0.7
    methods: tuple[str, ...] = ("GET", "POST", "PUT", "PATCH", "DELETE")


@dataclass
class Proxy:
    """An async context manager that listens as long as it is entered; new connections go to `upstreams` in turn."""

    upstreams: Sequence[int]
    rng: Random
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
    net: Net = Net.OPEN
    delay_seconds: float = 0.0
    storm: Storm | None = None
    port: int = 0
    answered: int = 0
    _turn: int = 0
    _forgotten: WeakSet[asyncio.StreamWriter] = field(default_factory=WeakSet)
    _opened: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self._opened.set()
        self._server = await asyncio.start_server(
            self._accept, LOOPBACK, self.port, ssl=None if self.tls is None else self.tls[0]
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.drop_all()
        await asyncio.sleep(0)

    def set(self, net: Net) -> None:
        """Change what becomes of bytes from now on, also on connections that there are."""
        self.net = net
        if net is Net.OPEN:
            self._opened.set()
        else:
            self._opened.clear()
        if net is Net.CUT:
            self.drop_all()

    def forget(self) -> None:
        """Take what comes over the connections that there are and pass nothing on: what they lead to is gone unnoticed.

        New ones work.
        """
        self._forgotten.update(self._writers)

    def drop_all(self) -> None:
        """Reset every connection."""
        for writer in tuple(self._writers):
            reset(writer.transport)
        self._writers.clear()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: what asyncio makes of a coroutine here tells of its cancellation as of a failure.
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self.net is Net.CUT:
                return
            self._turn += 1
            async with self._upstream(self.upstreams[self._turn % len(self.upstreams)]) as (answers, requests):
                await _first_of(self._carry(reader, requests, writer), self._carry(answers, writer, None))
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            with contextlib.suppress(OSError, RuntimeError):
                writer.transport.abort()

    @asynccontextmanager
    async def _upstream(self, port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=None if self.tls is None else self.tls[1])
        self._writers.add(writer)
        try:
            yield reader, writer
        finally:
            self._writers.discard(writer)
            with contextlib.suppress(OSError, RuntimeError):
                writer.transport.abort()

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, client: asyncio.StreamWriter | None
    ) -> None:
        """Bytes of one direction, until it ends; `client` where they are requests."""
        while data := await source.read(_CHUNK_BYTES):
            if (client or target) in self._forgotten:
                continue
            if self.net is Net.BLACK_HOLE or (self.net is Net.HALF_OPEN and client is None):
                # As TCP has it: what was not lost for good is sent again, and arrives once the way is open.
                await self._opened.wait()
            if self.delay_seconds:
                await asyncio.sleep(self.delay_seconds)
            if client is not None and self._refuse(data, client):
                return
            target.write(data)
            await target.drain()

    def _refuse(self, data: bytes, client: asyncio.StreamWriter) -> bool:
        """Answer a request in the API server's place, and end its connection, if the storm has it so."""
        request = _REQUEST.match(data) if self.storm is not None and self.tls is not None else None
        if request is None or self.storm is None or request[1].decode() not in self.storm.methods:
            return False
        if self.rng.random() >= self.storm.share:
            return False
        self.answered += 1
        client.write(refusal(self.rng.choice(self.storm.codes)))
        client.close()
        return True


def tls_contexts(pki: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's with the API server's own certificate, and a client's that trusts it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pki / "server.crt", pki / "server.key")
    client = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    for context in (server, client):
        context.set_alpn_protocols(["http/1.1"])
    return server, client


def refusal(code: int) -> bytes:
    """The answer of an API server that refuses a request."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
    body = json.dumps({**status, "reason": _REASONS[code], "message": "a storm"}).encode()
    more = "Retry-After: 1\r\n" if code == 429 else ""
    head = f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


async def _first_of(*ways: Coroutine[Any, Any, None]) -> None:
    """Run both directions until one of them ends."""
    tasks = [asyncio.create_task(each) for each in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
