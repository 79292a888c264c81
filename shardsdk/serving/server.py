"""Serves the webhook over TLS, in the event loop it is run in, and stops without losing a request.

Stopping has an order: answers say `Connection: close` for a moment while
everything is still served, then running requests end, then the rest is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import uvicorn

from shardsdk.errors import ConfigurationError
from shardsdk.kube.clock import Clock
from shardsdk.process.accepting import BACKLOG, Acceptor, Tls, listen
from shardsdk.process.health import Address, explain_listening
from shardsdk.process.waiting import Waiting
from shardsdk.serving.connections import WAITING_MAX, Complaints, Connection
from shardsdk.serving.published import Published

#: API servers keep idle connections for 90 s; whoever closes first while the
#: other sends loses that request, so we wait longer than they do.
KEEP_ALIVE_SECONDS: Final = 120
#: What has begun is answered within, unless whoever serves says otherwise: admission calls end after timeoutSeconds,
#: 5 of the sharder's; later nobody listens any more.
FINISH_SECONDS: Final = 5
#: One connection per running call: an API server runs at most 200 mutating
#: requests at once by default (--max-mutating-requests-inflight).
CONNECTIONS_MAX: Final = 2000
PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class SettingNames:
    """What people call the settings of an address, for messages."""

    host: str = "the host"
    port: str = "the port"


def bind(address: Address, settings: SettingNames = SettingNames()) -> socket.socket:
    """A listening socket.

    Raises: ConfigurationError when the port is taken, not allowed, or the address not ours.
    """
    if not 0 <= address.port <= PORT_MAX:
        raise ConfigurationError(f"{settings.port} {address.port} is not a port; use 1 to {PORT_MAX}")
    try:
        return listen(address.host, address.port)
    except OSError as error:
        raise ConfigurationError(_explain(address, settings, error)) from error


def _explain(address: Address, settings: SettingNames, error: OSError) -> str:
    what = f"the webhook cannot listen on port {address.port} of {address.host or 'all addresses'}"
    return f"{what}: {explain_listening(error, address.port, settings.host, settings.port)}"


class _Server(uvicorn.Server):
    """uvicorn's, but for three things that are ours.

    It would take SIGINT and SIGTERM for itself; whoever runs it handles them.  It would wake
    up ten times a second, to make a Date header that we do not send and to look whether it
    should exit; it waits for being told instead (`exit`).  And it would have a
    minute for each of any number of handshakes.
    """

    def __init__(self, config: uvicorn.Config, tls: Tls) -> None:
        super().__init__(config)
        self._tls = tls
        self._told = asyncio.Event()

    def exit(self) -> None:
        """Finish what is being served, and end."""
        self.should_exit = True
        self._told.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on `sockets`; there is nothing else that would have to start."""

        def connection() -> asyncio.Protocol:
            made: asyncio.Protocol = self.config.http_protocol_class(
                config=self.config, server_state=self.server_state, app_state={}
            )  # type: ignore[call-arg]
            return made

        self.acceptors = [Acceptor(listener, self._tls, connection) for listener in sockets or ()]
        self.servers = cast("Any", self.acceptors)
        self.started = True

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._told.wait()


class WebhookServer:
    """One listening server: `bind()`, `run()` as a task, `stop_gracefully()`; `close()` undoes `bind()`.

    `port` is the one that is listened on, once bound.  A server that stops answers what has begun for `finish_seconds`.
    """

    def __init__(
        self,
        app: Any,
        published: Published,
        *,
        clock: Clock,
        address: Address,
        settings: SettingNames = SettingNames(),
        finish_seconds: int = FINISH_SECONDS,
    ) -> None:
        self._clock = clock
        self._address = address
        self._settings = settings
        self.port: int = self._address.port
        self._socket: socket.socket | None = None
        self._ended = asyncio.Event()
        self.finish_seconds: Final = finish_seconds
        self._server = _Server(self._configure(app), published.newest)

    def _configure(self, app: Any) -> uvicorn.Config:
        return uvicorn.Config(
            app,
            http=cast("Any", partial(Connection, Waiting(WAITING_MAX), Complaints(self._clock))),
            ws="none",
            interface="asgi3",
            lifespan="off",
            backlog=BACKLOG,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=self.finish_seconds,
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
        )

    def bind(self) -> None:
        """Take the port now, so that a taken one is known before anything else starts.

        Raises: ConfigurationError as `bind` does.
        """
        if self._socket is None:
            self._socket = bind(self._address, self._settings)
            self.port = self._socket.getsockname()[1]

    async def run(self) -> None:
        """Serve until `stop_gracefully` has ended it; cancelled, close everything at once."""
        self.bind()
        assert self._socket is not None
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self.close()
            self._ended.set()

    async def stop_gracefully(self, grace_seconds: float, quiet_seconds: float | None = None) -> None:
        """Serve on for `grace_seconds` while telling callers to go, then finish and close.

        `quiet_seconds`: do so sooner once no call has come for that long. Whoever calls more seldom, and where the
        server was, is refused then.  Returns when nothing is served any more, at most `finish_seconds` (and a
        little) after the grace.
        """
        self._server.config.encoded_headers.append((b"connection", b"close"))
        self._server.server_state.default_headers = self._server.config.encoded_headers
        await self._serve_on(grace_seconds, grace_seconds if quiet_seconds is None else quiet_seconds)
        self._server.exit()
        await self._ended.wait()

    async def _serve_on(self, seconds: float, quiet_seconds: float) -> None:
        state, until = self._server.server_state, self._clock.monotonic() + seconds
        quiet = False
        while not quiet and (left := until - self._clock.monotonic()) > 0:
            answered = state.total_requests
            await self._clock.sleep(min(quiet_seconds, left))
            quiet = answered == state.total_requests and not state.tasks

    def close(self) -> None:
        """Close what is still open, at once: nothing after an orderly stop, everything after a cancellation."""
        for listener in getattr(self._server, "servers", ()):
            listener.close()
        for connection in list(self._server.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        if self._socket is not None:
            self._socket.close()
