"""What a manager is told about its leases is heeded, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from shardsdk import Election, LeaseTimings, Manager, Operator
from shardsdk.process.process import ExitCode
from shardsdk.protocol.objects import LEASES
from shardsdk.reconcile.spec import controller_for
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS
from tests.unit.shardsdk.operator.websites import Website, publish
from tests.unsharded_rig import Cluster, shard_of_ring

MINUTE, DEFAULT = LeaseTimings.of(60), LeaseTimings()


def elected(*, ring: bool = False, of_election: LeaseTimings | None = None, **options: Any) -> Manager:
    election = Election("sweeper", "shards", timings=of_election)
    manager = shard_of_ring(election=election, **options) if ring else Manager(election=election, **options)
    leading = controller_for(CONFIGMAPS).on_leader().reconcile(lambda context: None)
    return (
        manager.add(leading).add(controller_for(SECRETS).reconcile(lambda context: None))
        if ring
        else manager.add(leading)
    )


def of_operator(**options: Any) -> Manager:
    operator = Operator("sweeper", timings=MINUTE)
    operator.reconcile(Website)(publish)
    return operator.manager(namespace="shards", **options)


@pytest.mark.parametrize(
    ("manager", "seconds"),
    [
        (elected(), 15),
        (elected(timings=MINUTE), 60),
        (elected(of_election=MINUTE), 60),
        (elected(of_election=MINUTE, timings=MINUTE), 60),
        (elected(ring=True, timings=MINUTE), 60),
        (elected(ring=True, of_election=MINUTE, timings=DEFAULT), 60),
        (of_operator(), 60),
        (of_operator(election=Election("sweeper", "shards")), 60),
    ],
)
@in_virtual_time
async def test_an_elections_lease_lasts_as_long_as_it_is_told_or_its_manager_is(
    clock: VirtualClock, manager: Manager, seconds: int
) -> None:
    cluster = Cluster(clock)
    process = cluster.replica().start(manager)
    await clock.sleep(5)
    assert cluster.server.get(LEASES, "sweeper", "shards")["spec"]["leaseDurationSeconds"] == seconds
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_two_timings_of_one_lease_are_refused(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    for manager in (elected(of_election=MINUTE, timings=DEFAULT), of_operator(election=Election("a", timings=DEFAULT))):
        caplog.clear()
        assert await manager.run_async(Cluster(clock).replica().world()) is ExitCode.CONFIGURATION
        assert "without a ring there is no lease but the election's: give one of the two alone" in caplog.text


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"shard": "one"}, "shard="),
        ({"fenced": True}, "fenced="),
        ({"restart_grace_seconds": 60}, "restart_grace_seconds="),
        ({"shard": "one", "fenced": True}, "shard= and fenced="),
    ],
)
@in_virtual_time
async def test_what_a_shard_alone_has_is_refused_without_a_ring(
    clock: VirtualClock, options: dict[str, Any], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await elected(**options).run_async(Cluster(clock).replica().world()) is ExitCode.CONFIGURATION
    assert f"the manager has no ring: leave out {named}, which a shard has, or pass Manager(ring)" in caplog.text


@in_virtual_time
async def test_what_asks_for_nothing_of_a_shard_is_no_setting_of_one(clock: VirtualClock) -> None:
    """A program passes on what its environment says, which may be nothing."""
    manager = elected(shard="", fenced=False)
    process = Cluster(clock).replica().start(manager)
    await clock.sleep(5)
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_attributes_that_are_set_before_it_runs_are_heeded(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    manager = Manager(fenced=True).add(controller_for(SECRETS).reconcile(lambda context: None))
    manager.ring, manager.shard, manager.namespace = RING.ring, "later", "elsewhere"
    process = cluster.replica().start(manager)
    await clock.sleep(5)
    assert cluster.server.get(LEASES, "later", "elsewhere")["spec"]["holderIdentity"] == "later"
    manager.stopping.set()
    assert await process is ExitCode.OK


@in_virtual_time
async def test_so_is_an_election_with_its_timings(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    manager = Manager().add(controller_for(SECRETS).reconcile(lambda context: None))
    manager.election = Election("later", "elsewhere", timings=MINUTE)
    process = cluster.replica().start(manager)
    await clock.sleep(5)
    assert cluster.server.get(LEASES, "later", "elsewhere")["spec"]["leaseDurationSeconds"] == 60
    assert manager._leases.timings_of_process == MINUTE
    manager.stopping.set()
    assert await process is ExitCode.OK
