"""What a request without an answer says of the watches that are open beside it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest
from aiohttp import web

from shardsdk.errors import ApiError, ConnectionFailed
from shardsdk.kube import openstreams, sessions
from shardsdk.kube.api import SILENCE_SECONDS
from shardsdk.kube.client import Client
from shardsdk.kube.openstreams import OpenStream, OpenStreams
from shardsdk.kube.reflector import Reflector
from shardsdk.kube.server import direct_access
from shardsdk.protocol.objects import LEASES, PartialObject
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.kube_fakes import CONFIGMAPS, InstantClock
from tests.kube_server import config_map, end_of_list, line, talking

#: Of a request that is given up, in these tests.
SECONDS = 0.05


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openstreams, "DOUBT_SECONDS", 0.01)
    monkeypatch.setattr(sessions, "SILENT_SECONDS", 0.01)


class ApiServer:
    """Leases that are answered or not, and watches that say what is put into `say`, as long as `forgotten` is not set.

    Watches that are begun afterwards say it again.
    """

    def __init__(self) -> None:
        self.answers, self.refuses = True, 0
        self.initial = end_of_list(5)
        self.watches: list[str] = []
        self.lists = 0
        self.say: list[bytes] = []
        self.forgotten = 0
        self.said = asyncio.Condition()
        self.heard = asyncio.Event()
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.refuses:
            return web.json_response({}, status=self.refuses)
        if "watch" in request.query:
            return await self._watch(request)
        if request.path.endswith("/earlier"):
            self.asked.set()
            await self.may_answer.wait()
        elif request.path.endswith("/leases/a"):
            if not self.answers:
                await asyncio.sleep(3600)
        else:
            self.lists += 1
        return web.json_response({"metadata": {"name": "a"}})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watches.append(request.query.get("resourceVersion", ""))
        number = len(self.watches)
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        if "resourceVersion" not in request.query:
            await response.write(self.initial)
        for told in itertools.count():
            await response.write(await self._said(told, number))
        raise AssertionError

    async def _said(self, told: int, watch: int) -> bytes:
        async with self.said:
            await self.said.wait_for(lambda: len(self.say) > told and watch > self.forgotten)
            return self.say[told]

    async def tell(self, piece: bytes) -> None:
        async with self.said:
            self.say.append(piece)
            self.said.notify_all()


async def follow(client: Client, server: ApiServer, version: str | None = "5") -> int:
    """Watch until the watch ends; how many events there were, each of which sets `server.heard`."""
    events = 0
    async for _ in client.watch(CONFIGMAPS, resource_version=version, initial_events=version is None):
        events += 1
        server.heard.set()
    return events


@asynccontextmanager
async def watched(server: ApiServer, *, version: str | None = "5") -> AsyncIterator[tuple[Client, asyncio.Task[int]]]:
    """A client, and the number of events of its watch once that has ended by itself."""
    async with talking(server.answer) as (client, _):
        task = asyncio.create_task(follow(client, server, version))
        await server.heard.wait()
        try:
            yield client, task
        finally:
            task.cancel()
            await asyncio.wait([task])


async def give_up(client: Client, server: ApiServer) -> None:
    """A request without an answer."""
    server.answers = False
    with pytest.raises(ConnectionFailed, match="no answer"):
        await client.get(LEASES, "a", "n", timeout_seconds=SECONDS)
    server.answers = True


async def run_loop() -> None:
    """Let all that is due happen."""
    for _ in range(20):
        await asyncio.sleep(0.005)


async def test_a_watch_that_was_silent_ends_once_a_later_request_is_answered() -> None:
    async with watched(server := ApiServer()) as (client, watch):
        await give_up(client, server)
        await run_loop()
        assert not watch.done(), "an API server that hangs has nothing to open anew"
        await client.get(LEASES, "a", "n")
        assert await watch == 1, "as the API server ends it: no error"


@pytest.mark.parametrize("status", [429, 503])
async def test_a_watch_that_might_not_begin_anew_goes_on(status: int) -> None:
    """Whoever has too much to do lets some requests wait and refuses others; who watches already is told."""
    async with watched(server := ApiServer()) as (client, watch):
        await give_up(client, server)
        server.refuses = status
        with pytest.raises(ApiError):
            await client.get(LEASES, "a", "n")
        await run_loop()
        assert not watch.done()
        server.refuses = 0
        await client.get(LEASES, "a", "n")
        assert await watch == 1


def test_watches_live_to_have_a_bookmark_between_two_doubts() -> None:
    """An API server sends it 60 s to 62 s after they began; without, they are taken for silent, and all is listed."""
    assert openstreams.AGAIN_SECONDS - openstreams.DOUBT_SECONDS > 62
    assert openstreams.AGAIN_SECONDS - 62 < SILENCE_SECONDS


async def test_a_watch_that_has_said_something_meanwhile_goes_on() -> None:
    async with watched(server := ApiServer()) as (client, watch):
        server.answers = False
        slow = asyncio.create_task(client.get(LEASES, "a", "n"))
        await run_loop()
        server.heard.clear()
        await server.tell(line("ADDED", config_map("o", 6)))
        await server.heard.wait()
        slow.cancel()
        await asyncio.wait([slow])
        server.answers = True
        await client.get(LEASES, "a", "n")
        await run_loop()
        assert not watch.done()


async def test_an_answer_to_an_earlier_request_says_nothing() -> None:
    """It went over another connection while this one may have been well, too."""
    async with watched(server := ApiServer()) as (client, watch):
        earlier = asyncio.create_task(client.get(LEASES, "earlier", "n"))
        await server.asked.wait()
        await give_up(client, server)
        server.may_answer.set()
        await earlier
        await run_loop()
        assert not watch.done()


async def test_initial_events_that_are_slow_to_come_are_not_begun_again() -> None:
    server = ApiServer()
    server.initial = line("ADDED", config_map("first", 4))
    async with watched(server, version=None) as (client, watch):
        await give_up(client, server)
        await client.get(LEASES, "a", "n")
        await run_loop()
        assert not watch.done()
        await server.tell(end_of_list(5))
        await run_loop()
        await give_up(client, server)
        await client.get(LEASES, "a", "n")
        assert await watch == 2, "they are complete now"


async def test_requests_that_are_slow_for_long_end_watches_once_in_a_while() -> None:
    async with watched(server := ApiServer()) as (client, first):
        await give_up(client, server)
        await client.get(LEASES, "a", "n")
        await first
        server.heard.clear()
        again = asyncio.create_task(follow(client, server))
        await server.heard.wait()
        await run_loop()
        await give_up(client, server)
        await client.get(LEASES, "a", "n")
        await run_loop()
        assert not again.done()
        again.cancel()
        await asyncio.wait([again])


async def test_what_a_client_of_another_thread_finds_out_counts_as_well() -> None:
    """A shard's lease has a client and a thread of its own, and what has nothing to do asks for nothing."""

    async def renew(host: str) -> None:
        async with Client(direct_access(host, token="secret")) as client:
            await give_up(client, server)
            await client.get(LEASES, "a", "n")

    server = ApiServer()
    async with talking(server.answer) as (client, listening):
        watch = asyncio.create_task(follow(client, server))
        await server.heard.wait()
        await asyncio.to_thread(asyncio.run, renew(listening.url))
        assert await watch == 1


async def test_whoever_follows_goes_on_where_it_was_and_misses_nothing() -> None:
    server = ApiServer()
    async with talking(server.answer) as (client, _):
        reflector = Reflector[PartialObject](client, CONFIGMAPS, clock=InstantClock(), rng=Random(1))
        running = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        server.forgotten = len(server.watches)  # their connections are, and nobody says so
        await server.tell(line("ADDED", config_map("o", 6)))
        await give_up(client, server)
        await client.get(LEASES, "a", "n")
        while not len(reflector.store):
            await asyncio.sleep(0.001)
        assert (server.watches, server.lists) == (["", "5"], 0)
        assert reflector.failure is None
        running.cancel()
        await asyncio.wait([running])


@in_virtual_time
async def test_of_requests_that_are_given_up_the_one_that_was_sent_last_counts(clock: VirtualClock) -> None:
    """What came before it was sent says nothing of what has come since, however long another one has waited."""
    streams = OpenStreams("api")
    streams.run_on(asyncio.get_running_loop())
    asked_first = clock.monotonic()
    await asyncio.sleep(1)
    silent = OpenStream(resumable=True)

    async def read() -> None:
        with streams.kept(silent), suppress(TimeoutError):
            async with asyncio.timeout(100) as limit:
                with silent.reading(limit):
                    await asyncio.sleep(1000)

    reading = asyncio.create_task(read())
    await asyncio.sleep(1)
    asked_last = clock.monotonic()
    await asyncio.sleep(5)
    streams.unanswered(asked_last)
    streams.unanswered(asked_first)
    streams.answered(clock.monotonic())
    await asyncio.sleep(5)
    assert reading.done()
    assert silent.over
