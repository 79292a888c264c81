"""TLS connections that the API server, or a proxy before it, cuts short wherever it likes: told, and not logged."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import logging
import random
import socket
import ssl
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop
from aiohttp.client_reqrep import ConnectionKey
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from shardsdk.errors import ConnectionFailed, ServerError, ShardingError
from shardsdk.kube.client import Client
from shardsdk.kube.credentials import FixedCredentials
from shardsdk.kube.cut import hush_cut_connections, is_broken, is_cut
from shardsdk.kube.server import Access, Server, make_access
from tests.kube_configs import certificate
from tests.kube_fakes import CONFIGMAPS, FakeFence
from tests.tls_cutter import CERTIFICATE, KEY, WHERE


class Cutter:
    """`tests.tls_cutter`, and what its connections ended with once it has."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        server = Server(f"https://127.0.0.1:{int(process.stdout.readline())}", verify=False)
        self.access: Access = make_access(
            server, namespace="default", origin="test", credentials=FixedCredentials("Bearer x")
        )
        self.ends: dict[str, int] = {}


@contextmanager
def cutting(folder: Path, seed: int) -> Iterator[Cutter]:
    cert, key = certificate("localhost")
    (folder / CERTIFICATE).write_text(cert)
    (folder / KEY).write_text(key)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.tls_cutter", folder, str(seed)],
        cwd=Path(__file__).parents[4], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield (cutter := Cutter(process))
            cutter.ends = json.loads(process.communicate(timeout=60)[0])
        finally:
            process.kill()


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
    with (
        cutting(tmp_path, 1) as cutter,
        asyncio.Runner(loop_factory=new_loop) as runner,
        warnings.catch_warnings(record=True, action="always", category=ResourceWarning) as warned,
    ):
        hush_cut_connections(runner.get_loop())
        came = runner.run(use(cutter.access, random.Random(2)))
        gc.collect()
    # What the garbage collector closes is closed again by uvloop, and its number may be somebody else's by then.
    assert [each for each in warned if "<socket" in str(each.message)] == []
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


THERE = ConnectionKey("api.example", 443, True, True, None, None, None)
ASKED = aiohttp.RequestInfo(URL("https://api.example"), "CONNECT", CIMultiDictProxy(CIMultiDict()))


def _failed(cause: BaseException | None) -> ConnectionFailed:
    error = ConnectionFailed("patch leases a: it failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "broken"),
    [
        (_failed(aiohttp.ServerDisconnectedError()), True),
        (_failed(aiohttp.ClientPayloadError()), True),
        (_failed(ConnectionResetError(errno.ECONNRESET, "reset")), True),
        (_failed(aiohttp.ClientOSError(errno.ETIMEDOUT, "what was sent has no receipt")), True),
        (_failed(aiohttp.ClientConnectorError(THERE, ConnectionRefusedError(errno.ECONNREFUSED, "refused"))), False),
        (_failed(aiohttp.ClientConnectorError(THERE, OSError(errno.EHOSTUNREACH, "no route to host"))), False),
        (_failed(aiohttp.ClientConnectorDNSError(THERE, OSError(socket.EAI_AGAIN, "no address"))), False),
        (_failed(aiohttp.ClientConnectorCertificateError(THERE, ssl.SSLCertVerificationError("expired"))), False),
        (_failed(aiohttp.ClientHttpProxyError(ASKED, (), status=502)), False),
        (_failed(TimeoutError()), False),
        (_failed(aiohttp.ServerTimeoutError()), False),
        (_failed(None), False),
        (ServerError("etcd is away", status=500), False),
    ],
)
def test_a_broken_connection_is_told_from_one_that_is_not_made_and_from_an_answer(
    error: ShardingError, broken: bool
) -> None:
    assert is_broken(error) is broken
