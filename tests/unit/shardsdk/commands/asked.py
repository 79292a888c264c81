"""Whom `shardsdk explain` asks in tests: a program with a port, a cluster in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from shardsdk import Resource
from shardsdk.commands import explain as command
from shardsdk.commands.explain import Answer
from shardsdk.kube.api import Api
from shardsdk.kube.clock import SystemClock
from shardsdk.process.health import Address
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi

SECRETS = Resource("", "v1", "secrets", "Secret")


def one_line(answer: Answer) -> str:
    (line,) = answer.lines
    return line


@asynccontextmanager
async def serving(answer: Callable[[web.Request], web.Response]) -> AsyncIterator[Address]:
    """Some other program with a port."""
    app = web.Application()

    async def handle(request: web.Request) -> web.Response:
        return answer(request)

    app.router.add_get("/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Address("127.0.0.1", runner.addresses[0][1])
    finally:
        await runner.cleanup()


def cluster(monkeypatch: pytest.MonkeyPatch, *objects: tuple[Resource, dict[str, Any]]) -> None:
    """What the API server has that the command asks about the rest."""
    server = MemoryServer()
    for resource, body in objects:
        server.create(resource, body)

    class Access:
        host, origin, namespace = "https://api", "kubeconfig k", "default"

    async def load(*_: object) -> Any:
        return Access()

    @asynccontextmanager
    async def client(_: object) -> AsyncIterator[Api]:
        api = MemoryApi(server, SystemClock())
        api.served = [SECRETS]
        yield api

    monkeypatch.setattr(command, "load_access", load)
    monkeypatch.setattr(command, "Client", client)
