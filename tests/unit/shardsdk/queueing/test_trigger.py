"""A trigger that feeds several controllers, of which some never begin."""

from __future__ import annotations

import asyncio

from shardsdk.cache.objects import Request
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
