"""One process's client of the simulated API server: the verbs of `Api`, and the transport below them.

Writes pass the guard and the ledger of the real client, at the moment that
they are sent.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from math import floor
from typing import Any, Final, assert_never, cast

import msgspec

from shardsdk.errors import ApiError, BadRequest, ConnectionFailed, ServerError, ShardingError
from shardsdk.kube.api import (
    ACCESS_REVIEWS,
    Api,
    Fence,
    ListOptions,
    Operation,
    PatchKind,
    RawRequest,
    Selection,
    T,
    WatchEvent,
    WatchKind,
    WatchOptions,
)
from shardsdk.kube.clock import Clock
from shardsdk.kube.doubts import past_owed
from shardsdk.kube.fencing import Guard, Ledger
from shardsdk.kube.reading import OPEN_SECONDS
from shardsdk.kube.sessions import REQUEST_SECONDS
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.objects import LEASES, Resource
from tests.simulation.limits import Limit
from tests.simulation.machines import comparison_of
from tests.simulation.network import Link
from tests.simulation.server import Change, Service, SimServer
from tests.simulation.storage import Author, Version
from tests.simulation.vocabulary import PIECES, PLAINS, RING_OF, WORKS

#: What the current task of a process is doing; goes into the author of its writes.
DOING: Final[ContextVar[Any]] = ContextVar("doing", default=None)

#: What dry runs are of: namespace, plural and name.
_PATH: Final = re.compile(r"/apis/[^/]+/[^/]+/namespaces/([^/]+)/([^/]+)/([^/]+)")
_TRIED: Final = {each.plural: each for each in (LEASES, WORKS, PIECES, PLAINS)}

#: Now and then a request waits for a connection before it is sent.
_CONNECT_SHARE: Final = 0.02


class SimApi(Api):
    """The verbs of `Api` over the simulated network; `fence` applies to every write."""

    def __init__(self, server: SimServer, link: Link, clock: Clock, *, fence: Fence | None = None) -> None:
        super().__init__(self)
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

    # -- the transport -----------------------------------------------------

    async def send(self, operation: Operation[T]) -> T:
        resource, server = operation.resource, self._server
        if resource == ACCESS_REVIEWS:
            await self._fetch("review", lambda: None)
            return msgspec.convert({"status": {"allowed": True}}, operation.model)
        key, author, body = Key(operation.namespace or "", operation.name), self._author(), _plain(operation.body)
        what = f"{operation.verb} {resource.plural} {key}"
        match operation.verb:
            case "get":
                version = await self._fetch(what, lambda: server.storage.demand(resource, key))
                return self._decode(version, operation.model)
            case "create":
                return await self._write(what, self._creation(operation, body, author), operation)
            case "patch":
                change = server.change_by_patch(resource, key, operation.kind, body, operation.subresource, author)
                return await self._write(what, change, operation)
            case "update":
                return await self._write(what, server.change_by_update(resource, key, body, author), operation)
            case "delete":
                wanted = body.get("preconditions", {})
                await self._send(
                    what, lambda _: server.storage.delete(resource, key, author, wanted), operation, author
                )
                return cast("T", None)
            case _:
                assert_never(operation.verb)

    def _creation(self, operation: Operation[Any], body: Any, author: Author) -> Change:
        resource, storage = operation.resource, self._server.storage
        plain = storage.name_for(resource, body)
        meta = plain["metadata"]
        if operation.namespace:
            meta["namespace"] = operation.namespace
        key = Key(meta.get("namespace", ""), meta.get("name", ""))

        def make(before: Version | None) -> dict[str, Any]:
            if before is not None:
                storage.create(resource, plain, author)  # raises AlreadyExists
            return plain

        return Change(resource, key, make, author)

    async def read_pages(self, selection: Selection[T], options: ListOptions) -> AsyncGenerator[list[T], None]:
        found, number = await self._list(selection)
        if options.on_version is not None:
            options.on_version(str(number))
        size, model = options.limit or max(len(found), 1), selection.model
        for start in range(0, len(found), size):
            page = found[start : start + size]
            for version in page if options.on_unfit is not None else ():
                if options.on_unfit is not None and version.decode(model) is None:
                    options.on_unfit(version.unfit())
            yield [thing for version in page if (thing := version.decode(model)) is not None]

    async def read_stream(self, selection: Selection[T], batch: int) -> AsyncGenerator[list[T], None]:
        found, _ = await self._list(selection)
        # In small batches with pauses, so that the world goes on while a reader reads.
        for start in range(0, len(found), 7):
            page = found[start : start + 7]
            yield [thing for version in page if (thing := version.decode(selection.model)) is not None]
            await self._clock.sleep(self.link.transit())

    async def _list(self, selection: Selection[Any]) -> tuple[list[Version], int]:
        server, resource = self._server, selection.resource

        def execute() -> tuple[list[Version], int]:
            for tell in server.on_list:
                tell(self.link, resource, selection.selector)
            return server.select(resource, selection.namespace, selection.selector), server.storage.number

        found: tuple[list[Version], int] = await self._fetch(f"list {resource.plural}", execute)
        return found

    async def read_events(self, selection: Selection[T], options: WatchOptions) -> AsyncGenerator[WatchEvent[T], None]:
        resource, since, silence = selection.resource, options.resource_version, options.silence_seconds
        await self._fetch(f"watch {resource.plural}", lambda: None, timeout_seconds=min(silence, OPEN_SECONDS))
        if self._server.service is Service.DOWN:
            raise ConnectionFailed("connection refused")
        watch = self._server.open_watch(
            self.link, resource, selection.namespace, selection.selector, since, options.timeout_seconds
        )
        of_leases = resource == LEASES
        try:
            if since is not None:
                yield WatchEvent(WatchKind.BOOKMARK, None, since)
            while (line := await watch.next(silence)) is not None:
                if of_leases:
                    self._server.heard[self.link.name] = line.number
                if line.version is None:
                    yield WatchEvent(line.kind, None, str(line.number), line.initial_end)
                elif (thing := line.version.decode(selection.model)) is not None:
                    yield WatchEvent(line.kind, thing, str(line.number))
                else:
                    unfit = line.version.unfit(gone=line.kind is WatchKind.DELETED)
                    yield WatchEvent(WatchKind.BOOKMARK, None, str(line.number), unfit=unfit)
        finally:
            self._server.close_watch(watch)

    async def exchange(self, request: RawRequest) -> bytes:
        """A dry run of a patch; nothing else is simulated.  Raises: BadRequest, as where a webhook takes none."""
        server, found = self._server, _PATH.fullmatch(request.path)
        resource = _TRIED.get(found[2]) if found is not None else None
        if found is None or resource is None or request.method != "PATCH" or ("dryRun", "All") not in request.query:
            raise BadRequest(f"{request.method} {request.path}: not simulated")
        key, body = Key(found[1], found[3]), msgspec.json.decode(request.body or b"{}")
        change = server.change_by_patch(resource, key, PatchKind.MERGE, body, "", self._author())._replace(dry_run=True)
        seconds = request.timeout_seconds or REQUEST_SECONDS
        deadline = asyncio.get_running_loop().time() + seconds
        what = f"try {resource.plural} {key}"

        def execute() -> Any:
            if resource != LEASES and not server.takes_dry_runs:
                raise BadRequest(f"{what}: admission webhook does not support dry run", status=400, reason="BadRequest")
            return server.write(change, deadline)

        await self._fetch(what, execute, timeout_seconds=seconds)
        return b""

    async def discover(self, group: str, plural: str) -> Resource | None:
        found: Resource | None = await self._fetch("discover", lambda: self._server.served.get((group, plural)))
        return found

    @property
    def inflight_writes(self) -> int:
        return len(self.ledger)

    async def writes_settled(self) -> None:
        await self.ledger.settled()
        await past_owed(self._fences, self._clock)

    # -- inside ------------------------------------------------------------

    async def _write(self, what: str, change: Change, operation: Operation[T]) -> T:
        version = await self._send(
            what, lambda deadline: self._server.write(change, deadline), operation, change.author
        )
        return self._decode(version, operation.model)

    def _author(self) -> Author:
        return Author(self.link.name, DOING.get())

    def _decode(self, version: Version, model: type[T]) -> T:
        thing: T | None = version.decode(model)
        if thing is None:
            raise ShardingError(f"{version.key} does not fit {model}")
        return thing

    async def _fetch(self, what: str, execute: Callable[[], Any], *, timeout_seconds: float = REQUEST_SECONDS) -> Any:
        try:
            with Limit(timeout_seconds):
                return await self._exchange(execute, timeout_seconds, writes=False)
        except TimeoutError as error:
            raise ConnectionFailed(f"{what}: no answer within {timeout_seconds:g} s") from error

    async def _send(self, what: str, execute: Callable[[float], Any], operation: Operation[Any], author: Author) -> Any:
        """One write, as shardsdk.kube.sessions sends it."""
        fences, seconds = operation.fenced(self._fences).fences or (), operation.timeout_seconds or REQUEST_SECONDS
        guard = Guard(fences, seconds, self._clock, self.ledger)
        limit = guard.remaining()
        loop = asyncio.get_running_loop()
        try:
            with Limit(limit):
                if self.link.rng.random() < _CONNECT_SHARE and not self._server.connected:
                    await self._clock.sleep(self.link.rng.random())
                granted = floor(guard.ask() * 1000) / 1000
                if not guard.admit():
                    raise guard.refused or ConnectionFailed(what)
                author.sent = loop.time()
                deadline = author.sent + granted
                if (doing := DOING.get()) is not None:
                    self._server.unanswered[guard] = doing, deadline
                elif operation.resource in RING_OF:  # a shard writes to these itself to give them away
                    self._server.acknowledging[guard] = self.link.name, deadline
                if operation.resource == LEASES:
                    self.link.renews()
                result = await self._exchange(lambda: execute(deadline), granted, writes=True)
                if self._comparison is not None and operation.resource == LEASES and _holds(_plain(operation.body)):
                    self._comparison.renewed(author.sent)
        except TimeoutError as error:
            raise ConnectionFailed(f"{what}: no answer within {limit:.1f} s") from error
        except ApiError as error:
            if not isinstance(error, ServerError):
                self._answered(guard)
            raise
        self._answered(guard)
        return result

    def _answered(self, guard: Guard) -> None:
        self.ledger.answered(guard)
        self._server.unanswered.pop(guard, None)
        self._server.acknowledging.pop(guard, None)

    async def _exchange(self, execute: Callable[[], Any], granted: float, *, writes: bool) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        execute, compare = (execute, None) if self._comparison is None else self._comparison.watch(execute)
        self._server.receive(self.link, execute, answer, writes=writes, granted=granted)
        try:
            return await answer
        finally:
            if compare is not None and answer.done() and not answer.cancelled():
                compare()


def _holds(lease: Any) -> bool:
    """Whether a write says that its sender has the lease for itself; the sharder's hold on a shard's is no such."""
    return bool(lease) and lease.get("spec", {}).get("holderIdentity") not in (None, "", SHARDER_HOLDER)


def _plain(body: Any) -> Any:
    """What the API server makes of a body: JSON, and nothing of the sender's."""
    return msgspec.json.decode(msgspec.json.encode(body))
