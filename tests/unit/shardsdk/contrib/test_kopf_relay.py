"""A session for foreign clients: our credentials, our fences, aiohttp's answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from shardsdk.contrib import kopf_relay
from shardsdk.contrib.kopf_relay import Relay
from shardsdk.errors import FenceClosed
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.credentials import FileCredentials
from shardsdk.kube.server import Access, direct_access, make_access
from shardsdk.kube.server import Server as ServerOf
from tests.kube_fakes import FakeFence
from tests.kube_server import Handler, Server, config_map, hangs, refuses, says, serving


class Doubted(FakeFence):
    doubted = True


@asynccontextmanager
async def relaying(fence: FakeFence, *answers: Handler) -> AsyncIterator[tuple[Relay, Server]]:
    async with serving(*answers) as server, Relay(direct_access(server.url, token="secret"), [fence]) as session:
        yield session, server


async def request(session: Relay, method: str, **options: Any) -> int:
    response = await session.request(method, f"{session.access.host}/api/v1/x", **options)
    async with response:
        return response.status


@pytest.mark.parametrize("method", ["post", "PUT", "patch", "DELETE"])
async def test_no_write_leaves_under_a_closed_fence(method: str) -> None:
    async with relaying(FakeFence(left=0.0), says(config_map("a"))) as (session, server):
        with pytest.raises(FenceClosed):
            await request(session, method, json={})
        assert await request(session, "get") == 200
        assert [seen.method for seen in server.seen] == ["GET"]


async def test_a_write_waits_while_the_lease_is_merely_doubted() -> None:
    fence = Doubted(left=0.0)
    async with relaying(fence, says(config_map("a"))) as (session, server):
        writing = asyncio.create_task(request(session, "patch", json={}))
        await asyncio.sleep(0.1)
        assert not writing.done()
        assert server.seen == []
        fence.left = 8.0
        assert await writing == 200


async def test_a_write_goes_as_the_client_made_it_with_our_identity_and_the_holds_limit() -> None:
    async with relaying(FakeFence(left=8.0), says(config_map("a"))) as (session, server):
        kind = {"Content-Type": "application/merge-patch+json"}
        assert await request(session, "patch", json={"data": {"a": "b"}}, headers=kind) == 200
        (seen,) = server.seen
        assert seen.json == {"data": {"a": "b"}}
        assert seen.headers["Content-Type"] == "application/merge-patch+json"
        assert seen.headers["Authorization"] == "Bearer secret"
        assert seen.query["timeout"] == "6000ms"


async def test_refusals_are_the_clients_to_read() -> None:
    async with relaying(FakeFence(left=8.0), refuses(409, "Conflict")) as (session, _):
        assert await request(session, "patch", json={}) == 409
        await session.writes_settled()


async def test_a_write_without_an_answer_is_not_settled() -> None:
    async with relaying(FakeFence(left=30.0), hangs()) as (session, server):
        writing = asyncio.create_task(request(session, "post", json={}))
        await server.arrived.wait()
        settled = asyncio.create_task(session.writes_settled())
        await asyncio.sleep(0)
        assert not settled.done()
        writing.cancel()
        settled.cancel()
        await asyncio.wait([writing, settled])


async def test_a_write_waits_for_its_answer_no_longer_than_it_may_be_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_relay, "REQUEST_SECONDS", 0.5)
    async with relaying(FakeFence(left=30.0), hangs()) as (session, _):
        with pytest.raises(aiohttp.ServerTimeoutError, match="no answer in time"):
            await request(session, "patch", json={}, timeout=aiohttp.ClientTimeout(total=300))
        await session.writes_settled()


async def test_a_write_waits_no_longer_than_its_hold_lasts() -> None:
    async with relaying(FakeFence(left=1.0), hangs()) as (session, _), asyncio.timeout(15):
        with pytest.raises(aiohttp.ServerTimeoutError, match="no answer in time"):
            await request(session, "patch", json={}, timeout=aiohttp.ClientTimeout(total=300))
        await session.writes_settled()


async def test_a_rotated_token_is_read_again_and_one_that_stays_refused_is_no_401(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    async with serving(refuses(401), says(config_map("a")), refuses(401)) as server:
        access: Access = make_access(
            ServerOf(server.url), namespace="default", origin="the test",
            credentials=FileCredentials(token, SystemClock()),
        )  # fmt: skip
        async with Relay(access) as session:
            await access.headers()
            token.write_text("new")
            assert await request(session, "get") == 200
            assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer old", "Bearer new"]
            with pytest.raises(aiohttp.ClientConnectionError, match="does not accept the identity from the test"):
                await request(session, "get")


async def test_it_closes_once_and_is_closed_then() -> None:
    session = Relay(direct_access("http://127.0.0.1:1"))
    async with session:
        await session.close()
    with pytest.raises(aiohttp.ClientConnectionError, match="closed"):
        await request(session, "get")
    assert session.closed
