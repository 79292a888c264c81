"""A ring by ranges whose looks fail: for a moment, for long, and with an error that nobody has thought of."""

from __future__ import annotations

from typing import Any

import pytest

from sharder.core.lasting import LASTING_SECONDS
from sharder.ranges.trouble import UNSERVED_SECONDS
from shardsdk.errors import NotFound, ServerError
from shardsdk.kube.api import Operation
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.protocol.ranges import RING_ASSIGNMENTS, Named
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import RING, leading
from tests.unit.sharder.ranges.rig import by_cells, ranged, sharder


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
