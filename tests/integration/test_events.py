"""Events as people see them: under `kubectl describe`, on a real API server, with the sharder's own rights."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from shardsdk.events.recorder import EventRecorder, EventType, Regarding
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.protocol.objects import CLUSTERRINGS

RINGS = "sharding.timebertt.dev/v1alpha1/clusterrings"
RING = {"apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing"}


@pytest_asyncio.fixture
async def client(control_plane: ControlPlane, admin: AdminClient) -> AsyncIterator[Client]:
    await control_plane.apply(Path("crds"), Path("rbac/sharder.yaml"))
    await admin.until_allowed("create", "v1/events", user="system:serviceaccount:sharding-system:sharder")
    identity = await control_plane.service_account_kubeconfig("sharding-system", "sharder")
    async with Client(await load_access(str(identity))) as client:
        yield client


@pytest_asyncio.fixture
async def recorder(client: Client) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(client, "sharder", SystemClock(), random.Random())
    task = asyncio.create_task(recorder.run())
    yield recorder
    task.cancel()
    await asyncio.wait([task])


async def test_describe_shows_an_event_about_a_ring_with_its_count(
    control_plane: ControlPlane, admin: AdminClient, namespace: str, recorder: EventRecorder
) -> None:
    made = await admin.create(RINGS, {**RING, "metadata": {"name": namespace}, "spec": {"resources": []}})
    try:
        about = Regarding(CLUSTERRINGS.api_version, CLUSTERRINGS.kind, namespace, uid=made["metadata"]["uid"])
        for number in (1, 2, 3):
            recorder.event(about, EventType.WARNING, "PermissionsMissing", "may not patch secrets")
            await admin.eventually(
                "v1/events",
                lambda events, number=number: [  # type: ignore[misc]
                    e for e in events if e["involvedObject"].get("uid") == about.uid and e["count"] == number
                ],
                "default",
            )
        shown = await control_plane.kubectl("describe", "clusterring", namespace)
        (line,) = [line for line in shown.splitlines() if "PermissionsMissing" in line]
        assert line.split()[:2] == ["Warning", "PermissionsMissing"]
        assert "(x3 over" in line
        assert "sharder" in line
        assert line.endswith("may not patch secrets")
    finally:
        await admin.delete(RINGS, namespace)


async def test_describe_shows_an_event_about_an_object_in_its_namespace(
    control_plane: ControlPlane, admin: AdminClient, namespace: str, recorder: EventRecorder
) -> None:
    made = await admin.create("v1/configmaps", {"metadata": {"name": "about-me"}}, namespace)
    about = Regarding("v1", "ConfigMap", "about-me", namespace, made["metadata"]["uid"])
    recorder.event(about, EventType.NORMAL, "Moved", "now on shard-1")
    await admin.eventually("v1/events", lambda events: [e for e in events if e["reason"] == "Moved"], namespace)
    shown = await control_plane.kubectl("describe", "configmap", "about-me", "-n", namespace)
    assert any(line.split()[:2] == ["Normal", "Moved"] for line in shown.splitlines())
    assert recorder.dropped == 0


async def test_an_event_in_a_namespace_that_is_not_there_is_dropped_and_holds_up_no_other(
    control_plane: ControlPlane, admin: AdminClient, namespace: str, recorder: EventRecorder
) -> None:
    recorder.event(Regarding("v1", "ConfigMap", "lost", "no-such-namespace"), EventType.NORMAL, "Lost", "nobody reads")
    recorder.event(Regarding("v1", "ConfigMap", "kept", namespace), EventType.NORMAL, "Kept", "somebody reads")
    await admin.eventually("v1/events", lambda events: [e for e in events if e["reason"] == "Kept"], namespace)
    assert recorder.dropped == 1
