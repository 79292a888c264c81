"""Going through everything that has a shard, to find what is on the wrong one.

The labelled objects of a ring's resources are streamed when a shard arrives, when one
is ready again, when namespaces change, on the sync period, and once more after the
last membership change has had time to reach every replica.  When that last pass finds
nothing, the ring is settled as long as nothing waits.  When to pass, and what the end
of a pass means, is a table: `sharder.core.resync`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from sharder.backlog.backlog import Backlog
from sharder.backlog.lists import read_all
from sharder.backlog.objects import ItemKey, RingResource
from sharder.backlog.scope import Members, RingScope
from sharder.core.membership import Membership
from sharder.core.resync import (
    NOTHING,
    Asked,
    Event,
    ResyncState,
    Round,
    begin,
    compare,
    conclude,
    due,
    is_settled,
    is_superseded,
    on,
)
from sharder.core.ringspec import Role
from sharder.core.sifting import Sieve
from sharder.core.summary import Pending
from sharder.placement.rejections import Refusals
from sharder.placement.transit import Transit
from sharder.takeover.leadership import Counters
from shardsdk.errors import ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.selectors import Selector, exists
from shardsdk.protocol.objects import SlimMeta, SlimObject

log = logging.getLogger(__name__)

#: With so many misplaced objects waiting at most, a pass turns to the next page; each takes more than a kilobyte.
FEW_MISPLACED: Final = 1_000
#: Namespaces that are gone through one by one; more, and all are.
MAX_NAMESPACES: Final = 16
#: Between two pages a pass has those get on that wait, as long as they do: one of them within so long.
PROGRESS_SECONDS: Final = 1.0
#: So long in all, since the API server forgets what a list began with after five minutes.
#: Source: kube-apiserver, --etcd-compaction-interval.
PAUSED_SECONDS: Final = 120.0
#: Misplaced objects held at most while they wait; a pass leaves out what is more, and comes again.
MAX_MISPLACED: Final = 10_000


class Superseded(Exception):
    """The membership has changed under a pass."""


#: On which shards owners are that are not where the ring wants them, by uid.
Elsewhere = dict[str, str]


class Tally(NamedTuple):
    """How many objects of a resource a pass has gone through, and how many of them have to be looked at.

    `apart`: those, and of a resource that joins what is not with its owner either, but drains already.
    """

    seen: int
    found: int
    apart: int


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass goes through.

    `deep`: controlled objects too; without, children are left out, because while
    owners are on their way nearly all children differ from the ring's answer.
    `unlabelled`: objects without a shard too.  `namespace` None: all of them.
    `again`: namespaces that have to be gone through again when something of them is left out.
    """

    deep: bool
    unlabelled: bool = False
    namespace: str | None = None
    again: frozenset[str] = frozenset()


class Resync:
    """The passes over one ring's objects.

    Each of `when_settled` is called whenever the ring is settled; nothing waits or moves then.
    """

    def __init__(
        self,
        scope: RingScope,
        members: Members,
        api: Api,
        *,
        backlog: Backlog,
        transit: Transit,
        refusals: Refusals,
        counters: Counters,
        clock: Clock,
        sync_period_seconds: float,
        settle_after_seconds: float,
        when_settled: tuple[Callable[[], None], ...],
    ) -> None:
        self._scope = scope
        self._members = members
        self._api = api
        self._backlog = backlog
        self._transit = transit
        self._refusals = refusals
        self._counters = counters
        self._clock = clock
        self._sync_period_seconds = sync_period_seconds
        self._when_settled = when_settled
        self._wake = asyncio.Event()
        self._state = ResyncState(settle_after_seconds, changed_at=clock.monotonic())
        self._few_wait, self._deep = asyncio.Event(), False
        #: Whether one of the passes over everything has ended.
        self.ended = False
        #: Whether they have found something on the wrong shard; until one over all of it finds nothing.
        self.found_some = False
        #: When a pass has last found nothing, having been asked for; `None`: none has yet.
        self.clean_since: float | None = None
        #: Removed resources of which the last deep pass found no labelled object, and those that were main and of
        #: which it found each with its owner.
        self.removed_clean: frozenset[RingResource] = frozenset()
        #: How many objects of each had labels of the ring, or were not with their owner, when it was gone through last.
        self.removed_left: dict[RingResource, int] = {}
        #: Resources that could not be read, and why; forgotten when passes have gone through everything again.
        self.failures: dict[RingResource, ShardingError] = {}

    @property
    def settled(self) -> bool:
        """Whether every object is where it should be."""
        return is_settled(self._state, quiet=self._nothing_waits())

    # -- what happens ------------------------------------------------------

    def follow(self, old: Membership, new: Membership) -> None:
        """The membership has changed."""
        if (change := compare(old, new)) is not None:
            self._on(*change)

    def namespace_changed(self, namespace: str) -> None:
        """A namespace came into the ring's scope or left it."""
        self._on(Event.NAMESPACE_CHANGED, Asked(namespaces=frozenset({namespace})))

    def moving(self) -> None:
        """Objects change hands."""
        if self._state.clean or not self._state.owed:
            self._on(Event.MOVING)

    def emptied(self) -> None:
        """Nothing may be waiting any more; how a deep pass under way ends says when the next is due."""
        if self._state.owed and not self._deep and self._nothing_waits():
            self._on(Event.QUIET)

    @property
    def misplaced(self) -> int:
        """How many objects wait that were found."""
        return self._backlog.found + self._transit.waiting

    def taken(self) -> None:
        """A misplaced object waits no longer: there may be room for more, and for those that were left out."""
        if 2 * self.misplaced >= MAX_MISPLACED:
            return
        if self.misplaced <= FEW_MISPLACED:
            self._few_wait.set()
        if self._state.left_out:
            self._on(Event.ROOM)

    def _on(self, event: Event, named: Asked = NOTHING) -> None:
        self._state = on(self._state, event, self._clock.monotonic(), named)
        self._wake.set()

    def _nothing_waits(self) -> bool:
        return not self._moves() and not self._backlog.informers.count(Pending.UNASSIGNED)

    def _moves(self) -> bool:
        """Whether objects change hands; those that nobody has had yet do not."""
        count = self._backlog.informers.count
        return bool(self._transit.waiting or count(Pending.DRAINING) or count(Pending.STRANDED))

    # -- running -----------------------------------------------------------

    async def run(self) -> None:
        """Make passes until cancelled."""
        clock, period = self._clock, self._sync_period_seconds
        next_sync = clock.monotonic() + period
        while True:
            await self._wait(next_sync)
            now = clock.monotonic()
            if now >= next_sync:
                self._state = on(self._state, Event.PERIOD_OVER, now)
                next_sync = now + period
            if not self._members.membership.available:
                self.failures, self.found_some = {}, False  # until there is a shard nothing is read
                self._on(Event.NO_SHARD)
                continue
            self._state, passes = begin(self._state, now, moving=self._moves())
            self._deep = passes.deep
            await self._go_through_guarded(passes)
            self._deep = False

    async def _wait(self, next_sync: float) -> None:
        clock = self._clock
        while (moment := due(self._state, next_sync)) > (now := clock.monotonic()):
            self._wake.clear()
            try:
                async with asyncio.timeout(moment - now):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _go_through_guarded(self, passes: Round) -> None:
        try:
            found = await self._go_through(passes)
        except Superseded:
            self._on(Event.SUPERSEDED, passes.asked)
        except Exception as error:
            extra = {"ring": self._scope.name, "error": str(error)}
            if isinstance(error, ShardingError):
                log.warning("resync failed, will retry", extra=extra)
            else:
                log.error("resync failed, will retry", extra=extra, exc_info=error)
            self._on(Event.FAILED, passes.asked)
        else:
            self._conclude(passes, found)

    def _conclude(self, passes: Round, found: int) -> None:
        was_clean, quiet = self._state.nothing_found, self._nothing_waits()
        # Nothing else tells that what was in the way of what joins is so no longer.
        to_come_back_for = found or int(quiet and passes.began >= self._state.settles_at and self._joins())
        self._state = conclude(self._state, passes, to_come_back_for, self._clock.monotonic(), quiet=quiet)
        self.found_some = bool(found) or (self.found_some and not passes.deep)
        if passes.deep:
            self.ended, self.failures = True, {}
        if self._state.nothing_found and not was_clean:
            self.clean_since = self._clock.monotonic()
            for tell in self._when_settled:
                tell()

    # -- passes --------------------------------------------------------------

    async def _go_through(self, passes: Round) -> int:
        """What is asked for; returns how many objects were found misplaced."""
        deep, (shallow, namespaces) = passes.deep, passes.asked
        if len(namespaces) > MAX_NAMESPACES:
            return await self._pass(Pass(deep=True, unlabelled=True, again=namespaces))
        found = await self._pass(Pass(deep)) if deep or shallow else 0
        for name in sorted(namespaces):
            found += await self._pass(Pass(deep=True, unlabelled=True, namespace=name, again=frozenset((name,))))
        return found

    async def _pass(self, which: Pass) -> int:
        """Go through every resource, also when one of them cannot be read.

        Raises: the first error, once all others have been gone through.
        """
        started = self._clock.monotonic()
        objects = misplaced = 0
        clean: set[RingResource] = set()
        joined = {each for each in self._scope.resources.values() if each.was_main and self._may_join(each)}
        elsewhere: Elsewhere = {}
        errors: list[ShardingError] = []
        for number, resource in self._scope.resources.items():
            if not which.deep and resource.subject.role is Role.CONTROLLED:
                continue
            if which.namespace is not None and not resource.subject.resource.namespaced:
                continue
            try:
                tally = await self._pass_resource(number, resource, which, elsewhere)
            except ShardingError as error:
                self.failures[resource] = error
                errors.append(error)
                joined = {each for each in joined if each.subject.main != resource.subject.main}
                continue
            objects, misplaced = objects + tally.seen, misplaced + tally.found
            if resource.removed and which.namespace is None:
                self.removed_left[resource] = tally.seen
            if resource.was_main and which.namespace is None:
                self.removed_left[resource] = tally.apart
            has_joined = resource in joined and not tally.apart and self._may_join(resource)
            if has_joined or (resource.removed and not tally.seen):
                clean.add(resource)
        if which.deep and which.namespace is None and started >= self._state.settles_at:
            self.removed_clean = frozenset(clean)
        if errors:
            raise errors[0]
        if which.namespace is None:
            self._counters.resynced(self._scope.name, objects, self._clock.monotonic() - started)
        return misplaced

    def _joins(self) -> bool:
        """Whether something joins that the last pass has not found to have joined."""
        return any(each.was_main and each not in self.removed_clean for each in self._scope.resources.values())

    def _may_join(self, joining: RingResource) -> bool:
        """Whether it may count as controlled once all of it is with its owners: no shard has it as main any more.

        Nor is one to come back that had when it went.
        """
        resource = joining.subject.resource.group_resource
        return not self._members.mains.shards(resource, self._clock.monotonic()) and self._owners_rest(joining)

    def _owners_rest(self, joining: RingResource) -> bool:
        """Whether nothing of a family is on its way, but for what is asked back, and what no shard has and may get."""
        for number, resource in self._scope.resources.items():
            for kind in Pending if resource.subject.main == joining.subject.main else ():
                informer = self._backlog.informers.get(number, kind)
                if informer is None or (resource.was_main and kind is Pending.DRAINING):
                    continue
                # What has no shard, and is refused to any, waits for people: with nobody, and for as long as they like.
                rests = informer.synced and all(
                    kind is Pending.UNASSIGNED and self._refusals.has_object(resource, obj.metadata)
                    for obj in informer.values()
                )
                if not rests:
                    return False
        return True

    async def _pass_resource(self, number: int, resource: RingResource, which: Pass, elsewhere: Elsewhere) -> Tally:
        """Offer what is misplaced."""
        unwatched = which.deep and self._backlog.informers.get(number, Pending.UNASSIGNED) is None
        everything = (which.unlabelled or unwatched) and not resource.removed
        selector = Selector() if everything else Selector(labels=exists(self._scope.labels.shard))
        generation, began = self._state.generation, self._clock.monotonic()
        # Without a deep pass something is expected to move; pages can be waited between, a stream has to be read.
        busy = not which.deep or not self._nothing_waits()
        kept_back = self._scope.keeps_owners(resource)
        sieve = Sieve(resource.subject.role, self._members.membership, removed=resource.removed, kept_back=kept_back)
        noted = elsewhere if resource.was_main or kept_back else None
        seen = found = asked_back = 0
        async for batch in read_all(self._api, resource.subject.resource, which.namespace, selector, busy=busy):
            if is_superseded(self._state, generation):
                raise Superseded
            seen += len(batch)
            for obj in batch:
                if not self._keeps(sieve, resource, obj.metadata, noted):
                    continue
                if resource.was_main and self._is_asked_back(obj.metadata):
                    asked_back += 1
                else:
                    found += 1
                    if not self._enqueue(number, obj):
                        self._on(Event.LEFT_OUT, Asked(namespaces=which.again))
            if busy:
                await self._let_get_on(generation, began + PAUSED_SECONDS)
        return Tally(seen, found, found + asked_back)

    async def _let_get_on(self, generation: int, until: float) -> None:
        """Wait until few misplaced objects wait, so that few are held; not for those that do not get on."""
        clock = self._clock
        while (waiting := self.misplaced) > FEW_MISPLACED and generation == self._state.generation:
            self._few_wait.clear()
            try:
                async with asyncio.timeout(PROGRESS_SECONDS):
                    await self._few_wait.wait()
            except TimeoutError:
                if self.misplaced >= waiting or clock.monotonic() >= until:
                    return

    def _enqueue(self, number: int, obj: SlimObject) -> bool:
        """Have an object looked at that is misplaced; False: too many wait, and it is left out."""
        if self.misplaced >= MAX_MISPLACED:
            return False
        self._backlog.enqueue_found(ItemKey(number, obj.metadata.namespace, obj.metadata.name), obj)
        return True

    def _is_asked_back(self, meta: SlimMeta) -> bool:
        labels = self._scope.labels
        return meta.label(labels.drain) is not None and meta.label(labels.shard) is not None

    def _keeps(self, sieve: Sieve, resource: RingResource, meta: SlimMeta, elsewhere: Elsewhere | None) -> bool:
        labels, key, in_scope = self._scope.labels, resource.subject.key_of(meta), self._scope.includes(resource, meta)
        label = meta.label(labels.shard)
        if elsewhere is not None and resource.was_main:
            return sieve.is_apart(key if in_scope else None, label, elsewhere.get(_owner(meta)))
        if not (elsewhere is None or label is None or key is None or label == self._members.membership.target(key)):
            elsewhere[meta.uid] = label
        return sieve.keeps(key, label, draining=meta.label(labels.drain) is not None, in_scope=in_scope)


def _owner(meta: SlimMeta) -> str:
    return meta.controller.uid if meta.controller is not None else ""
