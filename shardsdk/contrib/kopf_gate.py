"""The gate: each event that kopf is about to process passes here first.

    event ──> this shard's?      kopf processes it: handlers, daemons, its own patch
          ──> being drained?     daemons end, writes settle, both labels go in one
                                 patch that holds the resourceVersion
          ──> anybody else's?    nothing

kopf processes the events of one object one after the other, so a drain that has
come to its turn finds no handler of that object running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from typing import Any, Final, Protocol

import kopf
from kopf._core.engines.daemons import Daemon, stop_daemons

from shardsdk.cache.identity import ShardIdentity
from shardsdk.cache.objects import Request
from shardsdk.errors import Conflict, FenceClosed, NotFound, ShardingError
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import GroupResource, Resource
from shardsdk.protocol.verdict import Verdict, acknowledgement, judge
from shardsdk.reconcile.inflight import InFlight

log: Final = logger_of(__name__)

#: When an acknowledgement that failed is tried again without news of its object.
RETRY_SECONDS: Final = 1.0
#: How often daemons that were told to stop are looked at.
LOOK_SECONDS: Final = 1.0

Process = Callable[..., Awaitable[str | None]]
Event = dict[str, Any]


class _Outcome(Enum):
    """What became of an acknowledgement."""

    GIVEN = "the object is not this shard's any more"
    OUTDATED = "the object is newer, or gone, or the lease is: what follows says what to do"
    FAILED = "nothing is known; try again"


class Lease(Protocol):
    """What the gate asks of a `ShardLease`."""

    fence: Any
    lost: asyncio.Event


class Gate:
    """Stands in for kopf's `process_resource_event`, and calls it for objects of this shard.

    `settle()` returns once no write of this shard can be executed any more.
    """

    def __init__(
        self,
        process: Process,
        identity: ShardIdentity,
        api: Api,
        lease: Lease,
        *,
        settle: Callable[[], Awaitable[None]],
        main: frozenset[GroupResource],
        controlled: frozenset[GroupResource],
        memories: Any,
        drain_timeout_seconds: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._process = process
        self._identity = identity
        self._api = api
        self._lease = lease
        self._settle = settle
        self._main = main
        self._controlled = controlled
        self._memories = memories
        self._drain_timeout_seconds = drain_timeout_seconds
        self._clock = clock or SystemClock()
        self._inflight = {name: InFlight() for name in main}
        self._working: set[asyncio.Task[Any]] = set()
        #: Objects that this shard has worked on and not given away, by uid.
        self._known: set[str] = set()
        #: Objects that were given away, with the version that was: what is older comes too late.
        self._given: dict[str, int] = {}
        self._unshared: set[GroupResource] = set()

    async def __call__(
        self,
        *,
        resource: Any,
        raw_event: Event,
        resource_indexed: Any = None,
        operator_indexed: Any = None,
        **rest: Any,
    ) -> str | None:
        """As kopf's: process one event of one object; the version that kopf's patch has made, if it made one."""
        if not await self._admit(resource, raw_event, rest):
            # kopf's handlers wait until every object of the first list has been through here.
            if operator_indexed is not None and resource_indexed is not None:
                await operator_indexed.drop_toggle(resource_indexed)
            return None
        indexing = {"resource_indexed": resource_indexed, "operator_indexed": operator_indexed}
        return await self._work(resource=resource, raw_event=self._resumed(raw_event, rest), **indexing, **rest)

    async def stop_when_lost(self) -> None:
        """Cancel everything that runs as soon as the lease is lost."""
        await self._lease.lost.wait()
        for daemons in self._memories.iter_all_daemon_memories():
            for daemon in list(daemons.running_daemons.values()):
                daemon.stopper.set(reason=kopf.DaemonStoppingReason.OPERATOR_EXITING)
                daemon.task.cancel()
        for task in self._working:
            task.cancel()

    # -- whose is it? --------------------------------------------------------------

    async def _admit(self, resource: Any, event: Event, rest: dict[str, Any]) -> bool:
        """Whether kopf is to process the event; what else there is to do about it is done on return."""
        name, metadata = GroupResource(resource.group, resource.plural), event["object"]["metadata"]
        if name not in self._main and name not in self._controlled:
            self._warn_unshared(name)
            return False
        if event["type"] == "DELETED":
            return await self._is_end(resource, event["object"], rest)
        if self._given.get(metadata["uid"], -1) > int(metadata["resourceVersion"]):
            return False
        match judge(metadata.get("labels"), self._identity.ring, self._identity.shard):
            case Verdict.IGNORE:
                return False
            case Verdict.ACKNOWLEDGE if name in self._main:
                await self._give_away(resource, event["object"], rest)
                return False
            case _:
                return not self._lease.lost.is_set() and _is_open(self._lease.fence)

    def _warn_unshared(self, name: GroupResource) -> None:
        if name not in self._unshared:
            self._unshared.add(name)
            where = {"ring": self._identity.ring.ring, "shard": self._identity.shard, "resource": str(name)}
            log.error("Handlers are not called for %s: the ring does not share it", name, extra=where)

    async def _is_end(self, resource: Any, body: Event, rest: dict[str, Any]) -> bool:
        """Whether a DELETED event means the end of the object, or only that it is not this shard's any more."""
        uid = body["metadata"]["uid"]
        self._known.discard(uid)
        if self._given.pop(uid, None) is not None:
            return False
        if body["metadata"].get("deletionTimestamp") or not await self._exists(resource, body):
            return True
        log.warning("The object went away unasked", extra=self._where(resource, body))
        for daemon in self._daemons(await self._memories.recall(body)):
            daemon.stopper.set(reason=kopf.DaemonStoppingReason.FILTERS_MISMATCH)
            daemon.task.cancel()
        await self._forget(body, rest)
        return False

    async def _exists(self, resource: Any, body: Event) -> bool:
        metadata = body["metadata"]
        try:
            found = await self._api.find(_as_ours(resource), metadata["name"], metadata.get("namespace"))
        except ShardingError as error:
            where = self._where(resource, body)
            log.warning("Could not find out whether an object was deleted: %s", error, extra=where)
            return True
        return found is not None and found.metadata.uid == metadata["uid"]

    # -- working ---------------------------------------------------------------------

    def _resumed(self, event: Event, rest: dict[str, Any]) -> Event:
        """An object that another shard has worked on is, for kopf, one that was there before it started."""
        body = event["object"]
        uid = body["metadata"]["uid"]
        if event["type"] == "DELETED":
            return event
        self._given.pop(uid, None)
        if uid in self._known:
            return event
        self._known.add(uid)
        handled = rest["settings"].persistence.diffbase_storage.fetch(body=_as_kopfs(body))
        return event if handled is None else {**event, "type": None}

    async def _work(self, **event: Any) -> str | None:
        task = asyncio.current_task()
        assert task is not None
        resource, body = event["resource"], event["raw_event"]["object"]
        inflight = self._inflight.get(GroupResource(resource.group, resource.plural))
        self._working.add(task)
        try:
            if inflight is None:
                return await self._process(**event)
            with inflight.hold(_request_of(body)):
                return await self._process(**event)
        finally:
            self._working.discard(task)

    # -- giving away -------------------------------------------------------------------

    async def _give_away(self, resource: Any, body: Event, rest: dict[str, Any]) -> None:
        memory = await self._memories.recall(body)
        await self._end_daemons(memory, rest["settings"])
        # Through another version of the same resource, kopf may be at the object in another task.
        idle = asyncio.Event()
        self._inflight[GroupResource(resource.group, resource.plural)].when_idle(_request_of(body), idle.set)
        await idle.wait()
        await self._settle()
        news: asyncio.Event | None = rest.get("stream_pressure")
        while (outcome := await self._acknowledge(resource, body)) is _Outcome.FAILED:
            if news is not None and news.is_set():
                return
            await self._pause(news)
        if outcome is _Outcome.GIVEN:
            await self._forget(body, rest)

    async def _acknowledge(self, resource: Any, body: Event) -> _Outcome:
        """Remove both labels, if the object is still as this event has it."""
        metadata = body["metadata"]
        patch = acknowledgement(self._identity.ring, metadata["resourceVersion"])
        try:
            await self._api.patch(_as_ours(resource), metadata["name"], metadata.get("namespace"), patch)
        except (Conflict, NotFound, FenceClosed):
            return _Outcome.OUTDATED
        except ShardingError as error:
            # It may have been executed all the same; then the next attempt meets a newer object.
            log.warning("Could not acknowledge a drain: %s", error, extra=self._where(resource, body))
            return _Outcome.FAILED
        self._known.discard(metadata["uid"])
        self._given[metadata["uid"]] = int(metadata["resourceVersion"])
        log.debug("Drain acknowledged", extra=self._where(resource, body))
        return _Outcome.GIVEN

    async def _end_daemons(self, memory: Any, settings: kopf.OperatorSettings) -> None:
        """Tell daemons and timers to stop as kopf does, wait for them, cancel them at the limit."""
        began = self._clock.monotonic()
        running = memory.daemons_memory.running_daemons
        while running:
            delays = await stop_daemons(
                settings=settings, daemons=running, reason=kopf.DaemonStoppingReason.FILTERS_MISMATCH
            )
            left = self._daemons(memory)
            limit = self._drain_timeout_seconds
            if limit is not None and self._clock.monotonic() - began >= limit:
                for daemon in left:
                    daemon.task.cancel()
            if left:
                waits = [LOOK_SECONDS, *delays] if limit is None else [LOOK_SECONDS, limit or LOOK_SECONDS, *delays]
                await asyncio.wait([each.task for each in left], timeout=min(waits))

    def _daemons(self, memory: Any) -> list[Daemon]:
        return list(memory.daemons_memory.running_daemons.values())

    async def _forget(self, body: Event, rest: dict[str, Any]) -> None:
        """As if the object had never been seen: should it come back, it is resumed."""
        rest["indexers"].discard(body=_as_kopfs(body))
        await self._memories.forget(body)

    async def _pause(self, news: asyncio.Event | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(RETRY_SECONDS):
                await (news or asyncio.Event()).wait()

    def _where(self, resource: Any, body: Event) -> dict[str, object]:
        metadata = body["metadata"]
        return {
            "ring": self._identity.ring.ring,
            "shard": self._identity.shard,
            "resource": str(GroupResource(resource.group, resource.plural)),
            "namespace": metadata.get("namespace", ""),
            "object": metadata["name"],
        }


def _is_open(fence: Fence) -> bool:
    return fence.remaining() > 0


def _as_kopfs(body: Any) -> kopf.Body:
    return kopf.Body(body)


def _request_of(body: Event) -> Request:
    return Request(body["metadata"].get("namespace") or "", body["metadata"]["name"])


def _as_ours(resource: Any) -> Resource:
    return Resource(
        resource.group, resource.version, resource.plural, resource.kind or "", namespaced=bool(resource.namespaced)
    )
