"""429 with Retry-After: whether a request has the time that it asks for."""

from __future__ import annotations

from functools import partial

import pytest

from shardsdk.errors import TooManyRequests
from tests.kube_fakes import CONFIGMAPS, FakeFence, InstantClock, ManualClock
from tests.kube_server import Handler, refuses, says, talking

MADE = {"metadata": {"name": "a", "namespace": "n"}}


def busy(seconds: int) -> Handler:
    return refuses(429, "TooManyRequests", "the server has asked for patience", retry_after=seconds)


@pytest.mark.parametrize("verb", ["get", "create", "patch"])
async def test_a_pause_that_a_request_has_no_time_for_is_told_at_once(verb: str) -> None:
    """Else it would say in the end that there was no answer, though there were many."""
    clock = InstantClock()
    async with talking(busy(2), clock=clock) as (client, server):
        requests = {
            "get": partial(client.get, CONFIGMAPS, "a", "n"),
            "create": partial(client.create, CONFIGMAPS, MADE, "n"),
            "patch": partial(client.patch, CONFIGMAPS, "a", "n", {}),
        }
        with pytest.raises(TooManyRequests, match="patience") as caught:
            await requests[verb](timeout_seconds=5)
        assert caught.value.retry_after_seconds == 2
        assert clock.pauses == [2.0, 2.0]
        assert len(server.seen) == 3


async def test_a_pause_that_is_longer_than_the_hold_is_told_at_once() -> None:
    async with talking(busy(6), clock=ManualClock()) as (client, server):
        with pytest.raises(TooManyRequests):
            await client.patch(CONFIGMAPS, "a", "n", {}, fences=[FakeFence(left=5.0)])
        assert len(server.seen) == 1


async def test_a_creation_is_granted_the_time_that_it_has() -> None:
    async with talking(says(MADE)) as (client, server):
        await client.create(CONFIGMAPS, MADE, "n", timeout_seconds=2)
        assert 0 < int(server.seen[0].query["timeout"].removesuffix("ms")) <= 2000
