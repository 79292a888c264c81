"""Daemons and timers of kopf, as far as a shard has to end them before kopf would."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import kopf
from kopf._core.engines.daemons import Daemon, stop_daemons

from shardsdk.contrib.kopf_families import Family
from shardsdk.kube.clock import Clock

#: How often daemons that were told to stop are looked at.
LOOK_SECONDS: Final = 1.0


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
        began, limit = self._clock.monotonic(), self._limit
        while await self.any_of(family):
            delays: list[float] = []
            left: list[Daemon] = []
            for uid in (family.uid, *family.children):
                running = await self._running(uid)
                if running and (child := family.children.get(uid)) is not None:
                    child.stopped = True
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
