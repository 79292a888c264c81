"""The gate: each event that kopf is about to process passes here first.

    event ──> this shard's?      kopf processes it: handlers, daemons, its own patch
          ──> its owner's not?   it waits: the owner comes, or the object leaves
          ──> being drained?     handlers and daemons of the object and of what it
                                 controls end, writes settle, both labels go in one
                                 patch that holds the resourceVersion
          ──> anybody else's?    nothing

A drain waits for handlers and begins none (how long, and what if one waits for
another: `kopf_drains`): kopf processes the events of one object
one after the other, but those of another version of its resource, and of the objects
that it controls, in tasks of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

import kopf

from shardsdk.cache.identity import ShardIdentity, facts_of
from shardsdk.cache.objects import request_of
from shardsdk.contrib.kopf_daemons import Daemons, Process
from shardsdk.contrib.kopf_drains import Drains
from shardsdk.contrib.kopf_families import Families, Family, Whose
from shardsdk.errors import Conflict, NotFound, NotServed, ShardingError
from shardsdk.kube.absence import judge_absence
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.doubts import DOUBT_SECONDS, ask_fence
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import GroupResource, Resource
from shardsdk.protocol.verdict import acknowledgement
from shardsdk.queueing.raised import is_lease_gone
from shardsdk.reconcile.drains import Unserved
from shardsdk.reconcile.inflight import InFlight

log: Final = logger_of(__name__)

#: When an acknowledgement that failed is tried again without news of its object, at the earliest.
RETRY_SECONDS: Final = 1.0

Event = dict[str, Any]

#: Where the main object of a family has to be for handlers to begin; children outlive it for a while.
_WORKED_ON: Final = frozenset({Whose.HERE, Whose.GONE})


class _Outcome(Enum):
    """What became of an acknowledgement."""

    GIVEN = "the object is not this shard's any more"
    OUTDATED = "the object is newer, or gone, or the lease is: what follows says what to do"


class Lease(Protocol):
    """What the gate asks of a `ShardLease`."""

    fence: Any
    lost: asyncio.Event


@dataclass(frozen=True, slots=True)
class _Passing:
    """One event of one object, with what else kopf gives to have it processed."""

    resource: Resource
    raw: Event
    rest: dict[str, Any]

    @property
    def name(self) -> GroupResource:
        return self.resource.group_resource

    @property
    def body(self) -> Any:
        return self.raw["object"]

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def version(self) -> int:
        return int(self.body["metadata"]["resourceVersion"])

    @property
    def deleted(self) -> bool:
        """Whether the object was deleted, or left what this shard watches."""
        return bool(self.raw["type"] == "DELETED")

    @property
    def news(self) -> asyncio.Event | None:
        """Set while another event of the object waits for this one."""
        return self.rest.get("stream_pressure")

    @property
    def outdone(self) -> bool:
        return self.news is not None and self.news.is_set()

    @property
    def settings(self) -> kopf.OperatorSettings:
        settings: kopf.OperatorSettings = self.rest["settings"]
        return settings

    async def count_as_indexed(self) -> None:
        """Kopf's handlers wait until every object of the first list has been through here: not for this one."""
        toggles, toggle = self.rest.get("operator_indexed"), self.rest.get("resource_indexed")
        if toggles is not None and toggle is not None:
            await toggles.drop_toggle(toggle)


class Gate:
    """Stands in for kopf's `process_resource_event`, and calls it for objects of this shard.

    `main` and `controlled` are the ring's resources, whatever their versions.
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
        main: Collection[Resource],
        controlled: Collection[Resource],
        memories: Any,
        drain_timeout_seconds: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._identity = identity
        self._api = api
        self._lease = lease
        self._main = frozenset(each.group_resource for each in main)
        self._controlled = frozenset(each.group_resource for each in controlled)
        self._memories = memories
        self._clock = clock or SystemClock()
        self._families = Families(identity, api, main, self._clock)
        self._daemons = Daemons(memories, self._clock, drain_timeout_seconds)
        self._process = self._daemons.outlived_by(process)
        #: What runs for a main object and what it controls, by the name of the main object.
        inflight = {name: InFlight() for name in self._main}
        self._drains = Drains(identity, api, inflight, self._daemons, settle, self._clock)
        self._working: set[asyncio.Task[Any]] = set()
        #: The versions by which each main resource is watched, as far as they have shown an object.
        self._versions: dict[GroupResource, set[str]] = {}
        #: Objects that this shard has worked on and not given away, by uid.
        self._known: set[str] = set()
        self._unshared: set[GroupResource] = set()
        self._unserved = {name: Unserved(self._clock) for name in self._main}

    async def __call__(self, *, raw_event: Event, **rest: Any) -> str | None:
        """As kopf's: process one event of one object; the version that kopf's patch has made, if it made one."""
        passing = _Passing(_as_ours(rest["resource"]), raw_event, rest)
        family = await self._family_of(passing)
        try:
            if await self._admit(passing, family):
                return await self._work(passing, family)
            await passing.count_as_indexed()
            return None
        finally:
            if passing.deleted:
                self._families.leave(passing.uid)
            if family is not None:
                self._families.tidy(family)

    async def stop_when_lost(self) -> None:
        """Cancel everything that runs as soon as the lease is lost."""
        await self._lease.lost.wait()
        self._daemons.cancel_all()
        for task in self._working:
            task.cancel()

    # -- whose is it? --------------------------------------------------------------

    async def _family_of(self, passing: _Passing) -> Family | None:
        """The main object on which it depends whether work may begin; `None`: there is none."""
        if passing.name in self._main:
            return self._families.of_main(passing.resource, passing.body, left=passing.deleted)
        if passing.name in self._controlled:
            await self._families.learn(passing.body, passing.news, passing.count_as_indexed)
            return self._families.of_child(passing.resource, passing.body)
        return None

    async def _admit(self, passing: _Passing, family: Family | None) -> bool:
        """Whether kopf is to process the event; what else there is to do about it is done on return."""
        if family is not None and passing.name in self._main:
            return await (self._is_end(passing, family) if passing.deleted else self._admit_main(passing, family))
        if passing.name in self._controlled:
            return await (self._is_end_of_child if passing.deleted else self._admit_child)(passing, family)
        self._warn_unshared(passing.name)
        return False

    async def _admit_main(self, passing: _Passing, family: Family) -> bool:
        family.shown_by.add(passing.resource.version)
        whose = self._families.judge(passing.body["metadata"].get("labels"))
        if self._may_be_forgotten(passing, family):
            await passing.count_as_indexed()
            if not await self._families.find(family, passing.news):
                return False
        if not family.hear(passing.version, whose):
            # Late, by the watch of another version; or etcd was restored, and versions went back.
            await self._families.ask(family)
            if not family.hear(passing.version, whose):
                return False
        if whose is Whose.DRAINED:
            await passing.count_as_indexed()
            await self._give_away(passing, family)
        if whose is not Whose.HERE:
            return False
        await self._drains.begin_again(family, passing.settings)
        # Whatever it waits for: afterwards it begins without giving anybody else a turn.
        return await self._holds_lease(passing) and family.whose is Whose.HERE

    def _may_be_forgotten(self, passing: _Passing, family: Family) -> bool:
        """Whether another version of the resource may have shown the object's end before this one's first event."""
        versions = self._versions.setdefault(passing.name, set())
        versions.add(passing.resource.version)
        return len(versions) > 1 and family.version < 0

    async def _admit_child(self, passing: _Passing, family: Family | None) -> bool:
        whose = self._families.judge(passing.body["metadata"].get("labels"))
        return whose is not Whose.AWAY and await self._may_begin(passing, family)

    async def _may_begin(self, passing: _Passing, family: Family | None) -> bool:
        while await self._holds_lease(passing):
            if family is None or self._goes_on(family):
                return True
            if not await self._owner_is_here(passing, family):
                return False
        return False

    async def _owner_is_here(self, passing: _Passing, family: Family) -> bool:
        """Wait for the main object of a child; False: there is news of the child, or it ended with its owner away."""
        while not self._goes_on(family):
            whose = family.whose
            if passing.outdone or (passing.deleted and whose is Whose.AWAY):
                return False
            if whose is not Whose.UNKNOWN or family.asked:
                await passing.count_as_indexed()
            if family.whose is whose and not self._goes_on(family):
                await self._families.wait(family, passing.news)
        return True

    def _goes_on(self, family: Family) -> bool:
        """Whether handlers of children may begin."""
        return family.whose in _WORKED_ON or self._drains.goes_on(family)

    async def _holds_lease(self, passing: _Passing) -> bool:
        """Whether the lease is held; while that is doubted, it waits to know it, or for news of the object."""
        while not self._lease.lost.is_set():
            remaining, doubted = ask_fence(self._lease.fence)
            if remaining > 0:
                return True
            if not doubted or passing.outdone:
                return False
            await self._clock.sleep(DOUBT_SECONDS)
        return False

    def _warn_unshared(self, name: GroupResource) -> None:
        if name not in self._unshared:
            self._unshared.add(name)
            where = {"ring": self._identity.ring.ring, "shard": self._identity.shard, "resource": str(name)}
            log.error("Handlers are not called for %s: the ring does not share it", name, extra=where)

    # -- endings -------------------------------------------------------------------

    async def _is_end(self, passing: _Passing, family: Family) -> bool:
        """Whether a DELETED event means the end of a main object, or only that it is not this shard's any more."""
        family.shown_by.discard(passing.resource.version)
        if family.whose is Whose.AWAY:
            # Given away; of an acknowledgement whose answer was lost, this is the first that is heard here.
            await self._let_go(passing)
            return False
        if passing.version < family.version:
            await self._families.ask(family)
            if family.whose is not Whose.GONE:
                return False  # it has come back meanwhile
        self._known.discard(passing.uid)
        # In a drain it may have left by an acknowledgement whose answer was lost, and be deleted on its next shard.
        ended = await self._was_deleted(passing, certainly=family.whose is Whose.DRAINED)
        family.hear(passing.version, Whose.GONE if ended else Whose.AWAY)
        if not ended:
            log.warning("The object went away unasked", extra=self._where(passing))
            await self._let_go(passing)
        return ended and await self._holds_lease(passing)

    async def _is_end_of_child(self, passing: _Passing, family: Family | None) -> bool:
        """The same of a controlled object; of one that went with its owner, or after it, its next shard hears."""
        self._known.discard(passing.uid)
        if family is None or family.whose is not Whose.AWAY:
            ended = await self._was_deleted(passing)
            if ended and await self._may_begin(passing, family):
                return True
            if not ended and (family is None or family.whose in _WORKED_ON):
                log.warning("The object went away unasked", extra=self._where(passing))
        await self._let_go(passing)
        return False

    async def _was_deleted(self, passing: _Passing, *, certainly: bool = False) -> bool:
        metadata = passing.body["metadata"]
        if metadata.get("deletionTimestamp") and not certainly:
            return True
        try:
            found = await self._api.find(passing.resource, metadata["name"], metadata.get("namespace"))
        except ShardingError as error:
            log.warning("Could not find out whether an object was deleted: %s", error, extra=self._where(passing))
            return False
        return found is None or found.metadata.uid != metadata["uid"]

    async def _let_go(self, passing: _Passing) -> None:
        await self._daemons.cancel(passing.uid)
        await self._forget(passing)

    async def _forget(self, passing: _Passing) -> None:
        """As if the object had never been seen: should it come back, it is resumed."""
        self._known.discard(passing.uid)
        passing.rest["indexers"].discard(body=kopf.Body(passing.body))
        await self._memories.forget(passing.body)

    # -- working ---------------------------------------------------------------------

    def _resumed(self, passing: _Passing) -> Event:
        """An object that another shard has worked on is, for kopf, one that was there before it started."""
        if passing.deleted or passing.uid in self._known:
            return passing.raw
        self._known.add(passing.uid)
        handled = passing.settings.persistence.diffbase_storage.fetch(body=kopf.Body(passing.body))
        return passing.raw if handled is None else {**passing.raw, "type": None}

    async def _work(self, passing: _Passing, family: Family | None) -> str | None:
        task = asyncio.current_task()
        assert task is not None
        self._working.add(task)
        try:
            with nullcontext() if family is None else self._drains.hold(family, passing.uid, passing.news):
                return await self._process(raw_event=self._resumed(passing), **passing.rest)
        finally:
            self._working.discard(task)

    # -- giving away -------------------------------------------------------------------

    async def _give_away(self, passing: _Passing, family: Family) -> None:
        if not await self._drains.comes_to_rest(family, passing.settings, passing.news):
            return
        given = False
        # What has failed for an outage is tried again before each acknowledgement that does.
        while not await self._drains.finish(family, self._memories, passing.body, passing.rest):
            outcome = await self._acknowledge(passing, family)
            # Others may have it, or have had it should it come back; what failed may have been executed, too.
            given = given or outcome is not _Outcome.OUTDATED
            if not isinstance(outcome, float) or passing.outdone:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(outcome):
                    await (passing.news or asyncio.Event()).wait()
        if given:
            await self._forget(passing)

    async def _acknowledge(self, passing: _Passing, family: Family) -> _Outcome | float:
        """Remove both labels, if the object is still as this event has it; seconds: it may be, try again then."""
        metadata = passing.body["metadata"]
        patch = acknowledgement(self._identity.ring, metadata["resourceVersion"])
        try:
            answer = await self._api.patch(passing.resource, metadata["name"], metadata.get("namespace"), patch)
        except ShardingError as error:
            if isinstance(error, NotFound):
                where = (passing.resource, metadata["name"], metadata.get("namespace"), metadata["uid"])
                error = await judge_absence(self._api, *where, error)
            unserved = self._unserved[passing.name] if isinstance(error, NotServed) else None
            if (isinstance(error, Conflict | NotFound) or is_lease_gone(error)) and unserved is None:
                return _Outcome.OUTDATED
            # It may have been executed all the same; then the next attempt meets a newer object.
            if unserved is None or unserved.is_to_be_told():
                log.warning("Could not acknowledge a drain: %s", error, extra=self._where(passing))
            return RETRY_SECONDS if unserved is None else max(unserved.again_in(), RETRY_SECONDS)
        self._unserved[passing.name].over()
        # Even if the answer has it here again: that is for the event of this write to say.
        family.hear(int(answer.metadata.resource_version), Whose.AWAY)
        log.debug("Drain acknowledged", extra=self._where(passing))
        return _Outcome.GIVEN

    def _where(self, passing: _Passing) -> dict[str, object]:
        return facts_of(self._identity, passing.resource, request_of(passing.body))


def _as_ours(resource: Any) -> Resource:
    return Resource(
        resource.group, resource.version, resource.plural, resource.kind or "", namespaced=bool(resource.namespaced)
    )
