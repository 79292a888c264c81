"""Many objects that are given away at once wait in common for this shard's writes, and none for too few of them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shardsdk.cache.objects import Request
from shardsdk.errors import ServerError
from shardsdk.reconcile.settling import Settling
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import ME, RING, SECRETS, Rig


def begin_write(rig: Rig, seconds: float) -> None:
    """Some write of this shard is under way for so long from now on."""
    write = asyncio.get_running_loop().create_future()
    rig.api._open.add(write)
    write.add_done_callback(rig.api._open.discard)
    asyncio.get_running_loop().call_later(seconds, write.set_result, None)


@contextmanager
def writing(rig: Rig, seconds: float) -> Iterator[None]:
    """At any time there are writes under way, each for so long."""

    async def write() -> None:
        while True:
            begin_write(rig, seconds)
            await rig.clock.sleep(0.3)

    task = asyncio.create_task(write())
    try:
        yield
    finally:
        task.cancel()


@pytest.mark.parametrize("seconds", [3, 8])
@in_virtual_time
async def test_many_are_given_away_in_the_time_that_one_takes_beside_slow_writes(
    clock: VirtualClock, seconds: int
) -> None:
    rig, names = Rig(clock), [f"s{number}" for number in range(100)]
    for name in names:
        rig.secret(name)
    async with rig.shard(owns=False):
        await clock.sleep(5)
        with writing(rig, seconds):
            await clock.sleep(10)
            for name in names:
                rig.drain(name)
            await clock.sleep(seconds - 0.5)
            assert all(RING.drain in rig.labels(name) for name in names)
            await clock.sleep(1.5)
            assert [name for name in names if rig.labels(name)] == []


@in_virtual_time
async def test_who_comes_while_others_wait_waits_for_what_was_written_since(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("early")
    rig.secret("late")
    async with rig.shard(owns=False):
        await clock.sleep(5)
        begin_write(rig, 5)
        rig.drain("early")
        await clock.sleep(2)
        with rig.resource.inflight.hold(Request("default", "late")):
            begin_write(rig, 20)
        rig.drain("late")
        await clock.sleep(4)
        assert (rig.labels("early"), RING.drain in rig.labels("late")) == ({}, True)
        await clock.sleep(15)
        assert RING.drain in rig.labels("late"), "its write may still be executed"
        await clock.sleep(2)
        assert rig.labels("late") == {}


@in_virtual_time
async def test_a_failed_acknowledgement_is_waited_for_whoever_else_is_waited_for_already(clock: VirtualClock) -> None:
    """The news of its object have it settled again just before, and that does not count."""
    rig = Rig(clock)
    rig.secret("mine")

    def fail_once(verb: str, resource: object, old: object, new: dict[str, object]) -> dict[str, object]:
        rig.server.admit = lambda verb, resource, old, new: new
        begin_write(rig, 20)  # behind a 5xx etcd may still have it in hand
        raise ServerError("etcd took too long", status=500, reason="InternalError")

    async with rig.shard(owns=False):
        await clock.sleep(5)
        begin_write(rig, 2)
        rig.drain("mine")
        await clock.sleep(1)
        begin_write(rig, 3)
        rig.server.patch(SECRETS, "mine", "default", {"metadata": {"annotations": {"beat": "1"}}})
        await clock.sleep(0.5)
        rig.server.admit = fail_once
        await clock.sleep(19)
        assert RING.drain in rig.labels("mine")
        assert rig.api.writes.count(("patch", "secrets", "mine")) == 1
        await clock.sleep(2)
        assert rig.labels("mine") == {}


@in_virtual_time
async def test_what_others_change_all_the_time_waits_once(clock: VirtualClock) -> None:
    rig, passes = Rig(clock), itertools.count()
    settle = rig.api.writes_settled

    async def counted() -> None:
        next(passes)
        await settle()

    rig.api.writes_settled = counted  # type: ignore[method-assign]
    rig.secret("hot")
    async with rig.shard(owns=False):
        await clock.sleep(5)
        begin_write(rig, 20)
        rig.drain("hot")
        for number in range(25):
            rig.server.patch(SECRETS, "hot", "default", {"metadata": {"annotations": {"beat": str(number)}}})
            await clock.sleep(1)
    assert rig.labels("hot") == {}
    assert next(passes) == 1


@in_virtual_time
async def test_a_pass_that_takes_long_holds_up_nobody_who_comes_later(clock: VirtualClock) -> None:
    """And however many come, at a time they wait in few."""
    waits, passes, ended = [20.0, 1.0], itertools.count(), list[tuple[str, float]]()

    async def settle() -> None:
        next(passes)
        await clock.sleep(waits.pop(0) if waits else 1.0)

    settling = Settling(settle, clock, ME, SECRETS)
    running = asyncio.create_task(settling.run())
    for name in ("first", *(f"s{number}" for number in range(100))):
        settling.join(lambda name=name: ended.append((name, clock.monotonic())))  # type: ignore[misc]
        await clock.sleep(0.001)
    await clock.sleep(30)
    running.cancel()
    assert len(ended) == 101
    assert max(moment for name, moment in ended if name != "first") < 2
    assert next(passes) <= 4


@in_virtual_time
async def test_behind_a_wait_that_takes_long_the_next_begin_at_growing_pauses(clock: VirtualClock) -> None:
    """Each of them is woken by every write that is answered meanwhile."""
    passes, called = itertools.count(), list[int]()

    async def settle() -> None:
        next(passes)
        await clock.sleep(15 - clock.monotonic())

    settling = Settling(settle, clock, ME, SECRETS)
    running = asyncio.create_task(settling.run())
    for number in range(290):
        settling.join(lambda number=number: called.append(number))  # type: ignore[misc]
        await clock.sleep(0.05)
    assert called == []
    await clock.sleep(1)
    running.cancel()
    assert sorted(called) == list(range(290))
    assert next(passes) <= 20


@pytest.mark.parametrize("failure", [RuntimeError("a bug"), asyncio.CancelledError()], ids=["error", "cancelled"])
@in_virtual_time
async def test_a_wait_that_fails_is_told_and_made_again(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, failure: BaseException
) -> None:
    """Whatever ended it: the object may be given away only then, and is to be."""
    rig, failures = Rig(clock), [failure] * 20
    settle = rig.api.writes_settled

    async def failing() -> None:
        if failures:
            raise failures.pop()
        await settle()

    rig.api.writes_settled = failing  # type: ignore[method-assign]
    rig.secret("early")
    rig.secret("late")
    async with rig.shard(owns=False):
        await clock.sleep(5)
        rig.drain("early")
        await clock.sleep(15)
        rig.drain("late")
        assert (RING.drain in rig.labels("early"), len(failures) > 0) == (True, True)
        await clock.sleep(15)
        assert (rig.labels("early"), rig.labels("late")) == ({}, {})
        assert not any(task.done() for task in rig.tasks)
    [line] = caplog.records  # of a hundred in a row, one a minute
    assert (line.msg, line.__dict__["resource"]) == ("Writes could not be waited for; trying again", "secrets")
    assert line.exc_info
    assert line.exc_info[1] is failure


@in_virtual_time
async def test_the_end_of_the_shard_is_no_failed_wait(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(clock)
    rig.secret("mine")
    async with rig.shard(owns=False):
        await clock.sleep(5)
        begin_write(rig, 20)
        rig.drain("mine")
        await clock.sleep(1)
    assert caplog.records == []
