"""All that one leadership runs: one controller per ring, begun and ended as rings come and go.

Nothing below this knows of more than one ring, but for the watches that all of them share.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from sharder.cache.freshness import LISTING_SECONDS
from sharder.cache.namespaces import Namespaces
from sharder.cache.rings import LeaseKey, RingCache
from sharder.core.shards import State
from sharder.core.summary import Summary
from sharder.rings.deps import LOOKUPS_AT_ONCE, RingDeps, RingSettings
from sharder.rings.other_leaders import OtherLeaders
from sharder.rings.ring_controller import RingController
from sharder.rings.watch_count import WatchCount
from sharder.rings.webhook_configurations import WebhookConfigurations
from sharder.takeover.fences import CommitProof
from sharder.takeover.leadership import Leadership
from shardsdk.kube.pace import AtMostEvery
from shardsdk.kube.reflector import Delta
from shardsdk.lease.election import Recorder
from shardsdk.protocol.objects import PartialObject, SlimMeta

log = logging.getLogger(__name__)

#: So long a leader that has heard nothing of leases or rings lately waits to hear of them, and does not act on what it
#: knew.  Where they may not be read it leads all the same, and says so in the rings.
HEAR_SECONDS: Final = 20.0


class Leader:
    """The rings of one leadership; `on_settled(ring)` is told when everything of one has moved that had to."""

    def __init__(
        self,
        leadership: Leadership,
        cache: RingCache,
        settings: RingSettings,
        others: OtherLeaders,
        *,
        proof: CommitProof,
        recorder: Recorder,
        on_settled: Callable[[str], object],
    ) -> None:
        api, clock, rng = leadership.api, leadership.clock, leadership.rng
        self._cache = cache
        self._clock = clock
        self._namespaces = Namespaces(api, clock=clock, rng=rng, on_change=self._on_namespace)
        self._configurations = WebhookConfigurations(
            api, leader=leadership.fence, clock=clock, rng=rng,
            is_ring=lambda ring: cache.get(ring) is not None, on_change=self._on_configuration,
        )  # fmt: skip
        self._deps = RingDeps(
            leadership, settings, proof, recorder, self._namespaces, self._configurations, WatchCount(cache),
            asyncio.Semaphore(LOOKUPS_AT_ONCE), on_settled, others,
        )  # fmt: skip
        self._others = others
        others.when_changed.append(self._reconcile_all)
        self._rings: dict[str, RingController] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._restarts = AtMostEvery(LISTING_SECONDS)  # where much moves, each lists much

    def webhook_changed(self) -> None:
        """What webhook configurations are made from has changed."""
        self._reconcile_all()

    def _reconcile_all(self) -> None:
        for controller in self._rings.values():
            controller.enqueue()

    async def give_all_back(self) -> None:
        """Give back every lease that is held, once no controller runs any more."""
        await asyncio.gather(*(controller.takeover.give_all_back() for controller in self._rings.values()))

    # -- running -----------------------------------------------------------

    async def run(self) -> None:
        """Lead until cancelled."""
        # What a replica knew before it was cut off may be over: a shard that said that it leaves has a successor, say.
        await self._cache.until_heard(HEAR_SECONDS)
        undo = (
            self._cache.subscribe(self._on_change),
            self._cache.follow_leases(self._on_lease),
            self._cache.when_behind(self._restart_watches),
        )
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                tasks.create_task(self._namespaces.run())
                tasks.create_task(self._configurations.run())
                tasks.create_task(self._others.run())
                for ring in self._cache.all():
                    self._begin(ring.name)
                await asyncio.Event().wait()
            finally:
                self._tasks = None
                for each in undo:
                    each()

    def _begin(self, name: str) -> RingController | None:
        """The controller of a ring, which begins now if there is none yet; `None`: nothing has begun yet."""
        if name not in self._rings and self._tasks is not None:
            controller = self._rings[name] = RingController(name, self._deps, self._cache)
            self._tasks.create_task(self._run(controller))
        return self._rings.get(name)

    async def _run(self, controller: RingController) -> None:
        await controller.run()
        del self._rings[controller.name]
        if self._cache.get(controller.name) is not None:
            self._begin(controller.name)  # another ring of that name

    # -- what the caches tell ------------------------------------------------

    def _on_change(self, ring: str, what: int) -> None:
        if self._cache.get(ring) is not None:
            self._begin(ring)
        if (controller := self._rings.get(ring)) is not None:
            controller.on_change(what)

    def _on_lease(self, ring: str, lease: LeaseKey) -> None:
        if (controller := self._rings.get(ring)) is not None:
            controller.takeover.on_lease(lease)

    def _on_namespace(self, name: str, before: SlimMeta | None, after: SlimMeta | None) -> None:
        for controller in self._rings.values():
            controller.on_namespace(name, before, after)

    def _on_configuration(self, ring: str, delta: Delta[PartialObject]) -> None:
        # Also for a ring that is gone: nobody may have been there to remove it.
        if (controller := self._begin(ring)) is not None:
            controller.on_configuration(delta)

    def _restart_watches(self) -> None:
        if not self._restarts.passes(self._clock.monotonic()):
            return
        self._namespaces.reflector.restart()
        for controller in self._rings.values():
            controller.restart_watches()

    # -- for people --------------------------------------------------------

    def states(self) -> Iterator[tuple[str, Summary, Mapping[LeaseKey, State]]]:
        """What each ring waits for, and the states of its leases."""
        for ring, controller in list(self._rings.items()):
            try:
                yield ring, controller.summarize(), controller.takeover.states()
            except Exception:
                log.exception("state of a ring not summed up", extra={"ring": ring})
