"""Sockets that their event loop alone closes.

aiohttp connects a Python socket and hands it to the loop.  uvloop closes its descriptor
by itself; if TLS is given up half-way, the garbage collector may come upon the socket
first and close the descriptor too.  The second of the two closes is of a number that
somebody else may have been given meanwhile: another connection loses its descriptor,
and libuv ends the whole process over it (SIGABRT).

Source: uvloop, UVHandle.__dealloc__ (closes what it has) and UVSocketHandle._attach_fileobj.
"""

from __future__ import annotations

import socket
from typing import Any

import aiohttp


class LoopsSocket(socket.socket):
    """A socket that is closed by who has it, the loop or whoever connects it, and by no finalizer.

    Both loops close what they were handed, by name or when their transport goes; whoever connects
    closes it on the spot if that fails.  So nothing is left open.
    """

    __slots__ = ()

    def __del__(self) -> None:
        """Close nothing.  Overrides the finalizer of `socket.socket`, which would."""


def make_connector(**options: Any) -> aiohttp.TCPConnector:
    """Aiohttp's connector, whose sockets the loop alone closes; `options` as of `aiohttp.TCPConnector`."""
    return aiohttp.TCPConnector(socket_factory=_make_socket, **options)


def _make_socket(address: aiohttp.AddrInfoType) -> LoopsSocket:
    family, kind, protocol, _, _ = address
    return LoopsSocket(family, kind, protocol)
