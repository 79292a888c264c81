"""The connections of one server, of which those go first that keep it waiting.

uvicorn bounds neither the head of a request nor how long a caller may take to
send one, and at its limit it refuses everybody.  So whoever opens connections and
says nothing on them would keep API servers out.  Here a connection that has not
sent a whole request is one that waits; there is room for so many of those, and
one that has waited longest is closed for a new one.  An API server sends its
requests at once, and opens a connection anew when one was closed while idle; but
one that is closed while a request is on its way costs an admission, so whoever has
never asked anything makes room before whoever has.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Connections that wait for (the rest of) a request.  An API server keeps at most 25 idle ones to a host.
#: Source: client-go, transport/cache.go, idleConnsPerHost.
WAITING_MAX: Final = 1000
#: Bytes of a request's line and headers.  An API server sends some hundred.
HEAD_BYTES_MAX: Final = 64 << 10


class Waiting:
    """Connections in the order in which they began to wait: those that have been answered, and strangers."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._strangers: dict[Connection, None] = {}
        self._answered: dict[Connection, None] = {}

    def add(self, connection: Connection, *, answered: bool = False) -> None:
        """It waits from now on; a stranger that has waited longest makes room.

        Those that have been answered have half of the room for themselves.  Who goes on in the other half makes room
        like a stranger: there is always some for a caller that is new.
        """
        (self._answered if answered else self._strangers)[connection] = None
        if len(self._strangers) + len(self._answered) > self._most:
            many = self._answered if len(self._answered) > self._most // 2 else self._strangers
            longest = next(iter(many))
            del many[longest]
            # Not an orderly end: the caller need not take part in it.
            longest.transport.abort()

    def remove(self, connection: Connection) -> None:
        """It has sent its request, or is gone."""
        self._strangers.pop(connection, None)
        self._answered.pop(connection, None)


class Connection(HttpToolsProtocol):
    """uvicorn's, with a bound on the head of a request, and on the time until there is a whole one."""

    def __init__(self, waiting: Waiting, **given: Any) -> None:
        super().__init__(**given)
        self._waiting = waiting
        self._in_head = True
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It has the time of an idle connection for its first request."""
        super().connection_made(transport)
        self._waiting.add(self)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, for whatever reason."""
        self._waiting.remove(self)
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        """The head of a request begins."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is there; the application bounds the body, and the time that it takes."""
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The whole request is there; one that has been refused before its end is not waited for."""
        if not self.cycle.response_complete:
            self._waiting.remove(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The next request may come."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._waiting.remove(self)
            self._waiting.add(self, answered=True)

    def _unset_keepalive_if_required(self) -> None:
        """A byte that arrives is no request yet: uvicorn would wait for the next one for ever."""

    def _stop_timer(self) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
