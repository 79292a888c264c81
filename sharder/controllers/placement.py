"""Leader's part: one controller per ring, begun and ended as rings come and go.

Refuses: to place anything before the caches are in.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Final

from sharder.controllers.refusals import Refused
from sharder.controllers.registry import LeaseKey, Registry
from sharder.controllers.ringcontroller import RingController
from sharder.controllers.ringsummary import Summary
from sharder.controllers.seen import Placed, SeenMeta
from sharder.controllers.surroundings import Surroundings
from sharder.core.ringspec import ResolvedMain, Role, Subject
from sharder.core.shards import State
from shardsdk.protocol.objects import Resource

log = logging.getLogger(__name__)

#: How often the sums are looked at that people see.
SUMMARY_SECONDS: Final = 1.0
#: Shortest pause between two restarts of all watches: where much moves, each lists much.
RESTART_WATCHES_SECONDS: Final = 30.0


class PlacementController:
    """The rings of one leader.

    `retired_of(ring)` names resources that the ring listed once and whose
    objects may still be labelled, each with whether it was controlled; `None`
    while what the ring lists now has not been written down.  `on_refused` is told
    now and then which patches the API server refuses.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        around: Surroundings,
        retired_of: Callable[[str], tuple[Placed, ...] | None],
        on_summary: Callable[[str, Summary], None],
        on_refused: Callable[[str, Refused], None] = lambda ring, refused: None,
    ) -> None:
        self._clock = around.clock
        self._registry = registry
        self._around = around
        self._namespaces = around.namespaces
        self._retired_of = retired_of
        self._on_summary = on_summary
        self._on_refused = on_refused
        self._rings: dict[str, RingController] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._restarted_at = float("-inf")

    def states(self, ring: str) -> Mapping[LeaseKey, State]:
        """The state of each of a ring's leases, by (namespace, name)."""
        controller = self._rings.get(ring)
        return controller.takeover.states() if controller is not None else {}

    async def give_all_back(self) -> None:
        """Give back every lease that is held, once no controller runs any more."""
        await asyncio.gather(*(controller.takeover.give_all_back() for controller in self._rings.values()))

    # -- running -----------------------------------------------------------

    async def run(self) -> None:
        """Place until cancelled."""
        unsubscribe = self._registry.subscribe(self._on_change)
        unfollow = self._registry.follow_leases(self._on_lease)
        no_longer = self._registry.when_behind(self._restart_watches)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for entry in self._registry.entries():
                    self._begin(entry.name)
                await self._look()
        finally:
            no_longer()
            unfollow()
            unsubscribe()

    def _begin(self, name: str) -> None:
        """Have a ring followed that is not yet."""
        if self._tasks is None or name in self._rings or self._registry.entry(name) is None:
            return
        controller = self._rings[name] = RingController(
            name, self._around, self._registry,
            retired_of=functools.partial(self._retired_of, name),
            on_summary=functools.partial(self._on_summary, name),
        )  # fmt: skip
        self._tasks.create_task(self._run(controller))

    async def _run(self, controller: RingController) -> None:
        await controller.run()
        del self._rings[controller.name]
        # There may be another ring of that name by now.
        self._begin(controller.name)

    def refresh(self, ring: str) -> None:
        """The ring, or what it has retired, may have changed."""
        self._begin(ring)
        if (controller := self._rings.get(ring)) is not None:
            controller.refresh()

    def _on_change(self, ring: str, what: int) -> None:
        self._begin(ring)
        if (controller := self._rings.get(ring)) is not None:
            controller.on_change(what)

    def _on_lease(self, ring: str, lease: LeaseKey) -> None:
        if (controller := self._rings.get(ring)) is not None:
            controller.takeover.on_lease(lease)

    def on_namespace(self, name: str, before: SeenMeta | None, after: SeenMeta | None) -> None:
        """A namespace came, changed its labels or went."""
        for controller in self._rings.values():
            controller.on_namespace(name, before, after)

    def _restart_watches(self) -> None:
        now = self._clock.monotonic()
        if now - self._restarted_at < RESTART_WATCHES_SECONDS:
            return
        self._restarted_at = now
        self._namespaces.reflector.restart()
        for controller in self._rings.values():
            controller.restart_watches()

    # -- for people --------------------------------------------------------

    async def _look(self) -> None:
        while True:
            for ring, controller in list(self._rings.items()):
                try:
                    if (refused := controller.look(self._clock.monotonic())) is not None:
                        self._on_refused(ring, refused)
                except Exception:
                    log.exception("state of a ring not summed up", extra={"ring": ring})
            await self._clock.sleep(SUMMARY_SECONDS)


def retire(resource: Resource, *, controlled: bool) -> Placed:
    """A resource that the ring lists no longer, as placement sees it."""
    main = ResolvedMain(resource)
    return Placed(Subject(Role.CONTROLLED if controlled else Role.MAIN, resource, main), retired=True)
