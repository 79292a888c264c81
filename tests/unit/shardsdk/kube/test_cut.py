"""TLS connections that the API server, or a proxy before it, cuts short wherever it likes: told, and not logged."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from shardsdk.errors import ShardingError
from shardsdk.kube.client import Client
from shardsdk.kube.credentials import FixedCredentials
from shardsdk.kube.cut import hush_cut_connections, is_cut
from shardsdk.kube.server import Access, Server, make_access
from tests.kube_configs import certificate
from tests.kube_fakes import CONFIGMAPS, FakeFence

BODY = b'{"metadata":{"name":"a","namespace":"default","uid":"u","resourceVersion":"1"}}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
WHERE = (
    "before the handshake",
    "amid the handshake",
    "idle",
    "headers",
    "continue",
    "half an answer",
    "answer",
    "later",
)
HOW = ("reset", "closed", "goodbye", "goodbye, then more", "garbage")


class Cutter:
    """A TLS server whose connections end here and there."""

    def __init__(self, folder: Path, seed: int) -> None:
        cert, key = certificate("localhost")
        (folder / "cert").write_text(cert)
        (folder / "key").write_text(key)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(folder / "cert", folder / "key")
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._rng = random.Random(seed)
        self.ends: Counter[str] = Counter()
        port = self._listening.getsockname()[1]
        server = Server(f"https://127.0.0.1:{port}", verify=False)
        self.access: Access = make_access(
            server, namespace="default", origin="test", credentials=FixedCredentials("Bearer x")
        )

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._handle, args=(connection,), daemon=True).start()

    def stop(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _handle(self, raw: socket.socket) -> None:
        where, how = self._rng.choice(WHERE), self._rng.choice(HOW)
        raw.settimeout(5)
        self.ends[where] += 1
        current = raw
        try:
            if where == "amid the handshake":
                raw.recv(100)
            if where not in WHERE[:2]:
                current = self._tls.wrap_socket(raw, server_side=True)
                self._talk(current, where)
            _end(current, how)
        except OSError:
            current.close()

    def _talk(self, connection: ssl.SSLSocket, where: str) -> None:
        if where == "idle":
            return
        for _ in range(4):
            heard = b""
            while b"\r\n\r\n" not in heard:
                if not (piece := connection.recv(65536)):
                    return
                heard += piece
            if where == "headers":
                return
            if b"100-continue" in heard.lower():
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                if where == "continue":
                    return
                connection.recv(65536)
            if where == "half an answer":
                connection.sendall(HEAD % 100_000 + b"x" * 5_000)
                return
            connection.sendall(HEAD % len(BODY) + BODY)
            if where == "answer":
                return


def _end(connection: socket.socket, how: str) -> None:
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif isinstance(connection, ssl.SSLSocket) and how != "closed":
        with socket.socket(fileno=os.dup(connection.fileno())) as below:
            if how == "garbage":
                below.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
            else:
                connection.settimeout(0.1)
                with contextlib.suppress(OSError):
                    connection.unwrap()
                if how == "goodbye, then more":
                    below.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    connection.close()


@contextmanager
def cutting(folder: Path, seed: int) -> Iterator[Cutter]:
    cutter = Cutter(folder, seed)
    thread = threading.Thread(target=cutter.serve, daemon=True)
    thread.start()
    try:
        yield cutter
    finally:
        cutter.stop()
        thread.join()


async def use(access: Access, rng: random.Random) -> Counter[str]:
    """Ask, write and watch, and give up here and there; what came of it."""
    came: Counter[str] = Counter()

    async def work(client: Client, number: int, closing: asyncio.Event) -> None:
        for _ in range(5):
            if closing.is_set():  # its cancellation met its time limit
                return
            try:
                async with asyncio.timeout(rng.choice([0.003, 0.01, 0.03, 0.1, 0.5])):
                    if number % 3 == 0:
                        await client.get(CONFIGMAPS, "a", "default")
                    elif number % 3 == 1:
                        body = {"data": {"x": "y" * rng.choice([1, 300_000])}}
                        await client.patch(CONFIGMAPS, "a", "default", body, fences=[FakeFence(left=10.0)])
                    else:
                        async for _ in client.watch(CONFIGMAPS, resource_version="5"):
                            pass
            except (ShardingError, TimeoutError) as error:
                came[type(error).__name__] += 1

    for _ in range(6):
        async with Client(access) as client:
            closing = asyncio.Event()
            tasks = [asyncio.create_task(work(client, number, closing)) for number in range(18)]
            await asyncio.wait(tasks, timeout=rng.choice([0.05, 0.3, 2.0]))
            closing.set()
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks)
        gc.collect()
        await asyncio.sleep(0)
    return came


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_connections_that_are_cut_anywhere_leave_no_traceback(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with cutting(tmp_path, 1) as cutter, asyncio.Runner(loop_factory=new_loop) as runner:
        hush_cut_connections(runner.get_loop())
        came = runner.run(use(cutter.access, random.Random(2)))
        gc.collect()
    assert came["ConnectionFailed"] > 0
    assert set(cutter.ends) == set(WHERE)
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING and each.exc_info] == []


async def test_what_is_no_end_of_a_connection_is_reported_as_before() -> None:
    loop = asyncio.get_running_loop()
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    hush_cut_connections(loop)
    done: asyncio.Future[None] = loop.create_future()
    done.set_exception(error := ConnectionResetError())
    assert done.exception() is error
    task = asyncio.create_task(asyncio.sleep(0))
    await task
    loop.call_exception_handler({"message": "given up", "future": done, "exception": error})
    assert reported == []
    loop.call_exception_handler({"message": "of a task", "task": task, "future": task, "exception": error})
    loop.call_exception_handler({"message": "a bug", "exception": RuntimeError("the handler is closed")})
    assert [each["message"] for each in reported] == ["of a task", "a bug"]


def test_a_bug_in_a_protocol_is_no_cut_connection() -> None:
    class SSLProtocol:
        """Called as the loops' own."""

    assert not is_cut({"protocol": SSLProtocol(), "exception": RuntimeError("something else")})
    closed = RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")
    assert is_cut({"protocol": SSLProtocol(), "exception": closed})
