"""What has come of an answer, and in which words what ended it is told."""

from __future__ import annotations

from typing import Final

import aiohttp

from shardsdk.errors import ConnectionFailed
from shardsdk.kube.answers import Target

#: An answer larger than this is refused; ask for smaller pages.
ANSWER_MAX_BYTES: Final = 256 * 1024 * 1024
#: Nor a page larger than this, which can be had with fewer objects: it is in memory twice while it is put together, and
#: once more decoded, and what one object may be as large as is up to whoever makes it (1.5 MB, by etcd).
PAGE_MAX_BYTES: Final = 32 * 1024 * 1024


class TooLarge(ConnectionFailed):
    """An answer is larger than any that is read."""


async def read_whole(response: aiohttp.ClientResponse, target: Target, *, divisible: bool = False) -> bytes:
    """The body; `divisible`: it can be had in parts.  Raises: ConnectionFailed, TooLarge."""
    most = min(PAGE_MAX_BYTES, ANSWER_MAX_BYTES) if divisible else ANSWER_MAX_BYTES
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in response.content.iter_any():
            size += len(piece)
            if size > most:
                raise TooLarge(f"{target}: the answer exceeds {most} bytes; ask for smaller pages")
            pieces.append(piece)
    except (aiohttp.ClientError, OSError) as error:
        raise ConnectionFailed(f"{target}: the connection broke during the answer: {words_of(error)}") from error
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def words_of(error: Exception) -> str:
    """Some of aiohttp's errors say nothing; then their name says more."""
    return str(error) or type(error).__name__
