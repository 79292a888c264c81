"""Reads request bodies without letting callers take the memory.

One body, all bodies together, and the time that one may take are bounded.  What
is over a bound is refused as soon as that is known, with a text that names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

#: As ASGI has them.
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class BodyRefused(Exception):
    """The body is not read (further); answer with `status` and this text, count as `outcome`."""

    def __init__(self, message: str, status: int, outcome: str) -> None:
        super().__init__(message)
        self.status = status
        self.outcome = outcome


class BodyReader:
    """Bodies of at most `body_bytes` in `seconds` each, `held_bytes` all together.

    `consequence` is what becomes of an object whose review is refused; it ends the sentence that the caller gets.
    What is read counts as held until the reader gets it back by `release`.
    """

    def __init__(self, body_bytes: int, held_bytes: int, seconds: float, consequence: str) -> None:
        self._body_bytes = body_bytes
        self._held_bytes = held_bytes
        self._seconds = seconds
        self._consequence = consequence
        self._held = 0

    def release(self, body: bytes) -> None:
        """The caller is done with `body`."""
        self._held -= len(body)

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body.

        Raises: BodyRefused (nothing is held then).
        """
        if _announced(scope) > self._body_bytes:
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(self._seconds):
                while await self._take(receive, body):
                    pass
        except BaseException as error:
            self._held -= len(body)
            if isinstance(error, TimeoutError):
                raise BodyRefused(f"the body did not arrive within {self._seconds:g} s", 408, "too_slow") from None
            raise
        return bytes(body)

    async def _take(self, receive: Receive, body: bytearray) -> bool:
        """Add the next piece to `body`; whether there are more."""
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BodyRefused("the caller went away", 400, "gone")
        piece: bytes = message.get("body", b"")
        body += piece
        self._held += len(piece)
        if len(body) > self._body_bytes:
            raise self._too_large()
        if self._held > self._held_bytes:
            raise self._too_much()
        more: bool = message.get("more_body", False)
        return more

    def _too_large(self) -> BodyRefused:
        message = f"the AdmissionReview has more than {self._body_bytes} bytes; its object {self._consequence}"
        return BodyRefused(message, 413, "too_large")

    def _too_much(self) -> BodyRefused:
        message = f"reviews of more than {self._held_bytes} bytes are being answered at the moment; this one's object"
        return BodyRefused(f"{message} {self._consequence}", 429, "too_much")


def _announced(scope: Scope) -> int:
    """What Content-Length says; 0 when it says nothing usable (pieces are counted anyway)."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) < 20 else 0
    return 0
