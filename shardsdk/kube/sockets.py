"""Sockets that their event loop alone closes, and that notice when the other side is out of reach.

aiohttp connects a Python socket and hands it to the loop.  uvloop closes its descriptor
by itself; if TLS is given up half-way, the garbage collector may come upon the socket
first and close the descriptor too.  The second of the two closes is of a number that
somebody else may have been given meanwhile: another connection loses its descriptor,
and libuv ends the whole process over it (SIGABRT).

Source: uvloop, UVHandle.__dealloc__ (closes what it has) and UVSocketHandle._attach_fileobj.

A firewall or a load balancer may forget a connection and tell nobody.  A watch over it would be
silent until its silence is noticed, and a request over an idle one would wait for its whole time.
So the kernel asks the other side's kernel now and then.  What was sent and has no receipt is not
its matter: a write limits that itself (`shardsdk.kube.fencing.limit_way`), and whatever is sent next over the same
connection lifts that.  Until then, while nobody uses it, one question without an answer is enough to break it.
Source: Linux, tcp(7): TCP_USER_TIMEOUT takes the place of TCP_KEEPCNT.
"""

from __future__ import annotations

import asyncio
import math
import socket
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

from shardsdk.kube.resolver import Resolver
from shardsdk.kube.waits import CONNECTION, WAIT

#: After so many seconds without a word the other side is asked, then every so many, and after so many questions without
#: an answer the connection is broken: after 30 s in all.  Source: Linux, tcp(7); the idle time's other name is macOS's.
KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPALIVE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


class LoopsSocket(socket.socket):
    """A socket that is closed by who has it, the loop or whoever connects it, and by no finalizer.

    Both loops close what they were handed, by name or when their transport goes; whoever connects
    closes it on the spot if that fails.  So nothing is left open.
    """

    __slots__ = ()

    def __del__(self) -> None:
        """Close nothing.  Overrides the finalizer of `socket.socket`, which would."""


class _Connector(aiohttp.TCPConnector):
    """aiohttp's connector, saying so when a request waits for a connection: also one that aiohttp sends again.

    Of its idle connections it gives none that are doubted (`doubt`): aiohttp has them used in turns, so that however
    many there have ever been at once stay, and may be as silent, one after the other.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        #: By the loop's clock: when each was taken last, and since when one has been silent.
        self._taken: WeakKeyDictionary[ResponseHandler, float] = WeakKeyDictionary()
        self._silent_since = -math.inf

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """Called for each connection that a request needs, new or idle."""
        if (wait := WAIT.get()) is not None:
            wait.what = CONNECTION
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol, now = connection.protocol, asyncio.get_running_loop().time()
            if protocol is None or self._taken.get(protocol, now) >= self._silent_since:
                break
            connection.close()
        if protocol is not None:
            self._taken[protocol] = now
        return connection

    def doubt(self, since: float) -> None:
        """A request has waited since then, in vain: what has brought no answer meanwhile may bring none either."""
        self._silent_since = max(self._silent_since, since)


def make_connector(*, resolver: Resolver | None = None, **options: Any) -> aiohttp.TCPConnector:
    """Aiohttp's connector, whose sockets the loop alone closes; no end of a process waits for its lookups of addresses.

    `options` as of `aiohttp.TCPConnector`.
    """
    return _Connector(socket_factory=_make_socket, resolver=resolver or Resolver(), **options)


def doubt_idle(connector: aiohttp.BaseConnector | None, since: float) -> None:
    """Have no request go over a connection that was idle since then, by the loop's clock, as one has had no answer."""
    if isinstance(connector, _Connector):
        connector.doubt(since)


def _make_socket(address: aiohttp.AddrInfoType) -> LoopsSocket:
    family, kind, protocol, _, _ = address
    made = LoopsSocket(family, kind, protocol)
    with suppress(OSError):
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            with suppress(OSError):  # a system that does not take this one has the others, or its own
                made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
