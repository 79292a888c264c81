"""The queue against a model too simple to be wrong: a list of what waits, a dict of what runs."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings, strategies

from shardsdk.queueing.lines import BULK_PATIENCE_SECONDS, BULK_SHARE, OVERDUE_SHARE
from shardsdk.queueing.queue import Priority, RateLimit, WorkQueue
from shardsdk.testing.virtual import VirtualClock, run_virtual

NAMES = "abcdef"
ITEMS = strategies.sampled_from(NAMES)
PRIORITIES = strategies.sampled_from(Priority)
SECONDS = strategies.integers(min_value=0, max_value=20).map(float)
STEPS = strategies.one_of(
    strategies.tuples(strategies.just("add"), ITEMS, PRIORITIES),
    strategies.tuples(strategies.just("add_after"), ITEMS, SECONDS, strategies.none() | PRIORITIES),
    strategies.tuples(strategies.just("cancel"), ITEMS, strategies.booleans()),
    strategies.tuples(strategies.just("fail"), ITEMS),
    strategies.tuples(strategies.just("burst"), strategies.integers(min_value=1, max_value=2 * BULK_SHARE)),
    strategies.tuples(strategies.just("forget"), ITEMS),
    strategies.tuples(strategies.just("take")),
    strategies.tuples(strategies.just("take")),
    strategies.tuples(strategies.just("finish"), ITEMS),
    strategies.tuples(strategies.just("hold")),
    strategies.tuples(strategies.just("release")),
    strategies.tuples(strategies.just("pass_time"), SECONDS),
)


@dataclass
class Model:
    clock: VirtualClock
    queue: WorkQueue[str]
    #: One that moved up is in it twice, and leaves by whichever place is first.
    waiting: list[tuple[str, Priority]] = field(default_factory=list)
    since: dict[str, float] = field(default_factory=dict)
    #: Handed out with a priority; to come once more with another, since a moment.
    working: dict[str, tuple[Priority, tuple[Priority, float] | None]] = field(default_factory=dict)
    #: (due, tie-breaker, priority)
    delayed: dict[str, tuple[float, int, Priority]] = field(default_factory=dict)
    delays: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    fresh_in_a_row: int = 0
    #: Who asked while the queue was held, and has nothing yet.
    asking: asyncio.Task[str | None] | None = None
    held: bool = False

    def expect_added(self, item: str, priority: Priority, moment: float | None = None) -> None:
        moment = self.clock.monotonic() if moment is None else moment
        if item in self.working:
            had, again = self.working[item]
            self.working[item] = had, (priority, moment) if again is None else (min(again[0], priority), again[1])
        else:
            self.expect_waiting(item, priority, moment)

    def expect_waiting(self, item: str, priority: Priority, since: float) -> None:
        self.since.setdefault(item, since)
        if (item, Priority.FRESH) not in self.waiting and (item, priority) not in self.waiting:
            self.waiting.append((item, priority))

    def priority_of(self, item: str) -> Priority:
        """What it comes back with, if it is not said."""
        return self.working[item][0] if item in self.working else Priority.FRESH

    def expect_delayed(self, item: str, seconds: float, priority: Priority) -> None:
        self.delays += 1
        due, order = self.clock.monotonic() + seconds, self.delays
        if item in self.delayed:
            before_due, before_order, before_priority = self.delayed[item]
            (due, order), priority = min((due, order), (before_due, before_order)), min(priority, before_priority)
        self.delayed[item] = (due, order, priority)

    async def add(self, item: str, priority: Priority) -> None:
        self.queue.add(item, priority)
        self.expect_added(item, priority)

    async def add_after(self, item: str, seconds: float, priority: Priority | None) -> None:
        self.queue.add_after(item, seconds, priority)
        priority = self.priority_of(item) if priority is None else priority
        if seconds > 0:
            self.expect_delayed(item, seconds, priority)
        else:
            self.expect_added(item, priority)

    async def cancel(self, item: str, right: bool) -> None:
        due = self.delayed[item][0] if item in self.delayed else 0.0
        self.queue.cancel(item, due if right else due + 0.5)
        if right:
            self.delayed.pop(item, None)

    async def fail(self, item: str) -> None:
        failures = self.failures.get(item, 0)
        self.failures[item] = failures + 1
        delay = self.queue.add_rate_limited(item)
        assert delay == min(2.0**failures, 1000.0)
        self.expect_delayed(item, delay, self.priority_of(item))

    async def forget(self, item: str) -> None:
        self.queue.forget(item)
        self.failures.pop(item, None)

    async def take(self) -> None:
        if self.waiting and self.asking is None:
            self.asking = asyncio.create_task(self.queue.get())
            await self.settle()

    async def hold(self) -> None:
        self.queue.hold()
        self.held = True

    async def release(self) -> None:
        self.queue.release()
        self.held = False
        await self.settle()

    async def settle(self) -> None:
        """Whoever asks has the next item, but while the queue is held."""
        for _ in range(5):
            await asyncio.sleep(0)
        if self.asking is None:
            return
        assert self.asking.done() is not self.held
        if not self.held:
            asking, self.asking = self.asking, None
            self.expect_taken(asking.result())

    def expect_taken(self, taken: str | None) -> None:
        fresh = [item for item, priority in self.waiting if priority is Priority.FRESH]
        bulk = [item for item, priority in self.waiting if priority is Priority.BULK]
        overdue = bool(bulk) and self.clock.monotonic() - self.since[bulk[0]] >= BULK_PATIENCE_SECONDS
        if bulk and (not fresh or self.fresh_in_a_row >= (OVERDUE_SHARE if overdue else BULK_SHARE)):
            expected, self.fresh_in_a_row = bulk[0], 0
        else:
            expected = fresh[0]
            self.fresh_in_a_row = self.fresh_in_a_row + 1 if bulk else 0
        assert taken == expected
        assert taken not in self.working
        self.waiting = [(item, priority) for item, priority in self.waiting if item != taken]
        del self.since[taken]
        self.working[taken] = (Priority.FRESH if taken in fresh else Priority.BULK), None

    async def burst(self, count: int) -> None:
        """So many fresh items, one after the other, each of them wanted for no longer than it waits."""
        for number in range(count):
            await self.add(f"burst {number}", Priority.FRESH)
            if not self.held:
                await self.take()
        for item in [item for item in self.working if item.startswith("burst")]:
            await self.finish(item)

    async def finish(self, item: str) -> None:
        self.queue.done(item)
        _, again = self.working.pop(item, (None, None))
        if again is not None:
            self.expect_waiting(item, *again)

    async def pass_time(self, seconds: float) -> None:
        await self.clock.sleep(seconds)
        for _ in range(5):  # what is due at this very moment happens, too
            await asyncio.sleep(0)
        due = sorted((*when, item) for item, when in self.delayed.items() if when[0] <= self.clock.monotonic())
        for moment, _, priority, item in due:
            del self.delayed[item]
            self.expect_added(item, priority, moment)

    def check(self) -> None:
        fresh = {item for item, priority in self.waiting if priority is Priority.FRESH}
        assert self.queue.depth(Priority.FRESH) == len(fresh)
        assert self.queue.depth(Priority.BULK) == len({item for item, _ in self.waiting} - fresh)
        assert len(self.queue) == len(self.since)
        for item in NAMES:
            state = self.queue.where(item)
            assert state.failures == self.queue.requeues(item) == self.failures.get(item, 0)
            if item in self.since:
                assert (state.queued_since, state.priority is Priority.FRESH) == (self.since[item], item in fresh)


@settings(max_examples=200, deadline=None)
@given(steps=strategies.lists(STEPS, max_size=80))
def test_the_queue_does_what_the_model_does(steps: list[tuple[Any, ...]]) -> None:
    async def scenario(clock: VirtualClock) -> None:
        model = Model(clock, WorkQueue(clock, rate_limit=RateLimit(base_seconds=1, per_second=None)))
        for verb, *details in steps:
            await getattr(model, verb)(*details)
            model.check()
        await model.release()

    run_virtual(scenario)


@settings(max_examples=100, deadline=None)
@given(work=strategies.lists(strategies.tuples(ITEMS, SECONDS, SECONDS), min_size=1, max_size=40))
def test_several_consumers_never_share_an_item_and_miss_none(work: list[tuple[str, float, float]]) -> None:
    async def scenario(clock: VirtualClock) -> None:
        queue: WorkQueue[str] = WorkQueue(clock)
        running: set[str] = set()
        begun: dict[str, float] = {}

        async def consume(pace: float) -> None:
            while (item := await queue.get()) is not None:
                assert item not in running
                running.add(item)
                begun[item] = clock.monotonic()
                await clock.sleep(pace)
                running.remove(item)
                queue.done(item)

        consumers = [asyncio.create_task(consume(pace)) for pace in (0.0, 1.0, 7.0)]
        added: dict[str, float] = {}
        for item, delay, pause in work:
            queue.add_after(item, delay)
            added[item] = max(added.get(item, 0.0), clock.monotonic())
            await clock.sleep(pause)
        await clock.sleep(100)
        await queue.shut_down(drain=True)
        await asyncio.gather(*consumers)
        assert all(begun[item] >= moment for item, moment in added.items())

    run_virtual(scenario)


@settings(max_examples=50, deadline=None)
@given(
    workers=strategies.integers(min_value=1, max_value=16),
    listed=strategies.integers(min_value=1, max_value=120),
    changed=strategies.integers(min_value=0, max_value=120),
    again_seconds=strategies.sampled_from([0.01, 1.0, 5.0]),
    turn_seconds=strategies.sampled_from([0.05, 0.5, 2.0]),
    fail=strategies.booleans(),
)
def test_what_was_listed_has_its_first_turn_in_a_bounded_time_whatever_else_there_is_to_do(
    workers: int, listed: int, changed: int, again_seconds: float, turn_seconds: float, fail: bool
) -> None:
    """Everything that was reconciled once comes back at once, as do objects that change all the time."""

    async def scenario(clock: VirtualClock) -> None:
        queue: WorkQueue[tuple[str, int]] = WorkQueue(
            clock, rate_limit=RateLimit(base_seconds=again_seconds, max_seconds=again_seconds)
        )
        first: dict[int, float] = {}
        turns: Counter[str] = Counter()

        async def work() -> None:
            while (item := await queue.get()) is not None:
                kind, number = item
                if len(first) < listed:
                    turns[kind] += 1
                if kind == "listed":
                    first.setdefault(number, clock.monotonic())
                await clock.sleep(turn_seconds)
                if fail:
                    queue.add_rate_limited(item)
                else:
                    queue.add_after(item, again_seconds)
                queue.done(item)

        for number in range(listed):
            queue.add(("listed", number), Priority.BULK)
        for number in range(changed):
            queue.add(("changed", number), Priority.FRESH)
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work())
            own_turns = math.ceil((OVERDUE_SHARE + 1) * listed / workers) + 1
            # Who works on something when the patience ends does so until the end of its turn.
            await clock.sleep(BULK_PATIENCE_SECONDS + (own_turns + 1) * turn_seconds)
            assert len(first) == listed
            await queue.shut_down()
        # They alone keep all workers busy, also when all of these end a turn at once: so many rest at most.
        if changed >= workers * (2 + math.floor(again_seconds / turn_seconds)):
            assert turns["changed"] >= OVERDUE_SHARE * (turns["listed"] - workers)

    run_virtual(scenario)
