"""A resource that is taken away, and installed anew as something else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sharder.core.ringspec import ResolvedRing
from sharder.replica import Replica
from shardsdk.protocol.objects import CLUSTERRINGS, Resource
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, OWNERS, RING, leading, make_replica, make_stage, ring, running

CLUSTER_SCOPED = replace(OWNERS, namespaced=False)


def resolved(replica: Replica) -> ResolvedRing | None:
    found = replica.cache.get(RING)
    return found.resolved if found is not None else None


def owners(replica: Replica) -> list[Resource]:
    found = resolved(replica)
    return [each.resource for each in found.subjects()] if found is not None else []


@pytest.mark.parametrize("another", [CLUSTER_SCOPED, replace(OWNERS, kind="Another")])
def test_every_replica_notices_that_a_resource_is_another_by_now(another: Resource) -> None:
    @in_virtual_time
    async def noticed(clock: VirtualClock) -> None:
        stage = make_stage(clock)
        stage.create(CLUSTERRINGS, ring(ALONE), None)
        standby = make_replica(stage)
        async with leading(stage) as leader, running(stage, standby.run()):
            await stage.until(lambda: owners(leader) == owners(standby) == [OWNERS])
            stage.api.served[:] = [another]
            await stage.until(lambda: owners(leader) == owners(standby) == [another], seconds=400)

    noticed()


@in_virtual_time
async def test_what_is_not_served_for_a_moment_or_in_another_version_changes_nothing(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    async with leading(stage) as replica:
        await stage.until(lambda: stage.condition("Ready") == "True")
        before = resolved(replica)
        assert before is not None
        for served in ([], [replace(OWNERS, version="v2")]):
            stage.api.served[:] = served
            await stage.pass_time(700)
            assert resolved(replica) is before
