"""One process's client of the simulated API server: `Api` as everything else is typed against it.

Writes pass the guard and the ledger of the real client, at the moment that
they are sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextvars import ContextVar
from math import floor
from typing import Any, Final

import msgspec

from shardsdk.errors import ApiError, ConnectionFailed, ServerError, ShardingError
from shardsdk.kube.api import PARTIAL, SILENCE_SECONDS, Body, Fence, PatchKind, T, Unfit, WatchEvent, WatchKind
from shardsdk.kube.clock import Clock
from shardsdk.kube.fencing import Guard, Ledger
from shardsdk.kube.reading import OPEN_SECONDS
from shardsdk.kube.selectors import Selector, equals
from shardsdk.kube.store import Key
from shardsdk.kube.transport import REQUEST_SECONDS
from shardsdk.protocol.objects import GroupResource, PartialObject, Resource
from tests.simulation.limits import Limit
from tests.simulation.machines import comparison_of
from tests.simulation.network import Link
from tests.simulation.server import Change, Service, SimServer
from tests.simulation.storage import Author, Version

#: What the current task of a process is doing; goes into the author of its writes.
DOING: Final[ContextVar[Any]] = ContextVar("doing", default=None)

_EVERYTHING: Final = Selector()
#: Now and then a request waits for a connection before it is sent.
_CONNECT_SHARE: Final = 0.02


class SimApi:
    """Satisfies `shardsdk.kube.api.Api`; `fence` applies to every write."""

    def __init__(self, server: SimServer, link: Link, clock: Clock, *, fence: Fence | None = None) -> None:
        self.link = link
        self.ledger = Ledger(clock)
        self._server = server
        self._clock = clock
        self._comparison = comparison_of(clock)
        self._fences = (fence,) if fence is not None else ()

    async def __aenter__(self) -> SimApi:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    # -- reading -----------------------------------------------------------

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
    ) -> T:
        key = Key(namespace or "", name)
        version = await self._fetch(f"get {resource.plural} {key}", lambda: self._server.storage.demand(resource, key))
        return self._decode(version, model)

    async def find(self, resource: Resource, name: str, namespace: str | None = None) -> PartialObject | None:
        selector = Selector(fields=equals("metadata.name", name))
        async for page in self.pages(resource, namespace, selector=selector):
            return page[0]
        return None

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector = _EVERYTHING,
        limit: int = 500,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
        on_version: Callable[[str], None] | None = None,
        on_unfit: Callable[[Unfit], None] | None = None,
    ) -> AsyncGenerator[list[T], None]:
        found, number = await self._list(resource, namespace, selector)
        if on_version is not None:
            on_version(str(number))
        for start in range(0, len(found), limit):
            page = found[start : start + limit]
            for version in page if on_unfit is not None else ():
                if on_unfit is not None and version.decode(model) is None:
                    on_unfit(version.unfit())
            yield [thing for version in page if (thing := version.decode(model)) is not None]

    async def stream(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector = _EVERYTHING,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
        batch: int = 500,
    ) -> AsyncGenerator[list[T], None]:
        found, _ = await self._list(resource, namespace, selector)
        # In small batches with pauses, so that the world goes on while a reader reads.
        for start in range(0, len(found), 7):
            yield [thing for version in found[start : start + 7] if (thing := version.decode(model)) is not None]
            await self._clock.sleep(self.link.transit())

    async def _list(self, resource: Resource, namespace: str | None, selector: Selector) -> tuple[list[Version], int]:
        server = self._server

        def execute() -> tuple[list[Version], int]:
            return server.select(resource, namespace, selector), server.storage.number

        found: tuple[list[Version], int] = await self._fetch(f"list {resource.plural}", execute)
        return found

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        selector: Selector = _EVERYTHING,
        resource_version: str | None = None,
        initial_events: bool = False,
        model: type[T] = PARTIAL,
        metadata_only: bool | None = None,
        silence_seconds: float = SILENCE_SECONDS,
        timeout_seconds: int | None = None,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        since = None if initial_events else resource_version or ""
        await self._fetch(f"watch {resource.plural}", lambda: None, timeout_seconds=min(silence_seconds, OPEN_SECONDS))
        if self._server.service is Service.DOWN:
            raise ConnectionFailed("connection refused")
        watch = self._server.open_watch(self.link, resource, namespace, selector, since, timeout_seconds)
        try:
            if since is not None:
                yield WatchEvent(WatchKind.BOOKMARK, None, since)
            while (line := await watch.next(silence_seconds)) is not None:
                if line.version is None:
                    yield WatchEvent(line.kind, None, str(line.number), line.initial_end)
                elif (thing := line.version.decode(model)) is not None:
                    yield WatchEvent(line.kind, thing, str(line.number))
                else:
                    unfit = line.version.unfit(gone=line.kind is WatchKind.DELETED)
                    yield WatchEvent(WatchKind.BOOKMARK, None, str(line.number), unfit=unfit)
        finally:
            self._server.close_watch(watch)

    # -- writing -----------------------------------------------------------

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
        plain = self._server.storage.name_for(resource, _plain(body))
        if namespace:
            plain["metadata"]["namespace"] = namespace
        meta = plain["metadata"]
        key = Key(meta.get("namespace", ""), meta.get("name", ""))

        def make(before: Version | None) -> dict[str, Any]:
            if before is not None:
                self._server.storage.create(resource, plain, self._author())  # raises AlreadyExists
            return plain

        return await self._write(f"create {resource.plural} {key}", Change(resource, key, make, self._author()),
                                 model, fences)  # fmt: skip

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
        key = Key(namespace or "", name)
        change = self._server.change_by_patch(resource, key, kind, _plain(body), subresource, self._author())
        return await self._write(f"patch {resource.plural} {key}", change, model, fences, timeout_seconds)

    async def update(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        model: type[T] = PARTIAL,
        fences: Sequence[Fence] = (),
    ) -> T:
        plain = _plain(body)
        key = Key(plain["metadata"].get("namespace", ""), plain["metadata"]["name"])
        change = self._server.change_by_update(resource, key, plain, self._author())
        return await self._write(f"update {resource.plural} {key}", change, model, fences)

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
        key, author = Key(namespace or "", name), self._author()
        wanted = {"resourceVersion": resource_version, "uid": uid}
        await self._send(
            f"delete {resource.plural} {key}",
            lambda deadline: self._server.storage.delete(resource, key, author, wanted),
            fences,
            None,
        )

    async def _write(
        self, what: str, change: Change, model: type[T], fences: Sequence[Fence], timeout_seconds: float | None = None
    ) -> T:
        version = await self._send(what, lambda deadline: self._server.write(change, deadline), fences, timeout_seconds)
        return self._decode(version, model)

    # -- the rest ----------------------------------------------------------

    async def discover(self, group: str, plural: str) -> Resource | None:
        found: Resource | None = await self._fetch("discover", lambda: self._server.served.get((group, plural)))
        return found

    async def allowed(
        self,
        verb: str,
        resource: GroupResource,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
    ) -> bool:
        return await self._fetch("review", lambda: True) is True

    async def raw(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> bytes:
        raise NotImplementedError("bare requests are not simulated")

    @property
    def inflight_writes(self) -> int:
        return len(self.ledger)

    async def writes_settled(self) -> None:
        await self.ledger.settled()

    # -- inside ------------------------------------------------------------

    def _author(self) -> Author:
        return Author(self.link.name, DOING.get())

    def _decode(self, version: Version, model: type[T]) -> T:
        thing: T | None = version.decode(model)
        if thing is None:
            raise ShardingError(f"{version.key} does not fit {model}")
        return thing

    async def _fetch(self, what: str, execute: Callable[[], Any], *, timeout_seconds: float = REQUEST_SECONDS) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        execute, compare = (execute, None) if self._comparison is None else self._comparison.watch(execute)
        self._server.receive(self.link, execute, answer, writes=False, granted=timeout_seconds)
        try:
            with Limit(timeout_seconds):
                return await answer
        except TimeoutError as error:
            raise ConnectionFailed(f"{what}: no answer within {timeout_seconds:g} s") from error
        finally:
            if compare is not None and answer.done() and not answer.cancelled():
                compare()

    async def _send(
        self, what: str, execute: Callable[[float], Any], fences: Sequence[Fence], timeout_seconds: float | None
    ) -> Any:
        """One write, as shardsdk.kube.transport sends it."""
        guard = Guard((*self._fences, *fences), timeout_seconds or REQUEST_SECONDS, self._clock, self.ledger)
        limit = guard.remaining()
        loop = asyncio.get_running_loop()
        try:
            with Limit(limit):
                if self.link.rng.random() < _CONNECT_SHARE:
                    await self._clock.sleep(self.link.rng.random())
                granted = floor(guard.ask() * 1000) / 1000
                if not guard.admit():
                    raise guard.refused or ConnectionFailed(what)
                deadline = loop.time() + granted
                answer: asyncio.Future[Any] = loop.create_future()
                result = await self._exchange(lambda: execute(deadline), answer, granted)
        except TimeoutError as error:
            raise ConnectionFailed(f"{what}: no answer within {limit:.1f} s") from error
        except ApiError as error:
            if not isinstance(error, ServerError):
                self.ledger.answered(guard)
            raise
        self.ledger.answered(guard)
        return result

    async def _exchange(self, execute: Callable[[], Any], answer: asyncio.Future[Any], granted: float) -> Any:
        execute, compare = (execute, None) if self._comparison is None else self._comparison.watch(execute)
        self._server.receive(self.link, execute, answer, writes=True, granted=granted)
        try:
            return await answer
        finally:
            if compare is not None and answer.done() and not answer.cancelled():
                compare()


def _plain(body: Any) -> Any:
    """What the API server makes of a body: JSON, and nothing of the sender's."""
    return msgspec.json.decode(msgspec.json.encode(body))
