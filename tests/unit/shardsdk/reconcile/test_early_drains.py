"""While nothing can be given away for what a dead process had sent, a drained object is reconciled like any other."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from shardsdk.cache.objects import Request
from shardsdk.errors import Conflict
from shardsdk.kube.listing import TURN_EVENTS
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.protocol.objects import PartialObject
from shardsdk.protocol.verdict import Verdict
from shardsdk.queueing.predicates import generation_changed
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.explain import Wait
from shardsdk.reconcile.state import Drain
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import RING, SECRETS, Lag, Rig

Ctx = Context[PartialObject]
#: Until when what a dead process had sent may be executed.
UNTIL = 30.0
MINE = Request("default", "mine")


def owing(clock: VirtualClock) -> Rig:
    """A shard that goes on with a dead process's lease, and has an object."""
    rig = Rig(clock)
    rig.hold.owed_until = UNTIL
    rig.secret("mine")
    return rig


def change(rig: Rig) -> None:
    """What its user does."""
    rig.server.patch(SECRETS, "mine", "default", {"metadata": {"annotations": {"at": str(rig.clock.monotonic())}}})


def version(rig: Rig) -> str:
    return str(rig.server.get(SECRETS, "mine", "default")["metadata"]["resourceVersion"])


def executed_late(rig: Rig, version: str) -> None:
    """The dead process has acknowledged the drain of the object as it was at that version."""
    labels = {RING.shard: None, RING.drain: None}
    rig.server.patch(SECRETS, "mine", "default", {"metadata": {"resourceVersion": version, "labels": labels}})


@in_virtual_time
async def test_what_was_found_drained_rests_since_the_dead_process_may_have_given_it_away(clock: VirtualClock) -> None:
    rig = owing(clock)
    rig.drain("mine")
    seen = version(rig)
    Lag(rig, SECRETS, 2.0)
    async with rig.shard(owns=False) as controller:
        await clock.sleep(5)
        assert controller.explain(MINE).wait is Wait.DRAIN
        assert controller.explain(MINE).text == (
            "default/mine: was found drained since 5 s: the process before this one may have given it away; it rests"
            " until it changes; it is to be given away, in 25 s at the soonest: until then what the process before this"
            " one had sent may be executed"
        )
        executed_late(rig, seen)
        rig.relabel(SECRETS, "mine", shard="shard-2")
        await clock.sleep(UNTIL)
    assert rig.reconciled == []
    assert rig.labels("mine") == {RING.shard: "shard-2"}


@in_virtual_time
async def test_what_was_found_drained_is_given_away_as_it_is_once_drains_count(clock: VirtualClock) -> None:
    rig = owing(clock)
    rig.drain("mine")
    async with rig.shard(owns=False):
        await clock.sleep(UNTIL - 1)
        assert RING.drain in rig.labels("mine")
        await clock.sleep(2)
        assert rig.labels("mine") == {}
    assert rig.reconciled == []


@in_virtual_time
async def test_what_a_later_list_shows_drained_rests_too(clock: VirtualClock) -> None:
    """Both may be events at the beginning of a watch, and the first so old that it proves nothing."""
    rig = owing(clock)
    async with rig.shard(owns=False):
        await clock.sleep(5)
        Lag(rig, SECRETS, 60.0)
        rig.drain("mine")
        (reflector,) = rig.main._reflectors.values()
        reflector.restart()
        await clock.sleep(1)
        rig.reconciled.clear()
        seen = version(rig)
        await clock.sleep(1)
        assert rig.main.has_seen(MINE, seen)
        assert rig.resource.judge(rig.main.peek(MINE)) is Verdict.ACKNOWLEDGE
    assert rig.reconciled == []


@in_virtual_time
async def test_what_was_found_drained_is_reconciled_once_it_changes_or_is_made_anew(clock: VirtualClock) -> None:
    rig = owing(clock)
    rig.drain("mine")
    seen = version(rig)
    async with rig.shard():
        await clock.sleep(5)
        change(rig)
        with pytest.raises(Conflict):
            executed_late(rig, seen)
        await clock.sleep(1)
        assert rig.reconciled == ["mine"]
        rig.server.delete(SECRETS, "mine", "default")
        rig.secret("mine")
        rig.drain("mine")
        await clock.sleep(1)
        assert rig.reconciled == ["mine", "mine"]


@in_virtual_time
async def test_a_drain_that_is_withdrawn_from_what_was_found_so_has_it_reconciled(clock: VirtualClock) -> None:
    rig = owing(clock)
    rig.drain("mine")
    async with rig.shard(predicate=generation_changed):
        await clock.sleep(5)
        rig.relabel(SECRETS, "mine", drain=None)
        await clock.sleep(1)
        assert rig.reconciled == ["mine"]


@in_virtual_time
async def test_many_are_told_again_in_turns_but_for_what_has_left_meanwhile(clock: VirtualClock) -> None:
    rig = owing(clock)
    names = ["mine", *(f"other-{number}" for number in range(2 * TURN_EVENTS))]
    for name in names[1:]:
        rig.secret(name)
    async with rig.shard(owns=False):
        await clock.sleep(5)
        for name in names:
            rig.drain(name)
        await clock.sleep(5)
        told, turns, again, last = list[str](), list[int](), rig.main.tell_again, Request("default", names[-1])

        def leave() -> None:
            turns.append(len(told))
            rig.main._on_delta(Delta(EventKind.DELETED, rig.main.peek(last), rig.main.peek(last), initial=False))

        def tell(request: Request) -> None:
            if not told:
                asyncio.get_running_loop().call_soon(leave)
            told.append(request.name)
            again(request)

        rig.main.tell_again = tell  # type: ignore[method-assign]
        await clock.sleep(UNTIL)
        assert turns[0] < TURN_EVENTS
        assert sorted(told) == sorted(names[:-1])
        assert {name for name in names if rig.labels(name)} == {last.name}


@in_virtual_time
async def test_it_is_reconciled_until_it_can_be_given_away_and_then_given_away(clock: VirtualClock) -> None:
    rig = owing(clock)
    async with rig.shard():
        await clock.sleep(5)
        rig.drain("mine")
        for _ in range(4):
            await clock.sleep(5)
            change(rig)
            rig.reconciled.clear()
            await clock.sleep(0.5)
            assert rig.reconciled == ["mine"]
        assert RING.drain in rig.labels("mine")
        await clock.sleep(UNTIL - clock.monotonic() + 0.5)
        assert rig.labels("mine") == {}


@in_virtual_time
async def test_what_runs_then_is_waited_for_and_nothing_begins_any_more(clock: VirtualClock) -> None:
    rig = owing(clock)

    async def slow(context: Ctx) -> None:
        await clock.sleep(10 if clock.monotonic() > 20 else 0)

    # A limit that counted from when the drain was seen would be over by then.
    async with rig.shard(slow, drain_timeout_seconds=8):
        await clock.sleep(5)
        rig.drain("mine")
        await clock.sleep(20)
        rig.reconciled.clear()
        change(rig)
        await clock.sleep(UNTIL + 1 - clock.monotonic())
        change(rig)
        await clock.sleep(3)
        assert RING.drain in rig.labels("mine")
        await clock.sleep(2)
        assert rig.labels("mine") == {}
    assert rig.reconciled == ["mine"]


@in_virtual_time
async def test_a_write_that_it_sent_meanwhile_without_an_answer_is_waited_for(clock: VirtualClock) -> None:
    rig = owing(clock)

    async def write(context: Ctx) -> None:
        if clock.monotonic() > 20:
            rig.api.fault = Fault.UNANSWERED
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await context.api.create(SECRETS, {"metadata": {"name": "other", "namespace": "default"}})
            rig.api.fault = Fault.NONE

    async with rig.shard(write):
        await clock.sleep(5)
        rig.drain("mine")
        await clock.sleep(UNTIL - 2 - clock.monotonic())
        change(rig)
        await clock.sleep(5)
        assert RING.drain in rig.labels("mine")
        await clock.sleep(30)
        assert rig.labels("mine") == {}


@in_virtual_time
async def test_a_drain_that_is_withdrawn_meanwhile_changes_nothing(clock: VirtualClock) -> None:
    rig = owing(clock)
    async with rig.shard():
        await clock.sleep(5)
        lists = rig.counter("child_lists_total")
        rig.drain("mine")
        await clock.sleep(5)
        rig.relabel(SECRETS, "mine", drain=None)
        await clock.sleep(UNTIL)
        assert rig.labels("mine") == {RING.shard: "shard-1"}
        assert rig.counter("child_lists_total") == lists


@in_virtual_time
async def test_one_that_comes_back_unseen_has_its_children_listed(clock: VirtualClock) -> None:
    """Others may have made some: as with any drain, what is known of them ends when it counts."""
    rig = owing(clock)
    async with rig.shard() as controller:
        await clock.sleep(5)
        rig.drain("mine")
        await clock.sleep(UNTIL - clock.monotonic() - 1)
        rig.api.delay = lambda: 5.0  # the acknowledgement is on its way
        await clock.sleep(2)
        lists = rig.counter("child_lists_total") or 0.0
        rig.relabel(SECRETS, "mine", drain=None)
        rig.api.delay = lambda: 0.001
        await clock.sleep(20)
        assert controller.explain(MINE).wait is Wait.NOTHING
        assert rig.counter("child_lists_total") == lists + 1


@in_virtual_time
async def test_it_is_seen_that_it_waits_and_why(clock: VirtualClock) -> None:
    rig = owing(clock)
    async with rig.shard() as controller:
        await clock.sleep(5)
        rig.drain("mine")
        await clock.sleep(5)
        assert controller.not_at_rest() == [MINE]
        assert controller.explain(MINE).text == (
            "default/mine: waits for its next event; it is to be given away, in 20 s at the soonest: until then what"
            " the process before this one had sent may be executed"
        )
        assert rig.counter("drains_waiting") == 1
        assert rig.counter("oldest_drain_seconds") == pytest.approx(5, abs=0.1)
        await clock.sleep(25)
        assert rig.counter("drains_waiting") == 0


@in_virtual_time
async def test_one_that_cannot_be_read_is_given_away_then_too(clock: VirtualClock) -> None:
    rig = owing(clock)

    def refuse(thing: Any) -> Any:
        raise ValueError("it does not fit")

    async with rig.shard(cached={SECRETS: {"transform": refuse}}, owns=False):
        await clock.sleep(5)
        rig.drain("mine")
        await clock.sleep(20)
        state = rig.resource.drains.state(MINE) if rig.resource.drains else None
        assert state is not None
        assert state.drain is Drain.EARLY
        await clock.sleep(6)
        assert rig.labels("mine") == {}
