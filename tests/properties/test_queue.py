"""The queue against a model too simple to be wrong: a list of what waits, a dict of what runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings, strategies

from shardsdk.queueing.queue import BULK_SHARE, Priority, RateLimit, WorkQueue
from shardsdk.testing.virtual import VirtualClock, run_virtual

NAMES = "abcdef"
ITEMS = strategies.sampled_from(NAMES)
PRIORITIES = strategies.sampled_from(Priority)
SECONDS = strategies.integers(min_value=0, max_value=20).map(float)
STEPS = strategies.one_of(
    strategies.tuples(strategies.just("add"), ITEMS, PRIORITIES),
    strategies.tuples(strategies.just("add_after"), ITEMS, SECONDS, PRIORITIES),
    strategies.tuples(strategies.just("cancel"), ITEMS, strategies.booleans()),
    strategies.tuples(strategies.just("fail"), ITEMS),
    strategies.tuples(strategies.just("forget"), ITEMS),
    strategies.tuples(strategies.just("take")),
    strategies.tuples(strategies.just("take")),
    strategies.tuples(strategies.just("finish"), ITEMS),
    strategies.tuples(strategies.just("pass_time"), SECONDS),
)


@dataclass
class Model:
    clock: VirtualClock
    queue: WorkQueue[str]
    waiting: list[tuple[str, Priority]] = field(default_factory=list)
    #: The value: the item is to come once more, with this priority.
    working: dict[str, Priority | None] = field(default_factory=dict)
    #: (due, tie-breaker, priority)
    delayed: dict[str, tuple[float, int, Priority]] = field(default_factory=dict)
    delays: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    fresh_in_a_row: int = 0

    def expect_added(self, item: str, priority: Priority) -> None:
        if item in self.working:
            before = self.working[item]
            self.working[item] = priority if before is None else min(before, priority)
        elif (item, Priority.BULK) in self.waiting and priority is Priority.FRESH:
            self.waiting.remove((item, Priority.BULK))
            self.waiting.append((item, priority))
        elif item not in [waiting for waiting, _ in self.waiting]:
            self.waiting.append((item, priority))

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

    async def add_after(self, item: str, seconds: float, priority: Priority) -> None:
        self.queue.add_after(item, seconds, priority)
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
        self.expect_delayed(item, delay, Priority.FRESH)

    async def forget(self, item: str) -> None:
        self.queue.forget(item)
        self.failures.pop(item, None)

    async def take(self) -> None:
        if not self.waiting:
            return
        taken = await self.queue.get()
        fresh = [item for item, priority in self.waiting if priority is Priority.FRESH]
        bulk = [item for item, priority in self.waiting if priority is Priority.BULK]
        if bulk and (not fresh or self.fresh_in_a_row >= BULK_SHARE):
            expected, self.fresh_in_a_row = bulk[0], 0
        else:
            expected = fresh[0]
            self.fresh_in_a_row = self.fresh_in_a_row + 1 if bulk else 0
        assert taken == expected
        assert taken not in self.working
        self.waiting = [(item, priority) for item, priority in self.waiting if item != taken]
        self.working[taken] = None

    async def finish(self, item: str) -> None:
        self.queue.done(item)
        again = self.working.pop(item, None)
        if again is not None:
            self.waiting.append((item, again))

    async def pass_time(self, seconds: float) -> None:
        await self.clock.sleep(seconds)
        for _ in range(5):  # what is due at this very moment happens, too
            await asyncio.sleep(0)
        due = sorted((*when, item) for item, when in self.delayed.items() if when[0] <= self.clock.monotonic())
        for _, _, priority, item in due:
            del self.delayed[item]
            self.expect_added(item, priority)

    def check(self) -> None:
        for priority in Priority:
            assert self.queue.depth(priority) == sum(1 for _, found in self.waiting if found is priority)
        for item in NAMES:
            assert self.queue.requeues(item) == self.failures.get(item, 0)


@settings(max_examples=200, deadline=None)
@given(steps=strategies.lists(STEPS, max_size=80))
def test_the_queue_does_what_the_model_does(steps: list[tuple[Any, ...]]) -> None:
    async def scenario(clock: VirtualClock) -> None:
        model = Model(clock, WorkQueue(clock, rate_limit=RateLimit(base_seconds=1, per_second=None)))
        for verb, *details in steps:
            await getattr(model, verb)(*details)
            model.check()

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
