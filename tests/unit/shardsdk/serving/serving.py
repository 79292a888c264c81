"""A webhook server on a free port, and a client that trusts it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.process.health import Address
from shardsdk.serving.certificate_spec import Lifetimes, ServingNames
from shardsdk.serving.published import Published, make_pair
from shardsdk.serving.renewal import Stored, make_stored
from shardsdk.serving.server import FINISH_SECONDS, WebhookServer

NAMES = ServingNames.of(["localhost", "127.0.0.1"])


def make_certificates() -> Stored:
    return make_stored(NAMES, SystemClock().now(), Lifetimes())


def publish(published: Published, stored: Stored) -> None:
    certificate = stored.serving.certificate
    published.publish(make_pair(certificate.pem, stored.serving.key, certificate.expires_at), stored.bundle)


def trusting(*stored: Stored) -> ssl.SSLContext:
    return ssl.create_default_context(cadata="".join(one.bundle.decode() for one in stored))


@asynccontextmanager
async def serving(
    app: Any, published: Published, clock: Clock | None = None, finish_seconds: int = FINISH_SECONDS
) -> AsyncIterator[WebhookServer]:
    address = Address("127.0.0.1", 0)
    server = WebhookServer(app, published, clock=clock or SystemClock(), address=address, finish_seconds=finish_seconds)
    server.bind()
    running = asyncio.create_task(server.run())
    try:
        yield server
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        server.close()


def connect(trust: ssl.SSLContext, *, connections: int = 0) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust, limit=connections), trust_env=False)
