"""Accepts connections, with room for so many TLS handshakes at once.

A handshake that has begun holds tens of kilobytes, and whoever opens connections
and says nothing on them could take the memory before anything of HTTP is asked.
The handshake that has taken longest makes room for a new one: an API server's takes
milliseconds.  The end of a connection takes two, as well: whoever does not take part in it
is not waited for.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import sys
import weakref
from collections.abc import Callable
from typing import Any, Final

from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

#: Handshakes under way.
HANDSHAKES_MAX: Final = 500
#: One that takes longer is none: API servers want the whole answer by then.
HANDSHAKE_SECONDS: Final = 5.0
#: What has been written and not been sent by then, and the caller's word that it has read all, are not waited for.
CLOSE_SECONDS: Final = 1.0
#: Connections that wait to be accepted.
BACKLOG: Final = 1024
#: After a connection could not be accepted, because file descriptors or memory are short.
PAUSE_SECONDS: Final = 0.1
#: That this machine has no such address, or none of its kind.
_LACKING: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})

#: Those of this process.
_LISTENERS: Final[weakref.WeakSet[socket.socket]] = weakref.WeakSet()

#: Gives what the next handshake is made with.
Tls = Callable[[], ssl.SSLContext]


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; `host` empty: everywhere.

    Raises: OSError.
    """
    if not host and socket.has_dualstack_ipv6():
        return _listen(("", port), socket.AF_INET6, dualstack_ipv6=True)
    return _listen((host, port), socket.AF_INET6 if ":" in host else socket.AF_INET)


async def listen_at_each(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address that `host` has, all at one port; those that this machine lacks are left out.

    Raises: OSError, also when none is left.
    """
    if not host:
        return [listen(host, port)]
    flags, kind = socket.AI_PASSIVE, socket.SOCK_STREAM
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=kind, flags=flags)
    listeners: list[socket.socket] = []
    lacking: OSError | None = None
    for family, address in dict.fromkeys((each[0], each[4]) for each in found):
        try:
            listener = _listen((address[0], port, *address[2:]), family)
        except OSError as error:
            if error.errno in _LACKING:
                lacking = error
                continue
            for each in listeners:
                each.close()
            raise
        listeners.append(listener)
        port = listener.getsockname()[1]
    if not listeners and lacking is not None:
        raise lacking
    return listeners


def _listen(address: Any, family: int, **options: bool) -> socket.socket:
    listener = socket.create_server(address, family=family, backlog=BACKLOG, **options)
    # Connections inherit it. asyncio would set it only on sockets made with the protocol's
    # number; without, an answer's body waits 40 ms for the receipt of its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _LISTENERS.add(listener)
    return listener


def _leave_ports_to_the_parent() -> None:
    """In a process just forked, which may live longer: else nobody could listen there next, and callers would hang."""
    for listener in tuple(_LISTENERS):
        listener.close()


class Acceptor:
    """Takes connections from `listener`, and gives those whose handshake is done to a protocol of `make`.

    Without `tls` there is no handshake.  To uvicorn it is one of the servers that it closes and waits for.
    """

    def __init__(
        self,
        listener: socket.socket,
        tls: Tls | None,
        make: Callable[[], asyncio.Protocol],
        handshakes: int | None = None,
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._make = make
        self._most = HANDSHAKES_MAX if handshakes is None else handshakes
        self._handshakes: dict[asyncio.Task[None], None] = {}
        listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(), name="accept")

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except ConnectionError:  # gone before it was accepted
                continue
            except OSError as error:
                log.warning("Connection not accepted", extra={"error": str(error)})
                self._make_room()
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            handshake = loop.create_task(self._shake_hands(connection))
            self._handshakes[handshake] = None
            handshake.add_done_callback(self._handshakes.pop)
            if len(self._handshakes) > self._most:
                self._make_room()
            await asyncio.sleep(0)  # it begins before the next one comes, of which any number may be there already

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            connection.setblocking(False)
            loop = asyncio.get_running_loop()
            if self._tls is None:
                await loop.connect_accepted_socket(self._make, connection)
                return
            await loop.connect_accepted_socket(
                self._make, connection, ssl=self._tls(), ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=CLOSE_SECONDS,
            )  # fmt: skip
        except OSError:  # no TLS, not in time, or gone: that is the caller's matter
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise

    def _make_room(self) -> None:
        for oldest in self._handshakes:
            if oldest.cancel():
                return

    def close(self) -> None:
        """Accept nothing more; what has been accepted goes on."""
        self._accepting.cancel()
        self._listener.close()
        for handshake in self._handshakes:
            handshake.cancel()

    async def wait_closed(self) -> None:
        """Until nothing is accepted any more."""
        await asyncio.gather(self._accepting, *self._handshakes, return_exceptions=True)


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_leave_ports_to_the_parent)
