"""The plain kubernetes client: its writes behind a shard's fence.

    async with ShardLease(access, "my-ring", fenced=True) as lease:
        writes = fence_writes(api_client, lease.fence)       # a kubernetes.client.ApiClient
        lease.settle_first(writes.settled)
        await asyncio.to_thread(work, api_client)

Guarantees (tests/integration/test_examples.py, tests/unit/shardsdk/contrib/test_kubernetes.py):
the fence is asked about every write once its connection is there, just before
its bytes go, also when urllib3 or the client tries again; the API server is told
to give it up before the hold ends, and its clock runs before the fence is asked
for the last time (see shardsdk/kube/fencing.py).

Does not guarantee anything about a thread: it can't be cancelled.  End the
process when the lease is lost and a thread still works (`on_deadline`).
"""

from __future__ import annotations

import http.client
import io
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from shardsdk.errors import FenceClosed
from shardsdk.kube.api import Fence
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.fencing import Confirmations, granted_of, limit_way, render_timeout

__all__ = [
    "FencedWrites",
    "fence_writes",
]

_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
#: Behind these answers etcd may still have the write in hand.
_SERVER_ERRORS: Final = 500
#: How often it is looked whether writes are answered, when somebody waits for that.
_LOOK_SECONDS: Final = 0.05


class FencedWrites:
    """The books about one client's writes; callable from any thread."""

    def __init__(self, fence: Fence, clock: Clock) -> None:
        self.confirmations: Confirmations = Confirmations()
        self._fence = fence
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[int, float] = {}
        self._count = 0

    async def settled(self) -> None:
        """Return once every write sent so far is answered, or can no longer be executed."""
        with self._lock:
            mine = dict(self._open)
        while True:
            now = self._clock.monotonic()
            with self._lock:
                mine = {key: until for key, until in mine.items() if key in self._open and until > now}
            if not mine:
                return
            await self._clock.sleep(min(_LOOK_SECONDS, max(mine.values()) - now))

    def begin(self, connection: Any = None) -> tuple[int, float]:
        """A write is about to be sent over a socket: its key, and the seconds that the API server may take.

        Raises: FenceClosed.
        """
        remaining = self._fence.remaining()
        granted = granted_of(remaining)
        if granted <= 0:
            raise FenceClosed(f"write refused before it was sent: the hold on {self._fence.name} has run out")
        limit_way(connection, remaining - granted)
        with self._lock:
            self._count += 1
            self._open[self._count] = self._clock.monotonic() + remaining
            return self._count, granted

    def confirm(self, key: int, granted: float) -> None:
        """The API server has read the headers, so its clock runs; the body may go.  Raises: FenceClosed."""
        if self._fence.remaining() < granted:
            self.answered(key)
            raise FenceClosed(f"write refused before it was sent: the hold on {self._fence.name} is about to run out")

    def answered(self, key: int) -> None:
        """The write has its answer: it will not be executed later."""
        with self._lock:
            self._open.pop(key, None)


def fence_writes(api_client: Any, fence: Fence, *, clock: Clock | None = None) -> FencedWrites:
    """Ask `fence` about every write of a `kubernetes.client.ApiClient` from now on.

    Fence each client once, before its first request.
    """
    writes = FencedWrites(fence, clock or SystemClock())
    manager = api_client.rest_client.pool_manager
    manager.pool_classes_by_scheme = {
        scheme: _fenced_pool(pool, writes) for scheme, pool in manager.pool_classes_by_scheme.items()
    }
    manager.clear()  # connections that were made without
    return writes


def _fenced_pool(make_pool: Callable[..., Any], writes: FencedWrites) -> Callable[..., Any]:
    """urllib3 makes pools by what it finds under the scheme, and connections by the pool's `ConnectionCls`."""

    def make(*arguments: Any, **options: Any) -> Any:
        pool = make_pool(*arguments, **options)
        pool.ConnectionCls = _fenced_connection(pool.ConnectionCls, writes)
        return pool

    return make


def _fenced_connection(make_connection: Callable[..., Any], writes: FencedWrites) -> Callable[..., Any]:
    def make(**options: Any) -> Any:
        connection = make_connection(**options)
        exchange = _Exchange(connection, writes)
        connection.request, connection.getresponse = exchange.request, exchange.getresponse
        connection.endheaders, connection.send = exchange.endheaders, exchange.send
        return connection

    return make


class _Exchange:
    """What a connection of urllib3 does about a write: the headers, the API server's confirmation, the body."""

    def __init__(self, connection: Any, writes: FencedWrites) -> None:
        self._connection = connection
        self._writes = writes
        self._request, self._getresponse = connection.request, connection.getresponse
        self._endheaders, self._send = connection.endheaders, connection.send
        self._make_response = connection.response_class
        self._open: tuple[int, float] | None = None
        self._answered_early = False

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, **more: Any) -> None:
        self._open, self._answered_early = None, False
        self._connection.response_class = self._make_response
        if method.upper() in _WRITES:
            if self._connection.sock is None:
                self._connection.connect()  # takes time: first this, then the question
            _, granted = self._open = self._writes.begin(self._connection.sock)
            url = f"{url}{'&' if urlsplit(url).query else '?'}timeout={render_timeout(granted)}"
            headers = {"Content-Type": "application/json", **(headers or {}), "Expect": "100-continue"}
            # Without a body there would be nothing to ask for, and nothing to hold back.
            body = b"{}" if body is None else body
        self._request(method, url, body=body, headers=headers, **more)

    def endheaders(self, *arguments: Any, **more: Any) -> None:
        self._endheaders(*arguments, **more)
        if self._open is None:
            return
        try:
            self._await_confirmation(self._open[1])
            if not self._answered_early:
                self._writes.confirm(*self._open)
        except BaseException:
            self._connection.close()  # the API server waits for a body that will not come
            raise

    def send(self, data: Any) -> None:
        if not self._answered_early:
            self._send(data)

    def getresponse(self) -> Any:
        response = self._getresponse()
        if self._open is not None and response.status < _SERVER_ERRORS:
            self._writes.answered(self._open[0])
        return response

    def _await_confirmation(self, granted: float) -> None:
        """Raises: OSError."""
        confirmations, connection = self._writes.confirmations, self._connection
        patience = confirmations.patience
        if patience == 0.0:
            return
        heard = bytearray()
        connection.sock.settimeout(granted if patience is None else min(patience, granted))
        try:
            while not heard.endswith(b"\r\n\r\n"):
                byte = connection.sock.recv(1)
                if not byte:
                    raise ConnectionResetError("the connection broke before the answer")
                heard += byte
        except TimeoutError:
            if patience is None:
                raise
            confirmations.missed()
        finally:
            connection.sock.settimeout(connection.timeout)
        if heard.split(b" ", 2)[1:2] == [b"100"]:
            confirmations.heard()
            return
        if heard.endswith(b"\r\n\r\n"):
            # Refused before the body was read; what would come over this connection next is anybody's guess.
            self._answered_early = True
            heard[-2:] = b"Connection: close\r\n\r\n"
        connection.response_class = partial(_respond, bytes(heard))


def _respond(heard: bytes, sock: Any, **options: Any) -> http.client.HTTPResponse:
    replay: Any = _Replay(sock, heard)
    return http.client.HTTPResponse(replay, **options)


class _Replay:
    """A socket for an HTTP response to read from: first what was heard already."""

    def __init__(self, sock: Any, heard: bytes) -> None:
        self._sock = sock
        self._heard = heard

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_HeardAndMore(self._heard, self._sock.makefile(mode, buffering=0)))


class _HeardAndMore(io.RawIOBase):
    def __init__(self, heard: bytes, more: io.RawIOBase) -> None:
        self._heard = heard
        self._more = more

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if not self._heard:
            return self._more.readinto(buffer)
        size = min(len(buffer), len(self._heard))
        buffer[:size] = self._heard[:size]
        self._heard = self._heard[size:]
        return size

    def close(self) -> None:
        self._more.close()
        super().close()
