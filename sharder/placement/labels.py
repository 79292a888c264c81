"""Assignment by labels: one ring's placement, ended and begun anew as the ring is edited.

Satisfies `sharder.rings.assignment.Assignment`, by which the ring's controller knows it.

What a ring is made of lives as long as it does: its backlog, with informers, drain
ages and expectations, whatever is edited.  Placement is made anew with each edit,
and only when the old one has ended and nothing that it has sent can be executed any
more; else the two could move parts of one family to different shards.  Mostly that takes the moment until
what is under way is answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace

from sharder.backlog.backlog import Backlog
from sharder.backlog.scope import Members, RingScope, Wanted
from sharder.cache.namespaces import Namespaces, excluded_by_name
from sharder.core.ringspec import LetGo
from sharder.core.summary import Refused, Summary
from sharder.placement.expectations import Expectations
from sharder.placement.failing import Failing
from sharder.placement.placement import Ground, Pace, Placement
from sharder.placement.stranded import StrandedHandler
from sharder.placement.summary import removed_clean, summarize
from sharder.takeover.controller import TakeoverController
from sharder.takeover.leadership import Leadership
from sharder.tasks import end
from shardsdk.kube.turns import FLOW
from shardsdk.protocol.objects import SlimMeta

log = logging.getLogger(__name__)

#: Pause before a ring is begun anew whose placement ended with an error.
RESTART_SECONDS: Final = 5.0
#: How long what is under way may take to be answered before a placement is ended without that: what it has sent then
#: counts as under way until its time at the API server is over.
FINISH_SECONDS: Final = 1.0


class LabelAssignment:
    """Runs the placement of one ring that is wanted; `run` it."""

    def __init__(
        self, name: str, leadership: Leadership, namespaces: Namespaces, takeover: TakeoverController, *, pace: Pace
    ) -> None:
        self._name = name
        self._lead = leadership
        self._namespaces = namespaces
        self._pace = pace
        self._takeover = takeover
        takeover.when_ready.append(self.membership_changed)
        takeover.when_acquired.append(self._take_from)
        #: Told whenever what `summarize` says may be another than before; often, so be quick.
        self.when_changed: list[Callable[[], None]] = []
        #: What is to be placed; `None`: nothing.
        self.wanted: Wanted | None = None
        self._placed: Wanted | None = None
        self._ground: Ground | None = None
        self._unfollow: Callable[[], None] = lambda: None
        self._keeping: asyncio.Task[None] | None = None
        self._placement: Placement | None = None
        self._placing: asyncio.Task[None] | None = None
        self._failed = False
        self._failing = Failing()
        #: Whether something that was sent before may still be executed; by an assignment before this one, too.
        self._unsettled = True
        self._wake = asyncio.Event()

    # -- what happens to the ring --------------------------------------------

    def place(self, wanted: Wanted | None) -> None:
        """Have this placed from now on, and nothing else.

        Every resource of it has been written down in the ring's status before: objects get labels from now on.
        """
        if wanted != self.wanted:
            self.wanted = wanted
            self._wake.set()

    def membership_changed(self) -> None:
        """Other shards are there, or ready, than before."""
        if self._ground is None:
            return
        self._ground.members.learn(self._takeover.membership, self._lead.clock.monotonic())
        if self._placement is not None:
            self._placement.membership_changed()
        self._tell_changed()

    def namespace_changed(self, name: str, before: SlimMeta | None, after: SlimMeta | None) -> None:
        """A namespace came, changed its labels or went."""
        if self._ground is None:
            return  # a ring that begins lists everything
        ring, namespaces = self._ground.scope.ring, self._namespaces
        if excluded_by_name(ring) is not None or namespaces.covered(ring, before) == namespaces.covered(ring, after):
            return
        if self._placement is not None:
            self._placement.namespace_changed(name, gone=after is None)
        else:  # it is being made anew, and its watches go on
            self._ground.backlog.unsettled_namespaces.add(name)
        self._tell_changed()

    def restart_watches(self) -> None:
        """Begin every watch anew: an API server may hang, and say nothing of it."""
        if self._placement is not None:
            self._placement.restart_watches()

    def _take_from(self, shard: str) -> None:
        # A placement that begins later looks at everything anyway.
        if self._placement is not None:
            self._placement.take_from(shard)

    # -- what is found -------------------------------------------------------

    def summarize(self) -> Summary:
        """What the ring waits for."""
        now = self._lead.clock.monotonic()
        found = Summary(at_rest=True) if self._placement is None else summarize(self._placement, now)
        if not self._failing.lately(now):
            return found
        return replace(found, at_rest=False, trouble=self._failing.words(now))

    @property
    def removed_clean(self) -> frozenset[LetGo]:
        """Removed resources of which no object has labels any more, and those that were main and are with their owners.

        A placement that is about to be replaced says nothing: one that is listed again may have got labels since.
        """
        if self._placement is None or self._placed != self.wanted:
            return frozenset()
        return removed_clean(self._placement)

    def take_refused(self) -> Refused | None:
        """News of objects whose labels cannot be changed, if there are any and it is time to tell them."""
        if self._placement is None:
            return None
        return self._placement.writer.refusals.take(self._lead.clock.monotonic())

    # -- running -------------------------------------------------------------

    async def run(self) -> None:
        """Place until cancelled."""
        # What is placed waits for turns among its own; a lease or a status does not wait behind ten thousand objects.
        FLOW.set(self._name)
        try:
            await self._namespaces.reflector.synced.wait()
            while True:
                try:
                    await self._follow()
                except Exception:
                    log.exception("ring not placed", extra={"ring": self._name})
                await self._wake.wait()
                self._wake.clear()
        finally:
            await self._end_placement()
            await self._forget()

    async def _follow(self) -> None:
        """Have that placed which is wanted now."""
        wanted = self.wanted
        # Of a placement that has ended its ground may be left: what is not wanted any more has neither.
        placed = wanted == self._placed and (wanted is not None or self._ground is None)
        if placed and not self._failed:
            return
        await self._finish_placement()
        if self._failed:
            self._failed = False
            await self._forget()
            await self._lead.clock.sleep(RESTART_SECONDS)
        elif wanted is None or (self._ground is not None and self._ground.scope.ring.spec.uid != wanted.ring.spec.uid):
            await self._forget()
        if self._unsettled:
            await self._lead.api.writes_settled()
            self._unsettled = False
        if wanted is not None and wanted == self.wanted:
            self._begin(wanted)
        else:
            self._wake.set()

    def _begin(self, wanted: Wanted) -> None:
        lead = self._lead
        before = self._ground
        scope = RingScope(
            wanted.ring, wanted.removed, self._namespaces, before.scope if before is not None else None,
            were_main=wanted.were_main,
        )  # fmt: skip
        if before is None:
            members = Members()
            backlog = Backlog(
                scope, members, lead.api,
                clock=lead.clock, rng=lead.rng, sync_period_seconds=self._pace.sync_period_seconds,
            )  # fmt: skip
            self._keeping = asyncio.create_task(self._guard(backlog.run))
            backlog.when_changed.append(self._tell_changed)
            self._takeover.set_work(backlog, backlog.namespaces_of)
            self._unfollow = backlog.subscribe(StrandedHandler(backlog, self._takeover))
            known: dict[int, Expectations] = {}
        else:
            members, backlog, known = before.members, before.backlog, dict(before.expectations)
            backlog.set_scope(scope)
        expectations = {number: known.get(number) or Expectations() for number in scope.resources}
        self._ground = Ground(scope, members, backlog, expectations)
        self.membership_changed()
        placement = Placement(lead, self._pace, self._ground, self._takeover)
        placement.writer.refusals.when_noted.append(self._tell_changed)
        self._placed, self._placement = wanted, placement
        self._tell_changed()
        self._placing = asyncio.create_task(self._guard(self._placement.run))

    async def _guard(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something, and have everything of the ring begun anew when it fails."""
        try:
            await run()
        except Exception as error:
            self._failing.failed(error, self._lead.clock.monotonic())
            log.exception("placement of a ring failed, begins anew", extra={"ring": self._name})
            # Nothing that is held still counts: what has failed may have been what kept it.
            self._ground = self._placement = None
            self._unsettled = True
            self._disown()
            self._tell_changed()
            self._failed = True
            self._wake.set()

    def _disown(self) -> None:
        """Nobody knows what shards have."""
        self._takeover.set_work(None)
        self._unfollow()
        self._unfollow = lambda: None

    def _tell_changed(self) -> None:
        for tell in self.when_changed:
            tell()

    async def _finish_placement(self) -> None:
        """End the placement, mostly once what it has sent is answered."""
        placement = self._placement
        if placement is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(FINISH_SECONDS):
                    await placement.writer.finish()
        await self._end_placement()
        if placement is not None and placement.writer.unanswered_until > self._lead.clock.monotonic():
            self._unsettled = True

    async def _end_placement(self) -> None:
        self._placed = self._placement = None
        self._tell_changed()
        task, self._placing = self._placing, None
        await end(task)

    async def _forget(self) -> None:
        self._ground = None
        self._disown()
        task, self._keeping = self._keeping, None
        await end(task)
