"""A reserved port stays with its owner while no server listens on it."""

from __future__ import annotations

import platform
import socket
from contextlib import suppress

import pytest

from localcluster.ports import LOOPBACK, reserve_port

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="only Linux lets a port be reserved")


def _listen(port: int) -> socket.socket:
    """As a Go program does it."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((LOOPBACK, port))
    listener.listen()
    return listener


def test_a_server_may_come_back_to_it_as_often_as_it_likes() -> None:
    port = reserve_port()
    for _ in range(3):
        with _listen(port.number) as server, socket.create_connection((LOOPBACK, port.number)):
            server.accept()[0].close()
    port.release()


def test_nobody_else_gets_it() -> None:
    port = reserve_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((LOOPBACK, port.number))
    port.release()


def test_a_released_port_is_anyones() -> None:
    for _ in range(20):  # whoever on this machine comes first
        port = reserve_port()
        port.release()
        with socket.socket() as other, suppress(OSError):
            other.bind((LOOPBACK, port.number))
            return
    raise AssertionError("nobody gets it")
