"""Going through everything that has a shard, to find what is on the wrong one.

Does: stream the labelled objects of a ring's resources when a shard arrives,
when one is ready again, when namespaces change, on the sync period, and once
more after the last membership change has had time to reach every replica.  When
that last pass finds nothing and nothing waits, the ring is settled.

Refuses: to keep what need not move.  A pass that a newer membership has
overtaken ends and begins anew.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from sharder.controllers.seen import Placed, SeenObject
from sharder.controllers.selections import Kind
from sharder.core.ringspec import Role
from shardsdk.errors import FenceClosed, ShardingError
from shardsdk.kube.selectors import Selector, exists

if TYPE_CHECKING:
    from sharder.controllers.placer import Placer

log = logging.getLogger(__name__)

#: Pause before a pass that failed or was found wanting is made again; doubles up to the second.
RETRY_SECONDS: Final = (1.0, 60.0)
#: Namespaces that are gone through one by one; more, and all are.
MAX_NAMESPACES: Final = 16


class Superseded(Exception):
    """The membership has changed under a pass."""


class Resync:
    """The passes over one ring's objects.

    `settled`: the last deep pass found nothing, and nothing has come up since.
    """

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._wake = asyncio.Event()
        self._wanted = False
        self._namespaces: set[str] = set()
        self._deep_at: float | None = None
        self._changed_at = placer.around.clock.monotonic()
        self._generation = 0
        self._pause = RETRY_SECONDS[0]
        self.settled = False
        #: Retired resources of which the last deep pass found no labelled object.
        self.retired_clean: frozenset[Placed] = frozenset()
        self.on_settled: list[asyncio.Event] = []

    # -- asking for passes -------------------------------------------------

    def membership_changed(self, *, arrived: bool, ready_again: bool) -> None:
        """Pass again: at once when a shard can take objects that it could not take before."""
        now = self._placer.around.clock.monotonic()
        self._generation += 1
        self._changed_at = now
        self._deep_at = now + self._placer.around.settle_after_seconds
        self._pause = RETRY_SECONDS[0]
        self.settled = False
        self._wanted = self._wanted or arrived or ready_again
        self._wake.set()

    def namespace_changed(self, namespace: str) -> None:
        """A namespace came into the ring's scope or left it."""
        self.unsettled()
        self._namespaces.add(namespace)
        self._wake.set()

    def unsettled(self) -> None:
        """Something waits to be placed."""
        if self.settled:
            self.settled = False
            self._deep_at = self._placer.around.clock.monotonic() + self._pause
            self._wake.set()

    def emptied(self) -> None:
        """Nothing may be waiting any more."""
        if not self.settled and self._deep_at is None and self._nothing_waits():
            self._deep_at = self._placer.around.clock.monotonic()
            self._wake.set()

    def _nothing_waits(self) -> bool:
        return not any(self._placer.count(kind) for kind in Kind)

    # -- running -----------------------------------------------------------

    async def run(self) -> None:
        """Make passes until cancelled."""
        clock = self._placer.around.clock
        next_sync = clock.monotonic() + self._placer.around.sync_period_seconds
        while True:
            due = min(next_sync, self._deep_at if self._deep_at is not None else next_sync)
            await self._wait_until(due)
            now = clock.monotonic()
            if now >= next_sync:
                self._deep_at = now
                next_sync = now + self._placer.around.sync_period_seconds
            if not self._placer.membership.available:
                self._wanted, self._deep_at = False, None
                self._namespaces.clear()
                continue
            deep = self._deep_at is not None and now >= self._deep_at
            namespaces, self._namespaces = self._namespaces, set()
            if not (deep or self._wanted or namespaces):
                continue
            await self._pass_guarded(deep, namespaces)

    async def _wait_until(self, moment: float) -> None:
        clock = self._placer.around.clock
        if not (self._wanted or self._namespaces):
            self._wake.clear()
            try:
                async with asyncio.timeout(max(0.0, moment - clock.monotonic())):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _pass_guarded(self, deep: bool, namespaces: set[str]) -> None:
        wanted, self._wanted = self._wanted, False
        generation = self._generation
        if deep:
            self._deep_at = None
        everywhere = deep or wanted or len(namespaces) > MAX_NAMESPACES
        try:
            if everywhere:
                found = await self._pass(generation, deep, None)
            else:
                found = sum([await self._pass(generation, True, name) for name in sorted(namespaces)])
        except Superseded:
            self._wanted = self._wanted or wanted
            return
        except (ShardingError, FenceClosed) as error:
            log.warning("resync failed, will retry", extra={"ring": self._placer.name, "error": str(error)})
            self._namespaces |= namespaces
            self._later(deep=True)
            if wanted:
                await self._placer.around.clock.sleep(RETRY_SECONDS[0])
                self._wanted = True
            return
        if deep and generation == self._generation:
            self._conclude(found)

    def _conclude(self, found: int) -> None:
        now = self._placer.around.clock.monotonic()
        if found or not self._nothing_waits():
            self._later(deep=True)
        elif now - self._changed_at >= self._placer.around.settle_after_seconds:
            self._pause = RETRY_SECONDS[0]
            if not self.settled:
                self.settled = True
                log.info("ring settled", extra={"ring": self._placer.name})

    def _later(self, *, deep: bool) -> None:
        if deep:
            self._deep_at = self._placer.around.clock.monotonic() + self._pause
            self._pause = min(2 * self._pause, RETRY_SECONDS[1])

    # -- one pass ----------------------------------------------------------

    async def _pass(self, generation: int, deep: bool, namespace: str | None) -> int:
        """Go through everything, or one namespace; returns how many objects were found misplaced.

        Children move with their owners, so a shallow pass leaves them out: while
        owners are on their way, nearly all children differ from the ring's answer.
        """
        clock = self._placer.around.clock
        started = clock.monotonic()
        seen = found = 0
        clean = set()
        for index, placed in enumerate(self._placer.placed):
            if not deep and placed.subject.role is Role.CONTROLLED:
                continue
            if namespace is not None and not placed.subject.resource.namespaced:
                continue
            before = seen
            unlabelled = namespace is not None or (deep and self._placer.unwatched(index) and not placed.retired)
            selector = Selector() if unlabelled else Selector(labels=exists(self._placer.labels.shard))
            async for batch in self._placer.around.api.stream(
                placed.subject.resource, namespace, selector=selector, model=SeenObject, metadata_only=True
            ):
                if generation != self._generation:
                    raise Superseded
                seen += len(batch)
                for obj in batch:
                    if self._differs(placed, obj):
                        found += 1
                        await self._placer.offer_misplaced(index, obj)
            if placed.retired and deep and namespace is None and seen == before:
                clean.add(placed)
        if deep and namespace is None:
            self.retired_clean = frozenset(clean)
        self._placer.around.counters.resynced(self._placer.name, seen, found, clock.monotonic() - started)
        return found

    def _differs(self, placed: Placed, obj: SeenObject) -> bool:
        """Whether a worker has to look at the object: by the ring's answer alone, no look-ups."""
        placer, meta = self._placer, obj.metadata
        label = meta.label(placer.labels.shard)
        if placed.retired:
            return label is not None and meta.label(placer.labels.drain) is None
        in_scope = placer.around.scope.covers(placer.ring, meta.namespace)
        if label is None:
            return in_scope and placer.key_of(placed, meta) is not None
        if placed.subject.role is Role.MAIN and meta.label(placer.labels.drain) is not None:
            return False
        if not in_scope:
            return True
        key = placer.key_of(placed, meta)
        if key is None or label not in placer.membership.available:
            return False
        return placer.membership.target(key) != label
