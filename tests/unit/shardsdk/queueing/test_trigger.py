"""What a trigger takes; and one that feeds several controllers, of which some never begin."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shardsdk.cache.objects import Request
from shardsdk.queueing.queue import Priority
from shardsdk.queueing.sources import MAX_PUSHED, Feed, Trigger


async def test_a_controller_that_never_begins_does_not_have_others_told_that_they_are_full() -> None:
    taken: asyncio.Queue[Request] = asyncio.Queue()
    trigger = Trigger()
    for _ in range(2):
        trigger.expect()
    feed = Feed(lambda request, priority: taken.put_nowait(request), list, None, None)  # type: ignore[arg-type]
    running = asyncio.create_task(trigger.run(feed))
    await asyncio.sleep(0)
    for number in range(MAX_PUSHED + 1):
        assert trigger.push(Request("d", str(number)))
        if number % 100 == 0:
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("wrong", ["default/home", ("default", "home"), None])
async def test_what_is_no_request_is_refused_where_it_is_pushed(wrong: Any) -> None:
    taken: asyncio.Queue[Request] = asyncio.Queue()
    trigger = Trigger()
    feed = Feed(lambda request, priority: taken.put_nowait(request), list, None, None)  # type: ignore[arg-type]
    running = asyncio.create_task(trigger.run(feed))
    await asyncio.sleep(0)
    with pytest.raises(TypeError, match=r"push takes a request: write Request\(namespace, name\), not "):
        trigger.push(wrong)
    assert trigger.push(Request("default", "home"))
    assert await taken.get() == Request("default", "home")
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])


async def test_a_source_of_ones_own_is_told_what_it_may_add() -> None:
    feed = Feed(lambda request, priority: None, list, None, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a source adds requests: write Request\(namespace, name\), not a str"):
        feed.add("home", Priority.FRESH)  # type: ignore[arg-type]
