"""An API server that does not answer is told of for as long as it does not."""

from __future__ import annotations

import pytest
from aiohttp import web

from shardsdk.errors import ConnectionFailed
from shardsdk.kube.client import Client
from shardsdk.kube.outage import TELL_SECONDS
from shardsdk.kube.server import direct_access
from tests.kube_fakes import CONFIGMAPS, InstantClock
from tests.kube_server import Answer, hangs, says, serving


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "shardsdk.kube.outage"]


async def cut(request: web.Request) -> Answer:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def test_an_outage_is_told_once_a_minute_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = InstantClock()
    async with serving(cut) as server, Client(direct_access(server.url), clock=clock) as client:
        for _ in range(13):  # seconds 0 to 120
            with pytest.raises(ConnectionFailed):
                await client.raw("GET", "/version")
            clock.at += TELL_SECONDS / 6
        assert [line.partition(" has not answered for ")[2][:5] for line in said(caplog)] == ["60 s:", "120 s"]
        server.answers = [says({})]
        await client.raw("GET", "/version")
        await client.raw("GET", "/version")
        assert said(caplog)[2:] == [f"The API server {server.url} answers again, after 130 s"]


async def test_nor_does_one_that_takes_requests_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    clock = InstantClock()
    async with serving(hangs()) as server, Client(direct_access(server.url), clock=clock) as client:
        for _ in range(2):
            with pytest.raises(ConnectionFailed):
                await client.get(CONFIGMAPS, "a", "b", timeout_seconds=0.01)
            clock.at += TELL_SECONDS
        assert [line.partition(" has not answered for ")[2][:5] for line in said(caplog)] == ["60 s:"]


async def test_time_in_which_nobody_asked_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = InstantClock()
    async with serving(cut) as server, Client(direct_access(server.url), clock=clock) as client:
        for pause in (3600, TELL_SECONDS / 2, TELL_SECONDS, 0):
            with pytest.raises(ConnectionFailed):
                await client.raw("GET", "/version")
            clock.at += pause
        assert [line.partition(" has not answered for ")[2][:5] for line in said(caplog)] == ["90 s:"]
        server.answers = [says({})]
        await client.raw("GET", "/version")
        assert said(caplog)[1:] == [f"The API server {server.url} answers again, after 90 s"]


async def test_failures_between_answers_are_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = InstantClock()
    async with serving(cut) as server, Client(direct_access(server.url), clock=clock) as client:
        for _ in range(3):
            server.answers = [cut]
            with pytest.raises(ConnectionFailed):
                await client.raw("GET", "/version")
            server.answers = [says({})]
            await client.raw("GET", "/version")
            clock.at += TELL_SECONDS
        assert not said(caplog)
