from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shardsdk.errors import ConfigurationError, FenceClosed
from shardsdk.kube.doubts import FenceDoubted
from shardsdk.queueing.lines import BULK_SHARE
from shardsdk.queueing.queue import Priority, RateLimit, WorkQueue
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

UNLIMITED = RateLimit(per_second=None)


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"base_seconds": 0}, "above zero"),
        ({"base_seconds": 5, "max_seconds": 1}, "not below"),
        ({"per_second": 0}, "None for no overall limit"),
        ({"burst": 0}, "1 or more"),
    ],
)
def test_a_rate_limit_that_cannot_work_says_what_to_change(wrong: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=remedy):
        RateLimit(**wrong)


def make_queue(clock: VirtualClock, rate_limit: RateLimit = UNLIMITED) -> WorkQueue[str]:
    return WorkQueue(clock, name="test", rate_limit=rate_limit)


async def take_all(queue: WorkQueue[str]) -> list[str]:
    """Everything that waits now, each item taken and done."""
    taken = []
    for _ in range(len(queue)):
        item = await queue.get()
        assert item is not None
        taken.append(item)
        queue.done(item)
    return taken


class Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, float]] = []

    def added(self, priority: Priority) -> None:
        self.events.append(("added", priority))

    def started(self, queue_seconds: float) -> None:
        self.events.append(("started", queue_seconds))

    def finished(self, work_seconds: float) -> None:
        self.events.append(("finished", work_seconds))

    def retried(self) -> None:
        self.events.append(("retried", 0))


@in_virtual_time
async def test_stingy_an_item_added_often_is_handed_out_once(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    for _ in range(5):
        queue.add("a")
    assert await take_all(queue) == ["a"]
    assert len(queue) == 0


@in_virtual_time
async def test_fair_items_come_out_in_the_order_they_came_in(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    for item in ("c", "a", "b", "a"):
        queue.add(item)
    assert await take_all(queue) == ["c", "a", "b"]


@in_virtual_time
async def test_an_item_being_worked_on_is_not_handed_out_again(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    other = asyncio.create_task(queue.get())
    await clock.sleep(60)
    assert not other.done()
    queue.done("a")
    assert await other == "a"


@in_virtual_time
async def test_an_item_added_while_it_is_worked_on_comes_once_more(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    queue.done("a")
    assert await take_all(queue) == ["a"]


@in_virtual_time
async def test_done_alone_brings_nothing_back(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    queue.add("a")
    queue.done(str(await queue.get()))
    queue.done("never taken")
    assert len(queue) == 0


@in_virtual_time
async def test_fresh_overtakes_bulk(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    queue.add("old 1", Priority.BULK)
    queue.add("old 2", Priority.BULK)
    queue.add("new")
    assert await take_all(queue) == ["new", "old 1", "old 2"]


@in_virtual_time
async def test_a_bulk_item_that_becomes_fresh_moves_up_and_never_down(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    for item in ("a", "b"):
        queue.add(item, Priority.BULK)
    queue.add("b")
    queue.add("b", Priority.BULK)
    assert queue.depth(Priority.FRESH) == 1
    assert await take_all(queue) == ["b", "a"]


@in_virtual_time
async def test_an_item_added_again_while_worked_on_keeps_the_best_priority(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    queue.add("a")
    await queue.get()
    queue.add("a", Priority.FRESH)
    queue.add("a", Priority.BULK)
    queue.add("b", Priority.FRESH)
    queue.done("a")
    assert queue.depth(Priority.FRESH) == 2


@in_virtual_time
async def test_bulk_is_not_starved_by_endless_fresh_items(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    queue.add("bulk", Priority.BULK)
    order = []
    for number in range(2 * BULK_SHARE):
        queue.add(f"fresh {number}")
        item = await queue.get()
        assert item is not None
        order.append(item)
        queue.done(item)
    assert order.index("bulk") == BULK_SHARE


@in_virtual_time
async def test_add_after_waits(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    queue.add_after("a", 10)
    assert len(queue) == 0
    assert await queue.get() == "a"
    assert clock.monotonic() == pytest.approx(10)


@in_virtual_time
async def test_of_several_delays_of_one_item_the_shortest_counts(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    for seconds in (20, 5, 30):
        queue.add_after("a", seconds)
    assert await queue.get() == "a"
    assert clock.monotonic() == pytest.approx(5)
    queue.done("a")
    await clock.sleep(60)
    assert len(queue) == 0


@in_virtual_time
async def test_a_later_item_with_a_shorter_delay_comes_first(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    queue.add_after("late", 10)
    queue.add_after("soon", 1)
    assert [await queue.get(), clock.monotonic()] == ["soon", pytest.approx(1)]
    assert [await queue.get(), clock.monotonic()] == ["late", pytest.approx(10)]


@in_virtual_time
async def test_a_delay_keeps_its_priority(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    queue.add_after("bulk", 1, Priority.BULK)
    queue.add_after("fresh", 1)
    await clock.sleep(2)
    assert await take_all(queue) == ["fresh", "bulk"]


@in_virtual_time
async def test_no_delay_means_now(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    queue.add_after("a", 0)
    queue.add_after("b", -1)
    assert await take_all(queue) == ["a", "b"]


@in_virtual_time
async def test_bringing_delays_forward_for_ever_takes_no_memory(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    for step in range(10_000):
        queue.add_after("a", 20_000 - step)
    assert len(queue._delays._heap) < 100


@in_virtual_time
async def test_backoff_doubles_per_item_up_to_a_maximum_until_it_is_forgotten(clock: VirtualClock) -> None:
    queue = make_queue(clock, RateLimit(base_seconds=1, max_seconds=5, per_second=None))
    delays = [queue.add_rate_limited("a") for _ in range(5)]
    assert delays == [1, 2, 4, 5, 5]
    assert queue.requeues("a") == 5
    assert queue.add_rate_limited("b") == 1
    queue.forget("a")
    assert queue.requeues("a") == 0
    assert queue.add_rate_limited("a") == 1


@in_virtual_time
async def test_the_overall_rate_limit_spreads_many_items(clock: VirtualClock) -> None:
    queue = make_queue(clock, RateLimit(base_seconds=0.001, per_second=10, burst=5))
    delays = [queue.add_rate_limited(str(number)) for number in range(8)]
    assert delays == pytest.approx([0.001] * 5 + [0.1, 0.2, 0.3])
    await clock.sleep(60)
    assert queue.add_rate_limited("later") == pytest.approx(0.001)


@in_virtual_time
async def test_unless_asked_for_there_is_no_overall_limit(clock: VirtualClock) -> None:
    """Else a thousand objects that failed in five bad seconds would come back over a hundred good ones."""
    queue = make_queue(clock)
    delays = [[queue.add_rate_limited(str(number)) for number in range(1000)] for _ in range(3)]
    assert delays[-1] == pytest.approx([0.02] * 1000)


@in_virtual_time
async def test_a_thousand_failures_do_not_overflow(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    for _ in range(2_000):
        queue.add_rate_limited("a")
    assert queue.add_rate_limited("a") == RateLimit().max_seconds


@in_virtual_time
async def test_a_cancelled_getter_loses_no_item(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await second == "a"
    assert first.cancelled() or first.exception() is None


@in_virtual_time
async def test_a_getter_cancelled_while_nothing_is_there_leaves_no_trace(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    getter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    getter.cancel()
    await asyncio.wait([getter])
    queue.add("a")
    assert await queue.get() == "a"


@in_virtual_time
async def test_shutdown_with_drain_hands_out_what_waits_and_waits_for_the_work(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    queue.add("a")
    queue.add("b")
    assert await queue.get() == "a"
    queue.add("a")  # comes once more, although the queue closes meanwhile
    closing = asyncio.create_task(queue.shut_down(drain=True))
    await asyncio.sleep(0)
    queue.add("refused")
    queue.done("a")
    assert [await queue.get(), await queue.get()] == ["b", "a"]
    await asyncio.sleep(0)
    assert not closing.done()
    queue.done("a")
    queue.done("b")
    await closing
    assert await queue.get() is None


@in_virtual_time
async def test_shutdown_without_drain_drops_what_waits(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    for item in ("a", "b"):
        queue.add(item)
    assert await queue.get() == "a"
    queue.add("a")
    await queue.shut_down()
    queue.done("a")
    assert await queue.get() is None


@in_virtual_time
async def test_shutdown_wakes_everyone_who_waits(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    await queue.shut_down()
    assert await asyncio.gather(*getters) == [None, None, None]


@in_virtual_time
async def test_after_shutdown_nothing_comes_in_any_more(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    queue.add_after("delayed", 1)
    await queue.shut_down(drain=True)
    queue.add("a")
    queue.add_after("b", 1)
    queue.add_rate_limited("c")
    await clock.sleep(60)
    assert len(queue) == 0
    assert await queue.get() is None


@in_virtual_time
async def test_metrics_see_waiting_working_and_retries(clock: VirtualClock) -> None:
    recorder = Recorder()
    queue = make_queue(clock)
    queue.observe(recorder)
    queue.add("a")
    queue.add("a")
    await clock.sleep(2)
    await queue.get()
    queue.add("a", Priority.BULK)
    await clock.sleep(3)
    assert queue.unfinished_seconds() == queue.longest_running_seconds() == pytest.approx(3)
    queue.done("a")
    await queue.get()
    queue.add_rate_limited("b")
    assert recorder.events == [
        ("added", Priority.FRESH),
        ("started", pytest.approx(2)),
        ("added", Priority.BULK),
        ("finished", pytest.approx(3)),
        ("started", pytest.approx(3)),  # it has been waiting since it was added again
        ("retried", 0),
    ]


@in_virtual_time
async def test_an_idle_queue_has_no_longest_runner(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    assert queue.longest_running_seconds() == queue.unfinished_seconds() == 0


@in_virtual_time
async def test_a_worker_handles_item_after_item_whatever_becomes_of_one(clock: VirtualClock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock, rate_limit=RateLimit(1.0, 8.0))
    handled: list[tuple[str, float]] = []
    told: list[tuple[str, str]] = []
    answers: dict[str, list[Exception]] = {
        "fails": [ValueError("once")],
        "fenced": [FenceClosed("another leads"), ValueError("first")],
        "doubted": [FenceDoubted("the lead has yet to be confirmed")],
    }

    async def handle(item: str) -> None:
        handled.append((item, clock.monotonic()))
        if answers.get(item):
            raise answers[item].pop()

    def failed(item: str, error: Exception) -> None:
        told.append((item, str(error)))
        queue.add_rate_limited(item)

    began = clock.monotonic()
    for item in ("fails", "fenced", "doubted", "works"):
        queue.add(item)
    worker = asyncio.create_task(queue.process(handle, failed))
    await clock.sleep(2)
    first = [(item, 0) for item in ("fails", "fenced", "doubted", "works")]
    # Nobody else has the work while a fence is merely doubted.
    assert [(item, at - began) for item, at in handled] == [*first, ("fails", 1), ("fenced", 1), ("doubted", 1)]
    assert told == [("fails", "once"), ("fenced", "first"), ("doubted", "the lead has yet to be confirmed")]
    assert queue.requeues("fails") == queue.requeues("fenced") == queue.requeues("doubted") == 0
    await queue.shut_down()
    await worker


@in_virtual_time
async def test_a_delayed_item_comes_never_before_its_moment(clock: VirtualClock) -> None:
    """Else whoever waits for a moment is called again and again just before it."""
    queue = make_queue(clock)
    await clock.sleep(60)
    begun = clock.monotonic()
    queue.add_after("a", 9.5e-7)
    assert await queue.get() == "a"
    assert clock.monotonic() >= begun + 9.5e-7
