"""The plain kubernetes client: its writes behind a shard's fence.

    async with ShardLease(access, "my-ring", fenced=True) as lease:
        writes = fence_writes(api_client, lease.fence)       # a kubernetes.client.ApiClient
        lease.settle_first(writes.settled)
        await asyncio.to_thread(work, api_client)

Guarantees (tests/integration/test_examples.py, tests/unit/test_contrib_kubernetes.py):
the fence is asked about every write once its connection is there, just before
its bytes go, also when urllib3 or the client tries again; the API server is told
to give it up before the hold ends.

Does not guarantee anything about a thread: it can't be cancelled.  End the
process when the lease is lost and a thread still works (`on_deadline`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from shardsdk.errors import FenceClosed
from shardsdk.kube.api import Fence
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.fencing import SLACK_SECONDS, SLACK_SHARE, limit_way

_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
#: Behind these answers etcd may still have the write in hand.
_SERVER_ERRORS: Final = 500
#: How often it is looked whether writes are answered, when somebody waits for that.
_LOOK_SECONDS: Final = 0.05


class FencedWrites:
    """The books about one client's writes; callable from any thread."""

    def __init__(self, fence: Fence, clock: Clock) -> None:
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
        granted = remaining - max(SLACK_SECONDS, SLACK_SHARE * remaining)
        if granted <= 0:
            raise FenceClosed(f"write refused before it was sent: the hold on {self._fence.name} has run out")
        limit_way(connection, remaining - granted)
        with self._lock:
            self._count += 1
            self._open[self._count] = self._clock.monotonic() + remaining
            return self._count, granted

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
        send, receive = connection.request, connection.getresponse
        keys: list[int] = []

        def request(method: str, url: str, *arguments: Any, **more: Any) -> None:
            keys.clear()
            if method.upper() in _WRITES:
                if connection.sock is None:
                    connection.connect()  # takes time: first this, then the question
                key, granted = writes.begin(connection.sock)
                keys.append(key)
                url = f"{url}{'&' if urlsplit(url).query else '?'}timeout={max(math.floor(granted * 1000), 1)}ms"
            send(method, url, *arguments, **more)

        def getresponse() -> Any:
            response = receive()
            if response.status < _SERVER_ERRORS:
                for key in keys:
                    writes.answered(key)
            return response

        connection.request, connection.getresponse = request, getresponse
        return connection

    return make
