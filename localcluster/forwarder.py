"""A TCP forwarder that plays the Service in front of several replicas.

Like kube-proxy it balances connections, not requests: a new connection goes to
the next replica whose /readyz is good, and an established one stays where it
is, also when its replica turns unready.  When none is ready it hangs up, as a
Service without endpoints does.

Refuses: to look into what it forwards, and to retry what a replica dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import urlsplit

from localcluster.ports import LOOPBACK

#: Quicker than a kubelet's probe (10 s), so that tests and the demo need not wait.
POLL_SECONDS = 0.2
_PROBE_SECONDS = 1.0
_CONNECT_SECONDS = 2.0
#: struct linger {on, 0 seconds}: closing drops what is unsent and sends RST.
_LINGER_NOT = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Backend:
    """A replica: where it serves, and the plain HTTP address that says 200 while it wants connections."""

    host: str
    port: int
    ready_url: str


class Forwarder:
    """An async context manager that listens as long as it is entered.

    `taken` counts the connections that each replica was given.
    """

    def __init__(
        self,
        backends: Sequence[Backend] = (),
        *,
        host: str = LOOPBACK,
        port: int = 0,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.host = host
        self.port = port
        self.taken: Counter[Backend] = Counter()
        self._backends = tuple(backends)
        self._ready: tuple[Backend, ...] = ()
        self._changed = asyncio.Event()
        self._poll_seconds = poll_seconds
        self._turn = 0
        self._sides: set[_Side] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def ready(self) -> tuple[Backend, ...]:
        """The replicas that get new connections now."""
        return self._ready

    def replace(self, backends: Sequence[Backend]) -> None:
        """Change the replicas; established connections stay."""
        self._backends = tuple(backends)
        self._set_ready(tuple(each for each in self._ready if each in self._backends))

    def drop(self) -> None:
        """Reset the connections that there are."""
        for side in tuple(self._sides):
            side.abort()

    async def wait_ready(self, count: int, timeout_seconds: float = 30.0) -> None:
        """Wait until exactly `count` replicas are ready.

        Raises: TimeoutError.
        """
        async with asyncio.timeout(timeout_seconds):
            while len(self._ready) != count:
                self._changed.clear()
                await self._changed.wait()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        await self._poll_once()
        self._spawn(self._poll())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for side in tuple(self._sides):
            side.abort()
        await self._server.wait_closed()
        # Aborted connections are closed in the loop's next turn.
        await asyncio.sleep(0)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_seconds)
            await self._poll_once()

    async def _poll_once(self) -> None:
        backends = self._backends
        answers = await asyncio.gather(*(_is_ready(each.ready_url) for each in backends))
        good = tuple(each for each, answer in zip(backends, answers, strict=True) if answer)
        self._set_ready(tuple(each for each in good if each in self._backends))

    def _set_ready(self, ready: tuple[Backend, ...]) -> None:
        if ready != self._ready:
            self._ready = ready
            self._changed.set()

    def _accept(self) -> asyncio.BaseProtocol:
        return self._side(lambda side: self._spawn(self._pair(side)))

    def _side(self, connected: Callable[[_Side], None]) -> asyncio.BaseProtocol:
        # asyncio asks for the methods, not for the base class.
        return cast("asyncio.BaseProtocol", _Side(self._sides, connected))

    async def _pair(self, client: _Side) -> None:
        """Find a replica that takes the connection; a refusal counts against it until the next probe."""
        loop = asyncio.get_running_loop()
        while self._ready and not client.lost:
            self._turn += 1
            backend = self._ready[self._turn % len(self._ready)]
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    _, server = await loop.create_connection(
                        lambda: self._side(_wait_for_peer), backend.host, backend.port
                    )
            except (OSError, TimeoutError):
                self._set_ready(tuple(each for each in self._ready if each != backend))
                continue
            self.taken[backend] += 1
            client.join(cast("_Side", server))
            return
        client.abort()


class _Side:
    """One end of a forwarded connection: an asyncio protocol that writes to its peer."""

    def __init__(self, register: set[_Side], connected: Callable[[_Side], None]) -> None:
        self._register = register
        self._connected = connected
        self._peer: _Side | None = None
        self._transport: asyncio.Transport
        self.lost = False

    def join(self, other: _Side) -> None:
        """Let bytes flow between both, unless one is gone already."""
        if self.lost or other.lost:
            self.abort()
            other.abort()
            return
        self._peer, other._peer = other, self
        self._transport.resume_reading()
        other._transport.resume_reading()

    def abort(self) -> None:
        """Close so that the other end sees a reset, not an orderly end."""
        if not self.lost:
            reset(self._transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # Not at once: before Python 3.11.4 asyncio begins to read after this call, whatever it is told here.
        asyncio.get_running_loop().call_soon(self._transport.pause_reading)
        self._register.add(self)
        self._connected(self)

    def data_received(self, data: bytes) -> None:
        if self._peer is not None:
            self._peer._transport.write(data)

    def eof_received(self) -> bool:
        if self._peer is not None and self._peer._transport.can_write_eof():
            self._peer._transport.write_eof()
        return True

    def pause_writing(self) -> None:
        if self._peer is not None:
            self._peer._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._peer is not None and not self._peer.lost:
            self._peer._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._register.discard(self)
        peer, self._peer = self._peer, None
        if peer is None:
            return
        if error is None:
            peer._transport.close()
        else:
            # A crash of one end shows as a reset at the other.
            peer.abort()


def reset(transport: asyncio.WriteTransport) -> None:
    """Close the connection by RST: `abort` alone ends it like an orderly close."""
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
    transport.abort()


def _wait_for_peer(side: _Side) -> None:
    """The server's side: nothing flows until it is joined."""


async def _is_ready(url: str) -> bool:
    """One GET; every failure means no."""
    parts = urlsplit(url)
    host, port = parts.hostname or LOOPBACK, parts.port or 80
    with contextlib.suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(_PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                request = f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
                writer.write(request.encode())
                line = await reader.readline()
                return line.split()[1:2] == [b"200"]
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    return False
