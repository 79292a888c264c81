"""Connections that are cut short, as event loops and requests report them.

What a loop reports of a TLS connection that has broken is kept out of the log:
whoever used the connection has been told.  All else goes where it went before.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Final

from shardsdk.errors import ConnectionFailed
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

#: What uvloop says when TLS is to write over a connection that is closed.  Source: uvloop, UVHandle._ensure_alive.
_CLOSED: Final = "the handler is closed"


def hush_cut_connections(loop: asyncio.AbstractEventLoop) -> None:
    """Have `loop` report broken TLS connections at level debug; all else as before."""
    before = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if is_cut(context):
            log.debug("A TLS connection was cut short: %s", context.get("exception"))
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


def is_cut(context: Mapping[str, Any]) -> bool:
    """Whether a loop reports nothing but the end of a TLS connection."""
    error = context.get("exception")
    if type(context.get("protocol")).__name__ == "SSLProtocol":
        return isinstance(error, RuntimeError) and str(error).endswith(_CLOSED)
    # A handshake that was given up, and then failed: the future is of the loop, and nobody waits for it.
    future = context.get("future")
    given_up = isinstance(future, asyncio.Future) and not isinstance(future, asyncio.Task)
    return given_up and isinstance(error, ConnectionError | ssl.SSLError)


def is_broken(error: Exception) -> bool:
    """Whether the connection broke under the request that ended with `error`, so that another may serve at once.

    Where there was none (no address, nobody who listens, a certificate that does not fit, a proxy that refuses), or
    nobody answers in time, that is not to be expected.
    """
    import aiohttp  # whoever names a lease need not load it; who has asked an API server has

    cause = error.__cause__ if isinstance(error, ConnectionFailed) else None
    never_made = isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError)
    return cause is not None and not never_made and not isinstance(cause, TimeoutError)
