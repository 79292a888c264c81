"""Worker pool: workers that take items from a queue and reconcile them.

What a reconcile may say, and what becomes of its item:

==============================  ==============================================
returns `None` or `Done()`      forgotten until its next event
returns `RequeueAfter(30)`      comes back in 30 s, its backoff starts anew
returns `Requeue()`             comes back after its backoff, without an error
returns `RequeueAfter(0)`       the same, also with a moment that has passed
returns `Waiting()`             stays as it is: whoever returned it wakes it
raises `TerminalError`          logged, forgotten until its next event
raises `FenceClosed/LeaseLost`  dropped: the process is about to end (also as the
                                cause of an error, or in a group of nothing else)
raises `Forbidden`, for its     comes back as by `Requeue()`: it is about to go (but
namespace is being deleted      after a dozen times it is logged as anything else)
raises anything else            logged, comes back after its backoff (which the
                                error may bound: `longest_pause_seconds`), also
                                after a `SystemExit` (of its own or a thread's:
                                one of another task ends the loop, by asyncio)
raises a group of errors        as those, if all mean the same; else as anything
                                else (shardsdk/queueing/raised.py)
runs longer than its limit      cancelled, comes back after its backoff once it
                                has ended, unless it says otherwise: a plain
                                function keeps its worker until it returns
runs when its lease may have    the same, and comes back once the lease is
run out unnoticed               confirmed, whatever it says to that
==============================  ==============================================

What one says holds until the next, which an event may bring earlier: whatever that says takes its place.  An item
comes back with the priority it was handed out with, unless the outcome names one: what was listed and polls, or fails,
does not get ahead of what was listed and had no turn yet.

Does: contain whatever a reconcile raises, and does to its task: each has one of its
own, with context variables of its own; cancel one reconcile by its item.
Refuses: to know what an item is, and to run one item twice at once (the queue
sees to that).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, Final, Generic, TypeVar, assert_never

from prometheus_client import Counter

from shardsdk.errors import ConfigurationError, RetryRule, ShardingError, TerminalError
from shardsdk.kube.backoff import ASKED_MAX_SECONDS, asked_by
from shardsdk.kube.cancelled import is_cancelled
from shardsdk.kube.clock import Clock
from shardsdk.kube.identity import describe_given
from shardsdk.logs import logger_of
from shardsdk.queueing.attempts import Attempt, Early
from shardsdk.queueing.exits import RECONCILE
from shardsdk.queueing.metrics import ControllerMetrics
from shardsdk.queueing.queue import Priority, WorkQueue
from shardsdk.queueing.raised import Faster, awaited_cancelled, describe, is_ending, is_failure, is_lease_gone, meant_by

log: Final = logger_of(__name__)

K = TypeVar("K", bound=Hashable)

#: More workers than this do not help: one event loop serves them all.
MAX_CONCURRENCY: Final = 1000


@dataclass(frozen=True, slots=True)
class Done:
    """The item is as it should be."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """Come back after the item's backoff; no error, just not there yet.

    `priority` `None`: the one it came with this time; a change meanwhile brings it back fresh, and sooner.

    Raises: ConfigurationError for a priority that is none.
    """

    priority: Priority | None = None

    def __post_init__(self) -> None:
        _check_priority(self.priority)


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Come back in `seconds`; zero or less: after the item's backoff, as `Requeue` does; `priority` as there.

    Raises: ConfigurationError for what is no finite number, or a priority that is none.
    """

    seconds: float
    priority: Priority | None = None

    def __post_init__(self) -> None:
        if not is_finite(self.seconds):
            raise ConfigurationError(
                f"a reconcile is to come back in {self.seconds!r} seconds: say a finite number, of a timedelta its"
                " total_seconds(); whoever waits for an event alone returns Done()"
            )
        _check_priority(self.priority)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not now: what the item waits for adds it to the queue; its backoff stays as it is.

    `error`: it has failed for good, and why it waits is that this would happen again, or just has; its next failure of
    another kind is its first.  `waits_for` says to people until when.
    """

    error: str = ""
    waits_for: str = TerminalError.waits_for


def is_finite(seconds: Any) -> bool:
    """Whether that is a number of seconds that ends."""
    return isinstance(seconds, Real) and math.isfinite(seconds)


def _check_priority(priority: Priority | None) -> None:
    if priority is not None and priority not in tuple(Priority):
        raise ConfigurationError(
            f"{priority!r} is no priority of a reconcile: use Priority.FRESH or Priority.BULK, or leave it out"
        )


Outcome = Done | Requeue | RequeueAfter | Waiting


def is_soon(outcome: Outcome | None) -> bool:
    """Whether it asks for another reconcile as soon as that may be."""
    return isinstance(outcome, Requeue) or (isinstance(outcome, RequeueAfter) and outcome.seconds <= 0)


def checked(outcome: object, controller: str) -> Outcome:
    """What a reconcile of `controller` has returned, if it is one of those.

    Raises: TypeError.
    """
    if isinstance(outcome, Done | Requeue | RequeueAfter | Waiting):
        return outcome
    raise TypeError(
        f"a reconcile of controller {controller!r} returned {describe_given(outcome)}: return None, Done(), Requeue()"
        " or RequeueAfter(seconds)"
    )


class WorkerPool(Generic[K]):
    """Runs `reconcile(item)` for the items of `queue`, `concurrency` at once.

    `timeout_seconds` is the limit of one reconcile (`None`: none).  One that the API server has answered is tried again
    when that asks for it, but after `asked_max_seconds` at the latest.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Outcome | None]],
        queue: WorkQueue[K],
        *,
        clock: Clock,
        concurrency: int = 1,
        timeout_seconds: float | None = None,
        asked_max_seconds: float = ASKED_MAX_SECONDS,
        metrics: ControllerMetrics | None = None,
    ) -> None:
        if not 1 <= concurrency <= MAX_CONCURRENCY:
            raise ValueError(f"concurrency of controller {name!r} is {concurrency}, not 1 to {MAX_CONCURRENCY}")
        self.name = name
        self.queue = queue
        self.concurrency = concurrency
        self._reconcile = reconcile
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._asked_max_seconds = asked_max_seconds
        self._metrics = metrics
        self._running: dict[K, Attempt] = {}
        #: The error of each item whose stack was logged last.
        self._shown: dict[K, str] = {}
        self._faster: Faster[K] = Faster()

    async def run(self) -> None:
        """Work until the queue is shut down and every reconcile has ended, or until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self.concurrency):
                group.create_task(self._work(), name=f"{self.name}/{number}")

    def cancel(self, item: K) -> bool:
        """Cancel the reconcile of `item` that runs now; `False`: none does.

        It is not retried for that; a plain function is only told (`Context.cancelled`).
        """
        attempt = self._running.get(item)
        if attempt is None:
            return False
        attempt.end(Early.CANCELLED)
        return True

    def is_told_to_end(self, item: K) -> bool:
        """Whether the reconcile of `item` that runs now was cancelled, however it has gone on since."""
        attempt = self._running.get(item)
        return attempt is not None and attempt.told

    def cancel_in_doubt(self) -> None:
        """Cancel all that run, because another process may work on the same, and begin none; they come back."""
        self.queue.hold()
        for attempt in self._running.values():
            attempt.end(Early.DOUBT)

    def go_on(self) -> None:
        """Nobody else works on the same: begin reconciles again."""
        self.queue.release()
        for attempt in self._running.values():
            attempt.dispelled()

    @property
    def running(self) -> int:
        """How many reconciles run now."""
        return len(self._running)

    async def _work(self) -> None:
        # Nobody but the pool cancels its workers: each reconcile has a task of its own.
        while not is_cancelled() and (item := await self.queue.get()) is not None:
            try:
                await self._attempt(item)
            finally:
                self.queue.done(item)

    async def _attempt(self, item: K) -> None:
        """Reconcile `item` in a task of its own, and return when that has ended, however it is cancelled.

        What a reconcile does to its task (sets context variables, cancels it by a timer that outlives it) is so done
        neither to the next reconcile nor to a worker.
        """
        begun, loop = self._clock.monotonic(), asyncio.get_running_loop()
        # A factory that begins tasks at once (`asyncio.eager_task_factory`) might end this one before it is known here,
        # and would leave nothing else a turn between reconciles that await nothing.
        call = self._call if loop.get_task_factory() is None else self._call_next_turn
        task = loop.create_task(call(item), name=f"{self.name} {item}")
        self._running[item] = attempt = Attempt(task, partial(self._goes_on, item))
        if self._timeout_seconds is not None:
            attempt.limit(self._timeout_seconds, lambda: self._count(lambda metrics: metrics.timeouts))
        # When to come back is this one's to say; one that only waits is woken by what it waits for.
        self.queue.drop_delay(item)
        if self._metrics:
            self._metrics.active.inc()
        try:
            await attempt.task
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            if not attempt.concluded:
                self._end_early(item, attempt, error)
        finally:
            attempt.ended()
            del self._running[item]
            if attempt.is_stale:
                self.queue.add_after(item, 0)
            if self._metrics:
                self._metrics.active.dec()
                self._metrics.seconds.observe(self._clock.monotonic() - begun)

    async def _call_next_turn(self, item: K) -> None:
        await asyncio.sleep(0)
        await self._call(item)

    async def _call(self, item: K) -> None:
        """One reconcile with what it means for its item; what ends a task, as a `SystemExit` would, stays in here."""
        RECONCILE.set((self.name, item))  # its task has a context of its own
        try:
            outcome = await self._reconcile(item) or Done()
            self._conclude(item, checked(outcome, self.name))
        except BaseException as error:
            if not is_failure(error):
                raise
            self._fail(item, error)
        self._running[item].concluded = True

    def _goes_on(self, item: K, cancelled_seconds: float) -> None:
        """A reconcile was cancelled so long ago, and has not ended; it may never."""
        log.warning(
            "Reconcile goes on though it was cancelled, and keeps its worker; have it look at Context.cancelled, and"
            " give its calls time limits",
            extra={**self._where(item), "cancelled_seconds": cancelled_seconds, "workers": self.concurrency},
        )

    def _end_early(self, item: K, attempt: Attempt, error: asyncio.CancelledError) -> None:
        match attempt.ended_early:
            case Early.CANCELLED:
                log.info("Reconcile cancelled", extra=self._where(item))
                self._forget(item)
            case Early.DOUBT:
                log.info("Reconcile cancelled until its hold is confirmed", extra=self._where(item))
            case Early.LIMIT:
                self._give_up_waiting(item)
            case None:
                self._fail(item, awaited_cancelled(error))
            case why:
                assert_never(why)

    def _conclude(self, item: K, outcome: Outcome) -> None:
        match outcome:
            case Done():
                self._forget(item)
                self._count(lambda metrics: metrics.succeeded)
            case RequeueAfter(seconds=seconds, priority=priority) if seconds > 0:
                self.queue.add_after(item, float(seconds), priority)
                self._forget(item)
                self._count(lambda metrics: metrics.requeued_after)
            case Requeue(priority=priority) | RequeueAfter(priority=priority):
                # A moment that always has passed, by an object's own account, would keep a worker busy for ever.
                self.queue.add_rate_limited(item, priority)
                self._count(lambda metrics: metrics.requeued)
            case Waiting(error=error):
                if error:
                    self._forget(item)
            case _:
                assert_never(outcome)

    def _fail(self, item: K, error: BaseException) -> None:
        """Heed what a reconcile has raised, whatever that is: it must not end the pool."""
        failed = True
        try:
            failed = self._heed(item, error)
        except Exception:
            # Its class alone: what it says is in the stack, and to read that may be what has failed, as `error` tells.
            where = {**self._where(item, again_after=self.queue.add_rate_limited(item)), "raised": type(error).__name__}
            log.exception("Reconcile raised an error that cannot be read; trying again", extra=where)
        if failed:
            self._count(lambda metrics: metrics.failed)
            self._count(lambda metrics: metrics.errors)

    def _heed(self, item: K, error: BaseException) -> bool:
        """Do what it means for `item`; whether it is a failure."""
        match meant := meant_by(error):
            case _ if is_lease_gone(error):
                log.warning("Reconcile stopped: the lease is gone", extra=self._where(item, error))
                self._forget(item)
            case TerminalError():
                self._count(lambda metrics: metrics.terminal_errors)
                log.error("Reconcile failed for good", extra={**self._where(item, error), "waits_for": meant.waits_for})
                self._forget(item)
            case ShardingError(retry=RetryRule.REFRESH) if self._faster.is_no_news(item, self.queue.requeues(item)):
                pause = self.queue.add_rate_limited(item)
                log.info("Reconcile met a newer object; trying again", extra=self._where(item, error, pause))
            case _ if is_ending(error, getattr(item, "namespace", ""), self.queue.requeues(item)):
                log.info("Reconcile met the end of its namespace; trying again", extra=self._where(item, error))
                self._conclude(item, Requeue())
                return False
            case ShardingError():
                asked, most = min(asked_by(meant), self._asked_max_seconds), meant.longest_pause_seconds
                pause = self.queue.add_rate_limited(item, at_least_seconds=asked, at_most_seconds=most)
                log.warning("Reconcile failed; trying again", extra=self._where(item, error, pause))
            case _:
                pause = self.queue.add_rate_limited(item)
                shown = error if self._is_news(item, error) else None
                log.error("Reconcile raised; trying again", extra=self._where(item, error, pause), exc_info=shown)
        return True

    def _is_news(self, item: K, error: BaseException) -> bool:
        """Whether the stack of `error` is to be shown: at each of a dozen attempts it would hide all other lines."""
        text = describe(error)
        news = self.queue.requeues(item) == 1 or self._shown.get(item) != text
        self._shown[item] = text
        return news

    def _forget(self, item: K) -> None:
        """The item's next failure is its first."""
        self.queue.forget(item)
        self._shown.pop(item, None)
        self._faster.forget(item)

    def _give_up_waiting(self, item: K) -> None:
        self._count(lambda metrics: metrics.failed)
        self._count(lambda metrics: metrics.errors)
        where = self._where(item, again_after=self.queue.add_rate_limited(item))
        where["timeout_seconds"] = self._timeout_seconds
        log.warning("Reconcile cancelled at its time limit; trying again", extra=where)

    def _count(self, counter: Callable[[ControllerMetrics], Counter]) -> None:
        if self._metrics:
            counter(self._metrics).inc()

    def _where(
        self, item: K, error: BaseException | None = None, again_after: float | None = None
    ) -> dict[str, object]:
        namespace, name = getattr(item, "namespace", ""), getattr(item, "name", str(item))
        where: dict[str, object] = {"controller": self.name, "namespace": namespace, "object": name}
        if error is not None:
            where["error"] = describe(error)
        if again_after is not None:
            where |= {"attempts": self.queue.requeues(item), "next_attempt_seconds": round(again_after, 3)}
        return where
