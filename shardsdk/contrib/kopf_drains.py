"""How the handlers and daemons of a family end for a drain, and begin again should it stay here.

A drain begins nothing, has kopf's pauses end and waits.  What it waits for may itself
wait for an object of the family that has not begun, so a drain that lasts takes turns:
nothing begins for a while, then the children go on for as long, then twice as long each.
Sooner or later nothing begins for longer than any handler takes: children cannot keep
their owner by always having something to do.

Guarantees: once none of its handlers runs, none of a drained family begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, Final

import kopf
from kopf._cogs.structs.patches import Patch
from kopf._core.actions.application import patch_and_check
from kopf._core.actions.loggers import LocalObjectLogger

from shardsdk.cache.identity import ShardIdentity, facts_of
from shardsdk.contrib.kopf_daemons import Daemons
from shardsdk.contrib.kopf_families import Child, Family, Whose, any_of
from shardsdk.errors import NotFound, NotServed, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import GroupResource
from shardsdk.reconcile.inflight import InFlight

log: Final = logger_of(__name__)

#: How long nothing of a drained family begins before its children have their turn; doubles.
PATIENCE_SECONDS: Final = 15.0
#: When a patch that could not be finished is tried for the second, and last, time.
AGAIN_SECONDS: Final = 1.0
#: So many objects at work are named in a line.
NAMED: Final = 5


class Drains:
    """What runs for the families of a shard, and how it comes to rest.

    `inflight` is by main resource; `settle()` returns once no write of this shard can be executed any more.
    """

    def __init__(
        self,
        identity: ShardIdentity,
        api: Api,
        inflight: Mapping[GroupResource, InFlight],
        daemons: Daemons,
        settle: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._identity = identity
        self._api = api
        self._inflight = inflight
        self._daemons = daemons
        self._settle = settle
        self._clock = clock

    @contextmanager
    def hold(self, family: Family, uid: str, wake: asyncio.Event | None) -> Iterator[None]:
        """While kopf processes an event of an object of the family; `wake` ends its pauses before a retry."""
        child, wake = family.children.get(uid), wake or asyncio.Event()
        if child is not None:
            child.at_work.append(wake)
        try:
            with self._inflight_of(family).hold(family.request, family.uid):
                yield
        finally:
            if child is not None:
                child.at_work.remove(wake)

    def goes_on(self, family: Family) -> bool:
        """Whether children of a drained family may begin: it is their turn, and the drain has to wait anyway.

        Never once the last handler has ended: the acknowledgement may be on its way.
        """
        return family.whose is Whose.DRAINED and family.goes_on and self._at_work(family)

    async def comes_to_rest(self, family: Family, settings: kopf.OperatorSettings, news: asyncio.Event | None) -> bool:
        """Wait until nothing of a drained family runs, and nothing that ran can write; False: the drain is outdated."""
        inflight = self._inflight_of(family)
        while family.whose is Whose.DRAINED:
            _end_pauses(family)
            async with self._turns(family, settings):
                await self._daemons.end(family, settings)
                idle = asyncio.Event()
                inflight.when_idle(family.request, idle.set)
                await any_of(idle, news)
            if not idle.is_set():
                return False
            await self._settle()
            # A handler may have begun a daemon before it ended; whatever ends now may have written since.
            if not inflight.busy(family.request) and not await self._daemons.any_of(family):
                return family.whose is Whose.DRAINED
        return False

    async def finish(self, family: Family, memories: Any, body: Any, given: Mapping[str, Any]) -> bool:
        """Apply what met a newer main object, and was kept for its next event; whether there is a newer one still.

        kopf adds and removes its finalizer, and does what handlers put into `patch.fns`, on condition that the object
        is as they saw it.  A drain label is enough for that to fail, and a handler of a deletion that has succeeded
        would be called anew on the next shard.  If it fails otherwise, that is logged, and so it will be.  What is
        refused (422) may have met a newer object, or may never be taken, as where a policy is against it: whoever
        acknowledges finds that out, as that is on the same condition.
        """
        memory = await memories.recall(body, ephemeral=True)
        if not memory.remaining_patch:
            return False
        seen, resource, settings = kopf.Body(body), given["resource"], _impatient(given["settings"])
        where = facts_of(self._identity, family.main, family.request)
        logger = LocalObjectLogger(body=seen, settings=settings)
        patch = Patch(memory.remaining_patch, body=seen)
        try:
            version, memory.remaining_patch = await patch_and_check(
                settings=settings, resource=resource, body=seen, patch=patch, logger=logger
            )
        except Exception as error:  # also of a function of the program's own: kopf would end with it
            log.warning("Could not finish a patch before a drain; the next shard's handlers do: %s", error, extra=where)
            return False
        if version is None and memory.remaining_patch is not None:
            log.warning("A patch was refused before a drain, over a newer object or for good", extra=where)
        return version not in (None, seen.metadata.get("resourceVersion"))

    async def begin_again(self, family: Family, settings: kopf.OperatorSettings) -> None:
        """Have kopf process the children of which a drain ended a daemon or a pause, and that are worked on."""
        for child in [each for each in family.children.values() if each.stopped]:
            patch = kopf.Patch()
            now = self._clock.now().isoformat()
            settings.persistence.progress_storage.touch(body=kopf.Body({}), patch=patch, value=now)
            try:
                await self._api.patch(child.resource, child.request.name, child.request.namespace or None, dict(patch))
            except ShardingError as error:
                if isinstance(error, NotFound) and not isinstance(error, NotServed):
                    child.stopped = False  # its end is about to be told
                    continue
                where = facts_of(self._identity, child.resource, child.request)
                log.warning("Could not have daemons begin again; the owner's next change tries: %s", error, extra=where)
            else:
                child.stopped = False

    @asynccontextmanager
    async def _turns(self, family: Family, settings: kopf.OperatorSettings) -> AsyncIterator[None]:
        turns = asyncio.create_task(self._take_turns(family, settings))
        try:
            yield
        finally:
            turns.cancel()
            # Its writes are over before they are settled.
            await asyncio.wait([turns])
            family.hold_back()

    async def _take_turns(self, family: Family, settings: kopf.OperatorSettings) -> None:
        seconds = PATIENCE_SECONDS
        while True:
            await self._clock.sleep(seconds)
            where = facts_of(self._identity, family.main, family.request)
            log.warning("A drain waits for what still runs: %s", await self._what_runs(family), extra=where)
            if self._at_work(family):
                family.go_on()
                await self.begin_again(family, settings)
                await self._clock.sleep(seconds)
                family.hold_back()
                _end_pauses(family)
            seconds *= 2

    async def _what_runs(self, family: Family) -> str:
        children = _children_at_work(family)
        names = [f"{child.resource.group_resource} {child.request.name}" for child in children]
        if self._inflight_of(family).count(family.request) > sum(len(child.at_work) for child in children):
            names.insert(0, f"{family.main.group_resource} {family.request.name}")
        more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
        what = [f"handlers of {', '.join(names[:NAMED] + more)}"] if names else []
        if await self._daemons.any_of(family):
            what.append("daemons or timers")
        return " and ".join(what) or "writes"

    def _at_work(self, family: Family) -> bool:
        # By its uid: another object that had its name is a family of its own, which may be at work at any time.
        return family.uid in self._inflight_of(family).uids(family.request)

    def _inflight_of(self, family: Family) -> InFlight:
        return self._inflight[family.main.group_resource]


def _impatient(settings: kopf.OperatorSettings) -> kopf.OperatorSettings:
    """The same, by which kopf tries a write once more; else it would do for a minute, and not look at any news."""
    return replace(settings, networking=replace(settings.networking, error_backoffs=(AGAIN_SECONDS,)))


def _end_pauses(family: Family) -> None:
    """End the pauses that kopf makes for retries, up to ten minutes in its task of the object: no drain waits for them.

    A handler that runs cannot be told from a pause; it goes on, and a pause after it is none.
    """
    for child in _children_at_work(family):
        child.stopped = True
        for wake in child.at_work:
            wake.set()


def _children_at_work(family: Family) -> list[Child]:
    return [child for child in family.children.values() if child.at_work]
