"""Which requests share connections, and which connections are left alone."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from shardsdk.errors import ConnectionFailed
from shardsdk.kube.answers import Target
from shardsdk.kube.sessions import SILENT_SECONDS, Call, Lane
from shardsdk.protocol.objects import LEASES
from tests.kube_server import talking


@pytest.mark.parametrize(
    ("call", "lane"),
    [
        (Call(Target("list", "", "secrets"), "GET", "/"), Lane.READS),
        (Call(Target("list", "", "secrets"), "GET", "/", page=True), Lane.PAGES),
        (Call(Target("patch", "", "secrets"), "PATCH", "/", fences=()), Lane.WRITES),
        (Call(Target("list", LEASES.group, LEASES.plural), "GET", "/", page=True), Lane.LEASES),
    ],
)
def test_pages_have_connections_of_their_own_and_leases_always_have(call: Call, lane: Lane) -> None:
    assert call.lane is lane


class Backends:
    """What is behind a balancer: it has an answer for each connection but for those that are `silent`."""

    def __init__(self) -> None:
        self.silent: set[object] = set()
        self.used: list[object] = []
        self.together = asyncio.Barrier(1)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.used.append(request.transport)
        if request.transport in self.silent or request.path.endswith("/slow"):
            await asyncio.sleep(3600)
        await self.together.wait()
        return web.json_response({"metadata": {"name": "a"}})


@pytest.mark.parametrize(("limit", "giving_up"), [(None, ConnectionFailed), (SILENT_SECONDS, TimeoutError)])
async def test_one_silent_request_is_enough_where_all_idle_connections_are_silent(
    limit: float | None, giving_up: type[Exception]
) -> None:
    """A backend that is gone unnoticed takes all of them along: a lease has no time to try one after the other."""
    backends = Backends()
    backends.together = asyncio.Barrier(4)
    async with talking(backends.answer) as (client, _):
        await asyncio.gather(*(client.get(LEASES, "a", "n") for _ in range(4)))
        backends.together = asyncio.Barrier(1)
        backends.silent = set(backends.used)
        assert len(backends.silent) == 4
        with pytest.raises(giving_up):
            async with asyncio.timeout(limit):
                await client.get(LEASES, "a", "n", timeout_seconds=SILENT_SECONDS if limit is None else None)
        await client.get(LEASES, "a", "n")
        assert backends.used[-1] not in backends.silent


async def test_a_connection_that_has_answered_meanwhile_is_used_on() -> None:
    backends = Backends()
    backends.together = asyncio.Barrier(2)
    async with talking(backends.answer) as (client, _):
        await asyncio.gather(*(client.get(LEASES, "a", "n") for _ in range(2)))
        backends.together = asyncio.Barrier(1)
        slow = asyncio.create_task(client.get(LEASES, "slow", "n", timeout_seconds=1.0))
        while len(backends.used) < 3:
            await asyncio.sleep(0.001)
        await client.get(LEASES, "a", "n")
        with pytest.raises(ConnectionFailed, match="no answer"):
            await slow
        await client.get(LEASES, "a", "n")
        assert len(set(backends.used)) == 2
        assert backends.used[-1] is backends.used[-2]


async def test_who_gives_up_a_pause_that_the_server_asked_for_doubts_no_connection() -> None:
    """Else each request that is given up costs an API server that is too busy already new handshakes."""
    used, together = list[object](), asyncio.Barrier(4)

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/busy"):
            return web.Response(status=429, headers={"Retry-After": "5"})
        used.append(request.transport)
        await together.wait()
        return web.json_response({"metadata": {"name": "a"}})

    async with talking(answer) as (client, _):
        await asyncio.gather(*(client.get(LEASES, "a", "n") for _ in range(4)))
        before = set(used)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SILENT_SECONDS + 0.1):
                await client.get(LEASES, "busy", "n")
        await asyncio.gather(*(client.get(LEASES, "a", "n") for _ in range(4)))
        assert set(used) == before


async def test_who_gives_up_soon_after_the_request_was_sent_doubts_no_connection() -> None:
    """However long it had waited before that: in a pause that the server asked for, say."""
    used, together, asked = list[object](), asyncio.Barrier(4), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/busy"):
            if not asked.is_set():
                asked.set()
                return web.Response(status=429, headers={"Retry-After": "1"})
            slow.cancel()
            await asyncio.sleep(3600)
        used.append(request.transport)
        await together.wait()
        return web.json_response({"metadata": {"name": "a"}})

    async with talking(answer) as (client, _):
        await asyncio.gather(*(client.get(LEASES, "a", "n") for _ in range(4)))
        slow = asyncio.create_task(client.get(LEASES, "busy", "n"))
        await asyncio.wait([slow])
        assert slow.cancelled()
        await asyncio.gather(*(client.get(LEASES, "a", "n") for _ in range(4)))
        assert len(set(used)) == 4 + 1, "one in place of that which the request was given up on"
