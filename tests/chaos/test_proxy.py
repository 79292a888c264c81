"""What the network between a process and the API server can do, with a server that answers each line by itself."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Self

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from localcluster.pki import Authority
from localcluster.ports import LOOPBACK
from tests.chaos.proxy import Net, Proxy, Storm, tls_contexts


@dataclass
class Echo:
    """A server that sends back each line, and remembers it."""

    port: int = 0
    heard: list[bytes] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await asyncio.sleep(0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self.heard.append(line)
                self.news.set()
                writer.write(line)
        except ConnectionError:
            pass
        finally:
            writer.close()


@pytest_asyncio.fixture
async def echo() -> AsyncIterator[Echo]:
    async with Echo() as made:
        yield made


@pytest_asyncio.fixture
async def proxy(echo: Echo) -> AsyncIterator[Proxy]:
    async with Proxy([echo.port], Random(1)) as made:
        yield made


async def say(writer: asyncio.StreamWriter, line: bytes) -> None:
    writer.write(line)
    await writer.drain()


async def test_bytes_arrive(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
    await say(writer, b"one\n")
    assert await reader.readline() == b"one\n"
    writer.close()


async def test_a_cut_resets_what_there_is_and_refuses_what_comes(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
    await say(writer, b"one\n")
    await reader.readline()
    proxy.set(Net.CUT)
    with pytest.raises(ConnectionError):
        await reader.readline()
    writer.close()
    reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    proxy.set(Net.OPEN)
    reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
    await say(writer, b"two\n")
    assert await reader.readline() == b"two\n"
    writer.close()


async def test_in_a_black_hole_nothing_arrives_until_it_opens(proxy: Proxy, echo: Echo) -> None:
    reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
    await say(writer, b"one\n")
    await reader.readline()
    proxy.set(Net.BLACK_HOLE)
    await say(writer, b"two\n")
    answer = asyncio.create_task(reader.readline())
    other_way = await asyncio.wait_for(round_trip(echo.port), 60)
    assert other_way
    assert not answer.done()
    assert b"two\n" not in echo.heard
    proxy.set(Net.OPEN)
    assert await answer == b"two\n"
    writer.close()


async def test_half_open_what_is_sent_arrives_and_the_answer_does_not(proxy: Proxy, echo: Echo) -> None:
    reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
    proxy.set(Net.HALF_OPEN)
    await say(writer, b"one\n")
    answer = asyncio.create_task(reader.readline())
    async with asyncio.timeout(60):
        await echo.news.wait()
    assert await round_trip(echo.port)
    assert not answer.done()
    proxy.set(Net.OPEN)
    assert await answer == b"one\n"
    writer.close()


async def test_connections_that_are_forgotten_bring_nothing_any_more_and_new_ones_work(
    proxy: Proxy, echo: Echo
) -> None:
    reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
    await say(writer, b"one\n")
    await reader.readline()
    proxy.forget()
    await say(writer, b"two\n")
    answer = asyncio.create_task(reader.readline())
    assert await round_trip(proxy.port)
    assert b"two\n" not in echo.heard
    assert not answer.done(), "nobody says so"
    answer.cancel()
    writer.close()


async def round_trip(port: int) -> bool:
    """Something that takes longer than a byte through the proxy would."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    await say(writer, b"aside\n")
    answered = await reader.readline() == b"aside\n"
    writer.close()
    return answered


async def test_connections_go_to_one_server_after_the_other(echo: Echo) -> None:
    async with Echo() as second, Proxy([echo.port, second.port], Random(1)) as proxy:
        for _ in range(4):
            assert await round_trip(proxy.port)
        assert len(echo.heard) == len(second.heard) == 2


@pytest.mark.parametrize("code", [409, 429, 500])
async def test_a_storm_answers_in_the_api_servers_place_and_lets_the_rest_pass(tmp_path: Path, code: int) -> None:
    pki = Authority(tmp_path / "pki")
    pki.write_serving_pair()
    server, client = tls_contexts(pki.folder)
    app = web.Application()
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {await request.text()}")
        return web.Response(text="from the server")

    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, 0, ssl_context=server)
    await site.start()
    [port] = [address[1] for address in runner.addresses]
    async with Proxy([port], Random(1), (server, client), storm=Storm((code,), 1.0, ("PATCH",))) as proxy:
        assert await request(proxy.port, client, "GET") == (200, "from the server")
        status, said = await request(proxy.port, client, "PATCH", expect100=True)
        assert (status, f'"code": {code}' in said) == (code, True)
        proxy.storm = None
        assert await request(proxy.port, client, "PATCH", expect100=True) == (200, "from the server")
    assert asked == ["GET ", "PATCH body"]
    assert proxy.answered == 1
    await runner.cleanup()


async def request(port: int, tls: ssl.SSLContext, method: str, *, expect100: bool = False) -> tuple[int, str]:
    data = b"body" if method == "PATCH" else None
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"https://{LOOPBACK}:{port}/x", ssl=tls, data=data, expect100=expect100) as answer,
    ):
        return answer.status, await answer.text()
