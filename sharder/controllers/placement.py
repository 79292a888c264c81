"""Leader's part: one controller per ring, begun and ended as rings come and go.

Refuses: to place anything before the caches are in.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Final

from sharder.controllers.namespaces import Namespaces
from sharder.controllers.refusals import Refused
from sharder.controllers.registry import Registry
from sharder.controllers.ringcontroller import RingController
from sharder.controllers.ringsummary import Summary
from sharder.controllers.seen import Placed, SeenMeta
from sharder.controllers.surroundings import Surroundings
from sharder.core.ringspec import ResolvedMain, Role, Subject
from shardsdk.kube.clock import Clock
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
        namespaces: Namespaces,
        *,
        make_surroundings: Callable[[], Surroundings],
        retired_of: Callable[[str], tuple[Placed, ...] | None],
        on_summary: Callable[[str, Summary], None],
        on_refused: Callable[[str, Refused], None] = lambda ring, refused: None,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._registry = registry
        self._namespaces = namespaces
        self._make_surroundings = make_surroundings
        self._retired_of = retired_of
        self._on_summary = on_summary
        self._on_refused = on_refused
        self._rings: dict[str, RingController] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._restarted_at = float("-inf")

    # -- the leases' side asks ---------------------------------------------

    def work_left(self, ring: str, shard: str) -> bool | None:
        """Whether objects are seen that carry the shard's label; `None` while not known."""
        controller = self._rings.get(ring)
        empty = controller.is_empty_of(shard) if controller is not None else None
        return None if empty is None else not empty

    async def confirm_empty(self, ring: str, shard: str) -> bool:
        """A consistent read: does no object carry the shard's label any more?"""
        controller = self._rings.get(ring)
        return controller is not None and await controller.confirm_empty_of(shard)

    def hold_acquired(self, ring: str, shard: str) -> None:
        """The shard's objects may be moved from now on."""
        if (controller := self._rings.get(ring)) is not None:
            controller.hold_acquired(shard)

    # -- running -----------------------------------------------------------

    async def run(self) -> None:
        """Place until cancelled."""
        unsubscribe = self._registry.subscribe(self._on_change)
        no_longer = self._registry.when_behind(self._restart_watches)
        try:
            await self._namespaces.reflector.synced.wait()
            async with asyncio.TaskGroup() as self._tasks:
                for entry in self._registry.entries():
                    self._begin(entry.name)
                await self._look()
        finally:
            no_longer()
            unsubscribe()

    def _begin(self, name: str) -> None:
        """Have a ring followed that is not yet."""
        if self._tasks is None or name in self._rings or self._registry.entry(name) is None:
            return
        controller = self._rings[name] = RingController(
            name, self._make_surroundings(), self._registry,
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
