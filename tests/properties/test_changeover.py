"""An operator whose two forms come and go in any order: one of them works at a time, and in the end one does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from shardsdk import Context, Operator
from shardsdk.kinds import CustomResource, resource_of
from shardsdk.lease.ring import STARTING_SECONDS
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.testing.memory import Change, MemoryServer
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.processes import Process
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.properties.running import Running
from tests.unsharded_rig import Replica

NAME = "pages"
RING = parse_ring_name(NAME)
SHARDS = ("one", "two")
TIMINGS = LeaseTimings(6, 4, 0.5)


class Page(CustomResource[None], group="example.com", version="v1"):
    """What both forms reconcile."""


@dataclass
class World:
    """An operator's processes, and what must never be: a form that writes after the other one has begun."""

    clock: VirtualClock
    rng: Random
    server: MemoryServer = field(default_factory=MemoryServer)
    pods: list[Running] = field(default_factory=list)
    #: Whether the form is sharded in which a reconcile began last; how often it was another one than before.
    sharded: bool | None = None
    changes: int = 0
    reconciles: int = 0
    started: int = 0
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for shard in SHARDS:
            metadata = {"name": shard, "namespace": "default", "labels": {RING.shard: shard}}
            self.server.create(resource_of(Page), {"metadata": metadata})
        self.server.listeners.append(self._judge)

    def _judge(self, change: Change) -> None:
        if change.resource != resource_of(Page).group_resource or change.new is None:
            return
        writer = (change.new["metadata"].get("annotations") or {}).get("by")
        if writer is not None and writer != str(self.sharded):
            self.wrong.append(f"at {self.clock.monotonic()}: sharded={writer} wrote beside the other form")

    def start(self, *, sharded: bool, shard: str = "one") -> Running:
        """One more process, as a Deployment would start it."""
        self.started += 1
        replica, rng = Replica(self.clock, self.server, self.started), Random(self.rng.random())
        process = Process(f"pod-{self.started}")
        operator = Operator(NAME, sharded=sharded, timings=TIMINGS)
        operator.reconcile(Page, concurrency=2)(self._reconcile(rng, sharded=sharded))
        grace = self.rng.choice([0, 0, 5]) if sharded else 0
        manager = operator.manager(
            namespace="default", shard=shard if sharded else None, restart_grace_seconds=grace, grace_seconds=2
        )
        pod = Running(process, replica, manager, process.start(manager.run_async(replica.world())))
        replica.delay = lambda: rng.uniform(0, pod.slow)
        replica.on_death = process.kill
        self.pods.append(pod)
        return pod

    def _reconcile(self, rng: Random, *, sharded: bool) -> Callable[[Context[Page]], Awaitable[None]]:
        async def note(ctx: Context[Page]) -> None:
            self.changes += self.sharded is not None and self.sharded is not sharded
            self.sharded = sharded
            self.reconciles += 1
            await self.clock.sleep(rng.uniform(0, 2))
            await ctx.patch(Page, ctx.name, {"metadata": {"annotations": {"by": str(sharded)}}})
            ctx.requeue(after=1)

        return note

    def bury(self) -> None:
        """Those that have ended are gone."""
        self.pods = [pod for pod in self.pods if not (pod.main.done() or pod.killed)]

    def happen(self) -> None:
        """Something, or nothing."""
        one = self.rng.choice(self.pods) if self.pods else None
        match self.rng.randrange(40):
            case number if one and number < 8:
                one.disturb(number, self.rng)
            case 8 | 9 if one:
                one.slow = self.rng.choice([0.01, 0.05, 0.5, 2.0])
            case 10 | 11 if one:
                one.manager.stopping.set()
            case 12 | 13 if one:  # its API server starts anew
                one.set_fault(Fault.NONE)
                one.started_at = self.clock.monotonic() + self.rng.uniform(0, STARTING_SECONDS)
            case _:
                pass
        if len(self.pods) < 4 and self.rng.random() < 0.2:
            pod = self.start(sharded=self.rng.random() < 0.5, shard=self.rng.choice(SHARDS))
            if self.rng.random() < 0.3:
                pod.started_at = self.clock.monotonic() + self.rng.uniform(0, STARTING_SECONDS)
        for each in self.pods:
            each.replica.starting = self.clock.monotonic() < each.started_at


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_the_forms_of_an_operator_never_work_at_once_and_never_wait_for_one_another(
    clock: VirtualClock, seed: int
) -> None:
    world = World(clock, Random(seed))
    for _ in range(1500):
        await asyncio.sleep(world.rng.uniform(0, 1))
        world.happen()
        world.bury()
        assert world.wrong == []
    assert world.changes > 3, "too quiet to prove anything"
    for pod in world.pods:
        pod.set_fault(Fault.NONE)
        pod.replica.starting = False
        pod.slow = 0.01
        pod.process.resume()
    await asyncio.sleep(60)
    world.bury()
    while len(world.pods) < 2:  # whatever they are: of several that wait for one another, none would work
        world.start(sharded=not world.pods, shard="one")
    reconciles = world.reconciles
    await asyncio.sleep(60)
    assert world.reconciles > reconciles
    assert world.wrong == []
    for pod in world.pods:
        pod.process.kill()
    await asyncio.sleep(60)  # until what is under way has its answer
