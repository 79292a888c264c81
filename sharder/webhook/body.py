"""Reads request bodies without letting callers take the memory.

Does: bound one body, all bodies together, and the time that one may take.
Refuses: what is over a bound, as soon as that is known, with a text that names
the bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request


class BodyRefused(Exception):
    """The body is not read (further); answer with `status` and this text, count as `outcome`."""

    def __init__(self, message: str, status: int, outcome: str) -> None:
        super().__init__(message)
        self.status = status
        self.outcome = outcome


class BodyReader:
    """Bodies of at most `body_bytes` in `seconds` each, `held_bytes` all together."""

    def __init__(self, body_bytes: int, held_bytes: int, seconds: float) -> None:
        self._body_bytes = body_bytes
        self._held_bytes = held_bytes
        self._seconds = seconds
        self.held = 0

    @asynccontextmanager
    async def read(self, http: Request) -> AsyncIterator[bytes]:
        """The body; its bytes count as held until the caller is done with it.

        Raises: BodyRefused.
        """
        chunks: list[bytes] = []
        try:
            yield await self._collect(http, chunks)
        finally:
            self.held -= sum(map(len, chunks))

    async def _collect(self, http: Request, chunks: list[bytes]) -> bytes:
        announced = http.headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > self._body_bytes:
            raise self._too_large()
        size = 0
        try:
            async with asyncio.timeout(self._seconds):
                async for chunk in http.stream():
                    size += len(chunk)
                    self.held += len(chunk)
                    chunks.append(chunk)
                    if size > self._body_bytes:
                        raise self._too_large()
                    if self.held > self._held_bytes:
                        raise self._too_much()
        except TimeoutError:
            raise BodyRefused(f"the body did not arrive within {self._seconds:g} s", 408, "too_slow") from None
        except ClientDisconnect:
            raise BodyRefused("the caller went away", 400, "too_slow") from None
        return b"".join(chunks)

    def _too_large(self) -> BodyRefused:
        return BodyRefused(
            f"the AdmissionReview has more than {self._body_bytes} bytes; its object passes without a shard label"
            " and is left to placement",
            413,
            "too_large",
        )

    def _too_much(self) -> BodyRefused:
        return BodyRefused(
            f"reviews of more than {self._held_bytes} bytes are being answered at the moment; this one's object passes"
            " without a shard label and is left to placement",
            429,
            "too_much",
        )
