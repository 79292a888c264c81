"""A RingAssignment that somebody changes back each time, as a second sharder does; and one that people edit by hand."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from sharder.core.cutting import Cut
from sharder.ranges.assignment import RangeAssignment
from sharder.ranges.contest import Contest
from sharder.ranges.store import Read
from shardsdk.errors import ConnectionFailed
from shardsdk.kube.api import Operation
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.protocol.ranges import EVERYWHERE, RING_ASSIGNMENTS, HashBy, HashRanges, Named, render_assignment
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.ranges_rig import HIGH, LOW
from tests.unit.sharder.placement.stage import RING, SETTINGS, leading
from tests.unit.sharder.ranges.rig import Ring, ranged, sharder

TOLD = "ranges changed back again and again"


def insist_on(named: Mapping[str, HashRanges]) -> Cut:
    """Who would have it so whatever there is, as long as those shards are there."""

    def cut(before: Named, shards: Collection[str], *rest: Any, **more: Any) -> Named:
        if set(shards) == set(named):
            return Named(before.by, dict(named))
        return Named(before.by, {min(shards): EVERYWHERE})

    return cut


#: What two sharders may want that differ in what they have seen.
ONE, OTHER = insist_on({"a": LOW, "b": HIGH}), insist_on({"a": HIGH, "b": LOW})


def name_by_hand(ring: Ring, named: Mapping[str, HashRanges], manager: str = "") -> None:
    spec = msgspec.to_builtins(render_assignment(Named(HashBy.NAMESPACE, dict(named))))
    ring.stage.server.patch(RING_ASSIGNMENTS, RING, None, {"spec": spec}, manager=manager)


@contextmanager
def changed_back(ring: Ring, *, manager: str = "") -> Iterator[None]:
    """Somebody has it say the opposite whenever it says something else."""
    wanted = {"a": HIGH, "b": LOW}

    async def insist() -> None:
        while True:
            await ring.stage.clock.sleep(0.3)
            if ring.named().shards != wanted:
                name_by_hand(ring, wanted, manager)

    task = asyncio.create_task(insist())
    try:
        yield
    finally:
        task.cancel()


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [each.__dict__ for each in caplog.records if each.message == TOLD]


@in_virtual_time
async def test_two_leaders_that_undo_each_others_writes_write_less_and_less(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage, ONE) as one:
        await ring.until_spread("a", "b")
        async with sharder(ring.stage, OTHER) as other:
            await ring.stage.until(lambda: bool(one.summarize().trouble or other.summarize().trouble), seconds=30)
            await clock.sleep(120)
            writes = ring.writes()
            await clock.sleep(600)
            assert ring.writes() - writes < 60
            troubles = [each.summarize().trouble or "" for each in (one, other)]
            assert any("again and again" in each and "two sharders lead" in each for each in troubles)


@in_virtual_time
async def test_where_one_of_them_ends_the_other_has_its_way_within_a_minute(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage, ONE) as one:
        await ring.until_spread("a", "b")
        async with sharder(ring.stage, OTHER):
            await clock.sleep(600)
        assert await ring.stage.until(lambda: one.summarize().settled, seconds=66) < 66
        assert ring.named().shards == {"a": LOW, "b": HIGH}
        await ring.stage.until(lambda: one.summarize().trouble is None, seconds=180)
        writes = ring.writes()
        ring.start("c")  # and what it needs now is done at once
        await ring.stage.until(lambda: ring.writes() > writes, seconds=3)


@in_virtual_time
async def test_what_people_edit_now_and_then_is_put_right_at_once(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage, ONE) as assignment:
        await ring.until_spread("a", "b")
        for _ in range(8):
            name_by_hand(ring, {"a": HIGH, "b": LOW})
            await ring.stage.until(lambda: ring.named().shards == {"a": LOW, "b": HIGH}, seconds=3)
            assert assignment.summarize().trouble is None
            await clock.sleep(15)


@in_virtual_time
async def test_two_edits_one_after_the_other_are_put_right_at_once(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring, sharder(ring.stage, ONE):
        await ring.until_spread("a", "b")
        for _ in range(2):
            name_by_hand(ring, {"a": HIGH, "b": LOW})
            await ring.stage.until(lambda: ring.named().shards != {"a": HIGH, "b": LOW}, seconds=0.2)
        ring.stage.server.delete(RING_ASSIGNMENTS, RING)
        await ring.stage.until(lambda: ring.stage.server.find(RING_ASSIGNMENTS, RING) is not None, seconds=2)
        await ring.stage.until(lambda: ring.named().shards == {"a": LOW, "b": HIGH}, seconds=5)


class Unanswered(MemoryApi):
    """Patches of RingAssignments are executed, and nobody learns of it."""

    answers = True

    async def send(self, operation: Operation[Any]) -> Any:
        answer = await super().send(operation)
        writes_spec = operation.verb == "patch" and not operation.subresource
        if not self.answers and operation.resource == RING_ASSIGNMENTS and writes_spec:
            raise ConnectionFailed("no answer")
        return answer


def test_its_own_writes_that_were_not_answered_are_nobody_elses(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def not_contested(clock: VirtualClock) -> None:
        async with ranged(clock, "a", "b", api=Unanswered) as ring, sharder(ring.stage) as assignment:
            api = ring.stage.api
            assert isinstance(api, Unanswered)
            await ring.until_spread("a", "b")
            api.answers = False
            for name in "cdefgh":
                ring.start(name)
                await clock.sleep(1)
            await ring.until_spread(*"abcdefgh")
            api.answers = True
            await ring.stage.until(lambda: assignment.summarize().settled)

    not_contested()
    assert not told(caplog)


def test_the_log_says_once_who_changes_it_back_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def contested(clock: VirtualClock) -> None:
        async with ranged(clock, "a", "b") as ring, sharder(ring.stage, ONE):
            await ring.until_spread("a", "b")
            with changed_back(ring, manager="policy"):
                await clock.sleep(300)

    contested()
    [line] = told(caplog)
    assert (line["levelname"], line["ring"], line["manager"]) == ("WARNING", RING, "policy")


@in_virtual_time
async def test_the_ring_is_not_ready_meanwhile_and_an_event_says_who_it_is(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b") as ring:
        stage = ring.stage
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"assignment": "Ranges", "hashBy": "Namespace"}})
        async with leading(stage):
            await ring.until_spread("a", "b")
            await stage.until(lambda: stage.condition("Ready") == "True", seconds=60)
            with changed_back(ring, manager="policy"):
                await stage.until(lambda: bool(stage.events.of("AssignmentContested")), seconds=60)
                await stage.until(lambda: stage.condition("Ready") == "False", seconds=10)
                assert "policy" in stage.message("Ready")
                await clock.sleep(300)
                [message] = stage.events.of("AssignmentContested")
                assert "policy" in message
                assert "two sharders lead" in message
            await stage.until(lambda: stage.condition("Ready") == "True", seconds=240)


def test_neither_do_two_leaders_write_the_status_of_a_ring_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one finds and the other does not, as that a range has been on its way for long, each writes over."""
    cuts = itertools.cycle((ONE, OTHER))

    def make(*args: Any, cut: Cut, **more: Any) -> RangeAssignment:
        return RangeAssignment(*args, cut=next(cuts), **more)

    monkeypatch.setattr("sharder.replica.RangeAssignment", make)

    @in_virtual_time
    async def write_little(clock: VirtualClock) -> None:
        async with ranged(clock, "a", "b") as ring:
            stage = ring.stage
            stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"assignment": "Ranges", "hashBy": "Namespace"}})
            async with leading(stage), leading(stage, replace(SETTINGS, identity="sharder-b", lease_name="other")):
                await clock.sleep(240)
                writes = stage.patches(CLUSTERRINGS)
                await clock.sleep(60)
                assert stage.patches(CLUSTERRINGS) - writes < 60

    write_little()


# -- what counts as contested --------------------------------------------------


class Contested:
    """A contest, and a RingAssignment that is written by its leader and by hand."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.contest = Contest("ring", self.clock)
        self._versions = itertools.count(1)

    async def write(self, *, undone: bool = False) -> float:
        """What the leader writes, and how long it waited; then somebody undoes it, or nobody does."""
        waited = self.contest.left
        await self.clock.sleep(waited)
        number = next(self._versions)
        before, ours = (Named(HashBy.NAMESPACE, {f"{name}{number}": EVERYWHERE}) for name in ("was", "is"))
        self.contest.sends(Read("1", before), ours)
        self.contest.wrote(ours)
        await self.clock.sleep(1)
        self.contest.found(Read("2", before if undone else ours))
        return waited


@in_virtual_time
async def test_what_is_written_once_a_contest_is_over_does_not_bring_it_back(clock: VirtualClock) -> None:
    ring = Contested(clock)
    for _ in range(15):
        await ring.write(undone=True)
    assert ring.contest.words is not None
    words = []
    for _ in range(30):
        await ring.write()
        await clock.sleep(30)
        words.append(ring.contest.words)
    assert words[-20:] == [None] * 20
    assert await ring.write(undone=True) == 0
    assert await ring.write() == 0, "one edit by hand is put right at once"


@in_virtual_time
async def test_edits_by_hand_far_apart_are_no_contest_however_often_the_ring_is_written(clock: VirtualClock) -> None:
    ring = Contested(clock)
    for _ in range(6):
        assert await ring.write(undone=True) == 0
        for _ in range(60):
            assert await ring.write() == 0
            await clock.sleep(8)
        assert ring.contest.words is None
