"""A fenced write sends its body once the API server has read its headers: from then on its own clock ends the write."""

from __future__ import annotations

import asyncio
import json

import pytest

from shardsdk.errors import ConnectionFailed, FenceClosed, Forbidden, ServerError, TooManyRequests, Unauthorized
from shardsdk.kube import fencing
from shardsdk.kube.client import Client
from shardsdk.kube.server import direct_access
from tests.kube_fakes import CONFIGMAPS, FakeFence
from tests.kube_server import config_map, hear_headers, listener, refuses, says, talking


async def test_the_body_goes_when_the_api_server_has_read_the_headers() -> None:
    """From then on its own clock ends the write, whatever becomes of this process."""
    loop = asyncio.get_running_loop()
    async with listener() as (listening, host), Client(direct_access(host)) as client:
        writing = asyncio.ensure_future(client.patch(CONFIGMAPS, "a", "default", {}, fences=[FakeFence(left=20.0)]))
        server, _ = await loop.sock_accept(listening)
        with server:
            heard = await hear_headers(server)
            head, body = heard.split(b"\r\n\r\n")
            assert b"timeout=15000ms" in head
            assert b"Expect: 100-continue" in head
            assert body == b""
            assert client.inflight_writes == 0, "without its body it is no write"
            await loop.sock_sendall(server, b"HTTP/1.1 100 Continue\r\n\r\n")
            assert await loop.sock_recv(server, 1024) == b"{}"
            assert client.inflight_writes == 1
            answer = json.dumps(config_map("a")).encode()
            await loop.sock_sendall(server, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
            await writing
            assert client.inflight_writes == 0


async def test_a_fence_that_closes_before_the_api_server_has_read_the_headers_stops_the_body() -> None:
    loop = asyncio.get_running_loop()
    fence = FakeFence(left=20.0)
    async with listener() as (listening, host), Client(direct_access(host)) as client:
        writing = asyncio.ensure_future(client.patch(CONFIGMAPS, "a", "default", {}, fences=[fence]))
        server, _ = await loop.sock_accept(listening)
        with server:
            await hear_headers(server)
            fence.left = 0.0
            await loop.sock_sendall(server, b"HTTP/1.1 100 Continue\r\n\r\n")
            with pytest.raises(FenceClosed):
                await writing
            assert await loop.sock_recv(server, 1024) == b"", "closed, without a body"
            assert client.inflight_writes == 0


async def test_a_write_that_is_cancelled_before_its_body_went_is_none() -> None:
    loop = asyncio.get_running_loop()
    async with listener() as (listening, host), Client(direct_access(host)) as client:
        writing = asyncio.ensure_future(client.patch(CONFIGMAPS, "a", "default", {}, fences=[FakeFence()]))
        server, _ = await loop.sock_accept(listening)
        with server:
            await hear_headers(server)
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
            assert await loop.sock_recv(server, 1024) == b"", "closed, without a body"
            await client.writes_settled()


@pytest.mark.parametrize("status", [401, 403, 429, 500])
async def test_an_api_server_that_refuses_without_reading_the_body_is_understood(status: int) -> None:
    errors = {401: Unauthorized, 403: Forbidden, 429: TooManyRequests, 500: ServerError}
    async with talking(refuses(status), says(config_map("a"))) as (client, server):
        server.reads = False
        with pytest.raises(errors[status]):
            await client.patch(CONFIGMAPS, "a", "default", {}, fences=[FakeFence()])
        assert client.inflight_writes == 0
        server.reads = True
        await client.patch(CONFIGMAPS, "a", "default", {}, fences=[FakeFence()])


async def test_a_proxy_that_swallows_the_question_is_told_and_no_obstacle(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fencing, "CONTINUE_SECONDS", 0.01)
    async with talking(says(config_map("a"))) as (client, server):
        server.confirms = False
        for _ in range(fencing.MAX_UNCONFIRMED + 2):
            await client.patch(CONFIGMAPS, "a", "default", {}, fences=[FakeFence()])
        assert caplog.text.count("does not confirm fenced writes") == 1
        assert len(server.seen) == fencing.MAX_UNCONFIRMED + 2


async def test_once_the_api_server_has_confirmed_a_write_each_is_to_be_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fencing, "CONTINUE_SECONDS", 0.0)
    async with talking(says(config_map("a"))) as (client, server):
        server.confirms = False
        for _ in range(fencing.MAX_UNCONFIRMED + 1):
            await client.patch(CONFIGMAPS, "a", "default", {}, fences=[FakeFence()])
        server.confirms = True
        await client.patch(CONFIGMAPS, "a", "default", {}, fences=[FakeFence()])
        server.confirms = False
        with pytest.raises(ConnectionFailed, match=r"within 0\.3 s"):
            await client.patch(CONFIGMAPS, "a", "default", {}, fences=[FakeFence(left=0.3)])
        assert client.inflight_writes == 0


async def test_what_does_no_harm_when_late_asks_for_no_confirmation_unless_it_is_fenced_by_more() -> None:
    fence = FakeFence()
    async with talking(says(config_map("a"))) as (client, server):
        await client.patch(CONFIGMAPS, "a", "default", {}, fences=[fencing.Unconfirmed(fence)])
        await client.patch(CONFIGMAPS, "a", "default", {}, fences=[fencing.Unconfirmed(fence), FakeFence()])
        assert ["Expect" in seen.headers for seen in server.seen] == [False, True]
        fence.left = 0.0
        with pytest.raises(FenceClosed):
            await client.patch(CONFIGMAPS, "a", "default", {}, fences=[fencing.Unconfirmed(fence)])


async def test_what_is_not_fenced_asks_for_no_confirmation() -> None:
    async with talking(says(config_map("a"))) as (client, server):
        await client.patch(CONFIGMAPS, "a", "default", {})
        assert "Expect" not in server.seen[0].headers
