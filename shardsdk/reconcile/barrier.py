"""The handover barrier: an owner that has just arrived waits until the cache holds all of its children.

The watches of owners and of children do not keep each other's order.  An owner
that another shard gave away may therefore be seen before its children are, and
whoever reconciled it then would make them a second time.

    owner arrives ──> waits ──> one consistent list of the children, begun
                                after the arrival ──> the cache has caught up
                                with those of this owner ──> owner may pass

Children that carry no shard label yet are in no shard's cache: their resource has
been added to the ring a moment ago, and the sharder is about to label them.  The
first list looks for them as well, and so do the next until one finds none.  One
that nobody labels (no sharder runs, its namespace is not the ring's) is waited for
no longer than `UNLABELLED_SECONDS`.

Does: serve all owners that wait by one list.  Whoever misses none of its
children passes at once: a child that comes late, or never, holds up its own
owner alone.  Refuses: to put what it listed into the cache itself, because a
child deleted meanwhile would stay there for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request, is_at_least, metadata_of, request_of
from shardsdk.errors import ShardingError, StreamInterrupted
from shardsdk.kube.backoff import Backoff
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta
from shardsdk.kube.selectors import Selector
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import GroupResource, ObjectMeta, PartialObject
from shardsdk.queueing.queue import Priority

log: Final = logger_of(__name__)

#: A cache that is so far behind has lost its watch; it will list anew, and so do we.
CATCH_UP_SECONDS: Final = 30.0
#: A child that is without a label for so long may stay so; its owner must not.  A sharder
#: labels some hundreds a second, so this is enough for a resource that has 100,000.
UNLABELLED_SECONDS: Final = 600.0
#: Lists take no more than this share of the time: after one, we wait four times
#: as long as it took, and more owners share the next.
LIST_SHARE: Final = 0.2
#: And there are no more than twenty a second, however quick they are.
LIST_PAUSE_SECONDS: Final = 0.05

#: A moment so near is waited for no shorter: clocks differ, and time must pass.
_SOON_SECONDS: Final = 0.001

#: Names a child of whatever resource.
_Child = tuple[GroupResource, Request]


class Barrier:
    """Lets an owner pass once its children are known; `run` it next to the caches.

    `wake(owner, priority)` is called for each owner that may pass now, `settle`
    waits for our own writes, `on_list` counts lists.  With `hands_over` False
    nobody else works on owners: one waits only when a write for it is in doubt.
    `unassigned(cache)` selects the children that no shard has yet (`None`: they
    are not looked for), `is_ours(child)` whether its owner is on this shard.
    """

    def __init__(
        self,
        children: Sequence[Cache[Any]],
        *,
        wake: Callable[[Request, Priority], None],
        settle: Callable[[], Awaitable[None]],
        clock: Clock,
        rng: Random,
        hands_over: bool = True,
        unassigned: Callable[[Cache[Any]], Selector | None] = lambda cache: None,
        is_ours: Callable[[PartialObject], bool] = lambda child: False,
        on_list: Callable[[], None] | None = None,
    ) -> None:
        self._children = children
        self._hands_over = hands_over
        self._wake = wake
        self._settle = settle
        self._clock = clock
        self._backoff = Backoff(rng)
        self._on_list = on_list
        self._unassigned = unassigned
        self._is_ours = is_ours
        #: Resources of which a list has found no unassigned children of this shard's owners.
        self._assigned: set[GroupResource] = set()
        #: Since when unassigned children are awaited, by the uid of each; those of the last list only.
        self._unassigned_since: dict[str, float] = {}
        #: Owners that may pass, each with the uid that it had then.
        self._passed: dict[Request, str] = {}
        self._waiting: dict[Request, _Arrival] = {}
        #: Whether a write of ours may have made a child without our knowing.
        self._doubtful = False
        self._arrivals = asyncio.Event()
        self._missing = _Missing()

    def arrived(self, owner: Request, uid: str, priority: Priority = Priority.FRESH) -> None:
        """`owner` has just come: it waits, even if it passed before, and is woken when it may pass."""
        self._wait(owner, _Arrival(uid, priority, wake=True))

    def doubt(self, owner: Request, uid: str) -> None:
        """A write for `owner` had no answer: it waits until that write can no longer be executed, then for a list."""
        self._doubtful = True
        self._wait(owner, _Arrival(uid, Priority.FRESH, wake=False))

    def passes(self, owner: Request, uid: str) -> bool:
        """Whether `owner` may be reconciled; if not it waits from now on, and is woken."""
        if not self._children or self._passed.get(owner) == uid:
            return True
        waiting = self._waiting.get(owner)
        if waiting is None and not self._hands_over:
            return True
        if waiting is not None and waiting.uid == uid:
            waiting.wake = True
        else:
            self.arrived(owner, uid)
        return False

    def left(self, owner: Request) -> None:
        """`owner` is gone from this shard."""
        self._passed.pop(owner, None)
        self._missing.forget(owner)
        self._waiting.pop(owner, None)

    @property
    def waiting(self) -> int:
        """How many owners wait."""
        return len(self._waiting)

    def observe(self, cache: Cache[Any], delta: Delta[Any]) -> None:
        """Take note of a change that the cache of children has now."""
        child = (cache.resource.group_resource, request_of(delta.object))
        for owner in self._missing.observe(child, metadata_of(delta.object).resource_version):
            self._let_pass(owner, self._waiting[owner])

    async def run(self) -> None:
        """Serve waiting owners until cancelled."""
        while True:
            await self._wait_for_arrivals()
            batch = {owner: arrival for owner, arrival in self._waiting.items() if owner not in self._missing}
            if not batch:
                continue
            try:
                # Before settling: who falls into doubt meanwhile has another write to wait for.
                if self._doubtful:
                    self._doubtful = False
                    await self._settle()
                pause = max(await self._learn_children(batch) * (1 / LIST_SHARE - 1), LIST_PAUSE_SECONDS)
            except ShardingError as error:
                log.warning("Children could not be listed; their owners wait", extra={"error": str(error)})
                self._arrivals.set()
                pause = self._backoff.next()
            else:
                self._backoff.reset()
            await self._clock.sleep(pause)

    async def _wait_for_arrivals(self) -> None:
        """Return when somebody waits for a list, or has waited too long for what the last one showed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._missing.seconds_left(self._clock.monotonic())):
                await self._arrivals.wait()
        self._arrivals.clear()
        for owner, missing in self._missing.expire(self._clock.monotonic()).items():
            log.warning(
                "The cache does not show what was listed; an owner waits for another list",
                extra={"namespace": owner.namespace, "object": owner.name, "missing": missing},
            )

    def _wait(self, owner: Request, arrival: _Arrival) -> None:
        if not self._children:
            return
        self._passed.pop(owner, None)
        self._missing.forget(owner)
        before = self._waiting.get(owner)
        if before is not None:
            arrival.priority = min(arrival.priority, before.priority)
            arrival.wake = arrival.wake or before.wake
        self._waiting[owner] = arrival
        self._arrivals.set()

    async def _learn_children(self, batch: Mapping[Request, _Arrival]) -> float:
        """List all children consistently; those of `batch` pass of whose children the caches show all that was listed.

        Returns the seconds that listing took.

        Raises: StreamInterrupted and whatever a list may raise.
        """
        if self._on_list:
            self._on_list()
        begun = self._clock.monotonic()
        listed: list[_Listed] = []
        since: dict[str, float] = {}
        owners = {arrival.uid: owner for owner, arrival in batch.items()}
        for cache in self._children:
            # In this order: what is labelled meanwhile is in both lists, and not in none.
            listed += await self._list_unassigned(cache, owners, since)
            listed += await _list_children(cache, owners)
        self._unassigned_since = since
        self._conclude(batch, listed)
        return self._clock.monotonic() - begun

    async def _list_unassigned(
        self, cache: Cache[Any], owners: Mapping[str, Request], since: dict[str, float]
    ) -> list[_Listed]:
        """Children that no cache has before the sharder has labelled them; notes `since` when each is awaited."""
        name, selector = cache.resource.group_resource, self._unassigned(cache)
        if selector is None or name in self._assigned:
            return []
        listed: list[_Listed] = []
        any_of_ours = False
        async for page in cache.stream_metadata(selector):
            for child in page:
                controller = child.metadata.controller
                owner = None if controller is None else owners.get(controller.uid)
                if owner is None and not self._is_ours(child):
                    continue
                if self._is_given_up(child.metadata, since):
                    continue
                any_of_ours = True
                if owner is not None:
                    # Its label comes with a later version; that the cache saw it leave at this one proves nothing.
                    later = _after(child.metadata.resource_version)
                    listed.append(_Listed(owner, cache, request_of(child), later))
        if not any_of_ours:
            self._assigned.add(name)
        return listed

    def _is_given_up(self, child: ObjectMeta, since: dict[str, float]) -> bool:
        """Whether a child has been without a label for so long that its owner goes on without it."""
        now = self._clock.monotonic()
        first = since[child.uid] = self._unassigned_since.get(child.uid, now)
        if now - first < UNLABELLED_SECONDS:
            return False
        log.warning(
            "A child is never labelled; its owner goes on without it",
            extra={"namespace": child.namespace, "object": child.name, "seconds": round(now - first)},
        )
        return True

    def _conclude(self, batch: Mapping[Request, _Arrival], listed: Sequence[_Listed]) -> None:
        # Whoever left meanwhile is not waiting; whoever came back waits for the next list.
        waiting = {owner: arrival for owner, arrival in batch.items() if self._waiting.get(owner) is arrival}
        until = self._clock.monotonic() + CATCH_UP_SECONDS
        for each in listed:
            if each.owner in waiting and not each.cache.has_seen(each.child, each.version):
                child = (each.cache.resource.group_resource, each.child)
                self._missing.expect(each.owner, child, each.version, until)
        for owner, arrival in waiting.items():
            if owner not in self._missing:
                self._let_pass(owner, arrival)

    def _let_pass(self, owner: Request, arrival: _Arrival) -> None:
        del self._waiting[owner]
        if self._hands_over:
            self._passed[owner] = arrival.uid
        if arrival.wake:
            self._wake(owner, arrival.priority)


def _after(version: str) -> str:
    """The next version that there may be; they are numbers."""
    return str(int(version) + 1) if version.isdecimal() else version


async def _list_children(cache: Cache[Any], owners: Mapping[str, Request]) -> list[_Listed]:
    """The children of `owners` (by uid) that the cache does not have yet.  Raises: whatever a list may raise."""
    listed: list[_Listed] = []
    async for page in cache.stream_metadata():
        for child in page:
            controller = child.metadata.controller
            owner = None if controller is None else owners.get(controller.uid)
            if owner is None:
                continue
            found = _Listed(owner, cache, request_of(child), child.metadata.resource_version)
            if not cache.has_seen(found.child, found.version):
                listed.append(found)
    return listed


async def catch_up(caches: Sequence[Cache[Any]]) -> None:
    """List what `caches` select, consistently, and wait until they show it.

    Raises: StreamInterrupted and whatever a list may raise.
    """
    missing: dict[tuple[GroupResource, Request], str] = {}
    complete = asyncio.Event()

    def observe(cache: Cache[Any], request: Request) -> None:
        seen = (cache.resource.group_resource, request)
        if seen in missing and cache.has_seen(request, missing[seen]):
            del missing[seen]
            if not missing:
                complete.set()

    def listen(cache: Cache[Any]) -> None:
        listening.callback(cache.listen(lambda delta: observe(cache, request_of(delta.object))))
        listening.callback(cache.listen_unfit(lambda unfit, _: observe(cache, request_of(unfit))))

    with ExitStack() as listening:
        for cache in caches:
            listen(cache)
        for cache in caches:
            async for page in cache.stream_metadata():
                for thing in page:
                    request, version = request_of(thing), thing.metadata.resource_version
                    if not cache.has_seen(request, version):
                        missing[cache.resource.group_resource, request] = version
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while missing:
                    complete.clear()
                    await complete.wait()
        except TimeoutError as error:
            raise StreamInterrupted(f"the cache is more than {CATCH_UP_SECONDS:.0f} s behind") from error


@dataclass(slots=True)
class _Arrival:
    """An owner that waits; by its identity one arrival is told from the next."""

    uid: str
    priority: Priority
    wake: bool


@dataclass(frozen=True, slots=True)
class _Listed:
    """A child that a list has shown."""

    owner: Request
    cache: Cache[Any]
    child: Request
    version: str


class _Missing:
    """Which owners wait until a cache shows what a list has shown of their children."""

    def __init__(self) -> None:
        self._versions: dict[Request, dict[_Child, str]] = {}
        #: A child that has changed hands meanwhile may be awaited by two.
        self._owners: dict[_Child, set[Request]] = {}
        self._until: dict[Request, float] = {}

    def __contains__(self, owner: Request) -> bool:
        return owner in self._versions

    def expect(self, owner: Request, child: _Child, version: str, until: float) -> None:
        """`owner` waits for `child` at `version`, until the moment `until` (monotonic)."""
        self._versions.setdefault(owner, {})[child] = version
        self._owners.setdefault(child, set()).add(owner)
        self._until[owner] = until

    def observe(self, child: _Child, version: str) -> list[Request]:
        """The cache has `child` at `version`: the owners that miss nothing any more."""
        complete: list[Request] = []
        for owner in sorted(self._owners.get(child, ())):
            if is_at_least(version, self._versions[owner][child]):
                self._drop(owner, child)
                if not self._versions[owner]:
                    self.forget(owner)
                    complete.append(owner)
        return complete

    def forget(self, owner: Request) -> None:
        """`owner` does not wait for anything listed so far."""
        for child in list(self._versions.get(owner, ())):
            self._drop(owner, child)
        self._versions.pop(owner, None)
        self._until.pop(owner, None)

    def _drop(self, owner: Request, child: _Child) -> None:
        del self._versions[owner][child]
        self._owners[child].discard(owner)
        if not self._owners[child]:
            del self._owners[child]

    def seconds_left(self, now: float) -> float | None:
        """Until the first of them has waited too long; `None`: nobody waits."""
        # In the order of their lists, so that the first is the one that waits longest.
        first = next(iter(self._until.values()), None)
        return None if first is None else max(first - now, _SOON_SECONDS)

    def expire(self, now: float) -> dict[Request, str]:
        """Forget those that have waited too long; each with one of the children that it missed."""
        late = [owner for owner, until in self._until.items() if until <= now]
        named = {owner: "{} {}".format(*next(iter(self._versions[owner]))) for owner in late}
        for owner in late:
            self.forget(owner)
        return named
