"""Who has the next turn, and with which priority an item comes back."""

from __future__ import annotations

import asyncio

import pytest

from shardsdk.errors import Conflict, ServerError
from shardsdk.queueing.lines import BULK_PATIENCE_SECONDS, BULK_SHARE, OVERDUE_SHARE
from shardsdk.queueing.queue import Priority, RateLimit, WorkQueue
from shardsdk.queueing.workers import Outcome, Requeue, RequeueAfter, WorkerPool
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

Answer = Outcome | Exception | float


def make_queue(clock: VirtualClock) -> WorkQueue[str]:
    return WorkQueue(clock, rate_limit=RateLimit(base_seconds=1))


async def take(queue: WorkQueue[str]) -> str:
    item = await queue.get()
    assert item is not None
    queue.done(item)
    return item


async def priority_after(clock: VirtualClock, came: Priority, answer: Answer) -> Priority:
    """With which priority an item comes back that came with `came`; `answer`, a float: it runs for so many seconds."""
    queue = make_queue(clock)

    async def reconcile(item: str) -> Outcome | None:
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, float):
            await clock.sleep(answer)
            return None
        return answer

    queue.add("a", came)
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(WorkerPool("test", reconcile, queue, clock=clock, timeout_seconds=5).run())
        while not queue.where("a").started:
            await asyncio.sleep(0)
        while queue.where("a").started is not None:
            await clock.sleep(0.1)
        worker.cancel()
    return queue.where("a").priority


COME_BACK: list[Answer] = [
    Requeue(),
    RequeueAfter(30),
    RequeueAfter(0),
    RuntimeError("boom"),
    Conflict("stale"),
    ServerError("down"),
    7.0,
]


@pytest.mark.parametrize("came", Priority)
@pytest.mark.parametrize("answer", COME_BACK, ids=repr)
@in_virtual_time
async def test_an_item_comes_back_with_the_priority_that_it_came_with(
    clock: VirtualClock, came: Priority, answer: Answer
) -> None:
    await clock.sleep(1)
    assert await priority_after(clock, came, answer) is came


@pytest.mark.parametrize("came", Priority)
@pytest.mark.parametrize("named", Priority)
@in_virtual_time
async def test_or_with_the_one_that_the_reconcile_names(clock: VirtualClock, came: Priority, named: Priority) -> None:
    await clock.sleep(1)
    for answer in (Requeue(named), RequeueAfter(30, named), RequeueAfter(0, priority=named)):
        assert await priority_after(clock, came, answer) is named


@in_virtual_time
async def test_what_comes_back_and_is_not_being_worked_on_is_fresh(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    queue.add_after("a", 5)
    queue.add_rate_limited("b")
    queue.add_at("c", 5)
    assert [queue.where(item).priority for item in "abc"] == [Priority.FRESH] * 3


@pytest.mark.parametrize("seconds", [(5, 10), (10, 5)])
@pytest.mark.parametrize("priorities", [(Priority.FRESH, Priority.BULK), (Priority.BULK, Priority.FRESH)])
@in_virtual_time
async def test_of_several_delays_of_one_item_the_highest_priority_counts(
    clock: VirtualClock, seconds: tuple[float, float], priorities: tuple[Priority, Priority]
) -> None:
    queue = make_queue(clock)
    for delay, priority in zip(seconds, priorities, strict=True):
        queue.add_after("a", delay, priority)
    assert queue.where("a").priority is Priority.FRESH
    await clock.sleep(6)
    assert queue.depth(Priority.FRESH) == 1


@in_virtual_time
async def test_a_change_makes_fresh_what_is_worked_on_and_what_is_away(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    for item in "ab":
        queue.add(item, Priority.BULK)
    await queue.get()
    queue.add("a")
    queue.add_after("a", 30)
    queue.done("a")
    assert queue.where("a").priority is Priority.FRESH
    assert await take(queue) == "a"
    assert await queue.get() == "b"
    queue.add_rate_limited("b")
    queue.done("b")
    assert queue.where("b").priority is Priority.BULK
    queue.add("c", Priority.BULK)
    queue.add("b")
    assert [await take(queue), await take(queue)] == ["b", "c"]


@in_virtual_time
async def test_what_was_listed_is_not_starved_by_what_was_listed_and_polls(clock: VirtualClock) -> None:
    """80 objects, 16 workers, reconciles of 2 s that come back after 1 s: five rounds, and all have had their turn."""
    queue: WorkQueue[int] = WorkQueue(clock)
    first: dict[int, float] = {}

    async def reconcile(item: int) -> RequeueAfter:
        first.setdefault(item, clock.monotonic())
        await clock.sleep(2)
        return RequeueAfter(1)

    for item in range(80):
        queue.add(item, Priority.BULK)
    running = asyncio.create_task(WorkerPool("test", reconcile, queue, clock=clock, concurrency=16).run())
    await clock.sleep(9)
    assert len(first) == 80
    await queue.shut_down()
    await running


@in_virtual_time
async def test_bulk_items_have_more_turns_once_they_are_overdue(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    for number in range(3):
        queue.add(f"bulk {number}", Priority.BULK)
    await clock.sleep(BULK_PATIENCE_SECONDS)
    for number in range(4 * OVERDUE_SHARE):
        queue.add(f"fresh {number}")
    taken = [await take(queue) for _ in range(len(queue))]
    assert [taken.index(f"bulk {number}") for number in range(3)] == [2, 5, 8]


@in_virtual_time
async def test_only_while_the_foremost_is_overdue(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    queue.add("old", Priority.BULK)
    await clock.sleep(BULK_PATIENCE_SECONDS)
    queue.add("young", Priority.BULK)
    for number in range(2 * BULK_SHARE):
        queue.add(f"fresh {number}")
    taken = [await take(queue) for _ in range(len(queue))]
    assert (taken.index("old"), taken.index("young")) == (OVERDUE_SHARE, OVERDUE_SHARE + 1 + BULK_SHARE)


@in_virtual_time
async def test_a_change_is_next_however_many_overdue_objects_wait(clock: VirtualClock) -> None:
    queue = make_queue(clock)
    for number in range(100_000):
        queue.add(f"listed {number}", Priority.BULK)
    await clock.sleep(10 * BULK_PATIENCE_SECONDS)
    for change in range(50):
        for _ in range(change):
            assert (await take(queue)).startswith("listed")
        queue.add(f"changed {change}")
        assert await take(queue) == f"changed {change}"
    burst = [f"changed {number}" for number in range(100)]
    for item in burst:
        queue.add(item)
    taken = [await take(queue) for _ in range(150)]
    assert [item for item in taken if item.startswith("changed")] == burst


@in_virtual_time
async def test_a_change_costs_a_listed_object_no_place(clock: VirtualClock) -> None:
    """Foremost of what was listed, it would have its turn soon; behind all that has changed before, later."""
    queue = make_queue(clock)
    queue.add("a", Priority.BULK)
    queue.add("b", Priority.BULK)
    for number in range(20):
        queue.add(f"fresh {number}")
    await clock.sleep(BULK_PATIENCE_SECONDS)
    queue.add("a")
    assert (queue.depth(Priority.FRESH), queue.depth(Priority.BULK), len(queue)) == (21, 1, 22)
    assert sorted(queue.items()) == sorted(["a", "b", *(f"fresh {number}" for number in range(20))])
    taken = [await take(queue) for _ in range(22)]
    assert (taken.index("a"), taken.index("b")) == (OVERDUE_SHARE, 2 * OVERDUE_SHARE + 1)
    assert len(queue) == queue.depth(Priority.FRESH) == queue.depth(Priority.BULK) == 0


@pytest.mark.parametrize(("waited_seconds", "turns"), [(0, 6), (BULK_PATIENCE_SECONDS, OVERDUE_SHARE + 1)])
@in_virtual_time
async def test_what_moved_up_has_the_higher_priority_from_either_place(
    clock: VirtualClock, waited_seconds: float, turns: int
) -> None:
    queue = make_queue(clock)
    queue.add("a", Priority.BULK)
    for number in range(5):
        queue.add(f"fresh {number}")
    await clock.sleep(waited_seconds)
    queue.add("a")
    taken = [await queue.get() for _ in range(turns)]
    assert taken[-1] == "a"
    queue.add_after("a", 1)
    queue.done("a")
    assert queue.where("a").priority is Priority.FRESH


@pytest.mark.parametrize("drain", [True, False])
@in_virtual_time
async def test_while_a_queue_is_held_nobody_has_a_turn_not_even_at_its_end(clock: VirtualClock, drain: bool) -> None:
    queue = make_queue(clock)
    queue.add("a", Priority.BULK)
    queue.hold()
    taking = [asyncio.create_task(queue.get()) for _ in range(3)]
    queue.add("b", Priority.BULK)
    queue.add("c", Priority.FRESH)
    await clock.sleep(60)
    assert not any(each.done() for each in taking)
    closing = asyncio.create_task(queue.shut_down(drain=drain))
    await clock.sleep(60)
    assert closing.done() is not drain
    queue.release()
    taken = await asyncio.gather(*taking)
    assert taken == (["c", "a", "b"] if drain else [None, None, None])
    for item in taken:
        if item is not None:
            queue.done(item)
    await closing
