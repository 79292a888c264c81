"""The simulated API server: when requests are executed, and what happens around that.

Requests run here outside of the process that sent them, so that pausing or
killing it does not undo what it sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from types import CoroutineType
from typing import Any, Final, NamedTuple, Protocol

from shardsdk.errors import Conflict, ConnectionFailed, Gone, NotFound, ServerError, ShardingError, StreamInterrupted
from shardsdk.kube.api import PatchKind, WatchKind
from shardsdk.kube.selectors import Selector
from shardsdk.kube.store import Key
from shardsdk.protocol.objects import CLUSTERRINGS, Resource
from shardsdk.protocol.ranges import RING_ASSIGNMENTS
from shardsdk.testing.patching import apply_json_patch, merge
from shardsdk.testing.processes import outside
from tests.simulation.network import SILENT, Fate, Link
from tests.simulation.storage import Author, Commit, Doc, Storage, Version, selection_of
from tests.simulation.watching import Line, Watch

#: How often a write without a resourceVersion of its own is tried again.
#: Source: k8s.io/apiserver registry/generic, GuaranteedUpdate.
WRITE_ATTEMPTS = 5
#: From a 5xx to the execution of what it was about, if etcd executes it all the same.
AFTER_ERROR_SECONDS = 3.0


#: Whose status only its subresource changes.
_WITH_STATUS: Final = (CLUSTERRINGS, RING_ASSIGNMENTS)


class Service(Enum):
    """What the API server does with requests."""

    UP = "answers"
    DOWN = "refuses connections, watches break"
    HANGING = "takes requests and does nothing, watches are silent"
    FAILING = "answers 500 (etcd is gone), watches stay open"


class Change(NamedTuple):
    """A write: `make` gives the object to store from the one that is there (`None`: there is none)."""

    resource: Resource
    key: Key
    make: Callable[[Version | None], Doc]
    author: Author
    dry_run: bool = False


class Admission(Protocol):
    """Mutates objects on their way in."""

    def wants(self, resource: Resource, before: Version | None, doc: Doc, author: Author) -> bool:
        """Whether any webhook has to be asked."""

    async def admit(self, resource: Resource, before: Version | None, doc: Doc, author: Author) -> Doc:
        """The object as the webhooks leave it."""


class SimServer:
    """One API server; `connect` gives each process's `Api` its way in (simapi)."""

    def __init__(self, storage: Storage, rng: Random, admission: Admission) -> None:
        self.storage = storage
        self.service = Service.UP
        #: Whether clients have connections for all that they send.
        self.connected = False
        #: Whether lists and watches are filtered by `shardSelector`, as since Kubernetes 1.36; others ignore it.
        self.filters_shards = False
        #: Whether webhooks of somebody's take dry runs of objects.
        self.takes_dry_runs = True
        self.rng = rng
        self.admission = admission
        self.served: dict[tuple[str, str], Resource] = {}
        #: Up to which version each process was told of leases by a watch.
        self.heard: dict[str, int] = {}
        #: Told of each list as it is executed: whose it is, and of what.
        self.on_list: list[Callable[[Link, Resource, Selector], None]] = []
        #: Writes of reconciles without an answer that rules out their execution, and until when they were granted.
        self.unanswered: dict[object, tuple[Any, float]] = {}
        #: Likewise of drains' acknowledgements: which process has sent it.
        self.acknowledging: dict[object, tuple[str, float]] = {}
        self._watches: dict[Watch, None] = {}
        self._watches_of: dict[str, dict[Watch, None]] = {}
        self._backlog: list[Callable[[], None]] = []
        storage.on_commit.append(self._broadcast)

    # -- outages -----------------------------------------------------------

    def become(self, service: Service) -> None:
        """Change what the server does; what it did not do while hanging it does now."""
        self.service = service
        if service is Service.DOWN:
            self.break_watches(1.0)
            self._backlog.clear()
        if service is Service.UP:
            backlog, self._backlog = self._backlog, []
            for execute in backlog:
                execute()

    def break_watches(self, share: float, error: ShardingError | None = None) -> None:
        """End that share of the open watches."""
        for watch in list(self._watches):
            if self.rng.random() < share:
                self._end_watch(
                    watch, error or StreamInterrupted(f"watch {watch.resource.plural}: the connection broke")
                )

    def drop_link(self, link: Link) -> None:
        """End the watches of one process."""
        for watch in [watch for watch in self._watches if watch.link is link]:
            self._end_watch(watch, StreamInterrupted(f"watch {watch.resource.plural}: the connection broke"))

    def stall_watch(self, links: Sequence[Link], seconds: float, resource: Resource | None = None) -> Watch | None:
        """Hold back whatever one watch of these processes (of a resource) is told for a while, without breaking it."""
        watches = [each for each in self._watches if each.link in links and resource in (None, each.resource)]
        if not watches:
            return None
        watch = self.rng.choice(watches)
        watch.stall(seconds)
        return watch

    def stall_link(self, link: Link, seconds: float) -> None:
        """Hold back whatever the open watches of one process are told for a while, without breaking them."""
        for watch in self._watches:
            if watch.link is link:
                watch.stall(seconds)

    def compact(self) -> None:
        """Forget all history: watches that want to go on from before are told 410."""
        self.storage.compacted = self.storage.number

    # -- requests ----------------------------------------------------------

    def receive(
        self, link: Link, execute: Callable[[], Any], answer: asyncio.Future[Any], *, writes: bool, granted: float
    ) -> None:
        """Take a request as it leaves its client; `granted` seconds from now it must not be executed any more."""
        loop = asyncio.get_running_loop()
        fate = link.fate(writes=writes)
        if fate in SILENT:
            link.silent_until = max(link.silent_until, loop.time() + granted)
        if fate is Fate.LOST:
            return
        deadline = loop.time() + granted
        delay = link.transit() if fate is not Fate.LATE else link.rng.uniform(0.0, granted)
        sent = _Sent(self, link, execute, answer, fate, deadline)
        loop.call_later(delay, sent.arrive, context=Context())

    def unanswered_writes(self, shard: str) -> list[Any]:
        """What processes of a shard were doing as they sent the writes that may yet be executed, as far as it can know.

        Also those that are dead by now: who goes on with their lease has to wait for them.
        """
        now = asyncio.get_running_loop().time()
        self.unanswered = {key: each for key, each in self.unanswered.items() if each[1] >= now}
        return [doing for doing, _ in self.unanswered.values() if doing.shard == shard]

    def acknowledgers(self) -> set[str]:
        """The processes whose acknowledgements may yet be executed."""
        now = asyncio.get_running_loop().time()
        self.acknowledging = {key: each for key, each in self.acknowledging.items() if each[1] >= now}
        return {process for process, _ in self.acknowledging.values()}

    def hold_back(self, execute: Callable[[], None]) -> None:
        """Do this when the server goes on."""
        self._backlog.append(execute)

    # -- watches -----------------------------------------------------------

    def open_watch(
        self, link: Link, resource: Resource, namespace: str | None, selector: Selector,
        since: str | None, ends_in: float | None,
    ) -> Watch:  # fmt: skip
        """Open a watch from a version, or (`None`) with everything that exists.  Raises: Gone."""
        selector = self._filter(selector)
        watch = Watch(resource, namespace, selector, link, ends_in, int(since or 0))
        if since is not None:
            if int(since) < self.storage.compacted:
                raise Gone(f"watch {resource.plural}: version {since} is gone", status=410, reason="Expired")
            for commit in self.storage.since(resource, int(since)):
                watch.tell(commit)
        else:
            for version in self.select(resource, namespace, selector):
                watch.send(Line(WatchKind.ADDED, version, version.number))
            watch.send(Line(WatchKind.BOOKMARK, None, self.storage.number, initial_end=True))
        watch.bookmark(lambda: self.storage.number)
        self._watches[watch] = None
        self._watches_of.setdefault(resource.plural, {})[watch] = None
        return watch

    def close_watch(self, watch: Watch) -> None:
        self._end_watch(watch, None)

    def _end_watch(self, watch: Watch, error: ShardingError | None) -> None:
        watch.end(error)
        self._watches.pop(watch, None)
        self._watches_of.get(watch.resource.plural, {}).pop(watch, None)

    def _broadcast(self, commit: Commit) -> None:
        for watch in self._watches_of.get(commit.resource.plural, ()):
            watch.tell(commit)

    # -- what requests do --------------------------------------------------

    def select(self, resource: Resource, namespace: str | None, selector: Selector) -> list[Version]:
        """A consistent list, in the order of the API server."""
        selection = selection_of(namespace, self._filter(selector))
        found = [each for each in self.storage.objects(resource) if each.matches(selection)]
        return sorted(found, key=lambda version: version.key)

    def _filter(self, selector: Selector) -> Selector:
        """What this server makes of a selector."""
        return selector if self.filters_shards or not selector.shards else replace(selector, shards="")

    def write(self, change: Change, deadline: float) -> Version | Awaitable[Version]:
        """Execute a change; an awaitable when admission has to be asked."""
        before = self.storage.get(change.resource, change.key) if change.key.name else None
        doc = change.make(before)
        if not self.admission.wants(change.resource, before, doc, change.author):
            return self._store(change, before, doc)
        return self._write_admitted(change, deadline)

    async def _write_admitted(self, change: Change, deadline: float) -> Version:
        era = self.storage.era
        for _ in range(WRITE_ATTEMPTS):
            before = self.storage.get(change.resource, change.key) if change.key.name else None
            doc = await self.admission.admit(change.resource, before, change.make(before), change.author)
            late = asyncio.get_running_loop().time() > deadline
            if late or self.service is not Service.UP or self.storage.era != era:
                raise ServerError("the request took too long", status=504, reason="Timeout")
            try:
                return self._store(change, before, doc)
            except Conflict:
                continue
        raise Conflict(f"{change.resource.plural} {change.key} keeps changing", status=409, reason="Conflict")

    def _store(self, change: Change, before: Version | None, doc: Doc) -> Version:
        if change.dry_run and before is not None:
            return before
        if before is None:
            return self.storage.create(change.resource, doc, change.author)
        return self.storage.replace(change.resource, before, doc, change.author)

    def change_by_patch(
        self, resource: Resource, key: Key, kind: PatchKind, body: Any, subresource: str, author: Author
    ) -> Change:
        """A patch as a change; server-side apply creates what is not there."""

        def make(before: Version | None) -> Doc:
            if before is not None:
                return _patched(before, kind, body, subresource, has_status=resource in _WITH_STATUS)
            if kind is not PatchKind.APPLY:
                raise NotFound(f"{resource.plural} {key} not found", status=404, reason="NotFound")
            return self.storage.name_for(resource, body)

        return Change(resource, key, make, author)

    def change_by_update(self, resource: Resource, key: Key, body: Mapping[str, Any], author: Author) -> Change:
        """A replacement as a change."""

        def make(before: Version | None) -> Doc:
            if before is None:
                raise NotFound(f"{resource.plural} {key} not found", status=404, reason="NotFound")
            wanted = body["metadata"].get("resourceVersion")
            if wanted not in (None, before.doc["metadata"]["resourceVersion"]):
                raise Conflict(f"{resource.plural} {key} has changed", status=409, reason="Conflict")
            return self.storage.name_for(resource, dict(body))

        return Change(resource, key, make, author)


def _patched(current: Version, kind: PatchKind, body: Any, subresource: str, *, has_status: bool) -> Doc:
    """The object after the patch (server-side apply without field ownership).  Raises: Conflict, Invalid."""
    doc = apply_json_patch(current.doc, body) if kind is PatchKind.JSON else merge(current.doc, body)
    wanted = doc["metadata"].get("resourceVersion")
    if wanted not in (None, current.doc["metadata"]["resourceVersion"]):
        raise Conflict(f"{current.key} has changed: {wanted} is not its version", status=409, reason="Conflict")
    if subresource == "status":
        doc = {**current.doc, "status": doc.get("status")}
    elif has_status and "status" in current.doc:
        doc["status"] = current.doc["status"]
    return {**doc, "metadata": dict(doc["metadata"])}


@dataclass(slots=True)
class _Sent:
    """A request on its way through network and server."""

    server: SimServer
    link: Link
    execute: Callable[[], Any]
    answer: asyncio.Future[Any]
    fate: Fate
    deadline: float

    def arrive(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() > self.link.closed_from:
            return
        match self.server.service:
            case Service.DOWN:
                self._fail(ConnectionFailed("connection refused"))
            case Service.HANGING:
                self.server.hold_back(self.arrive)
            case Service.FAILING:
                self._fail(ServerError("etcdserver: request timed out", status=500, reason="InternalError"))
            case Service.UP if loop.time() > self.deadline:
                self._fail(ServerError("the request took too long", status=504, reason="Timeout"))
            case Service.UP if self.fate is Fate.ERROR:
                self._fail(ServerError("injected", status=500, reason="InternalError"))
            case Service.UP if self.fate is Fate.ERROR_BEFORE_EXECUTION:
                # As when etcd has taken a proposal and its answer takes too long.
                self._fail(ServerError("etcdserver: request timed out", status=500, reason="InternalError"))
                delay = self.link.rng.uniform(0.0, min(AFTER_ERROR_SECONDS, self.deadline - loop.time()))
                loop.call_later(delay, self._run, self.server.storage.era, context=Context())
            case Service.UP:
                self._run(self.server.storage.era)

    def _run(self, era: int) -> None:
        if self.server.service is not Service.UP or self.server.storage.era != era:
            return
        try:
            result = self.execute()
        except ShardingError as error:
            self._fail(error)
            return
        if isinstance(result, CoroutineType):
            outside(self._finish(result))
        else:
            self._succeed(result)

    async def _finish(self, result: Awaitable[Any]) -> None:
        try:
            self._succeed(await result)
        except ShardingError as error:
            self._fail(error)

    def _succeed(self, result: Any) -> None:
        if self.fate is Fate.ERROR_BUT_EXECUTED:
            self._fail(ServerError("injected after execution", status=500, reason="InternalError"))
        elif self.fate is not Fate.UNANSWERED:
            asyncio.get_running_loop().call_later(self.link.answer_transit(), self._set, result, context=Context())

    def _fail(self, error: ShardingError) -> None:
        if self.fate is not Fate.UNANSWERED:
            asyncio.get_running_loop().call_later(self.link.transit(), self._set_error, error, context=Context())

    def _set(self, result: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(result)

    def _set_error(self, error: ShardingError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
            # A client that is gone never asks; that is no news.
            self.answer.exception()
