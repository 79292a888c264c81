"""A ring by ranges whose looks fail: for a moment, for long, and with an error that nobody has thought of."""

from __future__ import annotations

from typing import Any

import pytest

from sharder.core.lasting import LASTING_SECONDS
from sharder.ranges.store import RETRY_SECONDS
from sharder.ranges.trouble import UNSERVED_SECONDS
from shardsdk.errors import ConnectionFailed, Forbidden, NotFound, ServerError
from shardsdk.kube.api import Operation
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.protocol.ranges import RING_ASSIGNMENTS, Named
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import RING, leading
from tests.unit.sharder.ranges.rig import Ring, by_cells, ranged, sharder


class Restarted(MemoryApi):
    """An API server that does not serve all of its types again yet."""

    serves = True
    answer: Exception = NotFound("the server could not find the requested resource", status=404)
    refused = 0

    async def send(self, operation: Operation[Any]) -> Any:
        if operation.resource == RING_ASSIGNMENTS and not self.serves:
            self.refused += 1
            raise self.answer
        return await super().send(operation)


class Refusing(Restarted):
    """One that shows them, and lets nobody change them."""

    answer = Forbidden("a policy says no", status=403)

    async def send(self, operation: Operation[Any]) -> Any:
        return await (super().send(operation) if operation.writes else MemoryApi.send(self, operation))


class Deaf(MemoryApi):
    """One whose answer to so many writes of them is lost."""

    to_lose = 0

    async def send(self, operation: Operation[Any]) -> Any:
        answer = await super().send(operation)
        if self.to_lose and operation.writes and operation.resource == RING_ASSIGNMENTS:
            self.to_lose -= 1
            raise ConnectionFailed("no answer")
        return answer


@pytest.mark.parametrize("has_looked", [False, True])
@in_virtual_time
async def test_what_was_written_without_an_answer_goes_on_where_it_was_begun(
    clock: VirtualClock, has_looked: bool
) -> None:
    async with ranged(clock, "a", api=Deaf) as ring:
        api = ring.stage.api
        assert isinstance(api, Deaf)
        async with sharder(ring.stage):
            await ring.until_spread("a")
            api.to_lose = int(has_looked)
            if has_looked:
                ring.start("b")
                await written(ring, api)
        if not has_looked:
            ring.start("b")
            await ring.stage.pass_time(1)
            api.to_lose = 1
            async with sharder(ring.stage):
                await written(ring, api)


async def written(ring: Ring, api: Deaf) -> None:
    await ring.stage.until(lambda: not api.to_lose, every=0.001)
    ring.start("c")
    await ring.until_spread("a", "b", "c")
    assert len(ring.named().of("b").spans) == 1, "it was meant for one range, and others get what it leaves"


def test_a_bug_in_one_rings_pass_is_told_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    wrong = [True]

    def cut_badly(*args: Any, **more: Any) -> Named:
        if wrong:
            raise ZeroDivisionError("a bug")
        return by_cells(*args, **more)

    @in_virtual_time
    async def goes_on(clock: VirtualClock) -> None:
        async with ranged(clock, "a", "b") as ring, sharder(ring.stage, cut_badly) as assignment:
            await ring.stage.until(lambda: "a bug" in (assignment.summarize().trouble or ""), seconds=200)
            wrong.clear()
            await ring.until_spread("a", "b")
            await ring.stage.until(lambda: assignment.summarize().trouble is None)

    goes_on()
    told = [each for each in caplog.records if each.message == "ranges not assigned, will retry"]
    assert {(each.levelname, each.__dict__["ring"]) for each in told} == {("ERROR", RING)}
    assert all(each.exc_info for each in told)


@in_virtual_time
async def test_what_fails_for_a_moment_is_not_told_and_what_lasts_is(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b", api=Restarted) as ring, sharder(ring.stage) as assignment:
        api = ring.stage.api
        assert isinstance(api, Restarted)
        await ring.until_spread("a", "b")
        told: list[bool] = []
        assignment.when_changed.append(lambda: told.append(assignment.summarize().trouble is not None))
        api.serves = False
        ring.start("c")
        await ring.stage.pass_time(LASTING_SECONDS / 2)
        api.serves = True
        await ring.until_spread("a", "b", "c")
        assert not any(told)
        api.serves = False
        ring.start("d")
        await ring.stage.pass_time(LASTING_SECONDS - 5)
        assert not any(told)
        await ring.stage.until(lambda: "does not serve RingAssignments" in (assignment.summarize().trouble or ""))
        api.serves = True
        await ring.until_spread("a", "b", "c", "d")
        assert assignment.summarize().trouble is None


@in_virtual_time
async def test_what_waits_is_told_while_it_cannot_be_written_and_goes_back_where_it_was(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b", api=Refusing) as ring, sharder(ring.stage) as assignment:
        api = ring.stage.api
        assert isinstance(api, Refusing)
        await ring.until_spread("a", "b")
        await ring.stage.until(lambda: assignment.summarize().settled)
        before, api.serves = ring.named(), False
        ring.start("c")
        await ring.stage.until(lambda: not assignment.summarize().settled, seconds=5)
        await ring.shards["c"].leave()
        await ring.stage.until(lambda: assignment.summarize().settled, seconds=60)
        api.serves = True
        await ring.stage.pass_time(20)
        assert ring.named() == before
        api.serves = False
        ring.shards["b"].crash()
        await ring.stage.until(lambda: not assignment.summarize().settled, seconds=60)
        summary = assignment.summarize()
        assert summary.ranges is not None
        assert "to a" in (summary.ranges.moving or "")
        assert summary.trouble is None
        await ring.stage.pass_time(45)  # it is tried ever less often
        api.serves = True
        await ring.until_spread("a", seconds=RETRY_SECONDS + 2)


@in_virtual_time
async def test_a_leader_that_has_written_nothing_is_as_patient_once_it_has_read_it(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b", api=Restarted) as ring:
        api = ring.stage.api
        assert isinstance(api, Restarted)
        async with sharder(ring.stage):
            await ring.until_spread("a", "b")
        writes = ring.writes()
        async with sharder(ring.stage) as assignment:
            await ring.stage.until(lambda: assignment.summarize().settled)
            assert ring.writes() == writes
            api.serves = False
            ring.start("c")
            await ring.stage.pass_time(LASTING_SECONDS - 5)
            assert assignment.summarize().trouble is None
            await ring.stage.until(lambda: assignment.summarize().trouble is not None)


@in_virtual_time
async def test_a_definition_that_was_never_there_is_told_within_seconds(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b", api=Restarted) as ring:
        api = ring.stage.api
        assert isinstance(api, Restarted)
        api.serves = False
        async with sharder(ring.stage) as assignment:
            await ring.stage.pass_time(UNSERVED_SECONDS / 2)
            assert assignment.summarize().trouble is None  # it may be about to be served, as after a restart
            await ring.stage.until(
                lambda: "sharder crds --apply" in (assignment.summarize().trouble or ""), seconds=2 * UNSERVED_SECONDS
            )
            api.serves = True
            await ring.until_spread("a", "b")
            assert assignment.summarize().trouble is None


@in_virtual_time
async def test_what_failed_before_in_another_way_makes_nobody_less_patient_of_it(clock: VirtualClock) -> None:
    """An API server that restarts is away first, and then serves some of its types only."""
    async with ranged(clock, "a", "b", api=Restarted) as ring:
        api = ring.stage.api
        assert isinstance(api, Restarted)
        api.serves, api.answer = False, ServerError("etcdserver: no leader", status=503)
        async with sharder(ring.stage) as assignment:
            await ring.stage.pass_time(12)
            api.answer = Restarted.answer
            sent = api.refused
            await ring.stage.until(lambda: api.refused > sent)
            await ring.stage.pass_time(1)
            assert assignment.summarize().trouble is None
            await ring.stage.until(lambda: "does not serve RingAssignments" in (assignment.summarize().trouble or ""))


@in_virtual_time
async def test_the_rings_conditions_say_that_ranges_are_not_assigned_until_they_are(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b", api=Restarted) as ring:
        stage, api = ring.stage, ring.stage.api
        assert isinstance(api, Restarted)
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"assignment": "Ranges", "hashBy": "Namespace"}})
        api.serves = False
        async with leading(stage):
            await stage.until(lambda: "sharder crds --apply" in stage.message("Ready"), seconds=60)
            assert stage.condition("Ready") == "False"
            api.serves = True
            await ring.until_spread("a", "b")
            await stage.until(lambda: stage.condition("Ready") == "True", seconds=60)
