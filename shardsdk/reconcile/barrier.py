"""The handover barrier: an owner that has just arrived waits until the cache holds all of its children.

The watches of owners and of children do not keep each other's order.  An owner
that another shard gave away may therefore be seen before its children are, and
whoever reconciled it then would make them a second time.

    owner arrives ──> waits ──> one consistent list of the children, begun
                                after the arrival ──> the cache has caught up
                                with those of this owner ──> owner may pass

Children that carry no shard label yet are in no shard's cache: their resource has
been added to the ring a moment ago, and the sharder is about to label them.  The
first list looks for them as well, and so do the next until one finds none; so it
is again, for what other shards have, too, once their type was not served.  One
that nobody labels (no sharder runs, its namespace is not the ring's) is waited for
no longer than `UNLABELLED_SECONDS`.

What an owner waits for is in its state (shardsdk/reconcile/state.py).

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
from shardsdk.cache.objects import Request, is_at_least, is_controlled, metadata_of, request_of
from shardsdk.errors import ShardingError, StreamInterrupted
from shardsdk.kube.backoff import Backoff
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta
from shardsdk.kube.selectors import Selector
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import GroupResource, PartialObject, Resource
from shardsdk.queueing.queue import Priority
from shardsdk.reconcile.childlists import AssignedTypes, LateLists, ListPauses, Unlabelled
from shardsdk.reconcile.state import Arrival, Awaited, Child, ChildEvent, Children, ObjectState, ObjectStates

log: Final = logger_of(__name__)

#: A cache that is so far behind has lost its watch; it will list anew, and so do we.
CATCH_UP_SECONDS: Final = 30.0

#: A moment so near is waited for no shorter: clocks differ, and time must pass.
_SOON_SECONDS: Final = 0.001


class Barrier:
    """Lets an owner pass once its children are known; `run` it next to the caches.

    `wake(owner, priority)` is called for each owner that may pass now, `settle`
    waits for our own writes, `on_list` counts lists.  With `hands_over` False
    nobody else works on owners: one waits only when a write for it is in doubt.
    `unassigned(cache)` selects the children that no shard has yet (`None`: they
    are not looked for), `is_ours(child)` whether its owner, an object of `main`, is on this shard.
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
        main: Resource,
        is_ours: Callable[[PartialObject], bool] = lambda child: False,
        on_list: Callable[[], None] | None = None,
        states: ObjectStates | None = None,
    ) -> None:
        self._children = children
        self._hands_over = hands_over
        self._wake = wake
        self._settle = settle
        self._clock = clock
        self._backoff = Backoff(rng)
        self._on_list = on_list
        self._unassigned = unassigned
        self._main = main
        self._is_ours = is_ours
        self._assigned = AssignedTypes(clock)
        self._unlabelled = Unlabelled(clock)
        self._states = ObjectStates(Children.UNKNOWN if hands_over else Children.KNOWN) if states is None else states
        #: Owners that wait, in the order in which they came.
        self._waiting: dict[Request, ObjectState] = {}
        #: Whether a write of ours may have made a child without our knowing.
        self._unanswered = False
        self._arrivals = asyncio.Event()
        self._awaited = Awaited()
        self._late = LateLists(self._waiting, clock)
        self._pauses = ListPauses()

    def arrived(self, owner: Request, uid: str, priority: Priority = Priority.FRESH) -> None:
        """`owner` has just come: it waits, even if it passed before, and is woken when it may pass."""
        self._wait(owner, uid, ChildEvent.ARRIVED, priority, wakes=True)

    def note_unanswered(self, owner: Request, uid: str, *, there: bool = True) -> None:
        """A write for `owner` had no answer: it waits until that write can no longer be executed, then for a list.

        One that is not `there` any more waits for nothing; should it come back, its list begins after that write, too.
        """
        self._unanswered = True
        if there:
            self._wait(owner, uid, ChildEvent.UNANSWERED, Priority.FRESH, wakes=False)

    def passes(self, owner: Request, uid: str) -> bool:
        """Whether the children of `owner` are known, so that it may be reconciled."""
        state = self._states.get(owner)
        if not self._children or (state is None and not self._hands_over):
            return True
        return state is not None and state.children is Children.KNOWN and (state.uid == uid or not self._hands_over)

    def postpone(self, owner: Request, uid: str) -> None:
        """`owner` was to be reconciled and does not pass: it waits from now on, and is woken."""
        state = self._states.get(owner)
        if state is not None and state.arrival is not None and state.uid == uid:
            state.heard(ChildEvent.POSTPONED)
            state.arrival.wakes = True
        else:
            known = state is not None and state.children is not Children.UNKNOWN
            self._wait(owner, uid, ChildEvent.ARRIVED if known else ChildEvent.POSTPONED)

    def left(self, owner: Request) -> None:
        """`owner` is gone from this shard."""
        state = self._states.get(owner)
        if state is not None:
            self._drop_missing(owner, state.arrival)
            self._waiting.pop(owner, None)
            state.arrival = None
            state.heard(ChildEvent.LEFT)
            self._states.tidy(owner)

    @property
    def waiting(self) -> int:
        """How many owners wait."""
        return len(self._waiting)

    def observe(self, cache: Cache[Any], delta: Delta[Any]) -> None:
        """Take note of a change that the cache of children has now."""
        child, version = Child(cache.resource.group_resource, request_of(delta.object)), metadata_of(delta.object)
        for owner in self._awaited.owners(child):
            state = self._waiting[owner]
            arrival = state.arrival
            if arrival is not None and is_at_least(version.resource_version, arrival.missing[child]):
                del arrival.missing[child]
                self._awaited.drop(child, owner)
                if not arrival.missing:
                    self._let_pass(owner, state, ChildEvent.SHOWN)

    async def run(self) -> None:
        """Serve waiting owners until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._late.run())
            await self._serve()

    async def _serve(self) -> None:
        while True:
            await self._wait_for_arrivals()
            listing = {owner: state for owner, state in self._waiting.items() if state.children is Children.LISTING}
            batch = {owner: (state.uid, state.arrival) for owner, state in listing.items() if state.arrival is not None}
            if not batch:
                continue
            try:
                # Before settling: who falls into doubt meanwhile has another write to wait for.
                if self._unanswered:
                    self._unanswered = False
                    with self._late.held_up():
                        await self._settle()
                pause = self._pauses.after(await self._learn_children(batch))
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
            async with asyncio.timeout(self._seconds_left()):
                await self._arrivals.wait()
        self._arrivals.clear()
        now = self._clock.monotonic()
        for owner, state in self._waiting.items():
            arrival = state.arrival
            if arrival is not None and state.children is Children.CATCHING_UP and arrival.until <= now:
                missing = str(next(iter(arrival.missing)))
                log.warning(
                    "The cache does not show what was listed; an owner waits for another list",
                    extra={"namespace": owner.namespace, "object": owner.name, "missing": missing},
                )
                self._drop_missing(owner, arrival)
                state.heard(ChildEvent.LATE)

    def _seconds_left(self) -> float | None:
        """Until the first of those that catch up has waited too long; `None`: there is none."""
        waiting = (state.arrival for state in self._waiting.values() if state.children is Children.CATCHING_UP)
        first = min((arrival.until for arrival in waiting if arrival is not None), default=None)
        return None if first is None else max(first - self._clock.monotonic(), _SOON_SECONDS)

    def _drop_missing(self, owner: Request, arrival: Arrival | None) -> None:
        """`owner` does not wait for what the last list has shown."""
        if arrival is not None:
            for child in arrival.missing:
                self._awaited.drop(child, owner)
            arrival.missing.clear()

    def _wait(
        self,
        owner: Request,
        uid: str,
        event: ChildEvent,
        priority: Priority = Priority.FRESH,
        *,
        wakes: bool = True,
    ) -> None:
        if not self._children:
            return
        state = self._states.of(owner)
        before, now = state.arrival, self._clock.monotonic()
        self._drop_missing(owner, before)
        state.heard(event)
        state.uid = uid
        state.arrival = Arrival(now, priority, wakes)
        if before is not None:
            state.arrival = Arrival(before.since, min(priority, before.priority), wakes or before.wakes)
        self._waiting[owner] = state
        self._arrivals.set()

    async def _learn_children(self, batch: Mapping[Request, tuple[str, Arrival]]) -> float:
        """List all children consistently; those of `batch` pass of whose children the caches show all that was listed.

        Returns the seconds that listing took.

        Raises: StreamInterrupted and whatever a list may raise.
        """
        if self._on_list:
            self._on_list()
        begun = self._clock.monotonic()
        listed: list[_Listed] = []
        since: dict[str, float] = {}
        owners = {uid: owner for owner, (uid, _) in batch.items()}
        for cache in self._children:
            with self._late.listing(cache.resource.group_resource):
                # In this order: what is labelled meanwhile is in both lists, and not in none.
                listed += await self._list_unassigned(cache, owners, since)
                listed += await _list_children(cache, owners, self._main)
        self._unlabelled.since = since
        self._conclude(batch, listed)
        return self._clock.monotonic() - begun

    async def _list_unassigned(
        self, cache: Cache[Any], owners: Mapping[str, Request], since: dict[str, float]
    ) -> list[_Listed]:
        """Children that no cache has before the sharder has labelled them; notes `since` when each is awaited."""
        name, absences, selector = cache.resource.group_resource, cache.absences, self._unassigned(cache)
        if selector is None or self._assigned.has(name, absences):
            return []
        listed: list[_Listed] = []
        any_of_ours = False
        async for page in cache.stream(PartialObject, selector):
            for child in page:
                owner = _owner_among(owners, child, self._main)
                if owner is None and not self._is_ours(child):
                    continue
                if self._unlabelled.gives_up(child.metadata, since):
                    continue
                any_of_ours = True
                if owner is not None:
                    # Its label comes with a later version; that the cache saw it leave at this one proves nothing.
                    later = _after(child.metadata.resource_version)
                    listed.append(_Listed(owner, cache, request_of(child), later))
        self._assigned.listed(name, absences, all_ours=not any_of_ours)
        return listed

    def _conclude(self, batch: Mapping[Request, tuple[str, Arrival]], listed: Sequence[_Listed]) -> None:
        # Whoever left meanwhile is not waiting; whoever came back waits for the next list.
        states = ((owner, self._waiting.get(owner), arrival) for owner, (_, arrival) in batch.items())
        waiting = {owner: (state, arrival) for owner, state, arrival in states if state and state.arrival is arrival}
        until = self._clock.monotonic() + CATCH_UP_SECONDS
        for each in listed:
            if each.owner in waiting and not each.cache.has_seen(each.child, each.version):
                child = Child(each.cache.resource.group_resource, each.child)
                arrival = waiting[each.owner][1]
                arrival.missing[child], arrival.until = each.version, until
                self._awaited.add(child, each.owner)
        for owner, (state, arrival) in waiting.items():
            if arrival.missing:
                state.heard(ChildEvent.MISSED)
            else:
                self._let_pass(owner, state, ChildEvent.LISTED)

    def _let_pass(self, owner: Request, state: ObjectState, event: ChildEvent) -> None:
        arrival, state.arrival = self._waiting.pop(owner).arrival, None
        if state.heard(event) and arrival is not None and arrival.wakes:
            self._wake(owner, arrival.priority)
        if not self._hands_over:
            self._states.tidy(owner)


def _after(version: str) -> str:
    """The next version that there may be; they are numbers."""
    return str(int(version) + 1) if version.isdecimal() else version


def _owner_among(owners: Mapping[str, Request], child: PartialObject, main: Resource) -> Request | None:
    """Which of `owners` (by uid) controls a child; `None`: none of them."""
    controller = child.metadata.controller
    if controller is None:
        return None
    owner = owners.get(controller.uid)
    return owner if owner is not None and is_controlled(child, main, owner, controller.uid) else None


async def _list_children(cache: Cache[Any], owners: Mapping[str, Request], main: Resource) -> list[_Listed]:
    """The children of `owners` (by uid) that the cache does not have yet.  Raises: whatever a list may raise."""
    listed: list[_Listed] = []
    async for page in cache.stream(PartialObject):
        for child in page:
            owner = _owner_among(owners, child, main)
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
            async for page in cache.stream(PartialObject):
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


@dataclass(frozen=True, slots=True)
class _Listed:
    """A child that a list has shown."""

    owner: Request
    cache: Cache[Any]
    child: Request
    version: str
