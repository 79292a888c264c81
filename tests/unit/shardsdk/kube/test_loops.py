"""A client belongs to the event loop that it was opened on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.kube_fakes import CONFIGMAPS
from tests.kube_server import config_map, says, talking


async def test_a_call_on_another_event_loop_is_refused_and_breaks_nothing() -> None:
    async with talking(says(config_map("a"))) as (client, server):

        async def get() -> Any:
            return await client.get(CONFIGMAPS, "a", "default")

        async def watch() -> None:
            async for _ in client.watch(CONFIGMAPS, resource_version="1"):
                pass

        await get()
        for call in (get, watch):
            with pytest.raises(RuntimeError, match=r"not open on this event loop.* by ctx\.run"):
                await asyncio.to_thread(asyncio.run, call())
        assert len(server.seen) == 1
        await get()
