"""Lists of API servers that send more than was asked for, or more than is read at once."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from aiohttp import web

from shardsdk.kube import received
from tests.kube_fakes import CONFIGMAPS
from tests.kube_server import page, says, talking


class Bare(msgspec.Struct):
    data: dict[str, str] = {}


async def test_find_takes_nothing_else_from_a_server_that_does_not_know_field_selectors() -> None:
    everything = says(page(["a", "b"], token="more")), says(page(["c"]))
    async with talking(*everything, *everything, *everything, says(page(["b"]))) as (client, _):
        found = await client.find(CONFIGMAPS, "b", "default")
        assert found is not None
        assert found.metadata.name == "b"
        there: dict[str, Any] | None = await client.find(CONFIGMAPS, "c", "default", model=dict)
        assert there is not None
        assert there["metadata"]["name"] == "c"
        assert await client.find(CONFIGMAPS, "d", "default") is None
        assert await client.find(CONFIGMAPS, "b", "default", model=Bare) == Bare(), "a model without metadata"


async def test_a_page_of_large_objects_is_asked_for_again_with_fewer_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = [f"o{number:02}" for number in range(20)]
    monkeypatch.setattr(received, "PAGE_MAX_BYTES", len(json.dumps(page(objects[:6], token="06"))))

    async def answer(request: web.Request) -> web.Response:
        begin = int(request.query.get("continue", "0"))
        end = begin + int(request.query["limit"])
        return web.json_response(page(objects[begin:end], token=str(end) if end < len(objects) else ""))

    async with talking(answer) as (client, server):
        found = [each.metadata.name async for things in client.pages(CONFIGMAPS, limit=40) for each in things]
        assert found == objects
        assert [each.query["limit"] for each in server.seen] == ["40", "5", "5", "5", "5"]


async def test_a_page_of_one_object_may_be_as_large_as_any_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is larger than a page should be was made by somebody; the rest is to be found all the same."""
    monkeypatch.setattr(received, "PAGE_MAX_BYTES", 1)

    async def answer(request: web.Request) -> web.Response:
        begin = int(request.query.get("continue", "0"))
        end = begin + int(request.query["limit"])
        return web.json_response(page(["a", "b", "c"][begin:end], token=str(end) if end < 3 else ""))

    async with talking(answer) as (client, server):
        found = [each.metadata.name async for things in client.pages(CONFIGMAPS, limit=500) for each in things]
        assert found == ["a", "b", "c"]
        assert [each.query["limit"] for each in server.seen] == ["500", "62", "7", "1", "1", "1"]


async def test_pages_after_those_of_large_objects_are_large_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few large objects, which anybody may make, would have a list of many take longer than its snapshot is kept."""
    count, large, padding = 4000, 40, "x" * 4000
    monkeypatch.setattr(received, "PAGE_MAX_BYTES", 128_000)

    async def answer(request: web.Request) -> web.Response:
        begin = int(request.query.get("continue", "0"))
        end = min(begin + int(request.query["limit"]), count)
        body = page([f"o{number:04}" for number in range(begin, end)], token=str(end) if end < count else "")
        for number, each in enumerate(body["items"], begin):
            each["metadata"]["annotations"] = {"is": padding if number < large else ""}
        return web.json_response(body)

    async with talking(answer) as (client, server):
        found = [each async for things in client.pages(CONFIGMAPS, limit=500) for each in things]
        assert len(found) == count
        assert len(server.seen) < 60


async def test_large_pages_are_not_asked_for_again_before_what_was_too_large_is_past(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page that is too large is read up to its bound, for nothing; the same objects would make eight so."""
    count, most, sent = 5000, 128_000, 0
    monkeypatch.setattr(received, "PAGE_MAX_BYTES", most)

    async def answer(request: web.Request) -> web.Response:
        nonlocal sent
        begin = int(request.query.get("continue", "0"))
        end = min(begin + int(request.query["limit"]), count)
        body = page([f"o{number:04}" for number in range(begin, end)], token=str(end) if end < count else "")
        for number, each in enumerate(body["items"], begin):
            large = number % 500 < 50
            each["metadata"]["annotations"] = {"is": "x" * 2400 * large}
        raw = json.dumps(body).encode()
        sent += min(len(raw), most)
        return web.Response(body=raw, content_type="application/json")

    async with talking(answer) as (client, _):
        found = [each async for things in client.pages(CONFIGMAPS, limit=500) for each in things]
        assert len(found) == count
        assert sent < 3 * len(json.dumps(page([f"o{number:04}" for number in range(count)]))) + 3 * 2400 * count // 10
