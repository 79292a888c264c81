"""A client's connection to a `MemoryServer`, in virtual time.

What a client sends is executed by the server whatever becomes of the client:
cancelled, paused or killed, its write may still happen.  Delays and faults are
the test's to choose.

    api = MemoryApi(server, fence=hold, delay=lambda: rng.uniform(0.001, 0.05))
    api.fault = Fault.UNANSWERED

Everything that `Transport` promises but raw requests and `metadata_only` (objects
come whole; a model takes what it knows).  Writes are recorded in `writes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from functools import partial
from math import inf
from types import NoneType
from typing import Any, Final, cast

import msgspec

from shardsdk.errors import BadRequest, ConnectionFailed, FenceClosed, StreamInterrupted
from shardsdk.kube.answers import Target
from shardsdk.kube.api import (
    Api,
    Fence,
    ListOptions,
    Operation,
    PatchKind,
    RawRequest,
    Selection,
    T,
    Unfit,
    WatchEvent,
    WatchKind,
    WatchOptions,
)
from shardsdk.kube.bodies import encode_body
from shardsdk.kube.clock import Clock
from shardsdk.kube.decoding import codec_of, unfit_of
from shardsdk.kube.doubts import past_owed
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.objects import LEASES, GroupResource, Resource
from shardsdk.rbac import Right
from shardsdk.testing.memory import Change, MemoryServer, Object
from shardsdk.testing.metadata import version_of
from shardsdk.testing.processes import outside
from shardsdk.testing.requests import check_served
from shardsdk.testing.selecting import check_fields
from shardsdk.testing.strategies import is_builtin, shown_in

#: How long a request may hang before the client gives it up.
REQUEST_SECONDS: Final = 30.0
#: How often the API server tells a quiet watch where it is.
BOOKMARK_SECONDS: Final = 60.0


class Fault(Enum):
    """What goes wrong with a client's requests."""

    NONE = "nothing"
    REFUSED = "the server can't be reached"
    LOST = "requests never arrive, and hang"
    UNANSWERED = "requests are executed, but their answers never arrive, and hang"


class MemoryApi(Api):
    """One client: the verbs of `Api`, and the transport below them.

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
        super().__init__(self)
        self.server = server
        self.clock = clock
        self.fence = fence
        self.delay = delay
        self.lag = lag
        self.served: list[Resource] = list(served)
        self.fault = Fault.NONE
        #: Told what an API server would ask RBAC for, before each request.
        self.on_request: Callable[[Right], object] | None = None
        #: Told of each write that was carried out, before the client is.
        self.on_write: Callable[[Operation[Any]], object] | None = None
        #: Raised instead of executing anything.
        self.error: Exception | None = None
        #: Verbs of all operations, reads as well.
        self.requests: list[str] = []
        #: (verb, resource, name) of every write that was sent.
        self.writes: list[tuple[str, str, str]] = []
        #: The same writes, whole.
        self.sent: list[Operation[Any]] = []
        #: Lists and streams that were asked for, by resource.
        self.lists: list[str] = []
        #: The client whose `fault`, `error`, `delay` and `lag` are this one's as well.
        self.way: MemoryApi = self
        #: By which Leases are got and written instead; `None`: as all else.
        self.leases: MemoryApi | None = None
        self._open: set[asyncio.Future[Any]] = set()

    # -- the transport ------------------------------------------------------

    async def send(self, operation: Operation[T]) -> T:
        """One request; a write is recorded and asks the fences first."""
        if self.leases is not None and operation.resource == LEASES:
            return await self.leases.send(operation)
        _check_sendable(operation)
        self.requests.append(operation.verb)
        self._ask_for(
            operation.resource,
            operation.namespace,
            *_verbs_of(operation),
            name=operation.name,
            part=operation.subresource,
        )
        seconds = operation.timeout_seconds or REQUEST_SECONDS
        for fence in (*(operation.fences or ()), *([self.fence] if self.fence and operation.writes else [])):
            if fence.remaining() <= 0:
                raise FenceClosed(f"write refused before it was sent: the hold on {fence.name} has run out")
            seconds = min(seconds, fence.remaining())
        if operation.writes:
            self.writes.append((operation.verb, operation.resource.plural, operation.name))
            self.sent.append(operation)
        made = await self._call(partial(self._execute, operation), seconds=seconds, write=operation.writes)
        if operation.model is NoneType or operation.model is dict:
            return cast("T", made)
        return codec_of(operation.model).decode(_target_of(operation), msgspec.json.encode(made))

    async def read_pages(self, selection: Selection[T], options: ListOptions) -> AsyncIterator[list[T]]:
        """The snapshot is taken when the first page is asked for."""
        shown = _whole if selection.metadata_only or not is_builtin(selection.resource) else _without_kind
        self._ask_for(selection.resource, selection.namespace, "list")
        found, version = await self._select(selection)
        if options.on_version:
            options.on_version(str(version))
        size = options.limit or max(len(found), 1)
        for begin in range(0, len(found), size):
            if begin:
                await self._call(lambda: None)
            read = [_read(shown(thing), selection.model) for thing in found[begin : begin + size]]
            for each in read:
                if isinstance(each, Unfit) and options.on_unfit is not None:
                    options.on_unfit(each)
            yield [each for each in read if not isinstance(each, Unfit)]

    def read_stream(self, selection: Selection[T], batch: int) -> AsyncIterator[list[T]]:
        """In pages of objects that say what they are, as those of a watch do."""
        return self.read_pages(replace(selection, metadata_only=True), ListOptions(batch))

    async def read_events(self, selection: Selection[T], options: WatchOptions) -> AsyncIterator[WatchEvent[T]]:
        """Changes as they happen, each after `lag`."""
        resource, model, ends_in = selection.resource, selection.model, options.timeout_seconds
        ends_at = inf if ends_in is None else self.clock.monotonic() + ends_in
        _check_watchable(selection, options)
        self._ask_for(resource, selection.namespace, "watch")
        if options.resource_version is None:
            found, position = await self._select(selection)
            for thing in found:
                yield _tell(WatchKind.ADDED, thing, model, thing["metadata"]["resourceVersion"])
            yield WatchEvent(WatchKind.BOOKMARK, None, str(position), initial_end=True)
        else:
            position = await self._call(lambda: self._begin(selection, options.resource_version or ""))
            yield WatchEvent(WatchKind.BOOKMARK, None, options.resource_version)
        with self._changes_of(resource) as changed:
            while self.clock.monotonic() < ends_at:
                for change in self.server.changes(resource, position):
                    position = change.version
                    told = change.seen_by(selection.namespace, self._filter(selection.selector))
                    if told is not None:
                        await asyncio.sleep(self.way.lag())
                        yield _tell(told[0], shown_in(resource, told[1]), model, str(change.version))
                await self._wait_for(changed, options.silence_seconds, ends_at)
                if not changed.is_set() and self.clock.monotonic() < ends_at:
                    yield WatchEvent(WatchKind.BOOKMARK, None, str(position))
                changed.clear()

    async def exchange(self, request: RawRequest) -> bytes:
        """Not offered.  Raises: BadRequest."""
        raise BadRequest(f"{request.method} {request.path}: an API server in memory has no raw requests")

    async def discover(self, group: str, plural: str) -> Resource | None:
        """One of `served`."""
        wanted = GroupResource(group, plural)
        return next((resource for resource in self.served if resource.group_resource == wanted), None)

    def anew(self) -> MemoryApi:
        """The client of another process on the same way, without a fence; all of them note what they send in one place.

        It has the faults, delays and errors of this one as they are now.
        """
        made = MemoryApi(self.server, self.clock, delay=self.delay, lag=self.lag)
        made.served, made.fault, made.error, made.on_request = self.served, self.fault, self.error, self.on_request
        made.requests, made.writes, made.sent, made.lists = self.requests, self.writes, self.sent, self.lists
        return made

    @property
    def inflight_writes(self) -> int:
        """How many writes were sent whose outcome is still open."""
        return len(self._open)

    async def writes_settled(self) -> None:
        """Return once those are answered, or can no longer be executed."""
        mine = list(self._open)
        if mine:
            await asyncio.wait(mine)
        await past_owed([self.fence] if self.fence else [], self.clock)

    # -- inside ----------------------------------------------------------------

    def _ask_for(self, resource: Resource, namespace: str | None, *verbs: str, name: str = "", part: str = "") -> None:
        if self.on_request is not None:
            for verb in verbs:
                self.on_request(Right(verb, resource.group_resource, part, name, namespace))

    def _execute(self, operation: Operation[Any]) -> Object | None:
        made = self.server.execute(operation)
        if operation.writes and self.way.on_write is not None:
            self.way.on_write(operation)
        return made

    async def _select(self, selection: Selection[Any]) -> tuple[list[Object], int]:
        """What is selected, and the version of the server then."""
        resource, namespace, selector = selection.resource, selection.namespace, self._filter(selection.selector)
        self.lists.append(resource.plural)

        def select() -> tuple[list[Object], int]:
            check_served(self.server, "list", resource)
            return self.server.select(resource, namespace, selector), self.server.version

        found: tuple[list[Object], int] = await self._call(select)
        return found

    def _begin(self, selection: Selection[Any], version: str) -> int:
        """Where a watch goes on.  Raises: BadRequest, Gone, NotServed, ServerError for one that cannot."""
        check_served(self.server, "watch", selection.resource)
        check_fields(selection.resource, selection.selector.fields)
        position = version_of(version)
        self.server.changes(selection.resource, position)
        return position

    def _filter(self, selector: Selector) -> Selector:
        """What the server makes of a selector."""
        return selector if self.server.filters_shards else replace(selector, shards="")

    async def _call(self, execute: Callable[[], Any], *, seconds: float = REQUEST_SECONDS, write: bool = False) -> Any:
        if self.way.fault is Fault.REFUSED:
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
        failure: Exception | None = None
        await asyncio.sleep(self.way.delay())
        arrived = self.way.fault is not Fault.LOST and self.clock.monotonic() - sent <= seconds
        if arrived:
            try:
                if self.way.error is not None:
                    raise self.way.error
                result = execute()
            except Exception as error:
                failure = error
            await asyncio.sleep(self.way.delay())
        if not arrived or self.way.fault is Fault.UNANSWERED:
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

    async def _wait_for(self, changed: asyncio.Event, silence_seconds: float, ends_at: float) -> None:
        """Wait for a change, the next bookmark or the end.  Raises: StreamInterrupted while nothing gets through."""
        quiet_since = self.clock.monotonic()
        while True:
            try:
                async with asyncio.timeout(min(BOOKMARK_SECONDS, silence_seconds, ends_at - quiet_since)):
                    await changed.wait()
            except TimeoutError:
                pass
            if self.way.fault is Fault.NONE:
                return
            if self.clock.monotonic() - quiet_since >= silence_seconds:
                raise StreamInterrupted(f"the watch said nothing for {silence_seconds:g} s")
            await asyncio.sleep(1.0)


def _check_sendable(operation: Operation[Any]) -> None:
    """What a client refuses before it sends it.  Raises: ConfigurationError."""
    plain = (operation.name or operation.verb == "create") and f"{operation.name}{operation.namespace}".isascii()
    if not plain:
        from shardsdk.kube.requests import call_of  # brings aiohttp, which takes a third of a second

        call_of(operation)
    elif operation.body is not None:
        encode_body(_target_of(operation), operation.body)


def _check_watchable(selection: Selection[Any], options: WatchOptions) -> None:
    """The same of a watch.  Raises: ConfigurationError for a version that begins anywhere."""
    if options.resource_version is not None and not options.resource_version.strip("0"):
        from shardsdk.kube.requests import watch_call  # as above

        watch_call(selection, options)


def _verbs_of(operation: Operation[Any]) -> tuple[str, ...]:
    """What RBAC is asked about; an apply may make the object.  Source: apiserver, endpoints/handlers/patch.go."""
    applies = operation.verb == "patch" and operation.kind is PatchKind.APPLY and not operation.subresource
    return (operation.verb, "create") if applies else (operation.verb,)


def _target_of(operation: Operation[Any]) -> Target:
    plural = operation.resource.plural + (f"/{operation.subresource}" if operation.subresource else "")
    return Target(operation.verb, operation.resource.group, plural, operation.namespace, operation.name or None)


def _read(thing: Object, model: type[T], *, gone: bool = False) -> T | Unfit:
    """As clients read lists and watches: what does not fit the model holds up nothing else."""
    if model is dict:
        return cast("T", thing)
    try:
        return codec_of(model).read(msgspec.json.encode(thing))
    except msgspec.ValidationError as error:
        return unfit_of(thing, error, gone=gone)


def _whole(thing: Object) -> Object:
    return thing


def _without_kind(thing: Object) -> Object:
    """As it is in a list of one of Kubernetes' own kinds; those of custom resources, and watches, say what each is."""
    return {part: value for part, value in thing.items() if part not in ("apiVersion", "kind")}


def _tell(kind: WatchKind, thing: Object, model: type[T], version: str) -> WatchEvent[T]:
    read = _read(thing, model, gone=kind is WatchKind.DELETED)
    if isinstance(read, Unfit):
        return WatchEvent(WatchKind.BOOKMARK, None, version, unfit=read)
    return WatchEvent(kind, read, version)
