"""What a replica that stands by takes for a proof of time."""

from __future__ import annotations

import asyncio

import pytest

from sharder.takeover.fences import CommitProof
from sharder.takeover.witness import Witness
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.simulation.machines import MachineClock

RETRY = 2.0


@pytest.mark.parametrize("stops_for", [0.0, 16.0])
@in_virtual_time
async def test_a_renewal_after_a_reading_proves_nothing_of_what_the_machine_has_missed_in_between(
    clock: VirtualClock, *, stops_for: float
) -> None:
    server, machine = MemoryServer(), MachineClock(clock)
    proof = CommitProof(machine, RETRY)
    api = MemoryApi(server, machine)
    witness = Witness(api, proof, clock=machine, retry_seconds=RETRY, leading=lambda: False)

    def renew() -> None:
        meta = {"namespace": "shards", "name": f"shard-{clock.monotonic()}", "labels": {LEASE_RING_LABEL: "ring"}}
        lease = server.create(LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta})
        witness.seen(lease["metadata"]["resourceVersion"])

    reading = asyncio.create_task(witness.run())
    try:
        for _ in range(10):
            await clock.sleep(1.5)
            renew()
        await clock.sleep(1.2)
        machine.lapses.note(stops_for)
        renew()
        assert (proof.of(6.0).until == machine.monotonic()) is not bool(stops_for)
        for _ in range(3):
            await clock.sleep(1.5)
            renew()
        found = proof.of(6.0)
        assert found.until == machine.monotonic()
        counted = found.until - found.since
        assert 3.0 <= counted < 6.0 if stops_for else counted >= 16.0
    finally:
        reading.cancel()
