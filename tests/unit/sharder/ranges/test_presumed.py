"""Names of which nobody knows what they hold: they keep no other shard from its ranges for ever.

And leases of which the watch tells late: what they hold is not granted meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from sharder.ranges.assignment import RangeAssignment
from sharder.takeover.controller import TakeoverController
from shardsdk.kube.api import Selection, WatchEvent, WatchOptions
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.leases import render_micro_time
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import EVERYWHERE, RING_ASSIGNMENTS, SPACE, HashRanges, Named
from shardsdk.testing.memory import Change, Object
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import RING, SHARDS, Stage, later
from tests.unit.sharder.ranges.rig import Ring, ranged, sharder

T = TypeVar("T")
DURATION = 15
LOW, HIGH = HashRanges.of((0, SPACE // 2)), HashRanges.of((SPACE // 2, SPACE))


def _spec(clock: VirtualClock) -> Object:
    now = render_micro_time(clock.now())
    return {"holderIdentity": "controller_0b1f", "leaseDurationSeconds": DURATION, "renewTime": now}


@asynccontextmanager
async def stranger(stage: Stage, name: str) -> AsyncIterator[None]:
    """A Lease that carries the ring's label and is held by somebody who is no shard (leader election, say)."""
    stage.server.create(
        LEASES, {"metadata": {"name": name, "labels": {LEASE_RING_LABEL: RING}}, "spec": _spec(stage.clock)}, SHARDS
    )

    async def renew() -> None:
        while True:
            await asyncio.sleep(2)
            stage.server.patch(LEASES, name, SHARDS, {"spec": _spec(stage.clock)})

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        renewing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await renewing


@in_virtual_time
async def test_a_lease_with_the_rings_label_that_is_no_shards_keeps_no_range_from_anybody(clock: VirtualClock) -> None:
    async with ranged(clock, "a", "b", "c") as ring, sharder(ring.stage):
        await ring.until_spread("a", "b", "c")
        async with stranger(ring.stage, "controller"):
            await ring.stage.pass_time(5)
            await ring.shards["c"].leave()
            ring.workers.working.pop("c", None)
            await ring.until_spread("a", "b", seconds=2 * DURATION)


@in_virtual_time
async def test_a_new_leader_counts_a_lease_that_somebody_has_taken_as_its_shards_for_a_while(
    clock: VirtualClock,
) -> None:
    """It cannot know what the shard held, nor when its lease was overwritten."""
    async with ranged(clock, "a") as ring, stranger(ring.stage, "controller"), sharder(ring.stage):
        await ring.stage.pass_time(DURATION - 5)
        assert not ring.workers.covered()
        await ring.until_spread("a", seconds=DURATION)


@in_virtual_time
async def test_those_whose_leases_are_there_keep_what_they_hold_though_another_vanished_with_the_assignment(
    clock: VirtualClock,
) -> None:
    async with ranged(clock, "a", "b", "c") as ring, sharder(ring.stage):
        await ring.until_spread("a", "b", "c")
        before = {name: ring.workers.working[name] for name in ("a", "b")}
        ring.shards["c"].crash()
        ring.stage.server.delete(LEASES, "c", SHARDS)
        await ring.stage.pass_time(1)
        ring.stage.server.delete(RING_ASSIGNMENTS, RING, None)
        for _ in range(100):
            await ring.stage.pass_time(0.1)
            assert {name: ring.workers.working[name] for name in ("a", "b")} == before
        ring.workers.working.pop("c", None)
        await ring.until_spread("a", "b", seconds=2 * DURATION)


class LateNews(MemoryApi):
    """Watches of leases tell nothing while `told` is not set."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.told = asyncio.Event()
        self.told.set()

    async def read_events(self, selection: Selection[T], options: WatchOptions) -> AsyncIterator[WatchEvent[T]]:
        async for event in super().read_events(selection, options):
            if selection.resource == LEASES:
                await self.told.wait()
            yield event


@dataclass
class Plan:
    """Who is to be named for what, as the test says."""

    shards: Mapping[str, HashRanges]

    def cut(self, named: Named, *rest: object, **more: object) -> Named:
        """What the sharder aims at."""
        return Named(named.by, dict(self.shards))


@asynccontextmanager
async def planned(
    clock: VirtualClock, plan: Plan, *shards: str
) -> AsyncIterator[tuple[Ring, LateNews, RangeAssignment]]:
    """A ring whose sharder follows `plan`, and may be told of leases late."""
    async with ranged(clock, *shards, api=LateNews) as ring, sharder(ring.stage, plan.cut) as assignment:
        assert isinstance(ring.stage.api, LateNews)
        yield ring, ring.stage.api, assignment


@in_virtual_time
async def test_what_a_lease_holds_is_read_and_not_what_the_watch_has_told(clock: VirtualClock) -> None:
    plan = Plan({"a": LOW})
    async with planned(clock, plan, "a") as (ring, api, assignment):
        ring.start("c", drain_seconds=3.0)
        await ring.stage.until(lambda: ring.workers.covered() == LOW)
        await ring.stage.pass_time(2)
        api.told.clear()
        plan.shards = {"a": LOW, "c": HIGH}
        assignment.membership_changed()
        await ring.stage.until(lambda: ring.workers.working.get("c") == HIGH)
        plan.shards = {"a": EVERYWHERE}
        assignment.membership_changed()
        await ring.stage.until(lambda: not ring.named().of("c"))
        while ring.workers.working["c"]:
            assert ring.named().of("a") == LOW, "c is still working there"
            await ring.stage.pass_time(0.05)
        api.told.set()
        await ring.until_spread("a")


@in_virtual_time
async def test_what_a_shard_is_ending_is_nobodys_until_its_deleted_lease_would_have_run_out(
    clock: VirtualClock,
) -> None:
    """Also before the watch has told that the lease is gone: the assignment does not name its shard any more."""
    plan = Plan({"a": LOW, "c": HIGH})
    async with planned(clock, plan, "a", "c") as (ring, api, assignment):
        await ring.until_spread("a", "c")
        plan.shards = {"a": EVERYWHERE}

        renewed: list[str] = []

        def delete(change: Change) -> None:
            if change.resource == RING_ASSIGNMENTS.group_resource and not ring.named().of("c"):
                ring.stage.server.listeners.remove(delete)
                api.told.clear()
                ring.shards["c"].crash()  # nobody can know that
                renewed.append(ring.stage.server.get(LEASES, "c", SHARDS)["spec"]["renewTime"])
                ring.stage.server.delete(LEASES, "c", SHARDS)

        ring.stage.server.listeners.append(delete)
        assignment.membership_changed()
        await ring.stage.until(lambda: ring.stage.server.find(LEASES, "c", SHARDS) is None)
        for _ in range(60):
            await ring.stage.pass_time(0.05)
            assert ring.named().of("a") == LOW
        api.told.set()
        await ring.stage.until(lambda: ring.named().of("a") == EVERYWHERE, seconds=2 * DURATION)
        assert later(clock, -DURATION) >= renewed[0]


@pytest.mark.parametrize("crashed", [False, True])
@in_virtual_time
async def test_shards_that_are_gone_for_long_are_not_looked_at_again(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, crashed: bool
) -> None:
    """As many as a Deployment's rollouts leave behind."""
    async with ranged(clock, "a", "b", "gone") as ring, sharder(ring.stage) as assignment:
        await ring.until_spread("a", "b", "gone")
        if crashed:
            ring.shards["gone"].crash()
        else:
            await ring.shards["gone"].leave()
        await ring.stage.until(lambda: ring.stage.server.find(LEASES, "gone", SHARDS) is None, seconds=300)
        asked: list[str] = []
        may_hold = TakeoverController.may_hold

        def ask(takeover: TakeoverController, shard: str) -> bool:
            asked.append(shard)
            return may_hold(takeover, shard)

        monkeypatch.setattr(TakeoverController, "may_hold", ask)
        ring.start("c")
        await ring.until_spread("a", "b", "c")
        assert "gone" not in asked
        assert {shard for _, shard in assignment._takeover.records} <= {"a", "b", "c"}
