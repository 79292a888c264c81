"""The webhook over TLS, among callers that open connections and say too little on them: it answers everybody else."""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import aiohttp
import msgspec
import pytest
import uvloop

from sharder.webhook.app import Limits, build_app
from shardsdk.kube.api import Api
from shardsdk.kube.clock import SystemClock
from shardsdk.process import accepting
from shardsdk.serving import connections
from shardsdk.serving import server as server_module
from shardsdk.serving.published import Published
from shardsdk.serving.server import WebhookServer
from tests.fuzz.crowd import MANNERS
from tests.fuzz.hostile_values import TIMES
from tests.unit.sharder.webhook.reviews import PATH, review, view
from tests.unit.shardsdk.serving.serving import connect, make_certificates, publish, serving, trusting

#: How many may wait, and how many come: `make fuzz` tries it as it is, with ten thousand.
ROOM, CROWD = (connections.WAITING_MAX, 10_000) if TIMES > 1 else (100, 300)
#: Connections of the callers that have something to say.
CALLERS = 20
#: What an API server waits for an answer.
PATIENCE_SECONDS = 5.0


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@asynccontextmanager
async def crowd(server: WebhookServer, manner: str, count: int) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fuzz.crowd", str(server.port), str(count), manner,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"held\n"
        yield
    finally:
        process.stdin.close()
        await process.wait()


async def ask(client: aiohttp.ClientSession, server: WebhookServer) -> None:
    """One review, as an API server asks it: patiently, but not for ever."""
    body = msgspec.json.encode(review())
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        client.post(f"https://127.0.0.1:{server.port}{PATH}", data=body) as answer,
    ):
        assert answer.status == 200
        assert (await answer.json())["response"]["allowed"] is True


@asynccontextmanager
async def webhook(limits: Limits | None = None) -> AsyncIterator[tuple[WebhookServer, aiohttp.ClientSession]]:
    published, stored = Published(), make_certificates()
    publish(published, stored)
    app = build_app({"checksum": view()}.get, cast(Api, SimpleNamespace()), clock=SystemClock(), limits=limits)
    async with serving(app, published) as server, connect(trusting(stored), connections=CALLERS) as client:
        yield server, client


@pytest.mark.parametrize("manner", MANNERS)
def test_the_webhook_answers_among_a_crowd_that_says_too_little(
    manner: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "WAITING_MAX", ROOM)
    monkeypatch.setattr(accepting, "HANDSHAKES_MAX", ROOM)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(answer_among_a_crowd(manner))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def answer_among_a_crowd(manner: str) -> None:
    count = min(CROWD, 50 * TIMES) if manner == "endless-head" else CROWD
    async with webhook() as (server, client):
        await ask(client, server)
        before, slowest = resident_bytes(), 0.0
        gathered = asyncio.Event()

        async def keep_asking() -> None:
            nonlocal slowest
            while not gathered.is_set():
                began = time.monotonic()
                await asyncio.gather(*(ask(client, server) for _ in range(4)))
                slowest = max(slowest, time.monotonic() - began)
                await asyncio.sleep(0.05)

        async with asyncio.TaskGroup() as group:
            group.create_task(keep_asking())
            async with crowd(server, manner, count):
                await asyncio.gather(*(ask(client, server) for _ in range(50)))
                grown = resident_bytes() - before
                held = len(server._server.server_state.connections)
                gathered.set()
    figures = {"held": held, "megabytes": grown >> 20, "slowest": slowest}
    logging.getLogger(__name__).info("%s: %s connections, %s", manner, count, figures)
    assert held <= ROOM + CALLERS + 1
    assert grown < 200 << 20
