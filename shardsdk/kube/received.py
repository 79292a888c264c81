"""What has come of an answer, and in which words what ended it is told."""

from __future__ import annotations

from typing import Final

import aiohttp

from shardsdk.errors import ConnectionFailed
from shardsdk.kube.answers import Target

#: An answer larger than this is refused; ask for smaller pages.
ANSWER_MAX_BYTES: Final = 256 * 1024 * 1024


class TooLarge(ConnectionFailed):
    """An answer is larger than any that is read."""


async def read_whole(response: aiohttp.ClientResponse, target: Target) -> bytes:
    """The body.  Raises: ConnectionFailed, TooLarge."""
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in response.content.iter_any():
            size += len(piece)
            if size > ANSWER_MAX_BYTES:
                raise TooLarge(f"{target}: the answer exceeds {ANSWER_MAX_BYTES} bytes; ask for smaller pages")
            pieces.append(piece)
    except (aiohttp.ClientError, OSError) as error:
        raise ConnectionFailed(f"{target}: the connection broke during the answer: {words_of(error)}") from error
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def words_of(error: Exception) -> str:
    """Some of aiohttp's errors say nothing; then their name says more."""
    return str(error) or type(error).__name__
