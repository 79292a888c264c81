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
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
import uvloop

from shardsdk.kube.sockets import LoopsSocket, make_connector

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
        runner.run(asyncio.sleep(0.01))
        assert _descriptors() <= before


def test_every_connection_of_the_client_is_made_so() -> None:
    made = [
        str(path.relative_to(ROOT))
        for folder in ("shardsdk", "sharder")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"\bTCPConnector\(", path.read_text())
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
