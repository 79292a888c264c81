"""The webhook as one connection sees it: requests in two halves, and what is served there."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from cryptography import x509

from localcluster.ports import LOOPBACK

PATH = "/webhooks/sharder/clusterring/"
REVIEW = json.dumps(
    {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1234",
            "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": "Secret"},
            "resource": {"group": "", "version": "v1", "resource": "secrets"},
            "namespace": "default",
            "name": "a",
            "object": {"metadata": {"name": "a", "namespace": "default"}},
        },
    }
).encode()


@dataclass
class Call:
    """An admission request on a connection of its own, sent in two halves."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def begin(self, body: bytes = REVIEW, *, path: str = f"{PATH}none", length: int | None = None) -> None:
        head = [
            f"POST {path} HTTP/1.1",
            "Host: x",
            "Content-Type: application/json",
            f"Content-Length: {len(body) if length is None else length}",
            "\r\n",
        ]
        await self.send("\r\n".join(head).encode() + body[:10])

    async def finish(self, body: bytes = REVIEW) -> tuple[int, dict[str, str], dict[str, Any]]:
        await self.send(body[10:])
        status, headers, answer = await self.answer()
        return status, headers, json.loads(answer)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        return int(head[0].split()[1]), headers, await self.reader.readexactly(int(headers["content-length"]))


@asynccontextmanager
async def calling(port: int) -> AsyncIterator[Call]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=_trusting())
    try:
        yield Call(reader, writer)
    finally:
        writer.transport.abort()


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def serving_serial(port: int) -> str:
    """The serial number of the certificate that is served on `port`, as TLS clients see it."""
    async with calling(port) as call:
        served = call.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return f"{x509.load_der_x509_certificate(served).serial_number:x}"
