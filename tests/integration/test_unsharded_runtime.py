"""The runtime without a ring, or without namespaces, in this process and on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from shardsdk import (
    Context,
    Every,
    LeaseTimings,
    Manager,
    ObjectMeta,
    PartialObject,
    Request,
    Resource,
    Selector,
    controller_for,
    slow_start_batch,
)
from shardsdk.errors import Forbidden
from shardsdk.process.process import ExitCode
from shardsdk.process.world import load_world
from shardsdk.protocol.labels import DRAIN_VALUE, parse_ring_name

CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
CLUSTERROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
ROLES = "rbac.authorization.k8s.io/v1/clusterroles"
TIMEOUT_SECONDS = 60.0
#: What every namespace has from the start.
EVERYWHERE = "kube-root-ca.crt"


class Data(msgspec.Struct, frozen=True):
    """A user's own decoder: metadata and what else is needed."""

    metadata: ObjectMeta
    data: dict[str, str] = {}


class Seen:
    """What reconciles tell a test."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self._changed = asyncio.Event()

    def tell(self, what: Any) -> None:
        self.told.append(what)
        self._changed.set()

    async def until(self, holds: Callable[[list[Any]], bool]) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not holds(self.told):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"never so, but {self.told}") from None


@asynccontextmanager
async def running(manager: Manager, plane: ControlPlane) -> AsyncIterator[None]:
    world = replace(await load_world(str(plane.admin_kubeconfig), None, manager.metrics), signals=False, serve=False)
    process = asyncio.create_task(manager.run_async(world))
    try:
        yield
    finally:
        manager.stopping.set()
        code = await process
    assert code is ExitCode.OK


@pytest_asyncio.fixture
async def other_namespace(admin: AdminClient, namespace: str) -> AsyncIterator[str]:
    name = f"{namespace}-other"
    await admin.create("v1/namespaces", {"metadata": {"name": name}})
    yield name
    await admin.delete("v1/namespaces", name)


async def config_map(admin: AdminClient, namespace: str, name: str, **data: str) -> None:
    await admin.create("v1/configmaps", {"metadata": {"name": name}, "data": data}, namespace)


async def test_several_namespaces_field_selectors_and_indexes(
    control_plane: ControlPlane, admin: AdminClient, namespace: str, other_namespace: str
) -> None:
    seen = Seen()
    for where in (namespace, other_namespace):
        await config_map(admin, where, "a", team="red")
        await config_map(admin, where, "left-out", team="red")

    async def look(context: Context[Data]) -> None:
        reds = context.cache(CONFIGMAPS).by_index("team", "red")
        seen.tell((context.request, sorted((each.metadata.namespace, each.metadata.name) for each in reds)))

    manager = Manager(watch_namespace=[namespace, other_namespace]).cache(
        CONFIGMAPS,
        selector=Selector(fields=f"metadata.name!=left-out,metadata.name!={EVERYWHERE}"),
        indexes={"team": lambda thing: [thing.data.get("team", "")]},
    )
    manager.add(controller_for(CONFIGMAPS, Data).reconcile(look))
    async with running(manager, control_plane):
        everything = sorted([(namespace, "a"), (other_namespace, "a")])
        await seen.until(lambda told: {request for request, _ in told} == {Request(*each) for each in everything})
        assert seen.told[-1][1] == everything
        await config_map(admin, other_namespace, "b", team="red")
        everything = sorted([*everything, (other_namespace, "b")])
        await seen.until(lambda told: told[-1] == (Request(other_namespace, "b"), everything))


async def test_typed_models_of_the_kubernetes_package_are_cached_and_handed_out_as_copies(
    control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    from kubernetes.aio.client.models import V1ConfigMap

    seen = Seen()
    model: Any = V1ConfigMap
    await config_map(admin, namespace, "typed", k="v")

    async def look(context: Context[Any]) -> None:
        if context.request.name != EVERYWHERE:
            assert isinstance(context.object, V1ConfigMap)
            seen.tell((dict(context.object.data), context.object.metadata.managed_fields, context.metadata.name))
            context.object.data["k"] = "spoilt"
            kept = context.cache(CONFIGMAPS).get(context.request)
            seen.tell(kept and kept.data)

    manager = Manager(watch_namespace=namespace).add(controller_for(CONFIGMAPS, model).reconcile(look))
    async with running(manager, control_plane):
        await seen.until(lambda told: len(told) >= 2)
        assert seen.told == [({"k": "v"}, None, "typed"), {"k": "v"}]


async def test_a_mapped_watch_and_a_timer_wake_the_main_object(
    control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    seen = Seen()
    await admin.create("v1/secrets", {"metadata": {"name": "main"}}, namespace)

    async def look(context: Context[PartialObject]) -> None:
        seen.tell(context.request.name)

    def users(thing: Data) -> list[Request]:
        return [Request(namespace, name) for name in thing.data.values()] if thing.metadata.name == "refers" else []

    manager = Manager(watch_namespace=namespace)
    manager.add(controller_for(SECRETS).watches(CONFIGMAPS, users, Data).reconcile(look))
    async with running(manager, control_plane):
        await seen.until(lambda told: told == ["main"])
        await config_map(admin, namespace, "refers", to="main", nowhere="not-there")
        await seen.until(lambda told: told == ["main"] * 2)
        await admin.patch("v1/configmaps", "refers", {"data": {"to": None}}, namespace)
        await seen.until(lambda told: told == ["main"] * 3)
    ticking = Manager(watch_namespace=namespace)
    ticking.add(controller_for(SECRETS).source(Every(0.2)).reconcile(look))
    async with running(ticking, control_plane):
        await seen.until(lambda told: len(told) >= 6)


async def test_children_are_made_in_growing_batches_until_a_quota_stops_them(
    control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    seen = Seen()
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"count/configmaps": "6"}}}
    await admin.create("v1/resourcequotas", quota, namespace)
    # What the quota controller would find out, which no control plane of tests runs.
    status = {"hard": {"count/configmaps": "6"}, "used": {"count/configmaps": "1"}}
    await admin.patch("v1/resourcequotas", "few", {"status": status}, namespace, subresource="status")
    await admin.create("v1/secrets", {"metadata": {"name": "main"}}, namespace)

    async def make(context: Context[PartialObject]) -> None:
        if seen.told:
            return
        bodies = [
            {"metadata": {"name": f"child-{number:03}", "ownerReferences": [context.controller_reference()]}}
            for number in range(100)
        ]
        try:
            await slow_start_batch([partial(context.api.create, CONFIGMAPS, body, namespace) for body in bodies])
        except Forbidden as error:
            seen.tell(str(error))

    manager = Manager(watch_namespace=namespace)
    manager.add(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(make))
    async with running(manager, control_plane):
        await seen.until(lambda told: len(told) == 1)
    assert "exceeded quota" in seen.told[0]
    made = await admin.list("v1/configmaps", namespace)
    names = {each["metadata"]["name"] for each in made} - {EVERYWHERE}
    assert len(names) == 5
    assert names <= {f"child-{number:03}" for number in range(7)}, "one, two, and two of the next four"


async def test_a_shard_of_cluster_scoped_objects(
    control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    seen = Seen()
    ring = parse_ring_name(namespace)
    for name, shard in (("mine", "one"), ("other", "two")):
        metadata = {"name": f"{namespace}-{name}", "labels": {ring.shard: shard}}
        await admin.create(ROLES, {"metadata": metadata, "rules": []})

    async def make(context: Context[PartialObject]) -> None:
        children = [child.metadata.name for child in context.children(CONFIGMAPS)]
        if not children:
            body = {"metadata": {"name": "settings", "ownerReferences": [context.controller_reference()]}}
            made = await context.api.create(CONFIGMAPS, body, namespace)
            assert made.metadata.labels == {ring.shard: "one"}
        seen.tell((str(context.request), children))

    manager = Manager(
        ring.ring, shard="one", namespace=namespace, watch_namespace=namespace, timings=LeaseTimings(5, 3, 0.5)
    )
    manager.add(controller_for(CLUSTERROLES).owns(CONFIGMAPS).reconcile(make))
    try:
        async with running(manager, control_plane):
            name = f"{namespace}-mine"
            await seen.until(lambda told: told[-1:] == [(name, ["settings"])])
            assert {request for request, _ in seen.told} == {name}
            await admin.patch(ROLES, name, {"metadata": {"labels": {ring.drain: DRAIN_VALUE}}})
            await admin.eventually(ROLES, lambda roles: unlabelled(roles, name))
    finally:
        for name in ("mine", "other"):
            await admin.delete(ROLES, f"{namespace}-{name}")


def unlabelled(roles: list[dict[str, Any]], name: str) -> bool:
    return any(role["metadata"]["name"] == name and not role["metadata"].get("labels") for role in roles)
