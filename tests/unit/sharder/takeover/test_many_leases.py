"""Shards that come by the hundred, and a leader that is late: what either costs does not grow with its square."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from sharder.core.takeover import decide_takeover
from sharder.takeover.states import ShardStates
from shardsdk.protocol.objects import LEASES, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, leading, make_stage, ring

SHARDS = 60


class LateForItsLease(MemoryApi):
    """An API server that keeps the leader's renewals waiting while told so."""

    late = False

    async def patch(self, resource: Resource, name: str, *args: Any, **options: Any) -> Any:
        """Renewals of the sharder's own lease wait."""
        while self.late and resource == LEASES and name == "sharder":
            await asyncio.sleep(0.1)
        return await super().patch(resource, name, *args, **options)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often something was decided about a lease, and all of a ring's were judged."""
    found, decide, judge = Counter[str](), decide_takeover, ShardStates.look_at_all

    def decided(*facts: Any) -> Any:
        found["decided"] += 1
        return decide(*facts)

    def judged(states: ShardStates, snapshot: Any) -> None:
        found["judged"] += 1
        judge(states, snapshot)

    monkeypatch.setattr("sharder.takeover.controller.decide_takeover", decided)
    monkeypatch.setattr(ShardStates, "look_at_all", judged)
    return found


@in_virtual_time
async def test_one_that_comes_is_no_reason_to_decide_about_all_that_are_there(
    clock: VirtualClock, counts: Counter[str]
) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "first")
    async with leading(stage):
        await stage.until_settled()
        counts.clear()
        for number in range(SHARDS):
            stage.start(f"shard-{number}")
            await stage.pass_time(0.1)
        assert counts["decided"] < 10 * SHARDS


@in_virtual_time
async def test_while_the_leader_is_late_a_renewal_is_no_reason_to_judge_all_leases(
    clock: VirtualClock, counts: Counter[str]
) -> None:
    stage = make_stage(clock, api=LateForItsLease)
    assert isinstance(stage.api, LateForItsLease)
    stage.set_up(ring(ALONE), *(f"shard-{number}" for number in range(SHARDS)))
    async with leading(stage) as replica:
        await stage.until_settled()
        await stage.pass_time(20)
        stage.api.late = True
        await stage.pass_time(4)
        counts.clear()
        await stage.pass_time(4)
        assert replica.elector.is_leader
        assert counts["judged"] < SHARDS
