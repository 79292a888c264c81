"""One watch connection, from bytes to events.

Lines are split whatever their length (aiohttp's own line reader stops at its
buffer size) and decoded in slices of about a millisecond; silence is noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import Any, Final

import aiohttp

from shardsdk.errors import StreamInterrupted
from shardsdk.kube.answers import Target
from shardsdk.kube.api import T, WatchEvent, WatchKind
from shardsdk.kube.decoding import SLICE_BYTES, Codec
from shardsdk.kube.initialevents import NoEnd, Silent
from shardsdk.kube.openstreams import OpenStream
from shardsdk.kube.received import words_of

#: One event holds one object; etcd takes 1.5 MiB by default, the API server 3 MiB, JSON escapes add to it.
LINE_MAX_BYTES: Final = 32 * 1024 * 1024
#: After so long a wait for it, the end of initial events that is due is not waited for any more.
END_SECONDS: Final = 30.0


class LineSplitter:
    """Puts lines together from pieces cut anywhere."""

    __slots__ = ("_parts", "_size", "_target")

    def __init__(self, target: Target) -> None:
        self._target = target
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that `piece` completes, without their ends and without empty ones.

        Raises: StreamInterrupted for a line beyond the maximum.
        """
        head, newline, rest = piece.partition(b"\n")
        self._parts.append(head)
        self._size += len(head)
        if self._size > LINE_MAX_BYTES:
            raise StreamInterrupted(f"{self._target}: an event exceeds {LINE_MAX_BYTES} bytes")
        if not newline:
            return []
        first = b"".join(self._parts)
        *middle, last = rest.split(b"\n")
        self._parts = [last]
        self._size = len(last)
        return [line for line in (first, *middle) if line and not line.isspace()]


class Ending:
    """Waits for the end of one stream's initial events, however many they are and however slowly they come.

    They are ADDED, one after the other; anything else happened after them, and shows that all of them have been sent.
    """

    __slots__ = ("_all_sent", "_waited_seconds", "_what", "over")

    def __init__(self, what: object) -> None:
        #: Whether it has come.
        self.over: bool = False
        self._what = what
        self._all_sent = False
        self._waited_seconds = 0.0

    def heard(self, events: Iterable[WatchEvent[Any]], waited_seconds: float) -> None:
        """Some more has come, after so long a wait (what is done with what came before is none).  Raises: NoEnd."""
        if self._all_sent:
            self._waited_seconds += waited_seconds
        for event in events:
            self.over = self.over or event.initial_end
            # One that does not fit the model comes as a bookmark.
            self._all_sent = self._all_sent or (event.kind is not WatchKind.ADDED and event.unfit is None)
        if not self.over and self._waited_seconds >= END_SECONDS:
            raise NoEnd(f"{self._what}: the end of its initial events has not come within {END_SECONDS:g} s")


async def read_events(
    content: aiohttp.StreamReader,
    codec: Codec[T],
    target: Target,
    *,
    silence_seconds: Callable[[], float],
    stream: OpenStream,
) -> AsyncGenerator[list[WatchEvent[T]], None]:
    """Batches of events until the API server ends the stream, or `stream` is ended; other tasks run between batches.

    Raises: Silent, StreamInterrupted for a broken connection, ApiError for an
    error event.
    """
    splitter = LineSplitter(target)
    while piece := await _read(content, target, silence_seconds(), stream):
        for lines in _slices(splitter.feed(piece)):
            events = [event for line in lines if (event := codec.decode_line(target, line)) is not None]
            if events:
                yield events
            await asyncio.sleep(0)


async def _read(content: aiohttp.StreamReader, target: Target, silence_seconds: float, stream: OpenStream) -> bytes:
    """What has arrived, at least something; empty at the end of the stream."""
    try:
        async with asyncio.timeout(silence_seconds) as limit:
            with stream.reading(limit):
                return await content.readany()
    except TimeoutError as error:
        if stream.over:
            return b""
        raise Silent(f"{target}: silent for {silence_seconds:g} s, taken for dead") from error
    except (aiohttp.ClientError, OSError) as error:
        raise StreamInterrupted(f"{target}: the connection broke: {words_of(error)}") from error


def _slices(lines: list[bytes]) -> Iterator[list[bytes]]:
    """Cut `lines` into runs of about `SLICE_BYTES`, at least one line each."""
    run: list[bytes] = []
    size = 0
    for line in lines:
        run.append(line)
        size += len(line)
        if size >= SLICE_BYTES:
            yield run
            run, size = [], 0
    if run:
        yield run
