"""Addresses that stay ours while the server behind them is down.

A port is reserved by a socket that is bound but never listens: Linux lets a
server bind the same port (both set SO_REUSEADDR, as Go does) but gives it to
nobody else, neither as a free port nor for an outgoing connection.  Elsewhere
the socket has to be closed first; then a conflict shows when the server starts,
which is tried again with another port.
"""

from __future__ import annotations

import contextlib
import platform
import socket
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
#: What Go programs log when another process has the port.
BIND_CONFLICT = "address already in use"


@dataclass(frozen=True, slots=True)
class ReservedPort:
    """A TCP port of the loopback interface, ours until `release`."""

    number: int
    _holder: socket.socket | None

    def release(self) -> None:
        """Give the port back."""
        if self._holder is not None:
            with contextlib.suppress(OSError):
                self._holder.close()


def reserve_port() -> ReservedPort:
    """Reserve a free port."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((LOOPBACK, 0))
    number = int(holder.getsockname()[1])
    if platform.system() == "Linux":
        return ReservedPort(number, holder)
    holder.close()
    return ReservedPort(number, None)
