"""Watches and streams against a server on the loopback interface."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest
from aiohttp import web

from shardsdk.errors import (
    BadRequest,
    ConfigurationError,
    ConnectionFailed,
    Gone,
    ServerError,
    StreamInterrupted,
)
from shardsdk.kube import decoding, sessions, watching
from shardsdk.kube.api import Unfit, WatchEvent, WatchKind
from shardsdk.kube.client import Client
from shardsdk.kube.initialevents import BROKEN_SECONDS, NoEnd, Silent
from shardsdk.kube.reflector import Reflector
from shardsdk.kube.selectors import Selector
from shardsdk.kube.sessions import Lane
from shardsdk.kube.watching import END_SECONDS, Ending
from shardsdk.protocol.objects import LEASES, ObjectMeta, PartialObject
from tests.kube_fakes import CONFIGMAPS, InstantClock
from tests.kube_server import (
    Handler,
    config_map,
    end_of_list,
    hangs,
    line,
    page,
    refuses,
    says,
    streams,
    talking,
)


class Filled(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


async def events(client: Client, **options: Any) -> list[tuple[str, str, str]]:
    options.setdefault("resource_version", "5")
    return [
        (event.kind.value, "" if event.object is None else event.object.metadata.name, event.resource_version)
        async for event in client.watch(CONFIGMAPS, **options)
    ]


async def test_a_watch_begins_with_a_bookmark_of_its_version() -> None:
    answer = streams(
        line("ADDED", config_map("a", 6)),
        line("MODIFIED", config_map("a", 7)),
        line("BOOKMARK", {"metadata": {"resourceVersion": "9"}}),
        line("DELETED", config_map("a", 10)),
    )
    async with talking(answer) as (client, server):
        assert await events(client, timeout_seconds=300) == [
            ("BOOKMARK", "", "5"),
            ("ADDED", "a", "6"),
            ("MODIFIED", "a", "7"),
            ("BOOKMARK", "", "9"),
            ("DELETED", "a", "10"),
        ]
        assert server.seen[0].query == {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": "5",
            "timeoutSeconds": "300",
        }


async def test_initial_events_end_with_a_mark() -> None:
    async with talking(streams(line("ADDED", config_map("a", 6)), end_of_list(8))) as (client, server):
        found = [event async for event in client.watch(CONFIGMAPS, initial_events=True)]
        assert [(event.kind, event.initial_end) for event in found] == [
            (WatchKind.ADDED, False),
            (WatchKind.BOOKMARK, True),
        ]
        query = server.seen[0].query
        assert query["sendInitialEvents"] == "true"
        assert query["resourceVersionMatch"] == "NotOlderThan"
        assert "resourceVersion" not in query


@pytest.mark.parametrize("version", [None, "", "0"])
async def test_a_watch_never_begins_just_anywhere(version: str | None) -> None:
    async with talking(streams()) as (client, server):
        with pytest.raises(ConfigurationError):
            await events(client, resource_version=version)
        assert server.seen == []


async def test_events_come_whole_however_they_are_cut() -> None:
    rng = random.Random(3)
    whole = b"".join(line("ADDED", config_map(f"o{number}", number + 6, data={"x": "é" * 50})) for number in range(30))
    cuts = sorted(rng.sample(range(1, len(whole)), 60))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    async with talking(streams(*pieces)) as (client, _):
        assert [name for _, name, _ in await events(client)][1:] == [f"o{number}" for number in range(30)]


async def test_an_event_may_be_larger_than_any_buffer() -> None:
    large = line("ADDED", config_map("large", 6, data={"x": "y" * 6_000_000}))
    async with talking(streams(large, line("ADDED", config_map("b", 7)))) as (client, _):
        assert [name for _, name, _ in await events(client)] == ["", "large", "b"]


async def test_an_event_has_a_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LINE_MAX_BYTES", 10_000)
    async with talking(streams(b"x" * 30_000)) as (client, _):
        with pytest.raises(StreamInterrupted, match="exceeds"):
            await events(client)


@pytest.mark.parametrize(
    "answer",
    [
        refuses(410, "Expired", "too old resource version"),
        refuses(410, "Gone"),
        streams(line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})),
        streams(line("ERROR", {"kind": "Status", "code": 410, "message": "too old"})),
        refuses(
            504, "Timeout", "Too large resource version", details={"causes": [{"reason": "ResourceVersionTooLarge"}]}
        ),
    ],
)
async def test_a_version_that_is_gone_is_gone_in_every_form(answer: Handler) -> None:
    async with talking(answer) as (client, _):
        with pytest.raises(Gone):
            await events(client)


async def test_an_error_event_is_raised_as_what_it_is() -> None:
    status = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd"}
    async with talking(streams(line("ERROR", status))) as (client, _):
        with pytest.raises(ServerError, match="etcd"):
            await events(client)


async def test_a_silent_watch_is_taken_for_dead() -> None:
    async with talking(streams(line("ADDED", config_map("a", 6)), asyncio.Event())) as (client, _):
        with pytest.raises(Silent, match="silent"):
            await events(client, silence_seconds=2.0)  # the answer has as long to begin


async def test_a_watch_that_is_never_answered_is_given_up() -> None:
    async with talking(hangs()) as (client, _):
        with pytest.raises(ConnectionFailed, match="no answer"):
            await events(client, silence_seconds=0.05)


async def test_a_broken_watch_is_interrupted() -> None:
    async with talking(streams(line("ADDED", config_map("a", 6)), breaks=True)) as (client, _):
        with pytest.raises(StreamInterrupted, match="broke"):
            await events(client)


async def test_unknown_events_are_ignored_and_misfits_left_out(caplog: pytest.LogCaptureFixture) -> None:
    odd = config_map("odd", 7)
    odd["metadata"]["labels"] = 7
    answer = streams(line("SURPRISE", {}), line("ADDED", odd), b"\n", line("ADDED", config_map("a", 8)))
    async with talking(answer) as (client, _):
        assert [name for _, name, _ in await events(client)] == ["", "", "a"]
    assert [record.__dict__["name"] for record in caplog.records] == ["shardsdk.kube.decoding"]


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
async def test_an_object_that_does_not_fit_is_told_with_what_is_known_of_it(kind: str) -> None:
    odd = config_map("odd", 7, data={"k": 7})
    odd["metadata"]["labels"] = {"a": "b"}
    async with talking(streams(line(kind, odd))) as (client, _):
        told = [event async for event in client.watch(CONFIGMAPS, resource_version="5", model=Filled)][1:]
    [event] = told
    assert (event.kind, event.object, event.resource_version) == (WatchKind.BOOKMARK, None, "7")
    assert event.unfit is not None
    assert (event.unfit.metadata.name, event.unfit.metadata.labels) == ("odd", {"a": "b"})
    assert event.unfit.gone is (kind == "DELETED")
    assert "Expected `str`, got `int`" in event.unfit.error


async def test_metadata_that_does_not_fit_either_still_has_a_name_and_a_version() -> None:
    odd = config_map("odd", 7)
    odd["metadata"]["labels"] = 7
    async with talking(streams(line("ADDED", odd))) as (client, _):
        [event] = [event async for event in client.watch(CONFIGMAPS, resource_version="5")][1:]
    assert event.unfit is not None
    meta = event.unfit.metadata
    assert (meta.namespace, meta.name, meta.resource_version, meta.labels) == ("default", "odd", "7", None)


async def test_a_line_that_is_no_event_is_the_servers_error() -> None:
    async with talking(streams(b"upstream error\n")) as (client, _):
        with pytest.raises(ServerError, match="cannot be read"):
            await events(client)


async def test_leaving_a_watch_closes_its_connection() -> None:
    closed = asyncio.Event()
    flowing = streams(line("ADDED", config_map("a", 6)), asyncio.Event())

    async def answer(request: Any) -> Any:
        try:
            return await flowing(request)
        finally:
            closed.set()

    async with talking(answer) as (client, _):
        watch: Any = client.watch(CONFIGMAPS, resource_version="5")
        await anext(watch)
        await watch.aclose()
        async with asyncio.timeout(30):
            while client._sessions._sessions[Lane.STREAMS].connector._acquired:  # type: ignore[union-attr]
                await asyncio.sleep(0.001)


async def test_nothing_takes_the_connections_of_another_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many watches and writes there are, leases are renewed and owners are read."""
    monkeypatch.setattr(sessions, "CONNECTIONS", dict.fromkeys(Lane, 1) | {Lane.STREAMS: 3})
    quiet = streams(line("ADDED", config_map("a", 6)), asyncio.Event())
    hung = asyncio.Event()

    async def never(request: Any) -> Any:
        await hung.wait()
        return await says(config_map("a"))(request)

    async with talking(quiet, quiet, quiet, never, *[says(config_map("a"))] * 2) as (client, server):
        watches: list[Any] = [client.watch(CONFIGMAPS, resource_version="5") for _ in range(3)]
        for watch in watches:
            await anext(watch)
        writes = [asyncio.ensure_future(client.patch(CONFIGMAPS, "a", "default", {})) for _ in range(3)]
        while len(server.seen) < 4:
            await asyncio.sleep(0)
        await client.get(CONFIGMAPS, "a", "default")
        await client.patch(LEASES, "a", "default", {})
        assert [each.method for each in server.seen[3:]] == ["PATCH", "GET", "PATCH"]
        for write in writes:
            write.cancel()
        hung.set()
        await asyncio.gather(*writes, return_exceptions=True)
        for watch in watches:
            await watch.aclose()


async def test_a_flood_is_decoded_without_holding_up_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "SLICE_BYTES", 1_000)
    monkeypatch.setattr(watching, "SLICE_BYTES", 1_000)
    flood = b"".join(line("ADDED", config_map(f"o{number}", number + 6)) for number in range(2_000))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    async with talking(streams(flood)) as (client, _):
        assert len(await events(client)) == 2_001
    counting.cancel()
    assert turns > len(flood) / 1_000 / 2


async def names(client: Client, **options: Any) -> list[str]:
    return [each.metadata.name async for things in client.stream(CONFIGMAPS, **options) for each in things]


async def test_a_stream_is_read_by_initial_events_up_to_their_end() -> None:
    flow = streams(
        line("ADDED", config_map("a", 1)), line("ADDED", config_map("b", 2)), end_of_list(5), asyncio.Event()
    )
    async with talking(flow) as (client, _):
        assert await names(client) == ["a", "b"]


async def test_a_stream_comes_in_batches() -> None:
    flow = streams(b"".join(line("ADDED", config_map(f"o{number}")) for number in range(7)) + end_of_list(5))
    async with talking(flow) as (client, _):
        assert [len(things) async for things in client.stream(CONFIGMAPS, batch=3)] == [3, 3, 1]


async def test_a_stream_that_ends_early_proves_nothing_and_twice_means_pages() -> None:
    early = streams(line("ADDED", config_map("a", 1)))
    clock = InstantClock()
    pages = says(page(["a", "b"]))
    async with talking(early, early, pages, pages, early, clock=clock) as (client, server):
        for _ in range(2):
            with pytest.raises(StreamInterrupted, match="before its initial events were complete"):
                await names(client)
        for _ in range(2):
            assert await names(client) == ["a", "b"]
            assert "watch" not in server.seen[-1].query
        clock.at += BROKEN_SECONDS
        with pytest.raises(StreamInterrupted):
            await names(client)
        assert "watch" in server.seen[-1].query, "initial events get another chance"


def added(name: str) -> WatchEvent[PartialObject]:
    return WatchEvent(WatchKind.ADDED, PartialObject(ObjectMeta(name=name)), "1")


@pytest.mark.parametrize("kind", [WatchKind.MODIFIED, WatchKind.DELETED, WatchKind.BOOKMARK])
def test_initial_events_after_which_others_come_have_to_end_soon(kind: WatchKind) -> None:
    ending = Ending("watch configmaps")
    later: WatchEvent[PartialObject] = WatchEvent(kind, None, "2")
    ending.heard([added("a"), later], END_SECONDS)
    ending.heard([later], END_SECONDS - 1)
    with pytest.raises(NoEnd, match="watch configmaps: the end of its initial events has not come within 30 s"):
        ending.heard([added("b")], 1.0)


def test_initial_events_may_come_as_slowly_as_they_like() -> None:
    ending = Ending("watch configmaps")
    for number in range(10):
        odd = WatchEvent(WatchKind.BOOKMARK, None, "1", unfit=Unfit(ObjectMeta(name="odd"), "odd"))
        ending.heard([added(f"o{number}"), odd], END_SECONDS * 2)
    assert not ending.over
    ending.heard([WatchEvent(WatchKind.MODIFIED, None, "2")], END_SECONDS)
    ending.heard([WatchEvent(WatchKind.BOOKMARK, None, "2", initial_end=True)], END_SECONDS)
    assert ending.over


async def test_whoever_reads_initial_events_may_take_as_long_as_he_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "SLICE_BYTES", 1)  # each event is a batch
    clock = InstantClock()
    things = [line("ADDED", config_map(f"o{number}", number)) for number in range(3)]
    changes = [line("MODIFIED", config_map("o0", 3 + number)) for number in range(3)]
    async with talking(streams(b"".join((*things, *changes, end_of_list(9)))), clock=clock) as (client, _):
        count = 0
        async for batch in client.stream(CONFIGMAPS):
            count += len(batch)
            clock.at += END_SECONDS
        assert count == 6


async def test_an_api_server_that_does_not_know_initial_events_is_not_waited_for() -> None:
    """It sends what exists, and then what changes, for ever."""
    clock = InstantClock()

    async def ignores(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response(page(["a"]))
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line("ADDED", config_map("a", 1)))
        for version in range(2, 100):
            await asyncio.sleep(0.001)
            clock.at += 20
            await response.write(line("MODIFIED", config_map("a", version)))
        raise AssertionError("it is still waited for")

    async with talking(ignores, clock=clock) as (client, server):
        mine: Reflector[PartialObject] = Reflector(client, CONFIGMAPS, clock=clock, rng=random.Random(1))
        running = asyncio.create_task(mine.run())
        await mine.synced.wait()
        assert mine.failure is None
        assert "watch" not in server.seen[1].query
        assert await names(client) == ["a"]
        assert "watch" not in server.seen[-1].query, "the client remembers it"
        running.cancel()
        await asyncio.wait([running])


async def test_where_initial_events_are_not_served_a_stream_is_read_in_pages() -> None:
    refused = refuses(422, "Invalid", "sendInitialEvents is forbidden")
    async with talking(refused, says(page(["a"])), says(page(["b"]))) as (client, server):
        assert await names(client) == ["a"]
        assert await names(client) == ["b"]
        assert ["watch" in each.query for each in server.seen] == [True, False, False]


async def test_without_the_watch_permission_a_stream_is_read_in_pages() -> None:
    async with talking(refuses(403, "Forbidden"), says(page(["a"]))) as (client, _):
        assert await names(client) == ["a"]


async def test_a_malformed_selector_is_a_bad_request() -> None:
    async with talking(refuses(400, "BadRequest", "unable to parse requirement")) as (client, _):
        with pytest.raises(BadRequest, match="unable to parse"):
            await names(client, selector=Selector(labels="!!"))


async def test_metadata_models_are_the_default_everywhere() -> None:
    async with talking(streams(line("ADDED", config_map("a")), end_of_list(5))) as (client, server):
        things: list[PartialObject] = [each async for batch in client.stream(CONFIGMAPS) for each in batch]
        assert isinstance(things[0], PartialObject)
        assert "PartialObjectMetadata" in server.seen[0].headers["Accept"]
