"""A ring by ranges in memory: its sharders, which cut by cells unless they are told otherwise, and its shards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from sharder.backlog.scope import Wanted
from sharder.cache.namespaces import Namespaces
from sharder.cache.rings import RingCache
from sharder.cache.subscribers import Change
from sharder.core.cutting import Cut
from sharder.core.ringspec import parse_ring, resolve
from sharder.ranges.assignment import RangeAssignment
from sharder.takeover.controller import TakeoverController
from sharder.takeover.fences import CommitProof
from sharder.takeover.leadership import Leadership
from sharder.takeover.silence import Liveness
from sharder.tasks import end
from shardsdk.protocol.objects import CLUSTERRINGS, SlimMeta
from shardsdk.protocol.ranges import (
    EVERYWHERE,
    RING_ASSIGNMENTS,
    SPACE,
    HashRanges,
    Named,
    RingAssignmentSpec,
    parse_assignment,
)
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock
from tests.unit.sharder.placement.stage import OWNERS, RING, Stage, make_stage, ring
from tests.unit.sharder.ranges.shards import RangedShard, Workers

CELLS = 16


class Open:
    """A leadership that lasts."""

    name = "leader"

    def remaining(self) -> float:
        return 1e9


def by_cells(
    named: Named,
    shards: Collection[str],
    points: Mapping[int, float],
    *,
    keep: Collection[str] = (),
    short: Collection[str] = (),
) -> Named:
    """As even as cells go: each keeps what it has up to its share, the rest goes to whoever has least."""
    width, share = SPACE // CELLS, -(-CELLS // len({*shards, *keep}))
    cells: dict[str, list[int]] = {shard: [] for shard in sorted({*shards, *keep})}
    free = []
    for cell in range(CELLS):
        owner = named.shard_at(cell * width)
        if owner in cells and (len(cells[owner]) < share or owner in keep):
            cells[owner].append(cell)
        else:
            free.append(cell)
    for cell in free:
        cells[min(sorted(shards), key=lambda shard: len(cells[shard]))].append(cell)
    whole = {
        shard: HashRanges.of(*((cell * width, (cell + 1) * width) for cell in owned)) for shard, owned in cells.items()
    }
    return Named(named.by, {shard: ranges for shard, ranges in whole.items() if ranges})


@dataclass
class Ring:
    """A ring by ranges, whose sharder and shards the test drives."""

    stage: Stage
    workers: Workers
    shards: dict[str, RangedShard]

    def start(self, name: str, **options: Any) -> RangedShard:
        """One more shard, or the same again."""
        shard = self.shards[name] = RangedShard(name, self.stage.server, self.stage.clock, self.workers, **options)
        shard.start()
        return shard

    def named(self) -> Named:
        """What the RingAssignment says now."""
        found = self.stage.server.find(RING_ASSIGNMENTS, RING)
        assert found is not None
        return parse_assignment(msgspec.convert(found["spec"], RingAssignmentSpec))

    def status(self) -> dict[str, Any]:
        """What the RingAssignment says of itself."""
        found = self.stage.server.find(RING_ASSIGNMENTS, RING)
        return (found or {}).get("status") or {}

    async def until_spread(self, *shards: str, seconds: float = 120.0) -> float:
        """Wait until these shards, and no other, work on everything; returns how long that took."""
        return await self.stage.until(
            lambda: (
                self.workers.covered() == EVERYWHERE
                and {name for name, ranges in self.workers.working.items() if ranges} == set(shards)
            ),
            seconds=seconds,
        )

    def writes(self) -> int:
        """Writes of RingAssignments so far, by whichever sharder."""
        return sum(plural == RING_ASSIGNMENTS.plural for _, plural, _ in self.stage.api.writes)


@asynccontextmanager
async def sharder(stage: Stage, cut: Cut = by_cells) -> AsyncIterator[RangeAssignment]:
    """One sharder's part of the ring; leadership is not asked for, so that two may act at once."""
    clock, api, rng = stage.clock, stage.api, Random(3)
    cache, proof = RingCache(api, clock=clock, rng=rng), CommitProof(clock, 2.0)
    takeover = TakeoverController(RING, api, cache, leader=Open(), proof=proof, clock=clock)
    counters: Any = None
    made: list[RangeAssignment] = []

    def on_namespace(name: str, before: SlimMeta | None, after: SlimMeta | None) -> None:
        for each in made:
            each.namespace_changed(name, before, after)

    namespaces = Namespaces(api, clock=clock, rng=rng, on_change=on_namespace)
    lead = Leadership(api, Open(), Open(), counters, clock, rng)
    assignment = RangeAssignment(RING, lead, namespaces, takeover, cache=cache, cut=cut)
    made.append(assignment)

    async def prove() -> None:
        while True:
            proof.renewed(clock.monotonic(), clock.monotonic())
            await clock.sleep(1)

    def on_change(name: str, what: int) -> None:
        if what & (Change.RING | Change.MEMBERSHIP):
            takeover.enqueue_all()
            assignment.membership_changed()

    liveness = Liveness(cache, proof, clock)
    tasks = [asyncio.create_task(run) for run in (prove(), cache.run(), namespaces.run(), liveness.run())]
    try:
        await cache.ring_informer.synced.wait()
        await cache.lease_informer.synced.wait()
        cache.subscribe(on_change)
        cache.follow_leases(lambda name, key: takeover.on_lease(key))
        tasks += [asyncio.create_task(run) for run in (takeover.run(), assignment.run())]
        found = stage.server.find(CLUSTERRINGS, RING)
        assert found is not None
        spec = parse_ring(found)
        served = {OWNERS.group_resource: OWNERS}
        assignment.place(Wanted(resolve(spec, served)[0], ()))
        yield assignment
        assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            await end(task)


@asynccontextmanager
async def ranged(clock: VirtualClock, *shards: str, api: type[MemoryApi] = MemoryApi) -> AsyncIterator[Ring]:
    """A ring by ranges with these shards, and no sharder yet; in the end nobody may ever have met anybody."""
    stage = make_stage(clock, api=api)
    stage.api.served.append(RING_ASSIGNMENTS)
    stage.create(CLUSTERRINGS, ring({"group": OWNERS.group, "resource": OWNERS.plural}), None)
    made = Ring(stage, Workers(), {})
    for name in shards:
        made.start(name)
    yield made
    assert not made.workers.overlaps
