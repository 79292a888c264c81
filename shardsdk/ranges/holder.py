"""A shard's side of its ring's RingAssignment, carried out: it watches, writes its Lease, looks, and waits for ends.

    holder = RangeHolder(api, lease, HashBy.NAMESPACE, ended=nothing_runs, on_change=caches.follow, ...)
    await holder.run()                       # beside the controllers, as long as the lease is held
    point in holder.working                  # may a reconcile of an object at this point begin?

What follows from what is `shardsdk.ranges.parts`; this is the shell around it.

Guarantees (tests/unit/shardsdk/ranges/test_holder.py, whatever anybody writes into the
assignment, and whoever crashes or hangs): two shards that hold their leases never
work on one point.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any, Final, Protocol

from shardsdk.errors import ConfigurationError, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.doubts import past_owed
from shardsdk.kube.reflector import Delta, EventKind, Reflector
from shardsdk.kube.selectors import Selector, equals
from shardsdk.lease.hold import Hold
from shardsdk.logs import logger_of
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.ranges import (
    NOWHERE,
    RING_ASSIGNMENTS,
    HashBy,
    HashRanges,
    Named,
    homes_of,
    named_by,
    read_spec,
    render_bound,
)
from shardsdk.ranges.counts import COUNT_SECONDS, NamespaceCounts
from shardsdk.ranges.look import look
from shardsdk.ranges.parts import Changes, LeftRanges, Part, Parts

log: Final = logger_of(__name__)

#: A look that takes longer has failed: there is one at a time, and others wait for it.
LOOK_SECONDS: Final = 15.0


class HoldsRanges(Protocol):
    """The shard's lease, which is held (`ShardLease`)."""

    ring: RingLabels
    name: str
    namespace: str
    on_held: Callable[[int], None]

    @property
    def fence(self) -> Hold:
        """The hold, which says how long what another process of this name had sent may be executed, and where."""

    def hold_ranges(self, ranges: HashRanges, number: int) -> None:
        """Have the Lease say so at once; `on_held(number)` once it does."""

    def tell_counts(self, counts: str) -> None:
        """Have the Lease say so with its next renewal (`render_counts`)."""


class RangeHolder:
    """Says where `lease`'s shard may work, of a space hashed `by` something; `run` it while the lease is held.

    `ended(ranges)` returns when no reconcile runs any more that began in these, and every
    write of this shard is answered or dead.  `on_change` is told at once what is gained,
    revoked and dropped; it may neither wait nor raise.  `namespaces` gives the namespace of each
    object that is cached, which the Lease tells the number of where namespaces are hashed.
    """

    def __init__(
        self,
        api: Api,
        lease: HoldsRanges,
        by: HashBy,
        *,
        ended: Callable[[HashRanges], Awaitable[object]],
        on_change: Callable[[Changes], object],
        namespaces: Callable[[], Iterable[str]] | None = None,
        clock: Clock,
        rng: Random,
    ) -> None:
        self.by: Final = by
        self._api = api
        self._lease = lease
        self._ended = ended
        self._on_change = on_change
        self._namespaces = namespaces if by is HashBy.NAMESPACE else None
        self._clock = clock
        self._rng = rng
        self._parts = Parts()
        self._left = LeftRanges()
        self._written = 0
        self._tasks: asyncio.TaskGroup | None = None
        self._pausing = False
        #: Whether the last assignment that said namespaces named another shard of this name, in another.
        self._other_named = False
        #: Who is named for what, as the watch has shown it last; `None`: not known.
        self.named: Named | None = None
        self._assignments: Reflector[dict[str, Any]] = Reflector(
            api,
            RING_ASSIGNMENTS,
            selector=Selector(fields=equals("metadata.name", lease.ring.ring)),
            model=dict,
            handler=self._on_assignment,
            clock=clock,
            rng=rng,
        )

    @property
    def working(self) -> HashRanges:
        """Where a reconcile may begin."""
        return self._parts.working

    @property
    def ending(self) -> HashRanges:
        """Where none may begin any more, and some may still run."""
        return self._parts.of(Part.ENDING)

    @property
    def held(self) -> HashRanges:
        """What the Lease is to say."""
        return self._parts.held

    def part_at(self, point: int) -> Part:
        """How far this shard is with a point."""
        return next(part for part in Part if point in self._parts.of(part))

    def describe(self, point: int) -> str:
        """Who is named for a point, and how far this shard is with it, for people."""
        named = "nobody knows who is named there" if self.named is None else f"named for {self.named.shard_at(point)}"
        if self.named is not None and self.named.shard_at(point) is None:
            named = "nobody is named there: it is changing hands"
        return f"its hash is {render_bound(point)}, {named}; {self._lease.name}: {self.part_at(point).value}"

    async def run(self) -> None:
        """Follow the assignment until cancelled; nothing is held in the end."""
        self._lease.on_held = self._on_written
        try:
            async with asyncio.TaskGroup() as self._tasks:
                try:
                    # Be it nothing: the sharder names nobody who does not say what it holds.
                    self._parts = Parts(self._lease.fence.owed_ranges)
                    self._follow(Changes())
                    self._tasks.create_task(self._pay(), name="ranges/pay")
                    if self._namespaces is not None:
                        self._tasks.create_task(self._count(self._namespaces), name="ranges/count")
                    await self._assignments.run()
                finally:
                    # What is written while the rest ends asks for nothing more.
                    self._tasks = None
        finally:
            self._parts.lost()

    # -- events -----------------------------------------------------------------

    def _on_assignment(self, delta: Delta[dict[str, Any]]) -> None:
        self.named = None
        try:
            if delta.kind is not EventKind.DELETED:
                self.named = self._read(delta.object)
            error = "it was deleted"
        except ConfigurationError as wrong:
            error = str(wrong)
        if self.named is None:
            log.warning(
                "The ring's assignment says nothing; this shard keeps what it has, and takes nothing",
                extra={**self._where(), "error": error},
            )
        self._follow(self._parts.assigned(None if self.named is None else self.named.of(self._lease.name)))

    def _read(self, assignment: dict[str, Any]) -> Named:
        """Who is named; by one without namespaces, as an older sharder writes it, this name is whose it was before."""
        shard, homes = self._lease.name, homes_of(read_spec(assignment))
        named = named_by(assignment, self.by, (shard, self._lease.namespace))
        if said := homes.get(shard, frozenset()) - {""}:
            self._other_named = self._lease.namespace not in said
        elif self._other_named and shard in named.shards:
            log.warning(
                "The ring's assignment does not say which shard of this name it names; this one takes nothing",
                extra={**self._where(), "namespace": self._lease.namespace},
            )
            return Named(named.by, {name: ranges for name, ranges in named.shards.items() if name != shard})
        return named

    def _on_written(self, number: int) -> None:
        self._follow(self._parts.written(number))

    async def _look(self, asked: HashRanges) -> None:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                ring, shard, where = self._lease.ring.ring, self._lease.name, self._lease.namespace
                free = await look(self._api, ring, shard, self.by, where, self._left, self._clock)
        except (ShardingError, TimeoutError) as error:
            log.warning(
                "Nobody knows whether ranges are free that this shard is named for; it looks again",
                extra={**self._where(), "ranges": str(asked), "error": str(error) or "no answer"},
            )
            free = NOWHERE
        self._follow(self._parts.looked(free))

    async def _end(self, ranges: HashRanges) -> None:
        await self._ended(ranges)
        self._follow(self._parts.ended(ranges))

    async def _pay(self) -> None:
        """Give away what only the process before this one had, once nothing of what it sent can be executed."""
        await past_owed([self._lease.fence], self._clock)
        self._follow(self._parts.paid())

    async def _retry(self) -> None:
        await self._clock.sleep(self._parts.pause(self._rng.random()))
        self._pausing = False
        self._follow(self._parts.retry())

    async def _count(self, namespaces: Callable[[], Iterable[str]]) -> None:
        """Tell what lies where, for as long as the lease is held; only what has changed."""
        counts, told = NamespaceCounts(), ""
        while True:
            await self._clock.sleep(COUNT_SECONDS)
            says = counts.count(namespaces(), self.working)
            if says != told:
                told = says
                self._lease.tell_counts(says)

    # -- what follows -----------------------------------------------------------

    def _follow(self, changes: Changes) -> None:
        """Do what an event asks for."""
        if self._tasks is None:
            return  # the end has come: nothing is held any more
        if self._written != self._parts.number:
            self._written = self._parts.number
            self._lease.hold_ranges(self._parts.held, self._written)
        if changes.gained:
            log.info("Ranges of hashes gained", extra={**self._where(), "ranges": str(changes.gained)})
        if changes != Changes():
            self._on_change(changes)
        if changes.revoked:
            log.info("Ranges of hashes are to be given away", extra={**self._where(), "ranges": str(changes.revoked)})
            self._tasks.create_task(self._end(changes.revoked), name="ranges/end")
        if self._parts.look_due:
            self._tasks.create_task(self._look(self._parts.look()), name="ranges/look")
        if self._parts.waiting and not self._pausing:
            self._pausing = True
            self._tasks.create_task(self._retry(), name="ranges/retry")

    def _where(self) -> dict[str, object]:
        return {"ring": self._lease.ring.ring, "shard": self._lease.name}
