"""What a replica says of itself that does not lead."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from sharder.replica import Replica
from shardsdk.errors import Invalid
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, RING, SETTINGS, make_replica, make_stage, ring, running, scrape


class SlowLeases(MemoryApi):
    """Lists of leases take a moment longer than others."""

    async def _select(self, selection: Any) -> Any:
        if selection.resource == LEASES:
            await asyncio.sleep(0.05)
        return await super()._select(selection)


def leads(replica: Replica) -> list[float]:
    return scrape(replica, replica._metrics.leader)


@in_virtual_time
async def test_a_replica_that_has_never_led_says_that_it_does_not(clock: VirtualClock) -> None:
    """An alert on nobody leading sees no series that is not there."""
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(), None)
    first, second = make_replica(stage), make_replica(stage, replace(SETTINGS, identity="sharder-b"))
    async with running(stage, first.run()):
        await stage.until(lambda: first.elector.is_leader)
        async with running(stage, second.run()):
            await stage.pass_time(SETTINGS.timings.retry_period)
            assert (leads(first), leads(second)) == ([1.0], [0.0])


@in_virtual_time
async def test_a_replica_that_hears_nothing_of_rings_says_that_it_does_not_lead(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.api.fault = Fault.REFUSED
    replica = make_replica(stage)
    async with running(stage, replica.run()):
        await stage.pass_time(SETTINGS.timings.retry_period)
        assert leads(replica) == [0.0]


@in_virtual_time
async def test_a_replica_whose_lease_a_policy_refuses_keeps_its_caches_and_leads_once_it_may(
    clock: VirtualClock,
) -> None:
    """Its webhook goes on answering meanwhile."""
    stage = make_stage(clock)
    refusal = Invalid("denied request: the platform team forbids it", status=422, reason="Invalid")
    stage.api.on_request = lambda right: setattr(stage.api, "error", refusal if right.verb == "create" else None)
    replica = make_replica(stage)
    async with running(stage, replica.run()):
        await stage.pass_time(600)
        assert leads(replica) == [0.0]
        stage.create(CLUSTERRINGS, ring(), None)
        await stage.until(lambda: replica.cache.get(RING) is not None)
        stage.api.on_request, stage.api.error = None, None
        await stage.until(lambda: replica.elector.is_leader)


@in_virtual_time
async def test_a_replica_that_starts_while_all_is_at_rest_counts_requests_from_zero(clock: VirtualClock) -> None:
    """Its leases may be listed after its rings, and then nothing more changes."""
    stage = make_stage(clock, api=SlowLeases)
    stage.set_up(ring(ALONE), "one")
    first, second = make_replica(stage), make_replica(stage, replace(SETTINGS, identity="sharder-b"))
    async with running(stage, first.run()):
        await stage.until(lambda: stage.condition("Settled") == "True")
        await stage.pass_time(60)
        async with running(stage, second.run()):
            await stage.pass_time(60)
            assert [each for family in second._metrics.webhook_requests.collect() for each in family.samples]
