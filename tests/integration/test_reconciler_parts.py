"""Finalizers, conditions, server-side apply and adoption, in a shard on a real control plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import pytest_asyncio
import yaml

from localcluster import AdminClient, ControlPlane
from shardsdk import (
    Condition,
    Context,
    Manager,
    ObjectMeta,
    PartialObject,
    Resource,
    Selector,
    claim,
    controller_for,
    finalizing,
    server_side_apply,
    set_conditions,
    set_controller_reference,
)
from shardsdk.protocol.labels import parse_ring_name

RING: Final = parse_ring_name("parts")
CONFIGMAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
BUCKETS: Final = Resource("parts.example.com", "v1", "buckets", "Bucket")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
CHILDREN: Final = "v1/configmaps"
OWNERS: Final = "parts.example.com/v1/buckets"
RINGS: Final = "sharding.timebertt.dev/v1alpha1/clusterrings"
ROOT: Final = Path(__file__).parents[2]
#: Owners whose deletion the garbage collector notices at once; new types it learns of every 30 s.
BUILT_IN_OWNERS: Final = "v1/secrets"
FINALIZER: Final = "parts.example.com/bucket"
Object = dict[str, Any]

TYPE: Final = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "buckets.parts.example.com"},
    "spec": {
        "group": "parts.example.com",
        "scope": "Namespaced",
        "names": {"plural": "buckets", "singular": "bucket", "kind": "Bucket"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}


class Status(msgspec.Struct, frozen=True):
    conditions: list[Condition] | None = None


class Bucket(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: dict[str, str] = {}
    status: Status | None = None


Reconcile = Callable[[Context[Any]], Awaitable[None]]


class Stage:
    """A namespace with buckets and config maps."""

    def __init__(self, plane: ControlPlane, admin: AdminClient, namespace: str) -> None:
        self.plane = plane
        self.admin = admin
        self.namespace = namespace

    @asynccontextmanager
    async def shard(
        self, reconcile: Reconcile, name: str = "shard-1", *, main: Resource = BUCKETS, model: Any = Bucket
    ) -> AsyncIterator[None]:
        manager = Manager(
            RING.ring, shard=name, namespace=self.namespace, watch_namespace=self.namespace,
            kubeconfig=str(self.plane.admin_kubeconfig), health_address="0", metrics_address="0",
        )  # fmt: skip
        manager.add(controller_for(main, model).owns(CONFIGMAPS).reconcile(reconcile).options(name="buckets"))
        running = asyncio.create_task(manager.run_async())
        try:
            yield
        finally:
            manager.stopping.set()
            assert await running == 0

    @asynccontextmanager
    async def ring(self, *resources: Object) -> AsyncIterator[None]:
        """Meanwhile the ring exists; no sharder serves it."""
        body = {
            "apiVersion": "sharding.timebertt.dev/v1alpha1",
            "kind": "ClusterRing",
            "metadata": {"name": RING.ring},
            "spec": {"resources": list(resources)},
        }
        await self.admin.create(RINGS, body)
        try:
            yield
        finally:
            await self.admin.delete(RINGS, RING.ring)

    async def bucket(self, name: str = "a", shard: str = "shard-1", **spec: str) -> Object:
        metadata = {"name": name, "labels": {RING.shard: shard}}
        body = {"apiVersion": "parts.example.com/v1", "kind": "Bucket", "metadata": metadata, "spec": spec}
        return await self.admin.create(OWNERS, body, self.namespace)

    async def secret(self, app: str) -> str:
        """An owner of the config maps of `app`; its uid."""
        metadata = {"name": "a", "labels": {RING.shard: "shard-1"}, "annotations": {"app": app}}
        made = await self.admin.create(BUILT_IN_OWNERS, {"metadata": metadata}, self.namespace)
        uid: str = made["metadata"]["uid"]
        return uid

    async def orphan(self, name: str, app: str = "web", shard: str | None = None) -> Object:
        labels = {"app": app} | ({} if shard is None else {RING.shard: shard})
        return await self.admin.create(CHILDREN, {"metadata": {"name": name, "labels": labels}}, self.namespace)

    async def until(self, resource: str, name: str, holds: Callable[[Object], object]) -> Object:
        """Wait until the object of that name is there and `holds` of it."""

        def look(objects: list[Object]) -> Object | None:
            return next((each for each in objects if each["metadata"]["name"] == name and holds(each)), None)

        return await self.admin.eventually(resource, look, self.namespace)

    async def until_gone(self, resource: str, name: str) -> None:
        def look(objects: list[Object]) -> bool:
            return all(each["metadata"]["name"] != name for each in objects)

        await self.admin.eventually(resource, look, self.namespace)


@pytest_asyncio.fixture
async def stage(control_plane: ControlPlane, admin: AdminClient, namespace: str) -> Stage:
    await control_plane.apply(stdin=yaml.safe_dump(TYPE))
    return Stage(control_plane, admin, namespace)


def controller_of(child: Object) -> str | None:
    references = child["metadata"].get("ownerReferences") or ()
    return next((each["uid"] for each in references if each.get("controller")), None)


def shard_of(child: Object) -> str | None:
    shard: str | None = (child["metadata"].get("labels") or {}).get(RING.shard)
    return shard


async def claiming(context: Context[PartialObject]) -> None:
    await claim(context, CONFIGMAPS, Selector(labels=f"app={(context.metadata.annotations or {})['app']}"))


async def test_adopted_children_go_with_their_owner_and_released_ones_stay(stage: Stage) -> None:
    await stage.orphan("one")
    await stage.orphan("two", app="db")
    uid = await stage.secret("web")
    async with stage.shard(claiming, main=SECRETS, model=PartialObject):
        one = await stage.until(CHILDREN, "one", lambda child: controller_of(child) == uid)
        assert shard_of(one) == "shard-1"

        chosen = {"metadata": {"annotations": {"app": "db"}}}
        await stage.admin.patch(BUILT_IN_OWNERS, "a", chosen, stage.namespace)
        two = await stage.until(CHILDREN, "two", lambda child: controller_of(child) == uid)
        one = await stage.until(CHILDREN, "one", lambda child: controller_of(child) is None)
        assert (shard_of(two), shard_of(one)) == ("shard-1", None)

        await stage.admin.delete(BUILT_IN_OWNERS, "a", stage.namespace)
        await stage.until_gone(CHILDREN, "two")
        assert await stage.admin.find(CHILDREN, "one", stage.namespace)


async def test_children_that_were_orphaned_are_adopted_by_the_next_owner(stage: Stage) -> None:
    await stage.orphan("one")
    first = await stage.secret("web")
    async with stage.shard(claiming, main=SECRETS, model=PartialObject):
        await stage.until(CHILDREN, "one", lambda child: controller_of(child) == first)
        orphaning = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}
        await stage.admin.delete(BUILT_IN_OWNERS, "a", stage.namespace, options=orphaning)
        await stage.until_gone(BUILT_IN_OWNERS, "a")
        second = await stage.secret("web")
        one = await stage.until(CHILDREN, "one", lambda child: controller_of(child) == second)
    assert shard_of(one) == "shard-1"


@pytest.mark.parametrize("shard", [None, "shard-2"])
async def test_what_was_adopted_is_seen_at_once_and_not_made_again(stage: Stage, shard: str | None) -> None:
    """Nobody moves it here: no sharder runs."""
    selector = Selector(labels="app=web")
    seen: list[list[str]] = []
    looked = asyncio.Event()

    async def keep_one(context: Context[PartialObject]) -> None:
        children = [child.metadata.name for child in context.children(CONFIGMAPS)]
        seen.append(children)
        if children:
            looked.set()
        elif not (await claim(context, CONFIGMAPS, selector)).children:
            body = {"metadata": {"generateName": "again-", "labels": {"app": "web"}}}
            owned = set_controller_reference(context.main, context.metadata, CONFIGMAPS, body)
            await context.api.create(CONFIGMAPS, owned, context.request.namespace)

    await stage.orphan("one", shard=shard)
    await stage.secret("web")
    async with stage.shard(keep_one, main=SECRETS, model=PartialObject), asyncio.timeout(60):
        await looked.wait()
    assert seen[:2] == [[], ["one"]]
    found = await stage.admin.list(CHILDREN, stage.namespace)
    mine = {each["metadata"]["name"]: shard_of(each) for each in found if controller_of(each)}
    assert mine == {"one": "shard-1"}


async def test_an_owner_waits_for_the_label_of_a_child_that_was_there_before_the_ring_listed_it(stage: Stage) -> None:
    """The ring gains a resource, and shards with the code that owns it start before the sharder has labelled it."""
    reconciled = asyncio.Queue[tuple[str, list[str]]]()

    async def look(context: Context[PartialObject]) -> None:
        reconciled.put_nowait((context.request.name, [each.metadata.name for each in context.children(CONFIGMAPS)]))

    await stage.plane.apply(ROOT / "crds" / "clusterrings.yaml")
    uid = await stage.secret("web")
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "a", "uid": uid, "controller": True}
    await stage.admin.create(CHILDREN, {"metadata": {"name": "old", "ownerReferences": [reference]}}, stage.namespace)
    async with (
        stage.ring({"resource": "secrets", "controlledResources": [{"resource": "configmaps"}]}),
        stage.shard(look, main=SECRETS, model=PartialObject),
        asyncio.timeout(60),
    ):
        # Whoever comes later is served by the same list or a later one, and passes.
        metadata = {"name": "b", "labels": {RING.shard: "shard-1"}}
        await stage.admin.create(BUILT_IN_OWNERS, {"metadata": metadata}, stage.namespace)
        assert await reconciled.get() == ("b", [])
        label = {"metadata": {"labels": {RING.shard: "shard-1"}}}
        await stage.admin.patch(CHILDREN, "old", label, stage.namespace)
        assert await reconciled.get() == ("a", ["old"])


async def test_finalizer_and_condition_through_a_buckets_life(stage: Stage) -> None:
    cleaned: list[str] = []

    async def reconcile(context: Context[Bucket]) -> None:
        async def clean_up() -> None:
            cleaned.append(context.request.name)

        if await finalizing(context, FINALIZER, clean_up):
            return
        full = context.object.spec.get("size") == "0"
        await set_conditions(context, Condition("Ready", "False" if full else "True", "Looked", "it was looked at"))

    await stage.bucket(size="1")
    async with stage.shard(reconcile):
        ready = await stage.until(OWNERS, "a", lambda each: "status" in each)
        assert ready["metadata"]["finalizers"] == [FINALIZER]
        [condition] = ready["status"]["conditions"]
        assert (condition["status"], condition["observedGeneration"]) == ("True", 1)
        await stage.plane.kubectl("wait", "--for=condition=Ready", "bucket/a", "-n", stage.namespace, "--timeout=30s")

        await stage.admin.patch(OWNERS, "a", {"spec": {"size": "0"}}, stage.namespace)
        await stage.until(OWNERS, "a", lambda each: each["status"]["conditions"][0]["status"] == "False")
        await stage.admin.delete(OWNERS, "a", stage.namespace)
        await stage.until_gone(OWNERS, "a")
    assert cleaned == ["a"]


@pytest.mark.parametrize("force", [True, False])
async def test_the_next_shard_goes_on_as_the_same_field_owner(stage: Stage, force: bool) -> None:
    async def reconcile(context: Context[Bucket]) -> None:
        body = {"metadata": {"name": "child"}, "data": context.object.spec}
        body = set_controller_reference(context.main, context.metadata, CONFIGMAPS, body)
        await server_side_apply(context, CONFIGMAPS, body, force=force)

    await stage.bucket(first="1", second="2")
    async with stage.shard(reconcile):
        child = await stage.until(CHILDREN, "child", lambda each: each["data"] == {"first": "1", "second": "2"})
        assert {each["manager"] for each in child["metadata"]["managedFields"]} == {"buckets"}
    # The sharder moves child and owner.
    moved = {"metadata": {"labels": {RING.shard: "shard-2"}}}
    await stage.admin.patch(CHILDREN, "child", moved, stage.namespace)
    await stage.admin.patch(OWNERS, "a", moved | {"spec": {"first": None}}, stage.namespace)
    async with stage.shard(reconcile, "shard-2"):
        child = await stage.until(CHILDREN, "child", lambda each: each["data"] == {"second": "2"})
    assert shard_of(child) == "shard-2"
