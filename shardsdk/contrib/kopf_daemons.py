"""Daemons and timers of kopf, as far as a shard has to end them before kopf would."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import kopf
from kopf._core.engines.daemons import Daemon, stop_daemons

from shardsdk.contrib.kopf_families import Family
from shardsdk.kube.clock import Clock

#: How often daemons that were told to stop are looked at.
LOOK_SECONDS: Final = 1.0

Process = Callable[..., Awaitable[str | None]]


class Daemons:
    """What kopf's `memories` say of daemons and timers; those that are told to end are cancelled `limit` seconds later.

    Without a limit they are waited for as long as they take.
    """

    def __init__(self, memories: Any, clock: Clock, limit: float | None) -> None:
        self._memories = memories
        self._clock = clock
        self._limit = limit

    async def any_of(self, family: Family) -> bool:
        """Whether one runs for the main object or for what it controls."""
        return any([await self._running(uid) for uid in (family.uid, *family.children)])

    async def end(self, family: Family, settings: kopf.OperatorSettings) -> None:
        """Tell those of a family to stop as kopf does, wait for them, cancel them at the limit."""
        began = self._clock.monotonic()
        while await self.any_of(family):
            each_ones = []
            for uid in (family.uid, *family.children):
                running = await self._running(uid)
                if running and (child := family.children.get(uid)) is not None:
                    child.stopped = True
                each_ones.append(running)
            await self._stop(each_ones, settings, began)

    def outlived_by(self, process: Process) -> Process:
        """Kopf's `process`, which has ended the daemons of an object that was deleted when it returns.

        Kopf forgets those that run then, and has begun them if there was no time for its finalizer: they would go on
        for as long as the process does, and no drain of their owner would know of them.
        """

        async def processed(*, raw_event: dict[str, Any], settings: kopf.OperatorSettings, **more: Any) -> str | None:
            if raw_event["type"] != "DELETED":
                return await process(raw_event=raw_event, settings=settings, **more)
            began = self._clock.monotonic()
            running = await self._running(raw_event["object"]["metadata"]["uid"])
            version = await process(raw_event=_being_deleted(raw_event), settings=settings, **more)
            while running:
                await self._stop([running], settings, began)
            return version

        return processed

    async def _stop(self, each_ones: list[dict[Any, Daemon]], settings: kopf.OperatorSettings, began: float) -> None:
        """Tell some objects' daemons to stop; returns when one may have, or when there is more to do about them."""
        delays: list[float] = []
        left: list[Daemon] = []
        limit = self._limit
        for running in each_ones:
            reason = kopf.DaemonStoppingReason.FILTERS_MISMATCH
            delays += await stop_daemons(settings=settings, daemons=running, reason=reason)
            left += running.values()
        if limit is not None and self._clock.monotonic() - began >= limit:
            for daemon in left:
                daemon.task.cancel()
        if left:
            waits = [LOOK_SECONDS, *delays] if limit is None else [LOOK_SECONDS, limit or LOOK_SECONDS, *delays]
            await asyncio.wait([each.task for each in left], timeout=min(waits))

    async def cancel(self, uid: str) -> None:
        """Cancel those of an object that is not this shard's any more."""
        for daemon in list((await self._running(uid)).values()):
            daemon.stopper.set(reason=kopf.DaemonStoppingReason.FILTERS_MISMATCH)
            daemon.task.cancel()

    def cancel_all(self) -> None:
        """Cancel every one: the shard may work on nothing any more."""
        for daemons in self._memories.iter_all_daemon_memories():
            for daemon in list(daemons.running_daemons.values()):
                daemon.stopper.set(reason=kopf.DaemonStoppingReason.OPERATOR_EXITING)
                daemon.task.cancel()

    async def _running(self, uid: str) -> dict[Any, Daemon]:
        memory = await self._memories.recall({"metadata": {"uid": uid}}, ephemeral=True)
        running: dict[Any, Daemon] = memory.daemons_memory.running_daemons
        return running


def _being_deleted(raw: dict[str, Any]) -> dict[str, Any]:
    """The event of an end as kopf has it of an object with its finalizer: of others it would begin daemons anew."""
    body, metadata = raw["object"], raw["object"]["metadata"]
    if metadata.get("deletionTimestamp"):
        return raw
    ended = {**metadata, "deletionTimestamp": metadata.get("creationTimestamp", "")}
    return {**raw, "object": {**body, "metadata": ended}}
