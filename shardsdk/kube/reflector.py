"""Keeps a store equal to what the API server has, and tells a handler what changed.

It lists consistently, watches, and goes on after whatever happens: connections
that break or fall silent, versions that expire, streams that end before they
proved anything, missing permissions, an API server that asks for patience.
What vanished while nobody was looking gets its DELETED.  A handler that fails
does not stop the others' news.

The story of one attempt: `run` → `_attempt` → (`_read_pages`) → `_follow` →
`Mirror.apply` for each event → `_complete` once everything that existed has been seen.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from shardsdk.errors import Forbidden, Invalid, ShardingError, StreamInterrupted
from shardsdk.kube.api import PARTIAL, SILENCE_SECONDS, Api, Selection, Unfit, WatchEvent, WatchKind
from shardsdk.kube.cancelled import interrupted_at_most, is_cancelled
from shardsdk.kube.clock import Clock
from shardsdk.kube.identity import identify
from shardsdk.kube.initialevents import FAILURES, NoEnd, Silent
from shardsdk.kube.listing import TURN_EVENTS, Epochs, closing, forget_unseen, leaves_position, list_into
from shardsdk.kube.mirror import Delta, EventKind, Listing, Mirror, OnUnfit, contain
from shardsdk.kube.selectors import Selector
from shardsdk.kube.served import with_reason
from shardsdk.kube.store import Index, Key, Store
from shardsdk.kube.streams import PAUSE_MAX_SECONDS, Pauses, Silence
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import Resource
from shardsdk.protocol.ranges import HashRanges

if TYPE_CHECKING:
    from shardsdk.kube.slices import Slice

__all__ = ["Delta", "EventKind", "Reflector"]

log: Final = logger_of(__name__)

T = TypeVar("T")

#: How long a watch is asked to last at least; up to twice that, so that watches do not end together.
#: Source: client-go, tools/cache/reflector.go, minWatchTimeout = 5 minutes.
WATCH_SECONDS: Final = 300

_EVERYTHING: Final = Selector()


class Reflector(Generic[T]):
    """`await run()` for ever; read `store`, and `synced` before trusting that something is not there.

    `selector` may be a function; it is asked at each list.  `keep` drops objects
    before they are stored (one that is no longer kept gives DELETED), `transform`
    makes them smaller (name, namespace, uid and resourceVersion must stay).
    `handler` is called for every change, in order, on the event loop: it must be
    quick.  `on_synced` is called when a list is complete, the first and each later one,
    `on_failing` when it begins to fail, or fails for another reason than before.
    An object that does not fit the model, or at which `transform` or an index
    raises, is not in the store; `on_unfit` is told of it (see `OnUnfit`), and
    `unfit` has what is known of it.
    With a `part` it shows the objects in ranges of hashes alone: those that `show` was told last.
    Without the right to watch it fails, unless `relist_seconds` says how often a
    list is enough; `failure` names the right all the same.

    Guarantees: deltas of one object come in the order of its versions; each
    ADDED is followed by a DELETED before the next ADDED; a list shows an object
    that did not change since as nothing at all.
    Does not guarantee: every version in between, nor any order between objects.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        *,
        namespace: str | None = None,
        selector: Selector | Callable[[], Selector] = _EVERYTHING,
        model: type[T] = PARTIAL,  # type: ignore[assignment]
        metadata_only: bool | None = None,
        keep: Callable[[T], bool] | None = None,
        transform: Callable[[T], T] | None = None,
        handler: Callable[[Delta[T]], None] | None = None,
        on_unfit: OnUnfit | None = None,
        on_synced: Callable[[], None] | None = None,
        on_failing: Callable[[], None] | None = None,
        indexes: Mapping[str, Index[T]] | None = None,
        name: str = "",
        clock: Clock,
        rng: random.Random,
        silence_seconds: float = SILENCE_SECONDS,
        max_pause_seconds: float = PAUSE_MAX_SECONDS,
        relist_seconds: float | None = None,
        part: Slice | None = None,
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self.name: str = name or str(resource.group_resource)
        self._mirror = Mirror(
            self.name, Store(indexes), keep=keep, transform=transform, handler=handler, on_unfit=on_unfit
        )
        #: What is there, as far as it has been told.
        self.store: Store[T] = self._mirror.store
        #: What is there besides, and cannot be shown.
        self.unfit: Mapping[Key, Unfit] = self._mirror.unfit
        #: Set once the first complete, consistent list is in; never cleared.
        self.synced: Final = asyncio.Event()
        #: Monotonic time of the last event, bookmark or complete list; that a watch is accepted is none of them.
        self.fresh_at: float = float("-inf")
        #: The version up to which the store shows everything; `None` while a list is made.
        self.position: str | None = None
        #: Why it does not work just now; `None`: it does.
        self.failure: ShardingError | None = None
        self._api = api
        self._selector = selector
        self._model = model
        self._metadata_only = model is PARTIAL if metadata_only is None else metadata_only
        self._on_synced = on_synced
        self._on_failing = on_failing
        self._clock = clock
        self._rng = rng
        self._silence_seconds = silence_seconds
        self._silence = Silence(silence_seconds, api.bookmarked, resource)
        self._doubted = False
        #: How its attempts have gone.
        self.pauses: Final = Pauses(clock, rng, max_pause_seconds)
        self._relist_seconds, self._relisted_at = relist_seconds, float("-inf")
        self._selected = _EVERYTHING
        self._slice = part
        self._reopening = False
        self._epochs = Epochs()
        self._attempting: asyncio.Task[None] | None = None
        self._initial_events = api.initial_events[resource]

    def status(self) -> str:
        """One sentence for people."""
        if self.failure is not None:
            return f"{self.name}: failing: {self.failure}"
        return f"{self.name}: {len(self.store)} objects" if self.synced.is_set() else f"{self.name}: first list pending"

    @property
    def filtered(self) -> bool | None:
        """Of a slice: whether the API server sends no more than was asked for, so far; `None`: not known."""
        return None if self._slice is None else self._slice.filtered

    def restart(self) -> int:
        """List anew now, with what the selector says now; the number of that list, for `listed`.

        Objects stay in the store until the new list shows that they are gone.
        """
        self._epochs.latest += 1
        self.position = None
        self._relisted_at = float("-inf")
        self.pauses.reset()
        if self._attempting is not None:
            self._attempting.cancel()
        return self._epochs.latest

    def show(self, ranges: HashRanges) -> None:
        """Show the objects in these ranges alone: others are forgotten at once, what is new is listed."""
        assert self._slice is not None, self.name
        if ranges == self._slice.wanted:
            return
        self._forget(self._slice.want(ranges))
        if not ranges:
            self.position = None
        self._reopening = True
        if self._attempting is not None:
            self._attempting.cancel()

    async def listed(self, number: int) -> None:
        """Wait until a list begun at or after `restart()` number `number` is complete."""
        await self._epochs.listed(number)

    async def run(self) -> None:
        """Follow until cancelled; what it knew before is kept and checked by a new list."""
        self.position = None
        try:
            while True:
                epoch, self._reopening = self._epochs.latest, False
                self._attempting = asyncio.ensure_future(self._attempt_and_pause())
                try:
                    await self._attempting
                except asyncio.CancelledError:
                    restarted = epoch != self._epochs.latest
                    if not (restarted or self._reopening) or is_cancelled():
                        raise
                    self._doubted = False
                    if restarted or not (self._slice is None or self._slice.wanted):
                        self.position = None  # the event whose handler asked for it may have set a position
        finally:
            self._attempting = None

    async def _attempt_and_pause(self) -> None:
        seconds = await self._attempt()
        self._doubted = False
        if self._lags:
            await self._follow_for(seconds)
            return
        # Nothing was heard for so long that only a list can tell where it is, however the last watch ended.
        if doubtful := self._clock.monotonic() - self.fresh_at >= self._silence.trusted_seconds:
            self.position = None
        await self._clock.sleep(seconds)
        self._doubted = doubtful and self.failure is None

    @property
    def _lags(self) -> bool:
        """Whether what was gained could not be listed, though what is shown besides can be followed."""
        return self._slice is not None and self._slice.lags and self.position is not None

    async def _follow_for(self, seconds: float) -> None:
        """Pause; meanwhile, have the news of what is shown.  What was told to fail, and still does, is the list."""

        async def follow() -> None:
            try:
                await self._follow()
            except ShardingError as error:
                self._lose_position(error)

        watch = asyncio.ensure_future(follow())
        try:
            await self._clock.sleep(seconds)
        finally:
            watch.cancel()
            await asyncio.wait((watch,))  # before the next one begins where it ended

    async def _attempt(self) -> float:
        """List if needed and watch until it ends; seconds to pause before the next attempt."""
        self.pauses.begin()
        refused = self.failure if self._relist_due() else None
        try:
            if self._slice is not None:
                await self._show_slice(self._slice)
            with interrupted_at_most(self.name):
                await self._list_and_follow(in_pages=refused is not None)
        except ShardingError as error:
            if self._is_quiet(error):
                log.debug("Reflector is quiet, it will watch again", extra={"reflector": self.name})
                return self.pauses.after(None)
            self._fail(await with_reason(self._api, self.resource, error), self.failure or refused)
            return self.pauses.after(error)
        return self.pauses.after(None)

    async def _list_and_follow(self, *, in_pages: bool) -> None:
        """List, if there is no position, by initial events if they are sent here, and watch until it ends."""
        if self.position is None and not in_pages and self._initial_events.worth_a_try(self._clock.monotonic()):
            try:
                await self._follow()
                return
            except (Invalid, NoEnd, Silent) as error:
                if self.position is not None:
                    raise
                log.debug("Listing in pages", extra={"reflector": self.name, "error": str(error)})
                self.pauses.begin()
        if self.position is None:
            listing = self._begin_list()
            await self._complete(listing, await self._read_pages(self._selected, listing))
            self._relisted_at = self.pauses.listed()
        await self._follow()

    def _relist_due(self) -> bool:
        """Whether it is time for a list without a watch that goes on from it."""
        if self._relist_seconds is None or not isinstance(self.failure, Forbidden):
            return False
        return self._clock.monotonic() - self._relisted_at >= self._relist_seconds

    def _is_quiet(self, error: ShardingError) -> bool:
        """Whether a watch was ended by its silence, where that is no bad sign."""
        opened_at = self.pauses.opened_at
        if opened_at is None or self.position is None or not isinstance(error, StreamInterrupted):
            return False
        return self._silence.takes_for_quiet(self._clock.monotonic() - max(opened_at, self.fresh_at))

    def _fail(self, error: ShardingError, before: ShardingError | None) -> None:
        """Remember and say what went wrong, unless it is what went wrong `before`; is the position still good?

        A stream that ends after a good beginning is everyday life; an attempt
        that does not begin is worth a warning, the first time.
        """
        again = type(error) is type(before) and str(error) == str(before)
        level = logging.DEBUG if again else logging.WARNING if self.pauses.opened_at is None else logging.INFO
        self.failure = error
        log.log(level, "Reflector interrupted, it will try again", extra={"reflector": self.name, "error": str(error)})
        self._lose_position(error)
        if self._on_failing is not None and not again:
            contain(self._on_failing, self.name)

    def _lose_position(self, error: ShardingError) -> None:
        """Forget where the watch is to go on, if `error` says that it cannot."""
        unheard = self.pauses.are_unanswered(error) and self.fresh_at <= self._relisted_at
        if not leaves_position(error, opened=self.pauses.opened_at is not None, unheard=unheard):
            self.position = None

    async def _read_pages(self, selector: Selector, listing: Listing, ranges: HashRanges | None = None) -> str:
        """Apply one consistent list, of a slice's objects in `ranges` (`None`: in all that are shown); its version."""
        selection = Selection(self.resource, self.namespace, selector, self._model, self._metadata_only)
        part = self._slice
        takes = (lambda _: True) if part is None else partial(part.has, ranges=ranges or part.shown)
        return await list_into(self._mirror, listing, self._api, selection, name=self.name, takes=takes)

    async def _show_slice(self, part: Slice) -> None:
        """Have what was gained listed before the watch goes on; where nothing is wanted, wait until it is."""
        if not part.wanted:
            part.begin()
            await self._complete(Listing(self._epochs.latest), "")
            self.position = None
            await asyncio.Event().wait()
        gained = part.missing
        if self.position is None or not gained:
            return
        # What an interrupted list has shown stays until one is complete: it has not ended, and owners passed by it.
        listing, again, part.begun = Listing(self._epochs.latest), part.begun & gained, part.begun | gained
        version = await self._read_pages(self._ask_selector(gained), listing, gained)
        self._forget(again, listing)
        part.listed(gained, version)

    def _forget(self, ranges: HashRanges, listing: Listing | None = None) -> None:
        """Forget what lies in these, but for what `listing` has shown."""
        if ranges and self._slice is not None:
            self._mirror.forget_those(partial(self._slice.has, ranges=ranges), listing)

    def _begin_list(self) -> Listing:
        """A list of everything begins."""
        if self._slice is not None:
            self._slice.begin()
        self._selected = self._ask_selector()
        return Listing(self._epochs.latest, self._mirror.told if self._doubted else None)

    async def _follow(self) -> None:
        """Watch until the API server ends it, beginning with everything that exists if there is no position."""
        listing = self._begin_list() if self.position is None else None
        if self._slice is not None:
            self._selected = self._ask_selector()
        events = self._api.watch(
            self.resource,
            self.namespace,
            selector=self._selected,
            resource_version=self.position,
            initial_events=listing is not None,
            model=self._model,
            metadata_only=self._metadata_only,
            silence_seconds=self._silence_seconds,
            timeout_seconds=self._rng.randint(WATCH_SECONDS, 2 * WATCH_SECONDS),
        )
        count, began = 0, self._clock.monotonic()
        try:
            async with closing(events):
                async for event in events:
                    self._take(event, listing)
                    if listing is not None and event.initial_end:
                        await self._complete(listing, event.resource_version)
                        self._initial_events.worked()
                        listing = None
                    count += 1
                    if count % TURN_EVENTS == 0:
                        await asyncio.sleep(0)
            if listing is not None:
                raise StreamInterrupted(f"{self.name}: the stream ended before its initial events were complete")
        except FAILURES as error:
            if listing is not None:
                self._initial_events.failed(error, began, self._clock.monotonic())
            raise

    def _take(self, event: WatchEvent[T], listing: Listing | None) -> None:
        now, first = self._clock.monotonic(), self.pauses.opened_at is None
        if first:
            self.pauses.open(all_of_it=not self._lags)
        bookmark = event.kind is WatchKind.BOOKMARK and event.unfit is None
        # The client says by the version asked for that the watch is accepted; from the API server that is no news.
        if not (first and bookmark and event.resource_version == self.position):
            self.fresh_at = now
            if bookmark and not event.initial_end:
                self._silence.heard_bookmark()
        subject, version = event.subject, event.resource_version
        if subject is not None and (self._slice is None or self._slice.takes(identify(subject), version)):
            self._mirror.apply(event, listing)
        if listing is None:
            self.failure = self.failure if self.failure and self._lags else None
            self.position = version or self.position

    async def _complete(self, listing: Listing, version: str) -> None:
        """Everything that exists has been seen: what was not has vanished."""
        await forget_unseen(self._mirror, listing)
        if self._silence.has_hidden(listing.before, self._mirror.told):
            self._fail(StreamInterrupted(f"{self.name}: a list shows changes that a watch has kept to itself"), None)
        self.position = version
        self.failure = self.pauses.refused_since = None
        self.fresh_at = self._clock.monotonic()
        self.synced.set()
        self._epochs.complete(listing.epoch)
        if self._on_synced is not None:
            contain(self._on_synced, self.name)

    def _ask_selector(self, gained: HashRanges | None = None) -> Selector:
        selector = self._selector if isinstance(self._selector, Selector) else self._selector()
        return selector if self._slice is None else self._slice.ask(selector, gained or self._slice.shown)
