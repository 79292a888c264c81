"""Accepts connections, with room for so many TLS handshakes at once.

A handshake that has begun holds tens of kilobytes, and whoever opens connections
and says nothing on them could take the memory before anything of HTTP is asked.
The handshake that has taken longest makes room for a new one: an API server's takes
milliseconds.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

#: Handshakes under way.
HANDSHAKES_MAX: Final = 500
#: One that takes longer is none: API servers want the whole answer by then.
HANDSHAKE_SECONDS: Final = 5.0
#: After a connection could not be accepted, because file descriptors or memory are short.
PAUSE_SECONDS: Final = 0.1


class Acceptor:
    """Takes connections from `listener`, and gives those whose handshake is done to a protocol of `make`.

    To uvicorn it is one of the servers that it closes and waits for.
    """

    def __init__(self, listener: socket.socket, tls: ssl.SSLContext, make: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._tls = tls
        self._make = make
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
            if len(self._handshakes) > HANDSHAKES_MAX:
                self._make_room()

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            connection.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, connection, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
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
