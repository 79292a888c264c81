"""Sockets that a loop is handed: closed once, by who has them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import socket
import ssl
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
import uvloop

from shardsdk.kube import sockets
from shardsdk.kube.sessions import Lane
from shardsdk.kube.sockets import LoopsSocket, make_connector
from shardsdk.protocol.objects import LEASES
from tests.kube_fakes import FakeFence
from tests.kube_server import says, talking

ROOT = Path(__file__).parents[4]
LOOPS = pytest.mark.parametrize(
    "new_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"]
)  # fmt: skip


def test_no_finalizer_closes_a_descriptor() -> None:
    made = LoopsSocket(socket.AF_INET, socket.SOCK_STREAM)
    number = made.fileno()
    del made
    gc.collect()

    os.close(number)  # would raise, or close what somebody else has been given


def test_closed_by_name_it_is_closed() -> None:
    made = LoopsSocket(socket.AF_INET, socket.SOCK_STREAM)
    number = made.fileno()
    made.close()

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


@pytest.mark.skipif(sys.platform != "linux", reason="what the options are called")
@pytest.mark.parametrize("lane", list(Lane))
async def test_the_other_side_is_asked_whether_it_is_there(lane: Lane) -> None:
    """Of a connection that was forgotten on the way nobody else tells."""
    async with talking(says({})) as (client, _):
        connector = client._sessions._sessions[lane].connector
        assert isinstance(connector, aiohttp.TCPConnector)
        await client._sessions._sessions[lane].get(client._sessions.access.host)
        made = [connection.transport for pool in connector._conns.values() for connection, _ in pool]
        assert made
        for transport in made:
            assert transport is not None
            connection = transport.get_extra_info("socket")
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            asked = [
                connection.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            ]
            assert asked == [15, 5, 3]


@pytest.mark.skipif(sys.platform != "linux", reason="what the options are called")
def test_a_system_that_does_not_take_one_option_has_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "KEEP_ALIVE", {"TCP_KEEPIDLE": -1, "TCP_KEEPCNT": 3})
    made = sockets._make_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1)))
    assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3
    made.close()


@pytest.mark.skipif(sys.platform != "linux", reason="what the options are called")
async def test_what_a_write_was_limited_to_is_over_for_what_comes_after_it() -> None:
    """A watch over the same connection would break with the first question that has no answer."""
    async with talking(says({"metadata": {"name": "a"}})) as (client, _):

        def limits() -> list[int]:
            connector = client._sessions._sessions[Lane.LEASES].connector
            assert isinstance(connector, aiohttp.TCPConnector)
            made = [connection.transport for pool in connector._conns.values() for connection, _ in pool]
            used = [transport.get_extra_info("socket") for transport in made if transport is not None]
            return [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) for each in used]

        await client.patch(LEASES, "a", "n", {}, fences=[FakeFence(left=10.0)])
        (limit,) = limits()
        assert 0 < limit < 10_000
        await client.get(LEASES, "a", "n")
        assert limits() == [0]


@LOOPS
def test_nothing_stays_open_of_handshakes_that_are_given_up(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """A server that accepts and says nothing; whoever connects gives up, and lets the connector go unclosed or not."""

    async def give_up(port: int) -> None:
        for closes in (True, False) * 5:
            connector = make_connector(ssl=ssl.create_default_context())
            session = aiohttp.ClientSession(connector=connector)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await session.get(f"https://127.0.0.1:{port}")
            if closes:
                await connector.close()
            session.detach()

    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.sleep(0))
        before = _descriptors()
        runner.run(give_up(silent.getsockname()[1]))
        gc.collect()
        until = time.monotonic() + 40
        while not _descriptors() <= before:  # outside of `run`, for which a loop may have sockets as well
            assert time.monotonic() < until
            runner.run(asyncio.sleep(0.01))


def test_every_connection_of_the_client_is_made_so() -> None:
    made = [
        str(path.relative_to(ROOT))
        for folder in ("shardsdk", "sharder")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"\bTCPConnector[()]", path.read_text())
    ]

    assert made == ["shardsdk/kube/sockets.py"]


def _descriptors() -> set[int]:
    """The sockets that this process has, by inode."""
    found = set()
    for number in range(1024):
        with contextlib.suppress(OSError):
            seen = os.fstat(number)
            if stat.S_ISSOCK(seen.st_mode):
                found.add(seen.st_ino)
    return found
