"""Elections on a real API server, where something is missing."""

from __future__ import annotations

import asyncio
import random

import pytest

from localcluster import AdminClient, ControlPlane
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.lease.election import LeaderElector
from shardsdk.lease.hold import Hold
from shardsdk.lease.timings import LeaseTimings

#: Asks often, and waits for each answer: no answer would be told of as well.
TIMINGS = LeaseTimings(lease_duration=60, renew_deadline=40, retry_period=0.2)


async def test_a_candidate_whose_namespace_is_missing_says_so_and_goes_on_once_it_is_there(
    admin: AdminClient, control_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> str:
        return "\n".join(each.getMessage() for each in caplog.records if each.levelname == "WARNING")

    leading = asyncio.Event()

    async def lead(_: Hold) -> None:
        leading.set()

    missing = f"nowhere-{random.Random().getrandbits(32)}"
    async with Client(await load_access(str(control_plane.admin_kubeconfig))) as client:
        elector = LeaderElector(
            client, namespace=missing, name="election", timings=TIMINGS, clock=SystemClock(), rng=random.Random()
        )
        running = asyncio.create_task(elector.run(lead))
        async with asyncio.timeout(30):
            while f"`kubectl create namespace {missing}`" not in told():
                await asyncio.sleep(0.02)
        assert not leading.is_set()
        await admin.create("v1/namespaces", {"metadata": {"name": missing}})
        async with asyncio.timeout(30):
            await running
    assert leading.is_set()
    assert told().count("Could not acquire the lease") == 1
