"""A client's connection to a `MemoryServer`, in virtual time.

What a client sends is executed by the server whatever becomes of the client:
cancelled, paused or killed, its write may still happen.  Delays and faults are
the test's to choose.

    api = MemoryApi(server, fence=hold, delay=lambda: rng.uniform(0.001, 0.05))
    api.fault = Fault.UNANSWERED

Does: everything that `Api` promises, and records writes in `writes`.  Refuses:
`raw`, and `metadata_only` (objects come whole; a model takes what it knows).
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import msgspec

from shardsdk.errors import ApiError, BadRequest, ConnectionFailed, FenceClosed, StreamInterrupted
from shardsdk.kube.api import PARTIAL, SILENCE_SECONDS, Body, Fence, PatchKind, T, Unfit, WatchEvent, WatchKind
from shardsdk.kube.clock import Clock
from shardsdk.kube.decoding import build_model, unfit_of
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.objects import GroupResource, PartialObject, Resource
from shardsdk.testing.leaseserver import Fault
from shardsdk.testing.memory import EVERYTHING, Change, MemoryServer, Object
from shardsdk.testing.processes import outside

#: How long a request may hang before the client gives it up.
REQUEST_SECONDS: Final = 30.0
#: How often the API server tells a quiet watch where it is.
BOOKMARK_SECONDS: Final = 60.0


class MemoryApi:
    """One client; use it where an `Api` is asked for.

    `delay` gives the seconds that a request takes on its way, and its answer on
    the way back; `lag` those that an event takes.  `fence` guards every write.
    """

    def __init__(
        self,
        server: MemoryServer,
        clock: Clock,
        *,
        fence: Fence | None = None,
        delay: Callable[[], float] = lambda: 0.001,
        lag: Callable[[], float] = lambda: 0.001,
        served: Sequence[Resource] = (),
    ) -> None:
        self.server = server
        self.clock = clock
        self.fence = fence
        self.delay = delay
        self.lag = lag
        self.served: list[Resource] = list(served)
        self.fault = Fault.NONE
        #: (verb, resource, name) of every write that was sent.
        self.writes: list[tuple[str, str, str]] = []
        #: Lists and streams that were asked for, by resource.
        self.lists: list[str] = []
        self._open: set[asyncio.Future[Any]] = set()

    # -- reading ------------------------------------------------------------

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
    ) -> T:
        """As `Api.get`."""
        return _decode(await self._call(lambda: self.server.get(resource, name, namespace)), model)

    async def find(self, resource: Resource, name: str, namespace: str | None = None) -> PartialObject | None:
        """As `Api.find`."""
        found = await self._call(lambda: copy.deepcopy(self.server.find(resource, name, namespace)))
        return None if found is None else _decode(found, PartialObject)

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector = EVERYTHING,
        limit: int = 500,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
        on_version: Callable[[str], None] | None = None,
        on_unfit: Callable[[Unfit], None] | None = None,
    ) -> AsyncIterator[list[T]]:
        """As `Api.pages`; the snapshot is taken when the first page is asked for."""
        self.lists.append(resource.plural)
        found, version = await self._call(
            lambda: (self.server.select(resource, namespace, selector), self.server.version)
        )
        if on_version:
            on_version(str(version))
        for begin in range(0, max(len(found), 1), limit):
            if begin:
                await self._call(lambda: None)
            read = [_read(thing, model) for thing in found[begin : begin + limit]]
            if on_unfit is not None:
                for each in read:
                    if isinstance(each, Unfit):
                        on_unfit(each)
            yield [each for each in read if not isinstance(each, Unfit)]

    async def stream(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector = EVERYTHING,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
        batch: int = 500,
    ) -> AsyncIterator[list[T]]:
        """As `Api.stream`."""
        async for page in self.pages(resource, namespace, selector=selector, limit=batch, model=model):
            yield page

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector = EVERYTHING,
        resource_version: str | None = None,
        initial_events: bool = False,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
        silence_seconds: float = SILENCE_SECONDS,
        timeout_seconds: int | None = None,
    ) -> AsyncIterator[WatchEvent[T]]:
        """As `Api.watch`."""
        ends_at = None if timeout_seconds is None else self.clock.monotonic() + timeout_seconds
        if initial_events:
            self.lists.append(resource.plural)
            found, position = await self._call(
                lambda: (self.server.select(resource, namespace, selector), self.server.version)
            )
            for thing in found:
                yield _tell(WatchKind.ADDED, thing, model, thing["metadata"]["resourceVersion"])
            yield WatchEvent(WatchKind.BOOKMARK, None, str(position), initial_end=True)
        else:
            position = int(resource_version or 0)
            await self._call(lambda: self.server.changes(resource, position))
        with self._changes_of(resource) as changed:
            while ends_at is None or self.clock.monotonic() < ends_at:
                for change in self.server.changes(resource, position):
                    position = change.version
                    told = change.seen_by(namespace, selector)
                    if told is not None:
                        await asyncio.sleep(self.lag())
                        yield _tell(told[0], copy.deepcopy(told[1]), model, str(change.version))
                await self._wait_for(changed, silence_seconds)
                if not changed.is_set():
                    yield WatchEvent(WatchKind.BOOKMARK, None, str(position))
                changed.clear()

    async def discover(self, group: str, plural: str) -> Resource | None:
        """As `Api.discover`."""
        wanted = GroupResource(group, plural)
        return next((resource for resource in self.served if resource.group_resource == wanted), None)

    async def allowed(
        self,
        verb: str,
        resource: GroupResource,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
    ) -> bool:
        """As `Api.allowed`: everything is."""
        return True

    async def raw(self, method: str, path: str, **_: Any) -> bytes:
        """Not offered.  Raises: BadRequest."""
        raise BadRequest(f"{method} {path}: an API server in memory has no raw requests")

    # -- writing -------------------------------------------------------------

    async def create(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        model: type[T] = PARTIAL,
        fences: Sequence[Fence] = (),
        field_manager: str | None = None,
    ) -> T:
        """As `Api.create`."""
        metadata = body.get("metadata") or {}
        name = metadata.get("name") or metadata.get("generateName") or ""
        made = await self._write(
            ("create", resource.plural, name), fences, lambda: self.server.create(resource, body, namespace)
        )
        return _decode(made, model)

    async def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        body: Body,
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
        fences: Sequence[Fence] = (),
        field_manager: str | None = None,
        force: bool = False,
        timeout_seconds: float | None = None,
    ) -> T:
        """As `Api.patch`."""
        made = await self._write(
            ("patch", resource.plural, name),
            fences,
            lambda: self.server.patch(resource, name, namespace, body, kind, subresource),
            timeout_seconds or REQUEST_SECONDS,
        )
        return _decode(made, model)

    async def update(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        model: type[T] = PARTIAL,
        fences: Sequence[Fence] = (),
    ) -> T:
        """As `Api.update`."""
        name = str(body["metadata"]["name"])
        made = await self._write(("update", resource.plural, name), fences, lambda: self.server.update(resource, body))
        return _decode(made, model)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        resource_version: str | None = None,
        uid: str | None = None,
        propagation: str | None = None,
        fences: Sequence[Fence] = (),
    ) -> None:
        """As `Api.delete`."""
        await self._write(
            ("delete", resource.plural, name),
            fences,
            lambda: self.server.delete(resource, name, namespace, resource_version=resource_version, uid=uid),
        )

    @property
    def inflight_writes(self) -> int:
        """As `Api.inflight_writes`."""
        return len(self._open)

    async def writes_settled(self) -> None:
        """As `Api.writes_settled`."""
        mine = list(self._open)
        if mine:
            await asyncio.wait(mine)

    # -- inside ----------------------------------------------------------------

    async def _write(
        self,
        what: tuple[str, str, str],
        fences: Sequence[Fence],
        execute: Callable[[], Object | None],
        seconds: float = REQUEST_SECONDS,
    ) -> Any:
        granted = seconds
        for fence in (*fences, *([self.fence] if self.fence else [])):
            if fence.remaining() <= 0:
                raise FenceClosed(f"write refused before it was sent: the hold on {fence.name} has run out")
            granted = min(granted, fence.remaining())
        self.writes.append(what)
        return await self._call(execute, seconds=granted, write=True)

    async def _call(self, execute: Callable[[], Any], *, seconds: float = REQUEST_SECONDS, write: bool = False) -> Any:
        if self.fault is Fault.REFUSED:
            raise ConnectionFailed("connection refused")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if write:
            self._open.add(settled)
            settled.add_done_callback(self._open.discard)
        outside(self._serve(execute, answer, settled, seconds))
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError as error:
            raise ConnectionFailed(f"no answer within {seconds:g} s") from error

    async def _serve(
        self,
        execute: Callable[[], Any],
        answer: asyncio.Future[Any],
        settled: asyncio.Future[None],
        seconds: float,
    ) -> None:
        """The request's way through network and server, whatever becomes of the client."""
        sent = self.clock.monotonic()
        result: Any = None
        failure: ApiError | None = None
        await asyncio.sleep(self.delay())
        arrived = self.fault is not Fault.LOST and self.clock.monotonic() - sent <= seconds
        if arrived:
            try:
                result = execute()
            except ApiError as error:
                failure = error
            await asyncio.sleep(self.delay())
        if not arrived or self.fault is Fault.UNANSWERED:
            await asyncio.sleep(max(0.0, sent + seconds - self.clock.monotonic()))
        elif answer.done():
            pass
        elif failure is not None:
            answer.set_exception(failure)
        else:
            answer.set_result(result)
        settled.set_result(None)

    @contextmanager
    def _changes_of(self, resource: Resource) -> Iterator[asyncio.Event]:
        """An event that is set whenever an object of `resource` has changed."""
        changed = asyncio.Event()
        changed.set()  # what happened between the answer and now

        def listen(change: Change) -> None:
            if change.resource == resource.group_resource:
                changed.set()

        self.server.listeners.append(listen)
        try:
            yield changed
        finally:
            self.server.listeners.remove(listen)

    async def _wait_for(self, changed: asyncio.Event, silence_seconds: float) -> None:
        """Wait for a change or the next bookmark.  Raises: StreamInterrupted while nothing gets through."""
        quiet_since = self.clock.monotonic()
        while True:
            try:
                async with asyncio.timeout(min(BOOKMARK_SECONDS, silence_seconds)):
                    await changed.wait()
            except TimeoutError:
                pass
            if self.fault is Fault.NONE:
                return
            if self.clock.monotonic() - quiet_since >= silence_seconds:
                raise StreamInterrupted(f"the watch said nothing for {silence_seconds:g} s")
            await asyncio.sleep(1.0)


def _decode(thing: Object, model: type[T]) -> T:
    return cast("T", thing) if model is dict else msgspec.convert(thing, model, strict=False, dec_hook=build_model)


def _read(thing: Object, model: type[T], *, gone: bool = False) -> T | Unfit:
    """As clients read lists and watches: what does not fit the model holds up nothing else."""
    try:
        return _decode(thing, model)
    except msgspec.ValidationError as error:
        return unfit_of(thing, error, gone=gone)


def _tell(kind: WatchKind, thing: Object, model: type[T], version: str) -> WatchEvent[T]:
    read = _read(thing, model, gone=kind is WatchKind.DELETED)
    if isinstance(read, Unfit):
        return WatchEvent(WatchKind.BOOKMARK, None, version, unfit=read)
    return WatchEvent(kind, read, version)
