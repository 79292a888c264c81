"""Lists, streams and watches: everything that reads more than one object.

Does: consistent lists in pages, the same by initial events where the API server
offers them, and watches.  Refuses: resourceVersion 0 (such a list may miss
writes and ignores `limit`), and to pass off half a list as a list.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

import msgspec

from shardsdk.errors import Forbidden, Gone, Invalid, StreamInterrupted
from shardsdk.kube.answers import Target
from shardsdk.kube.api import Unfit, WatchEvent, WatchKind
from shardsdk.kube.decoding import SLICE_BYTES, Codec, codec_of, decode_raw_page
from shardsdk.kube.requests import list_call, watch_call
from shardsdk.kube.selectors import Selector
from shardsdk.kube.transport import Transport
from shardsdk.kube.watching import read_events
from shardsdk.protocol.objects import Resource

T = TypeVar("T")

#: A page larger than this is decoded in slices, with other tasks running between them.
PAGE_AT_ONCE_BYTES: Final = 512 * 1024
#: After so many streams in a row that ended early, the next read is in pages: an
#: API server that does not know initial events ignores the wish and never ends them.
STREAM_FAILURES_MAX: Final = 2
#: A stream of initial events that says nothing for so long is taken for dead.
STREAM_SILENCE_SECONDS: Final = 30.0
#: An API server answers a watch as soon as it has accepted it, events or none.
#: One that does not answer hangs, and another try may reach another one: nobody
#: should stay blind for as long as an accepted watch may be silent.
OPEN_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class What(Generic[T]):
    """What is read, and as what."""

    resource: Resource
    namespace: str | None
    selector: Selector
    model: type[T]
    metadata_only: bool


@dataclass(frozen=True, slots=True)
class Since:
    """Where a watch begins (`None`: with everything that exists) and when it ends."""

    resource_version: str | None
    silence_seconds: float
    timeout_seconds: int | None = None


class Reader:
    """Reads through one transport; remembers where initial events do not work."""

    __slots__ = ("_failures", "_refused", "_transport")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._failures: dict[Resource, int] = {}
        self._refused: set[Resource] = set()

    async def pages(
        self,
        what: What[T],
        *,
        limit: int | None,
        on_version: Callable[[str], None] | None = None,
        on_unfit: Callable[[Unfit], None] | None = None,
    ) -> AsyncGenerator[list[T], None]:
        """One consistent snapshot; empty pages are left out."""
        codec = codec_of(what.model)
        token, first = "", True
        while token or first:
            call = list_call(
                what.resource,
                what.namespace,
                what.selector,
                limit=limit,
                token=token,
                metadata_only=what.metadata_only,
            )
            try:
                body = await self._transport.fetch(replace(call, page=limit is not None))
            except Gone as error:
                raise StreamInterrupted(f"{call.target}: the snapshot ran out before its last page") from error
            version, token, items = await _decode_page(codec, call.target, body, on_unfit)
            if first and on_version is not None:
                on_version(version)
            first = False
            if items:
                yield items

    async def stream(self, what: What[T], batch: int) -> AsyncGenerator[list[T], None]:
        """By initial events; in pages if they are refused, not permitted, or failed twice in a row."""
        resource = what.resource
        if resource not in self._refused and self._failures.get(resource, 0) < STREAM_FAILURES_MAX:
            try:
                async with aclosing(self._initial(what)) as batches:
                    async for things in batches:
                        for start in range(0, len(things), batch):
                            yield things[start : start + batch]
                self._failures.pop(resource, None)
                return
            except Invalid:
                self._refused.add(resource)
            except Forbidden:
                pass  # `list` may be granted without `watch`
            except (StreamInterrupted, Gone) as error:
                self._failures[resource] = self._failures.get(resource, 0) + 1
                raise StreamInterrupted(str(error)) from error
        async with aclosing(self.pages(what, limit=batch)) as pages:
            async for page in pages:
                yield page
        self._failures.pop(resource, None)

    async def _initial(self, what: What[T]) -> AsyncGenerator[list[T], None]:
        """Initial events; an object that changes meanwhile comes again, one that goes has been there."""
        present = (WatchKind.ADDED, WatchKind.MODIFIED)
        async with aclosing(self._batches(what, Since(None, STREAM_SILENCE_SECONDS))) as batches:
            async for events in batches:
                yield [event.object for event in events if event.kind in present and event.object is not None]
                if any(event.initial_end for event in events):
                    return
        raise StreamInterrupted(f"watch {what.resource.group_resource}: ended before its initial events were complete")

    async def watch(self, what: What[T], since: Since) -> AsyncGenerator[WatchEvent[T], None]:
        """Events one by one."""
        async with aclosing(self._batches(what, since)) as batches:
            async for events in batches:
                for event in events:
                    yield event

    async def _batches(self, what: What[T], since: Since) -> AsyncGenerator[list[WatchEvent[T]], None]:
        call = watch_call(
            what.resource,
            what.namespace,
            what.selector,
            resource_version=since.resource_version,
            timeout_seconds=since.timeout_seconds,
            metadata_only=what.metadata_only,
        )
        response = await self._transport.open(call, answer_seconds=min(since.silence_seconds, OPEN_SECONDS))
        events = read_events(response.content, codec_of(what.model), call.target, silence_seconds=since.silence_seconds)
        try:
            if since.resource_version is not None:
                yield [WatchEvent(WatchKind.BOOKMARK, None, since.resource_version)]
            async with aclosing(events):
                async for batch in events:
                    yield batch
        finally:
            response.close()


async def _decode_page(
    codec: Codec[T], target: Target, body: bytes, on_unfit: Callable[[Unfit], None] | None
) -> tuple[str, str, list[T]]:
    """resourceVersion, continue token and objects of one page; pauses while decoding a large one."""
    if len(body) <= PAGE_AT_ONCE_BYTES:
        page = codec.decode_page(target, body, on_unfit)
        return page.metadata.resource_version, page.metadata.continue_, page.items or []
    raw = decode_raw_page(target, body)
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
