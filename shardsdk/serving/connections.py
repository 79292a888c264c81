"""The connections of a webhook server, with a bound on whatever a caller can send or leave out.

uvicorn bounds neither what a request has around its body nor how long a caller may take to
send one, at its limit it refuses everybody, and it writes a line of its log for whatever a
caller gets wrong.  So strangers would keep API servers out.  An API server sends its
requests at once; what waits for one has a place in `Waiting`, and so has what is being closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shardsdk.kube.clock import Clock
from shardsdk.kube.pace import AtMostEvery
from shardsdk.logs import logger_of
from shardsdk.process.waiting import Waiting

log: Final = logger_of(__name__)

#: Connections that wait for (the rest of) a request.  An API server keeps at most 25 idle ones to a host.
#: Source: client-go, transport/cache.go, idleConnsPerHost.
WAITING_MAX: Final = 1000
#: Bytes of a request's line and headers, and of what follows its body.  An API server sends some hundred.
HEAD_BYTES_MAX: Final = 64 << 10
#: How long the rest of a request may take that has been answered before its end.
REST_SECONDS: Final = 5.0
#: What anybody can send again and again is told this often.
COMPLAINT_SECONDS: Final = 10.0


class Complaints:
    """Tells what callers get wrong before an application sees it, but not as often as they can."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rate = AtMostEvery(COMPLAINT_SECONDS)
        self._refused = 0

    def make(self, peer: str, reason: str) -> None:
        """`peer` has sent what is refused for `reason`."""
        self._refused += 1
        if self._rate.passes(self._clock.monotonic()):
            fields = {"peer": peer, "reason": reason, "refused": self._refused}
            self._refused = 0
            log.warning("Request refused before a webhook was asked", extra=fields)


class _Words(logging.LoggerAdapter[logging.Logger]):
    """What uvicorn logs of one connection: its warnings are of what the caller got wrong."""

    #: uvicorn looks here whether it is to trace.
    level: Final = logging.WARNING

    def __init__(self, logger: logging.Logger, complain: Callable[[str], None]) -> None:
        super().__init__(logger)
        self._complain = complain

    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        self._complain(str(msg))


class Connection(HttpToolsProtocol):
    """uvicorn's, with a bound on what is no body of a request, and on the time until there is a whole one."""

    def __init__(self, waiting: Waiting, complaints: Complaints, **given: Any) -> None:
        super().__init__(**given)
        self.logger: Any = _Words(self.logger, self._complain)
        self._waiting = waiting
        self._complaints = complaints
        self._in_head = True
        #: Since a request or its body last went on.
        self._head_bytes = 0
        self._went_on = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It has the time of an idle connection for its first request."""
        super().connection_made(transport)
        self._waiting.add(transport)
        self._close_after(self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, for whatever reason."""
        self._waiting.remove(self.transport)
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        self._went_on = False
        super().data_received(data)
        if self._went_on or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self._complain("The head of the request, or what follows its body, is too large.")
            if self._in_head:
                self.send_400_response("The head of the request is too large.")
            else:
                self.transport.abort()

    def on_message_begin(self) -> None:
        """The head of a request begins."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head; those that follow a body are nobody's, and would be kept one after the other."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there; the application bounds the body, and the time that it takes."""
        self._in_head = False
        self._go_on()
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._go_on()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The whole request is there; one that was answered before its end is no reason to close any more."""
        self._go_on()
        if not self.cycle.response_complete:
            self._waiting.remove(self.transport)
        elif not self.transport.is_closing():
            self._close_after(self.timeout_keep_alive)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The next request may come, but for what is being closed; who is gone waits for none."""
        super().on_response_complete()
        if self in self.connections:
            self._waiting.add(self.transport, answered=not self.transport.is_closing())
        if self.timeout_keep_alive_task is not None and self.cycle.more_body:
            self._close_after(REST_SECONDS)

    def _go_on(self) -> None:
        self._went_on, self._head_bytes = True, 0

    def _unset_keepalive_if_required(self) -> None:
        """A byte that arrives is no request yet: uvicorn would wait for the next one for ever."""

    def _close_after(self, seconds: float) -> None:
        self._stop_timer()
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _stop_timer(self) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def _unsupported_upgrade_warning(self) -> None:
        """Whoever asks for another protocol is answered in this one."""

    def _complain(self, reason: str) -> None:
        self._complaints.make(self.client[0] if self.client else "", reason)
