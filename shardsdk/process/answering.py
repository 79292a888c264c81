"""aiohttp's server for health and metrics, with a bound on its connections and on what each may send.

Apart from `shardsdk.process.health`, since its import takes a tenth of a second, and not
every program serves.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, cast

from aiohttp import web

from shardsdk.process.waiting import Waiting

#: Bytes of a request's line and headers, and of what follows them.  Prometheus sends some hundred.
#: aiohttp bounds each field and their number, which is a megabyte, and keeps that twice.
HEAD_BYTES_MAX: Final = 64 << 10


class Connection(web.RequestHandler):
    """aiohttp's, with a place among those that wait for as long as no request of its is answered."""

    __slots__ = ("_place", "_unanswered_bytes", "_waiting")

    def __init__(self, waiting: Waiting, runner: web.AppRunner, idle_seconds: float) -> None:
        assert runner.server is not None
        loop = asyncio.get_running_loop()
        super().__init__(runner.server, loop=loop, keepalive_timeout=idle_seconds, access_log=None)  # type: ignore[arg-type]
        self._waiting = waiting
        self._unanswered_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It has said nothing yet."""
        super().connection_made(transport)
        self._place = cast("asyncio.Transport", transport)
        self._waiting.add(self._place)

    def connection_lost(self, exc: BaseException | None) -> None:
        """It is over, for whatever reason."""
        self._waiting.remove(self._place)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """More of a request; who goes on and on is not listened to."""
        self._unanswered_bytes += len(data)
        if self._unanswered_bytes > HEAD_BYTES_MAX:
            self._place.abort()
            return
        super().data_received(data)

    def asked(self) -> None:
        """It has sent a request."""
        self._unanswered_bytes = 0

    @contextmanager
    def answered(self) -> Iterator[None]:
        """Its request is answered within this context."""
        self._waiting.remove(self._place)
        try:
            yield
        finally:
            if self.transport is not None:  # it may be gone
                self._waiting.add(self._place, answered=True)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What a caller gets wrong is the caller's matter, and not told with a stack for each time."""
        if isinstance(exc, UnicodeEncodeError) and "Expect" in request.headers:  # aiohttp quotes what it does not know
            status, message = 400, None
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        answer = web.Response(status=status, text=message)
        answer.force_close()
        return answer


def make_runner(
    routes: Mapping[str, Callable[[web.Request], Awaitable[web.StreamResponse]]],
    request_bytes: int,
    stop_seconds: float,
    most: int,
) -> web.AppRunner:
    """What answers by path, so many requests for each at once, for connections that are made elsewhere."""
    under_way: Counter[object] = Counter()

    @web.middleware
    async def bound(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        connection.asked()
        # Of each for itself: however many want metrics, a probe is answered.
        path = request.match_info.route.resource
        if under_way[path] >= most:
            text = f"{most} requests for this are being answered; ask again later\n"
            return web.Response(status=503, text=text, headers={"Retry-After": "1"})
        under_way[path] += 1
        try:
            with connection.answered():
                return await handler(request)
        finally:
            under_way[path] -= 1

    app = web.Application(client_max_size=request_bytes, middlewares=[bound])
    for path, answer in routes.items():
        app.router.add_get(path, answer)
    return web.AppRunner(app, access_log=None, shutdown_timeout=stop_seconds, handle_signals=False)
