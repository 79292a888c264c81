"""What the ring lists as main and a shard does not reconcile is told: its objects come to the shard and wait there."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from shardsdk.process.ringcheck import READ_SECONDS, RingCheck
from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource, Resource
from shardsdk.queueing.metrics import Metrics
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.spec import controller_for
from shardsdk.testing import drive
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.rig import RING
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, SECRETS
from tests.unit.shardsdk.process.test_ringcheck import CHILD, LISTED, MAIN, NOT_LISTED, checking, missing, ring_of


@in_virtual_time
async def test_a_main_resource_of_another_program_is_told_once_until_it_is_off_the_ring(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server, metrics = MemoryServer(), Metrics()
    deployments = {"group": "apps", "resource": "deployments"}
    server.create(CLUSTERRINGS, ring_of(*LISTED["spec"]["resources"], deployments))
    async with checking(server, clock, metrics):
        await clock.sleep(3 * READ_SECONDS)
        (told,) = caplog.records
        assert (told.levelname, told.__dict__["resources"]) == ("ERROR", "deployments.apps")
        assert "a ring each" in told.__dict__["remedy"]
        assert missing(metrics) == 0
        server.patch(CLUSTERRINGS, RING, None, {"spec": LISTED["spec"]})
        await clock.sleep(3 * READ_SECONDS)
    assert [each.levelname for each in caplog.records] == ["ERROR", "INFO"]


@in_virtual_time
async def test_of_a_loop_that_names_no_main_resources_nobody_knows_which_it_lacks(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = MemoryServer()
    server.create(CLUSTERRINGS, LISTED)
    check = RingCheck(MemoryApi(server, clock), RING, frozenset(), {}, shard="one", clock=clock)
    running = asyncio.create_task(check.run())
    await clock.sleep(2 * READ_SECONDS)
    assert not caplog.records
    running.cancel()


@in_virtual_time
async def test_what_a_program_owns_and_the_ring_lists_as_main_is_told_by_where_it_belongs_alone(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = MemoryServer()
    server.create(CLUSTERRINGS, ring_of(*NOT_LISTED["spec"]["resources"], {"group": "", "resource": "configmaps"}))
    async with checking(server, clock, Metrics()):
        pass
    (told,) = caplog.records
    assert told.__dict__["missing"] == "controlledResources of secrets: configmaps"


@pytest.mark.parametrize("by_each", [True, False], ids=["each owns some", "nobody says which does"])
@in_virtual_time
async def test_what_objects_of_two_main_resources_own_is_missing_for_the_one_that_does_not_list_it(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, by_each: bool
) -> None:
    server, metrics = MemoryServer(), Metrics()
    services = GroupResource("", "services")
    server.create(CLUSTERRINGS, ring_of(*LISTED["spec"]["resources"], {"group": "", "resource": "services"}))
    api, mains = MemoryApi(server, clock), frozenset({MAIN, services})
    check = RingCheck(api, RING, mains, {CHILD: mains}, shard="one", by_each=by_each, clock=clock, metrics=metrics)
    running = asyncio.create_task(check.run())
    await check.looked.wait()
    told = [each.__dict__["missing"] for each in caplog.records]
    assert told == (["controlledResources of services: configmaps"] if by_each else [])
    assert missing(metrics) == by_each
    running.cancel()


def test_a_manager_looks_for_what_each_of_its_controllers_owns(caplog: pytest.LogCaptureFixture) -> None:
    async def reconcile(context: Context[Any]) -> None:
        return None

    services = Resource("", "v1", "services", "Service")
    specs = [controller_for(each).owns(CONFIGMAPS).reconcile(reconcile) for each in (SECRETS, services)]

    listed = ring_of(*LISTED["spec"]["resources"], {"group": "", "resource": "services"})
    drive(specs, [(CLUSTERRINGS, listed)])
    told = [each.__dict__["missing"] for each in caplog.records if "missing" in each.__dict__]
    assert told == ["controlledResources of services: configmaps"]
