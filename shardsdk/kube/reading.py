"""Lists, streams and watches: everything that reads more than one object.

Lists are consistent: in pages, or by initial events where the API server offers
them, and never half a list.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing
from dataclasses import replace
from typing import Final, TypeVar

import msgspec

from shardsdk.errors import Forbidden, Gone, Invalid, StreamInterrupted
from shardsdk.kube import received
from shardsdk.kube.answers import Target
from shardsdk.kube.api import PAGE_OBJECTS, ListOptions, Selection, Unfit, WatchEvent, WatchKind, WatchOptions
from shardsdk.kube.clock import Clock
from shardsdk.kube.decoding import SLICE_BYTES, Codec, codec_of, decode_large_page
from shardsdk.kube.initialevents import InitialEvents
from shardsdk.kube.openstreams import OpenStream
from shardsdk.kube.received import TooLarge
from shardsdk.kube.requests import list_call, watch_call
from shardsdk.kube.sessions import Sessions
from shardsdk.kube.waits import Unanswered
from shardsdk.kube.watching import Ending, read_events
from shardsdk.protocol.objects import Resource

T = TypeVar("T")

#: A page larger than this is decoded in slices, with other tasks running between them.
PAGE_AT_ONCE_BYTES: Final = 512 * 1024
#: A page that is too large is asked for again, with so many times fewer objects: of `PAGE_OBJECTS` twice at
#: most, whatever etcd takes.
SMALLER_TIMES: Final = 8
#: A stream of initial events that says nothing for so long is taken for dead.
STREAM_SILENCE_SECONDS: Final = 30.0
#: An API server answers a watch as soon as it has accepted it, events or none.
#: One that does not answer hangs, and another try may reach another one: nobody
#: should stay blind for as long as an accepted watch may be silent.
OPEN_SECONDS: Final = 15.0


class Reader:
    """Reads over one client's connections; `initial_events` is where the client remembers where they do not work."""

    __slots__ = ("_clock", "_initial_events", "_sessions")

    def __init__(self, sessions: Sessions, initial_events: defaultdict[Resource, InitialEvents], clock: Clock) -> None:
        self._sessions = sessions
        self._initial_events = initial_events
        self._clock = clock

    async def pages(self, selection: Selection[T], options: ListOptions) -> AsyncGenerator[list[T], None]:
        """One consistent snapshot; empty pages are left out."""
        codec = codec_of(selection.model)
        token, first, limit, read = "", True, options.limit, 0
        #: Limits that were too large, and up to which object of the list.
        too_large: list[tuple[int, int]] = []
        while token or first:
            call = list_call(selection, limit=limit, token=token)
            try:
                paged = replace(call, page=limit is not None, divisible=limit is not None and limit > 1)
                body = await self._sessions.fetch(paged)
            except TooLarge:
                if limit == 1:
                    raise
                tried = limit or PAGE_OBJECTS
                too_large.append((tried, read + tried))
                limit = max(tried // SMALLER_TIMES, 1)
                continue
            except Gone as error:
                raise StreamInterrupted(f"{call.target}: the snapshot ran out before its last page") from error
            version, token, items = await _decode_page(codec, call.target, body, options.on_unfit)
            if first and options.on_version is not None:
                options.on_version(version)
            first = False
            read += limit or 0
            if too_large and read >= too_large[-1][1] and len(body) * SMALLER_TIMES <= received.PAGE_MAX_BYTES:
                # A few large objects, as anybody may make them, make no small pages of all that come after them.  But
                # whoever tried again before they are past would be sent most of them for nothing each time.
                limit, _ = too_large.pop()
            if items:
                yield items

    async def stream(self, selection: Selection[T], batch: int) -> AsyncGenerator[list[T], None]:
        """By initial events; in pages if they are refused, not permitted, or failed twice in a row.

        Raises: Unanswered, StreamInterrupted, also where their end does not come; the next is in pages then, or the one
        after it.
        """
        initial_events, began = self._initial_events[selection.resource], self._clock.monotonic()
        if initial_events.worth_a_try(began):
            try:
                async with aclosing(self._initial(selection)) as batches:
                    async for things in batches:
                        for start in range(0, len(things), batch):
                            yield things[start : start + batch]
                initial_events.worked()
                return
            except Invalid as error:
                initial_events.failed(error, began, self._clock.monotonic())
            except Forbidden:
                pass  # `list` may be granted without `watch`
            except (StreamInterrupted, Gone) as error:
                initial_events.failed(error, began, self._clock.monotonic())
                raise StreamInterrupted(str(error)) from error
            except Unanswered as error:
                initial_events.failed(error, began, self._clock.monotonic())
                raise
        async with aclosing(self.pages(selection, ListOptions(batch))) as pages:
            async for page in pages:
                yield page

    async def _initial(self, selection: Selection[T]) -> AsyncGenerator[list[T], None]:
        """Initial events; an object that changes meanwhile comes again, one that goes has been there."""
        present = (WatchKind.ADDED, WatchKind.MODIFIED)
        async with aclosing(self._batches(selection, WatchOptions(None, STREAM_SILENCE_SECONDS))) as batches:
            async for events in batches:
                yield [event.object for event in events if event.kind in present and event.object is not None]
                if any(event.initial_end for event in events):
                    return
        name = selection.resource.group_resource
        raise StreamInterrupted(f"watch {name}: ended before its initial events were complete")

    async def watch(self, selection: Selection[T], options: WatchOptions) -> AsyncGenerator[WatchEvent[T], None]:
        """Events one by one.

        Until the end of initial events has come, `options.silence_seconds` are `STREAM_SILENCE_SECONDS` at most.
        Raises: NoEnd, Silent and other StreamInterrupted, ApiError.
        """
        async with aclosing(self._batches(selection, options)) as batches:
            async for events in batches:
                for event in events:
                    yield event

    async def _batches(
        self, selection: Selection[T], options: WatchOptions
    ) -> AsyncGenerator[list[WatchEvent[T]], None]:
        call = watch_call(selection, options)
        response = await self._sessions.open(call, answer_seconds=min(options.silence_seconds, OPEN_SECONDS))
        ending = Ending(call.target) if options.resource_version is None else None

        def silence() -> float:
            waits = ending is not None and not ending.over
            return min(options.silence_seconds, STREAM_SILENCE_SECONDS) if waits else options.silence_seconds

        stream = OpenStream(resumable=ending is None)
        events = read_events(
            response.content, codec_of(selection.model), call.target, silence_seconds=silence, stream=stream
        )
        with self._sessions.streams.kept(stream), closing(response):
            if options.resource_version is not None:
                # Ours, not the API server's: the watch is accepted.  Whoever counts on news of it must not count this.
                yield [WatchEvent(WatchKind.BOOKMARK, None, options.resource_version)]
            async with aclosing(events):
                asked_at = self._clock.monotonic()
                async for batch in events:
                    if ending is not None and not ending.over:
                        ending.heard(batch, self._clock.monotonic() - asked_at)
                        stream.resumable = ending.over
                    yield batch
                    asked_at = self._clock.monotonic()


async def _decode_page(
    codec: Codec[T], target: Target, body: bytes, on_unfit: Callable[[Unfit], None] | None
) -> tuple[str, str, list[T]]:
    """resourceVersion, continue token and objects of one page; pauses while decoding a large one."""
    if len(body) <= PAGE_AT_ONCE_BYTES:
        page = codec.decode_page(target, body, on_unfit)
        return page.metadata.resource_version, page.metadata.continue_, page.items or []
    raw = await decode_large_page(target, body)
    things: list[T] = []
    slice_items: list[msgspec.Raw] = []
    size = 0
    for item in raw.items or ():
        slice_items.append(item)
        size += len(memoryview(item))
        if size >= SLICE_BYTES:
            things.extend(codec.decode_items(target, slice_items, on_unfit))
            slice_items, size = [], 0
            await asyncio.sleep(0)
    things.extend(codec.decode_items(target, slice_items, on_unfit))
    return raw.metadata.resource_version, raw.metadata.continue_, things
