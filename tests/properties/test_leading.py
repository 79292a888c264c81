"""Replicas of an elected controller under faults, pauses, kills and lagging watches."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from shardsdk.lease.leadership import Election
from shardsdk.lease.timings import LeaseTimings
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.protocol.objects import PartialObject
from shardsdk.reconcile.spec import controller_for
from shardsdk.testing.memory import Change, MemoryServer
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.processes import Process
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.properties.running import Running
from tests.shard_rig import CONFIGMAPS, SECRETS
from tests.unsharded_rig import Ctx, Replica

OWNERS = 6
TIMINGS = LeaseTimings(6, 4, 0.5)


@dataclass
class World:
    """Replicas of one controller, which makes one child for each owner; and what must never be."""

    clock: VirtualClock
    rng: Random
    server: MemoryServer = field(default_factory=MemoryServer)
    replicas: list[Running] = field(default_factory=list)
    #: Whose reconcile began last, and everybody who ever began one.
    newest: int = 0
    leaders: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    started: int = 0
    exits: list[ExitCode] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number in range(OWNERS):
            self.server.create(SECRETS, {"metadata": {"name": f"owner-{number}", "namespace": "default"}})
        self.server.listeners.append(self._judge)

    def children(self) -> Counter[str]:
        made = self.server.select(CONFIGMAPS)
        return Counter(child["metadata"]["ownerReferences"][0]["name"] for child in made)

    def _judge(self, change: Change) -> None:
        if change.resource != CONFIGMAPS.group_resource or change.new is None or change.old is not None:
            return
        writer = int(change.new["data"]["by"])
        if writer != self.newest:
            self.wrong.append(f"{writer} wrote after {self.newest} had begun to reconcile")
        twice = [owner for owner, count in self.children().items() if count > 1]
        if twice:
            self.wrong.append(f"{writer} made a second child of {twice}")

    def start(self) -> None:
        """One more process, as a Deployment would start it."""
        self.started += 1
        number, rng = self.started, Random(self.rng.random())
        replica = Replica(self.clock, self.server, number)
        process = Process(f"replica-{number}")
        manager = Manager(election=Election("one", "default", timings=TIMINGS), grace_seconds=2)
        manager.add(
            controller_for(SECRETS).owns(CONFIGMAPS).options(concurrency=3).reconcile(self._reconcile(number, rng))
        )
        running = Running(process, replica, manager, process.start(manager.run_async(replica.world())))
        replica.delay = lambda: rng.uniform(0, running.slow)
        replica.lag = lambda: rng.uniform(0, running.late)
        replica.on_death = process.kill
        self.replicas.append(running)

    def _reconcile(self, number: int, rng: Random) -> Callable[[Ctx], Awaitable[None]]:
        async def make_child(context: Ctx) -> None:
            self.newest = number
            self.leaders.add(number)
            present: list[PartialObject] = context.children(CONFIGMAPS)
            await self.clock.sleep(rng.uniform(0, 2))
            if not present and context.metadata.deletion_timestamp is None:
                metadata = {
                    "generateName": f"{context.request.name}-",
                    "ownerReferences": [context.controller_reference()],
                }
                await context.api.create(CONFIGMAPS, {"metadata": metadata, "data": {"by": str(number)}}, "default")

        return make_child

    def bury(self) -> None:
        """Those that have ended are gone; a Deployment starts others."""
        for running in list(self.replicas):
            if running.main.done():
                self.exits.append(running.main.result())
            if running.main.done() or running.killed:
                self.replicas.remove(running)

    def happen(self) -> None:
        """Something, or nothing."""
        one = self.rng.choice(self.replicas) if self.replicas else None
        match self.rng.randrange(30):
            case number if one and number < 8:
                one.disturb(number, self.rng)
            case 8 | 9 if one:
                one.slow, one.late = self.rng.choice([(0.05, 0.05), (0.5, 3.0), (3.0, 8.0), (0.01, 20.0)])
            case 10 | 11 | 12 | 13:
                children = self.server.select(CONFIGMAPS)
                if children:
                    self.server.delete(CONFIGMAPS, self.rng.choice(children)["metadata"]["name"], "default")
            case _:
                pass
        if len(self.replicas) < 3 and self.rng.random() < 0.3:
            self.start()


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_nothing_is_made_twice_and_nobody_writes_after_its_successor_began(
    clock: VirtualClock, seed: int
) -> None:
    world = World(clock, Random(seed))
    for _ in range(1200):
        await asyncio.sleep(world.rng.uniform(0, 1))
        world.happen()
        world.bury()
        assert world.wrong == []
    assert len(world.leaders) > 5, "too quiet to prove anything"
    for running in world.replicas:
        running.set_fault(Fault.NONE)
        running.slow = running.late = 0.01
        running.process.resume()
    for _ in range(300):
        await asyncio.sleep(1)
        world.bury()
        if not world.replicas:
            world.start()
        if world.children() == {f"owner-{number}": 1 for number in range(OWNERS)}:
            break
    assert world.children() == {f"owner-{number}": 1 for number in range(OWNERS)}
    assert world.wrong == []
    assert ExitCode.LEASE_LOST in world.exits
    for running in world.replicas:
        running.process.kill()
    await asyncio.sleep(60)  # until what is under way has its answer
