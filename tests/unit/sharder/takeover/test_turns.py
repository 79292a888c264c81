"""Leases that wait for what is no lease, and those that can be worked on meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from sharder.takeover.controller import WORKERS
from sharder.takeover.turns import MAX_ASIDE, Turns
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import SHARDS, lease, make_stage, ring
from tests.unit.sharder.takeover.test_controller import FakeWork, controlling


class Silent(FakeWork):
    """What is read of objects has no answer."""

    async def confirm_empty_of(self, shard: str) -> bool:
        await super().confirm_empty_of(shard)
        await asyncio.Event().wait()
        return True


@in_virtual_time
async def test_leases_of_shards_whose_objects_cannot_be_read_keep_no_other_from_being_taken(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(), "one", "two")
    for number in range(2 * WORKERS):
        stage.create(LEASES, lease(clock, f"gone-{number}", holder="", duration=1), SHARDS)
    work = Silent()
    async with controlling(stage, work):
        await stage.until(lambda: len(work.reads) >= MAX_ASIDE, seconds=600)
        await stage.pass_time(60)
        assert len(work.reads) == MAX_ASIDE
        work.left.add("one")
        stage.crash("one")
        await stage.until(lambda: stage.holder("one") == SHARDER_HOLDER, seconds=60)


async def test_who_steps_aside_lets_others_have_the_turn_and_gets_it_back() -> None:
    at_once, asked, answer = asyncio.Semaphore(1), asyncio.Event(), asyncio.Event()
    turns, others, done = Turns(at_once), Turns(at_once), list[str]()

    async def wait() -> None:
        async with turns.turn(("ns", "waits")):
            async with turns.aside(("ns", "waits")):
                asked.set()
                await answer.wait()
            assert at_once.locked()
            done.append("waits")

    waiting = asyncio.create_task(wait())
    await asked.wait()
    async with others.turn(("ns", "other")):
        done.append("other")
        answer.set()
        await asyncio.sleep(0)
    await waiting
    assert done == ["other", "waits"]
    assert not at_once.locked()


@pytest.mark.parametrize("error", [RuntimeError("no answer"), asyncio.CancelledError()])
async def test_whatever_ends_the_wait_there_are_as_many_turns_as_before(error: BaseException) -> None:
    at_once = asyncio.Semaphore(1)
    turns = Turns(at_once)

    async def fail() -> None:
        async with turns.turn(("ns", "fails")), turns.aside(("ns", "fails")):
            raise error

    with pytest.raises(type(error)):
        await fail()
    assert not at_once.locked()
    await at_once.acquire()
    assert at_once.locked(), "one turn, not two"
    assert not turns.crowded
    at_once.release()
    async with turns.turn(("ns", "fails")):
        pass
    assert not at_once.locked(), "the next one ends as well"
