"""Leases that the leader cannot follow: no crash is noticed then, and everything that people look at says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sharder.core.lasting import LASTING_SECONDS
from sharder.core.shards import State
from sharder.replica import Replica
from sharder.takeover.alarm import RESUMED, SUSPENDED
from shardsdk.errors import Forbidden, ServerError, TooManyRequests
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, GroupResource, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, OWNERS, RING, Stage, leading, make_stage, names_on, ring, thing

BEHIND = "leases are not what their watch shows; listing them anew"


class Unwatched(MemoryApi):
    """A resource cannot be watched; `missing`: for lack of the right to."""

    broken: Resource | None = None
    missing = False

    async def read_events(self, selection: Any, options: Any) -> AsyncIterator[Any]:
        if selection.resource == self.broken:
            raise Forbidden("watch leases: no", status=403) if self.missing else ServerError("it broke", status=500)
        async for event in super().read_events(selection, options):
            yield event
            if selection.resource == self.broken:
                return

    async def allowed(self, verb: str, resource: GroupResource, **_: Any) -> bool:
        broken = self.broken.group_resource if self.broken is not None else None
        return not (self.missing and verb == "watch" and resource == broken)


def two_shards(clock: VirtualClock) -> tuple[Stage, Unwatched, str]:
    """A ring with two shards, and the name of an object that is on the second."""
    stage = make_stage(clock, api=Unwatched)
    assert isinstance(stage.api, Unwatched)
    stage.set_up(ring(ALONE), "one", "two")
    [name] = names_on("two", "one", "two")
    stage.create(OWNERS, thing(name, shard="two"))
    return stage, stage.api, name


def suspended(replica: Replica) -> float:
    return float(replica._metrics.detection_suspended.labels(RING)._value.get())


@pytest.mark.parametrize("missing", [False, True])
@in_virtual_time
async def test_it_is_told_everywhere_until_the_crash_is_noticed(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, missing: bool
) -> None:
    stage, api, name = two_shards(clock)
    async with leading(stage) as replica:
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.broken, api.missing = LEASES, missing
        await stage.pass_time(1)
        stage.crash("two")
        await stage.until(lambda: suspended(replica) == 1, seconds=60)
        await stage.until(lambda: stage.condition("Ready") == "False", seconds=2 * LASTING_SECONDS)
        [told] = stage.events.of(SUSPENDED)
        if missing:
            assert "watch leases: no" in told
            assert "may not watch leases.coordination.k8s.io; its own ClusterRole" in stage.message("Ready")
        else:
            assert "it broke" in told
            assert "leases.coordination.k8s.io cannot be read: it broke" in stage.message("Ready")
        assert stage.condition("Settled") == "Unknown", "nobody can tell"
        caplog.clear()
        await stage.pass_time(600)
        assert stage.label(OWNERS, name) == "two"
        lines = [each for each in caplog.records if each.getMessage() == BEHIND]
        assert 1 <= len(lines) <= 11
        assert all(getattr(each, "error", "") for each in lines)
        api.broken = None
        await stage.until(lambda: stage.label(OWNERS, name) == "one")
        await stage.until(lambda: stage.condition("Ready") == stage.condition("Settled") == "True")
        assert suspended(replica) == 0
        assert len(stage.events.of(RESUMED)) == 1


class Busy(MemoryApi):
    """Too busy to answer reads of Leases, but for the leader's own."""

    busy = False

    async def read_events(self, selection: Any, options: Any) -> AsyncIterator[Any]:
        self._answer(selection)
        async for event in super().read_events(selection, options):
            self._answer(selection)
            yield event

    async def read_pages(self, selection: Any, options: Any) -> AsyncIterator[Any]:
        self._answer(selection)
        async for page in super().read_pages(selection, options):
            yield page

    def _answer(self, selection: Any) -> None:
        if self.busy and selection.resource == LEASES:
            raise TooManyRequests("too many requests, please try again later", status=429)


@in_virtual_time
async def test_shards_of_which_nothing_is_heard_are_not_said_to_be_gone(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Busy)
    assert isinstance(stage.api, Busy)
    stage.set_up(ring(ALONE), "one", "two")
    [name] = names_on("two", "one", "two")
    stage.create(OWNERS, thing(name, shard="two"))
    async with leading(stage) as replica:
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.busy = True
        said = set[tuple[str, str]]()
        for _ in range(3 * int(LASTING_SECONDS)):
            await stage.pass_time(1)
            said.add((stage.said("ShardsAvailable")["status"], stage.said("ShardsAvailable")["reason"]))
            assert replica._leader is not None
            [(_, _, states)] = replica._leader.states()
            assert set(states.values()) == {State.READY}, "as they were known last"
        assert said == {("True", "Available"), ("Unknown", "CannotBeRead")}
        assert suspended(replica) == 1
        assert stage.condition("Ready") == "False"
        stage.crash("two")
        stage.api.busy = False
        await stage.until(lambda: stage.condition("ShardsAvailable") == stage.condition("Ready") == "True")
        await stage.until(lambda: stage.label(OWNERS, name) == "one", seconds=40)
        assert not {"NobodyReady", "NotTakenOver"} & {reason for reason, _ in stage.events.taken}


@in_virtual_time
async def test_rings_that_cannot_be_followed_are_told_of(clock: VirtualClock) -> None:
    stage, api, _ = two_shards(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.broken = CLUSTERRINGS
        await stage.until(lambda: stage.condition("Ready") == "False", seconds=700)
        assert "clusterrings.sharding.timebertt.dev cannot be read: it broke" in stage.message("Ready")
        api.broken = None
        await stage.until(lambda: stage.condition("Ready") == "True")


@in_virtual_time
async def test_a_ring_whose_shards_all_crashed_suspends_nothing(clock: VirtualClock) -> None:
    """Nobody renews anything then, and the watch is as quiet as one that is broken."""
    stage, _, _ = two_shards(clock)
    async with leading(stage) as replica:
        await stage.until(lambda: stage.condition("Settled") == "True")
        for shard in ("one", "two"):
            stage.crash(shard)
        await stage.pass_time(600)
        assert not stage.events.of(SUSPENDED)
        assert suspended(replica) == 0
        assert stage.condition("Ready") == "True"
