"""The queue against a model too simple to be wrong: a list of what waits, a set of what runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shardsdk.runtime.queue import BULK_SHARE, Priority, RateLimit, WorkQueue
from shardsdk.testing.virtualtime import VirtualClock, virtual_loop

T = TypeVar("T")
ITEMS = strategies.sampled_from("abcdef")
PRIORITIES = strategies.sampled_from(Priority)
DELAYS = strategies.integers(min_value=0, max_value=20).map(float)


class Model(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.loop = virtual_loop(self.clock)
        self.queue: WorkQueue[str] = WorkQueue(self.clock, rate_limit=RateLimit(base_seconds=1, per_second=None))
        self.waiting: list[tuple[str, Priority]] = []
        self.working: dict[str, Priority | None] = {}  # the value: to come once more, with this priority
        self.delayed: dict[str, tuple[float, int, Priority]] = {}  # due, tie-breaker, priority
        self.delays = 0
        self.failures: dict[str, int] = {}
        self.fresh_in_a_row = 0

    def teardown(self) -> None:
        self.run(self.queue.shut_down())
        self.run(asyncio.sleep(0))
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def model_add(self, item: str, priority: Priority) -> None:
        if item in self.working:
            before = self.working[item]
            self.working[item] = priority if before is None else min(before, priority)
        elif (item, Priority.BULK) in self.waiting and priority is Priority.FRESH:
            self.waiting.remove((item, Priority.BULK))
            self.waiting.append((item, priority))
        elif item not in [waiting for waiting, _ in self.waiting]:
            self.waiting.append((item, priority))

    def model_delay(self, item: str, seconds: float, priority: Priority) -> None:
        due = self.clock.monotonic() + seconds
        self.delays += 1
        order = self.delays
        if item in self.delayed:
            before_due, before_order, before_priority = self.delayed[item]
            (due, order), priority = min((due, order), (before_due, before_order)), min(priority, before_priority)
        self.delayed[item] = (due, order, priority)

    @rule(item=ITEMS, priority=PRIORITIES)
    def add(self, item: str, priority: Priority) -> None:
        self.queue.add(item, priority)
        self.model_add(item, priority)

    @rule(item=ITEMS, seconds=DELAYS, priority=PRIORITIES)
    def add_after(self, item: str, seconds: float, priority: Priority) -> None:
        async def call() -> None:
            self.queue.add_after(item, seconds, priority)

        self.run(call())
        if seconds > 0:
            self.model_delay(item, seconds, priority)
        else:
            self.model_add(item, priority)

    @rule(item=ITEMS)
    def fail(self, item: str) -> None:
        async def call() -> float:
            return self.queue.add_rate_limited(item)

        failures = self.failures.get(item, 0)
        self.failures[item] = failures + 1
        delay = self.run(call())
        assert delay == min(2.0**failures, 1000.0)
        self.model_delay(item, delay, Priority.FRESH)

    @rule(item=ITEMS)
    def forget(self, item: str) -> None:
        self.queue.forget(item)
        self.failures.pop(item, None)

    @precondition(lambda self: self.waiting)
    @rule()
    def take(self) -> None:
        taken = self.run(self.queue.get())
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

    @precondition(lambda self: self.working)
    @rule(data=strategies.data())
    def finish(self, data: strategies.DataObject) -> None:
        item = data.draw(strategies.sampled_from(sorted(self.working)))
        again = self.working.pop(item)
        self.queue.done(item)
        if again is not None:
            self.waiting.append((item, again))

    @rule(seconds=DELAYS)
    def let_time_pass(self, seconds: float) -> None:
        async def passing() -> None:
            await self.clock.sleep(seconds)
            for _ in range(5):  # what is due at this very moment happens, too
                await asyncio.sleep(0)

        self.run(passing())
        due = sorted((*when, item) for item, when in self.delayed.items() if when[0] <= self.clock.monotonic())
        for _, _, priority, item in due:
            del self.delayed[item]
            self.model_add(item, priority)

    @invariant()
    def counts_agree(self) -> None:
        for priority in Priority:
            assert self.queue.depth(priority) == sum(1 for _, found in self.waiting if found is priority)
        for item in "abcdef":
            assert self.queue.requeues(item) == self.failures.get(item, 0)


Model.TestCase.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
TestQueue = Model.TestCase
