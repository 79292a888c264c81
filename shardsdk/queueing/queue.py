"""Work queue: which items wait, which are being worked on, which come back later.

Guarantees, those of client-go's workqueue, each named by a test in tests/unit/shardsdk/queueing/test_queue.py or
test_priorities.py beside it, and held against a model in tests/properties/test_queue.py:

- *Stingy*: an item added many times before it is taken is handed out once.
- *Never twice at once*: an item being worked on is not handed out again before
  `done`; added meanwhile, it is handed out once more afterwards.
- *Fair*: items of one priority come out in the order they came in; no item waits for ever.
- *Two priorities*: a fresh item overtakes bulk items, but for a share of the turns that those keep, a greater one once
  they are overdue (shardsdk/queueing/lines.py).  An item that comes back has the priority it was handed out with.
- *Delayed*: an item comes back after a while; of several delays the shortest counts.
- *Rate-limited*: an item that comes back again and again stays away longer each time, and all together come no faster
  than an overall rate, if there is one; whether that is for an error or for something that is not there yet is the
  caller's to say, and `forget` begins anew.
- *Held*: nothing is handed out until `release`; what waits keeps its place, and what comes is taken in.
- *Nothing is lost*: not by a consumer that is cancelled while it waits, not by an item added while it runs.
- *Shutdown*: nothing is taken in any more; what is queued is drained or dropped.

Its metrics are client-go's (shardsdk/queueing/metrics.py, tests/unit/shardsdk/queueing/test_metrics.py).

Refuses: to have workers of its own; `process` is what each of them does.  Does
not guarantee order between items that were delayed, nor survive the process; it holds each distinct item at most three
times (waiting with each priority, and delayed), so the number of distinct items is its bound.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from shardsdk.errors import ConfigurationError, FenceClosed
from shardsdk.kube.backoff import double
from shardsdk.kube.clock import Clock
from shardsdk.kube.doubts import FenceDoubted
from shardsdk.kube.pace import TokenBucket
from shardsdk.queueing.delays import Delays
from shardsdk.queueing.item import ItemState, Priority
from shardsdk.queueing.lines import Lines

__all__ = ["ITEMS_PER_TURN", "ItemState", "Priority", "QueueObserver", "RateLimit", "WorkQueue"]

K = TypeVar("K", bound=Hashable)

#: No sleep is shorter: no clock below us is finer, and one shorter than a float's resolution would spin.
_INSTANT_SECONDS: Final = 1e-6
#: So many items are worked on before other tasks get a turn of the event loop, though nothing is waited for: such an
#: item takes some 50 microseconds, a turn about 10.
ITEMS_PER_TURN: Final = 32
#: And so many are added that come back at one moment.
_ADDED_PER_TURN: Final = 256


@dataclass(frozen=True, slots=True)
class RateLimit:
    """How long an item that failed stays away: the longer of two delays.

    Per item `base_seconds` doubled with each failure up to `max_seconds`; over
    all items `per_second` with `burst` at once (`None`, the default: no overall limit).

    By the delays per item, trouble that is over is felt about once more for as
    long as it lasted.  An overall limit is paid in objects instead: when 10,000
    of them arrive on a shard while the API server is away for five seconds, ten
    a second would have the last of them wait for a quarter of an hour.
    Source: controller-runtime, whose controllers with a priority queue have the
    same default; client-go's own adds ten a second with a burst of a hundred.
    """

    base_seconds: float = 0.005
    max_seconds: float = 1000.0
    per_second: float | None = None
    burst: int = 100

    def __post_init__(self) -> None:
        if not 0 < self.base_seconds <= self.max_seconds:
            raise ConfigurationError(
                f"RateLimit(base_seconds={self.base_seconds:g}, max_seconds={self.max_seconds:g}) has no growing pause:"
                " use a base_seconds above zero and a max_seconds that is not below it"
            )
        if self.per_second is not None and not self.per_second > 0:
            raise ConfigurationError(
                f"RateLimit(per_second={self.per_second:g}) would never let an item come back: use more than zero, or"
                " None for no overall limit"
            )
        if self.burst < 1:
            raise ConfigurationError(f"RateLimit(burst={self.burst}) lets nothing pass: use 1 or more")

    def item_delay(self, failures: int) -> float:
        """Delay in seconds of an item that has failed `failures` times before."""
        return double(self.base_seconds, failures, self.max_seconds)


class QueueObserver(Protocol):
    """What a queue tells its metrics; all durations in seconds."""

    def added(self, priority: Priority) -> None:
        """An item is now waiting that was not."""

    def started(self, queue_seconds: float) -> None:
        """An item was handed out after it had waited `queue_seconds`."""

    def finished(self, work_seconds: float) -> None:
        """An item is done after `work_seconds`."""

    def retried(self) -> None:
        """An item was added through the rate limit."""


class WorkQueue(Generic[K]):
    """Items to work on; see the module for what it guarantees.

    To be used from one event loop.  `clock` measures delays and durations.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        name: str = "",
        rate_limit: RateLimit | None = None,
    ) -> None:
        self.name = name
        self._clock = clock
        self._limit = rate_limit or RateLimit()
        self._bucket = TokenBucket(self._limit.per_second, self._limit.burst)
        self._observer: QueueObserver | None = None
        self._waiting = Lines[K]()
        #: Items handed out and not done: (moment, priority).
        self._working: dict[K, tuple[float, Priority]] = {}
        #: Items added while they were being worked on: (priority, moment).
        self._again: dict[K, tuple[Priority, float]] = {}
        self._delays = Delays[K]()
        self._timer: asyncio.Task[None] | None = None
        self._failures: dict[K, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = self._held = False

    # -- adding ---------------------------------------------------------------

    def add(self, item: K, priority: Priority = Priority.FRESH) -> None:
        """Have `item` worked on; a waiting item keeps its place, and has one with `priority` too if that is higher."""
        if self._closed:
            return
        if item in self._working:
            before = self._again.get(item)
            if before is None:
                self._again[item] = (priority, self._clock.monotonic())
                self._tell_added(priority)
            else:
                self._again[item] = (min(priority, before[0]), before[1])
            return
        self._enqueue(item, priority)

    def add_after(self, item: K, seconds: float, priority: Priority | None = None) -> None:
        """Add `item` once `seconds` have passed; of several delays the shortest counts, and the highest priority.

        `priority` `None`: the one it was handed out with; fresh if it is not being worked on.
        """
        self.add_at(item, self._clock.monotonic() + seconds, priority)

    def add_at(self, item: K, moment: float, priority: Priority | None = None) -> None:
        """Add `item` at `moment` of the monotonic clock, the first of several, with `priority` as in `add_after`."""
        if self._closed:
            return
        if priority is None:
            _, priority = self._working.get(item, (0.0, Priority.FRESH))
        if moment <= self._clock.monotonic():
            self.add(item, priority)
        elif self._delays.put(item, moment, priority):
            self._restart_timer()

    def cancel(self, item: K, moment: float) -> None:
        """Do not add `item` at `moment` after all; when it comes at another moment, that stays."""
        self._delays.drop(item, moment)

    def drop_delay(self, item: K) -> None:
        """Do not add `item` at whatever moment it was to come back."""
        delayed = self._delays.get(item)
        if delayed is not None:
            self._delays.drop(item, delayed[0])

    def add_rate_limited(
        self,
        item: K,
        priority: Priority | None = None,
        *,
        at_least_seconds: float = 0.0,
        at_most_seconds: float = math.inf,
    ) -> float:
        """Add `item` after its backoff, in the bounds given, and count a failure; returns the delay in seconds.

        `priority` as in `add_after`: what fails over and over does not get ahead of what has not had a turn.
        """
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        own = min(self._limit.item_delay(failures), at_most_seconds)
        delay = max(own, self._bucket.take(self._clock.monotonic()), at_least_seconds)
        if self._observer:
            self._observer.retried()
        self.add_after(item, delay, priority)
        return delay

    def forget(self, item: K) -> None:
        """Start the backoff of `item` anew; it is neither added nor taken away."""
        self._failures.pop(item, None)

    def requeues(self, item: K) -> int:
        """How often `item` was added through the rate limit since it was forgotten."""
        return self._failures.get(item, 0)

    # -- taking ---------------------------------------------------------------

    async def get(self) -> K | None:
        """Wait for an item and take it; `None` when the queue is shut down and empty."""
        while self._held or not self._waiting:
            if self._closed and not self._waiting:
                return None
            await self._wait_for_item()
        return self._take()

    def hold(self) -> None:
        """Hand out nothing until `release`."""
        self._held = True

    def release(self) -> None:
        """Hand out what waits, and what comes."""
        if self._held:
            self._held = False
            self._wake_getters()

    def done(self, item: K) -> None:
        """Say that the work on `item` has ended, well or not; it may be handed out again."""
        working = self._working.pop(item, None)
        if working is None:
            return
        if self._observer:
            self._observer.finished(self._clock.monotonic() - working[0])
        again = self._again.pop(item, None)
        if again is not None:
            self._enqueue(item, again[0], since=again[1])
        self._note_idle()

    async def process(self, handle: Callable[[K], Awaitable[None]], failed: Callable[[K, Exception], None]) -> None:
        """Have `handle` work on one item after the other, until the queue is shut down and empty; call it per worker.

        An item that is handled begins its backoff anew.  `failed` is told what `handle` has raised, and sees to it
        that the item comes again.  Where a fence has closed, it does not: the work is another's.  One that is merely
        doubted may be open again in a moment, and then it is nobody else's: that is a failure.
        """
        handled = 0
        while (item := await self.get()) is not None:
            try:
                await handle(item)
                self.forget(item)
            except Exception as error:
                if isinstance(error, FenceClosed) and not isinstance(error, FenceDoubted):
                    self.forget(item)
                else:
                    failed(item, error)
            finally:
                self.done(item)
            handled += 1
            if handled % ITEMS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def shut_down(self, *, drain: bool = False) -> None:
        """Take nothing in any more, and forget what is delayed.

        `drain` True: returns once everything queued was handed out and is done; while it is held, that waits for
        `release`.  False: what waits is dropped, too; returns at once, and work under way is left to whoever runs it.
        """
        self._closed = True
        self._delays = Delays()
        self._restart_timer()
        if not drain:
            self._again.clear()
            self._waiting.clear()
        self._wake_getters()
        self._note_idle()
        if drain:
            await self._idle.wait()

    # -- looking --------------------------------------------------------------

    def observe(self, observer: QueueObserver) -> None:
        """Tell `observer` what happens from now on; there is one at the most."""
        self._observer = observer

    def __len__(self) -> int:
        return len(self._waiting)

    def depth(self, priority: Priority) -> int:
        """How many items of `priority` wait."""
        return self._waiting.depth(priority)

    def where(self, item: K) -> ItemState:
        """Where `item` is; nothing changes by asking."""
        started, _ = self._working.get(item, (None, None))
        due, priority = self._delays.get(item) or (None, Priority.FRESH)
        since = None
        if (waiting := self._waiting.get(item)) is not None:
            since, priority = waiting
        elif (again := self._again.get(item)) is not None:
            priority, since = again
        return ItemState(since, priority, started, due, self._failures.get(item, 0))

    def items(self) -> list[K]:
        """All that are worked on, wait or come back, each once."""
        return list(dict.fromkeys([*self._working, *self._waiting, *self._delays]))

    def unfinished_seconds(self) -> float:
        """Seconds of work on items that are not done yet, summed."""
        now = self._clock.monotonic()
        # A list made in one go: metrics are read in another thread.
        return sum(now - started for started, _ in list(self._working.values()))

    def longest_running_seconds(self) -> float:
        """Seconds since the oldest item that is not done yet was handed out; 0 when idle."""
        now = self._clock.monotonic()
        return now - min((started for started, _ in list(self._working.values())), default=now)

    # -- inside ---------------------------------------------------------------

    def _enqueue(self, item: K, priority: Priority, since: float | None = None) -> None:
        """Let `item` wait; `since` is given when it has been waiting (and was counted) before."""
        if not self._waiting.add(item, priority, self._clock.monotonic() if since is None else since):
            return
        if since is None:
            self._tell_added(priority)
        self._idle.clear()
        if not self._held:
            self._wake_one_getter()

    def _take(self) -> K:
        now = self._clock.monotonic()
        item, priority, since = self._waiting.take(now)
        self._working[item] = (now, priority)
        if self._observer:
            self._observer.started(now - since)
        return item

    async def _wait_for_item(self) -> None:
        getter = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        try:
            await getter
        except asyncio.CancelledError:
            if getter.done() and not getter.cancelled():
                self._wake_one_getter()  # it was woken for an item that it will not take
            elif getter in self._getters:
                self._getters.remove(getter)
            raise

    def _wake_one_getter(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _wake_getters(self) -> None:
        while self._getters:
            self._wake_one_getter()

    def _note_idle(self) -> None:
        if not self._working and not self._waiting:
            self._idle.set()

    def _tell_added(self, priority: Priority) -> None:
        if self._observer:
            self._observer.added(priority)

    def _restart_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._delays.first() is not None:
            self._timer = asyncio.get_running_loop().create_task(self._add_delayed(), name=f"queue-{self.name}")

    async def _add_delayed(self) -> None:
        added = 0
        while (moment := self._delays.first()) is not None:
            remaining = moment - self._clock.monotonic()
            if remaining > 0:
                # Never early: who asks to come back at a moment of the wall clock would ask again, and no time passes.
                await self._clock.sleep(max(remaining, _INSTANT_SECONDS))
            else:
                self.add(*self._delays.pop())
                added += 1
                if added % _ADDED_PER_TURN == 0:
                    await asyncio.sleep(0)
        self._timer = None
