"""Leader election under faults and pauses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from shardsdk.errors import LeaseLost
from shardsdk.runtime.hold import Hold
from shardsdk.testing.leaseserver import Fault, LeaseApi
from shardsdk.testing.processes import Process
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.election_rig import Candidates


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_whatever_happens_no_two_may_write_and_somebody_leads_again(clock: VirtualClock, seed: int) -> None:
    """Five candidates, half an hour of faults and pauses."""
    rng = random.Random(seed)
    world = Candidates(clock)
    holds: dict[str, Hold] = {}
    writers: set[str] = set()

    def lead(identity: str) -> Callable[[Hold], Awaitable[None]]:
        async def lead(hold: Hold) -> None:
            holds[identity] = hold
            await asyncio.sleep(rng.uniform(5, 200))

        return lead

    async def candidate(identity: str, api: LeaseApi) -> None:
        while True:
            elector = world.elector(api, identity, rng=rng)
            with suppress(LeaseLost):
                await elector.run(lead(identity))
            await asyncio.sleep(rng.uniform(0, 1))

    def check() -> None:
        open_now = [identity for identity, hold in holds.items() if hold.remaining() > 0]
        assert len(open_now) <= 1, f"{open_now} may write at once"
        writers.update(open_now)

    apis: list[LeaseApi] = []
    processes: list[Process] = []
    for number in range(5):
        api = LeaseApi(world.store, delay=lambda: rng.uniform(0, 0.4))
        process = Process(f"p{number}")
        process.start(candidate(process.name, api))
        apis.append(api)
        processes.append(process)
    for _ in range(4000):
        await asyncio.sleep(0.5)
        check()
        match rng.randrange(40):
            case 0:
                rng.choice(apis).fault = rng.choice(list(Fault))
            case 1 | 2:
                rng.choice(apis).fault = Fault.NONE
            case 3:
                rng.choice(processes).pause()
            case 4 | 5:
                rng.choice(processes).resume()
            case _:
                pass
    for api in apis:
        api.fault = Fault.NONE
    for process in processes:
        process.resume()
    assert len(writers) == 5
    began = clock.monotonic()
    while not any(hold.remaining() > 0 for hold in holds.values()):
        await asyncio.sleep(0.5)
        check()
        assert clock.monotonic() - began < 60
