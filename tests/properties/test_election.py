"""Leader election under faults, pauses and slow answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from shardsdk.errors import LeaseLost
from shardsdk.lease.hold import Hold
from shardsdk.lease.tenure import TICK_SECONDS
from shardsdk.lease.timings import LeaseTimings
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.processes import Process, ProcessState
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.election_rig import Candidates

#: What a loop that runs may need to notice a deadline, and what a body needs to be cancelled.
NOTICE_SECONDS = TICK_SECONDS + 0.5


@dataclass
class Terms:
    """Who leads, since when each last renewed, and what must never be."""

    clock: VirtualClock
    timings: LeaseTimings
    holds: dict[str, Hold] = field(default_factory=dict)
    leading: set[str] = field(default_factory=set)
    #: When the last confirmed write of each was sent, by the one clock.
    renewed: dict[str, float] = field(default_factory=dict)
    #: When each last began to run again.
    awake: dict[str, float] = field(default_factory=dict)
    writers: set[str] = field(default_factory=set)
    deaths: list[str] = field(default_factory=list)

    def overdue(self, identity: str) -> None:
        """Its hold has ended and its work has not: of one that has overslept that is true, and it must end at once."""
        if self.clock.monotonic() - self.awake.get(identity, float("-inf")) > NOTICE_SECONDS:
            self.deaths.append(identity)

    def check(self, running: set[str]) -> None:
        now = self.clock.monotonic()
        open_now = [identity for identity, hold in self.holds.items() if hold.remaining() > 0]
        assert len(open_now) <= 1, f"{open_now} may write at once"
        self.writers.update(open_now)
        for identity in self.leading & running:
            deadline = self.renewed[identity] + self.timings.renew_deadline
            noticed = max(deadline, self.awake.get(identity, 0.0)) + NOTICE_SECONDS
            assert now <= noticed, f"{identity} leads {now - deadline:.1f} s after its deadline"


def lead(terms: Terms, identity: str, rng: random.Random) -> Callable[[Hold], Awaitable[None]]:
    async def body(hold: Hold) -> None:
        terms.holds[identity] = hold
        terms.leading.add(identity)
        try:
            await asyncio.sleep(rng.uniform(5, 200))
        finally:
            terms.leading.discard(identity)

    return body


async def nothing_open() -> None:
    """A lead that writes nothing has no writes to wait for: a renewal without an answer is the lease's own affair."""


async def candidate(world: Candidates, terms: Terms, identity: str, api: MemoryApi, rng: random.Random) -> None:
    def renewed(sent: float, answered: float) -> None:
        terms.renewed[identity] = sent

    while True:
        elector = world.elector(
            api,
            identity,
            rng=rng,
            timings=terms.timings,
            on_renewed=renewed,
            on_deadline=lambda: terms.overdue(identity),
            settled=nothing_open,
        )
        with suppress(LeaseLost):
            await elector.run(lead(terms, identity, rng))
        await asyncio.sleep(rng.uniform(0, 1))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("timings", [LeaseTimings(15, 10, 2), LeaseTimings(3, 2, 0.4), LeaseTimings(60, 20, 5)])
@in_virtual_time
async def test_whatever_happens_nobody_leads_past_its_deadline_and_somebody_leads_again(
    clock: VirtualClock, timings: LeaseTimings, seed: int
) -> None:
    """Five candidates, half an hour of lost, late and hanging requests and of pauses."""
    rng = random.Random(seed)
    world, terms = Candidates(clock), Terms(clock, timings)
    slowness = [0.4] * 5
    apis: list[MemoryApi] = []
    processes: list[Process] = []

    def delay_of(number: int) -> Callable[[], float]:
        return lambda: rng.uniform(0, slowness[number])

    for number in range(5):
        api = MemoryApi(world.server, clock, delay=delay_of(number))
        process = Process(f"p{number}")
        process.start(candidate(world, terms, process.name, api, rng))
        apis.append(api)
        processes.append(process)
    for _ in range(4000):
        await asyncio.sleep(0.5)
        terms.check({process.name for process in processes if process.state is ProcessState.RUNNING})
        match rng.randrange(40):
            case 0:
                rng.choice(apis).fault = rng.choice(list(Fault))
            case 1 | 2:
                rng.choice(apis).fault = Fault.NONE
            case 3:
                rng.choice(processes).pause()
            case 4 | 5:
                process = rng.choice(processes)
                if process.state is not ProcessState.RUNNING:
                    terms.awake[process.name] = clock.monotonic()
                process.resume()
            case 6:
                slowness[rng.randrange(5)] = rng.choice(
                    [0.05, 0.4, 3.0, timings.renew_deadline, timings.lease_duration]
                )
            case _:
                pass
    for api in apis:
        api.fault = Fault.NONE
    slowness[:] = [0.05] * 5
    for process in processes:
        if process.state is not ProcessState.RUNNING:
            terms.awake[process.name] = clock.monotonic()
        process.resume()
    assert len(terms.writers) >= 4  # which of the five come to lead is up to chance
    began = clock.monotonic()
    while not any(hold.remaining() > 0 for hold in terms.holds.values()):
        await asyncio.sleep(0.5)
        terms.check({process.name for process in processes})
        assert clock.monotonic() - began < 4 * timings.lease_duration
    assert terms.deaths == [], "a lead that can be cancelled in time never needs its process ended"
