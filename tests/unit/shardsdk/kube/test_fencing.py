"""A write leaves only under an open fence, and is known to be open until it cannot happen any more."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from shardsdk.errors import (
    Conflict,
    ConnectionFailed,
    FenceClosed,
    ServerError,
)
from shardsdk.kube import fencing, sessions
from shardsdk.kube.api import PatchKind
from shardsdk.kube.client import Client
from shardsdk.kube.fencing import SLACK_SHARE, GuardedRequest
from shardsdk.kube.server import direct_access
from shardsdk.kube.sessions import Lane
from shardsdk.protocol.objects import GroupResource
from tests.kube_fakes import CONFIGMAPS, FakeFence, ManualClock
from tests.kube_server import (
    Handler,
    Server,
    breaks_off,
    config_map,
    hangs,
    hear_headers,
    page,
    refuses,
    says,
    talking,
)

BODY = {"metadata": {"name": "a", "namespace": "default"}}

Write = Callable[[Client], Awaitable[object]]

#: Everything that writes.
WRITES: dict[str, Write] = {
    "create": lambda client: client.create(CONFIGMAPS, BODY, "default"),
    "patch": lambda client: client.patch(CONFIGMAPS, "a", "default", {}),
    "apply": lambda client: client.patch(CONFIGMAPS, "a", "default", {}, kind=PatchKind.APPLY, field_manager="me"),
    "update": lambda client: client.update(CONFIGMAPS, BODY),
    "delete": lambda client: client.delete(CONFIGMAPS, "a", "default"),
    "raw": lambda client: client.raw("POST", "/anything"),
    "raw delete": lambda client: client.raw("delete", "/anything"),
}


def milliseconds(server: Server) -> list[int]:
    return [int(seen.query["timeout"].removesuffix("ms")) for seen in server.seen]


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_no_write_leaves_under_a_closed_fence(write: Write) -> None:
    fence = FakeFence(left=0.0, name="the lease of shard-1")
    async with talking(says(config_map("a")), fence=fence) as (client, server):
        with pytest.raises(FenceClosed, match="the lease of shard-1"):
            await write(client)
        assert server.seen == []
        assert client.inflight_writes == 0


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_the_api_server_gets_no_longer_than_the_hold(write: Write) -> None:
    fence = FakeFence(left=7.5)
    async with talking(says(config_map("a")), fence=fence) as (client, server):
        await write(client)
        assert milliseconds(server) == [int(7.5 * (1 - SLACK_SHARE) * 1000)]
        assert fence.asked >= 3, "before connecting, with the connection, with the bytes"


@pytest.mark.parametrize("name", ["timeout", "%74imeout"])
async def test_a_timeout_of_the_callers_own_does_not_outlast_the_hold(name: str) -> None:
    async with talking(says(config_map("a")), fence=FakeFence(left=7.5)) as (client, server):
        await client.raw("PATCH", f"/api/v1/x?{name}=60s&dryRun=All&timeout=50s", body=b"{}")
        await client.raw("PATCH", "/api/v1/x", query=[("timeout", "60s"), ("dryRun", "All")], body=b"{}")
        assert milliseconds(server) == [5625, 5625]
        assert [seen.query["dryRun"] for seen in server.seen] == ["All", "All"]


async def test_the_shortest_hold_counts() -> None:
    async with talking(says(config_map("a")), fence=FakeFence(left=90.0)) as (client, server):
        await client.patch(CONFIGMAPS, "a", "default", {}, fences=[FakeFence(left=6.0), FakeFence(left=8.0)])
        await client.patch(CONFIGMAPS, "a", "default", {}, fences=[FakeFence(left=90.0)], timeout_seconds=20.0)
        first, second = milliseconds(server)
        assert first == 4500
        assert 10_000 < second <= 15_000


async def test_an_unfenced_write_has_its_limit_at_the_api_server_too() -> None:
    async with talking(says(config_map("a"))) as (client, server):
        await client.patch(CONFIGMAPS, "a", "default", {})
        assert 20_000 < milliseconds(server)[0] <= 30_000


async def test_reading_needs_no_hold() -> None:
    fence = FakeFence(left=0.0)
    answers = says(config_map("a")), says(page(["a"])), says({"status": {"allowed": True}})
    async with talking(*answers, fence=fence) as (client, server):
        await client.get(CONFIGMAPS, "a", "default")
        await client.find(CONFIGMAPS, "a", "default")
        assert await client.allowed("get", GroupResource("", "configmaps"))
        assert [each.query.get("timeout") for each in server.seen] == [None] * 3
        assert fence.asked == 0


async def test_a_fence_that_closes_while_waiting_for_a_connection_stops_the_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "CONNECTIONS", dict.fromkeys(Lane, 1))
    release = asyncio.Event()

    async def slow(request: Any) -> Any:
        await release.wait()
        return await says(config_map("a"))(request)

    async with talking(slow, says(config_map("a"))) as (client, server):
        fence = FakeFence()
        before = asyncio.ensure_future(client.patch(CONFIGMAPS, "a", "default", {}))
        await server.arrived.wait()
        writing = asyncio.ensure_future(client.patch(CONFIGMAPS, "a", "default", {}, fences=[fence]))
        while not fence.asked:
            await asyncio.sleep(0)
        fence.left = 0.0
        release.set()
        with pytest.raises(FenceClosed):
            await writing
        await before
        assert len(server.seen) == 1


async def test_a_fence_that_closes_between_connection_and_bytes_stops_the_write() -> None:
    async with talking(says(config_map("a"))) as (client, server):
        with pytest.raises(FenceClosed):
            await client.patch(CONFIGMAPS, "a", "default", {}, fences=[FakeFence(answers=[10.0, 10.0, 0.0])])
        await client.get(CONFIGMAPS, "b", "default")
        assert [each.method for each in server.seen] == ["GET"]
        assert client.inflight_writes == 0


async def test_a_loop_that_was_held_up_asks_for_the_time_again() -> None:
    """The time granted was computed before the delay: sent as it is, it would outlast the hold."""
    async with talking(says(config_map("a"))) as (client, server):
        fence = FakeFence(answers=[10.0, 10.0, 4.0], left=4.0)
        await client.patch(CONFIGMAPS, "a", "default", {}, fences=[fence])
        assert milliseconds(server) == [3000]


async def test_a_loop_that_is_always_held_up_sends_nothing() -> None:
    async with talking(says(config_map("a"))) as (client, server):
        fence = FakeFence(answers=[20.0, *[20.0, 10.0] * fencing.SEND_ATTEMPTS])
        with pytest.raises(ConnectionFailed, match="held up"):
            await client.patch(CONFIGMAPS, "a", "default", {}, fences=[fence])
        assert server.seen == []
        assert client.inflight_writes == 0


async def test_a_pause_that_was_asked_for_does_not_outlive_the_hold() -> None:
    clock = ManualClock()
    fence = FakeFence(left=5.0)
    async with talking(refuses(429, retry_after=3), clock=clock) as (client, server):
        writing = asyncio.ensure_future(client.patch(CONFIGMAPS, "a", "default", {}, fences=[fence]))
        while not clock.pauses:
            await asyncio.sleep(0.001)
        fence.left = 0.0
        clock.advance(3)
        with pytest.raises(FenceClosed):
            await writing
        assert len(server.seen) == 1


async def test_a_write_without_an_answer_ends_with_the_hold() -> None:
    async with talking(hangs()) as (client, _):
        with pytest.raises(ConnectionFailed, match=r"within 0\.2 s"):
            await client.patch(CONFIGMAPS, "a", "default", {}, fences=[FakeFence(left=0.2)])


class DoubtedFence(FakeFence):
    doubted = True


async def test_a_write_that_waited_for_a_doubted_fence_has_what_is_left_of_its_time() -> None:
    fence = DoubtedFence(left=60.0, answers=[0.0] * 20)  # 20 ms each
    async with talking(says(config_map("a")), fence=fence) as (client, server):
        await client.patch(CONFIGMAPS, "a", "default", {}, timeout_seconds=20.0)
        assert milliseconds(server)[0] < 19.61 * (1 - SLACK_SHARE) * 1000


async def test_a_fence_that_nobody_asks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should aiohttp send requests by another way one day, writes must not slip through."""
    monkeypatch.setattr(GuardedRequest, "write_bytes", aiohttp.ClientRequest.write_bytes)
    async with talking(says(config_map("a"))) as (client, _):
        with pytest.raises(RuntimeError, match="unasked"):
            await client.patch(CONFIGMAPS, "a", "default", {})


# Which writes may still happen


async def test_answered_writes_are_settled() -> None:
    async with talking(says(config_map("a")), refuses(409)) as (client, _):
        for _ in range(2):
            with contextlib.suppress(Conflict):
                await client.patch(CONFIGMAPS, "a", "default", {})
            assert client.inflight_writes == 0
        await client.writes_settled()


async def test_a_write_that_was_answered_with_5xx_may_still_happen() -> None:
    async with talking(refuses(504)) as (client, _):
        with pytest.raises(ServerError):
            await client.patch(CONFIGMAPS, "a", "default", {})
        assert client.inflight_writes == 1


async def test_a_write_under_way_is_waited_for() -> None:
    release = asyncio.Event()

    async def slow(request: Any) -> Any:
        await release.wait()
        return await says(config_map("a"))(request)

    async with talking(slow) as (client, server):
        writing = asyncio.ensure_future(client.patch(CONFIGMAPS, "a", "default", {}))
        await server.arrived.wait()
        assert client.inflight_writes == 1
        settling = asyncio.ensure_future(client.writes_settled())
        await asyncio.sleep(0.01)
        assert not settling.done()
        release.set()
        await settling
        await writing


async def test_a_cancelled_write_may_happen_until_its_time_is_over() -> None:
    clock = ManualClock()
    async with talking(hangs(), clock=clock) as (client, server):
        writing = asyncio.ensure_future(client.patch(CONFIGMAPS, "a", "default", {}, fences=[FakeFence(left=8.0)]))
        await server.arrived.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert client.inflight_writes == 1
        settling = asyncio.ensure_future(client.writes_settled())
        while not clock.pauses:
            await asyncio.sleep(0.001)
        # Six seconds were granted; the rest of the hold is for the way there, and for what etcd has in hand then.
        clock.advance(7.5)
        await asyncio.sleep(0.01)
        assert not settling.done()
        clock.advance(0.5)
        await settling
        assert client.inflight_writes == 0


async def test_a_write_whose_connection_broke_may_still_happen() -> None:
    clock = ManualClock()
    async with talking(breaks_off(), clock=clock) as (client, _):
        with pytest.raises(ConnectionFailed):
            await client.patch(CONFIGMAPS, "a", "default", {})
        assert client.inflight_writes == 1
        clock.advance(30)
        await client.writes_settled()


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_write_whose_connection_broke_is_not_sent_again(write: Write) -> None:
    """aiohttp repeats PUT and DELETE by itself; the first may have been executed."""

    async def disconnects(request: Any) -> Any:
        request.transport.abort()
        return await says(config_map("a"))(request)

    async with talking(disconnects) as (client, server):
        with pytest.raises(ConnectionFailed):
            await write(client)
        assert len(server.seen) == 1
        assert client.inflight_writes == 1


async def test_reading_over_a_connection_that_broke_is_tried_again() -> None:
    async def disconnects(request: Any) -> Any:
        request.transport.abort()
        return await says(config_map("a"))(request)

    async with talking(disconnects, says(config_map("a"))) as (client, server):
        await client.get(CONFIGMAPS, "a", "default")
        assert len(server.seen) == 2


async def test_a_write_that_the_network_holds_back_does_not_arrive_after_the_hold() -> None:
    """The kernel would deliver it whenever the other side listens again, whatever became of this process."""
    loop = asyncio.get_running_loop()
    large = {**BODY, "data": {"k": "v" * 900_000}}
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        async with Client(direct_access(f"http://127.0.0.1:{listening.getsockname()[1]}")) as client:
            writing = asyncio.ensure_future(client.update(CONFIGMAPS, large, fences=[FakeFence(left=4.0)]))
            deaf, address = await loop.sock_accept(listening)
            with deaf:
                await hear_headers(deaf)
                await loop.sock_sendall(deaf, b"HTTP/1.1 100 Continue\r\n\r\n")
                with pytest.raises(ConnectionFailed):
                    await writing
                await forgotten_by_the_kernel(address[1], listening.getsockname()[1])


async def forgotten_by_the_kernel(port: int, listening: int) -> None:
    """Wait until there is no connection from this port of the loopback interface to the other one.

    Another process may have one from the same port to somewhere else by then.
    """
    async with asyncio.timeout(60):
        while (f"0100007F:{port:04X}", f"0100007F:{listening:04X}") in connections():
            await asyncio.sleep(0.01)


def connections() -> set[tuple[str, str]]:
    """From where to where the kernel has connections."""
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    return {(fields[1], fields[2]) for fields in map(str.split, lines)}


async def test_a_write_that_was_never_sent_is_no_concern() -> None:
    async with Client(direct_access("http://127.0.0.1:1")) as client:
        with pytest.raises(ConnectionFailed):
            await client.patch(CONFIGMAPS, "a", "default", {})
        await client.writes_settled()


async def test_later_writes_do_not_hold_up_those_who_wait_for_earlier_ones() -> None:
    gates = [asyncio.Event(), asyncio.Event()]

    def slow(gate: asyncio.Event) -> Handler:
        async def answer(request: Any) -> Any:
            await gate.wait()
            return await says(config_map("a"))(request)

        return answer

    async with talking(*map(slow, gates)) as (client, server):
        writes = [asyncio.ensure_future(client.patch(CONFIGMAPS, "a", "default", {}))]
        await server.arrived.wait()
        settling = asyncio.ensure_future(client.writes_settled())
        await asyncio.sleep(0)
        writes.append(asyncio.ensure_future(client.patch(CONFIGMAPS, "b", "default", {})))
        while client.inflight_writes < 2:
            await asyncio.sleep(0.001)
        gates[0].set()
        await settling
        assert client.inflight_writes == 1
        gates[1].set()
        await asyncio.gather(*writes)
