"""What a real API server answers to the writes of a reconcile.

tests/unit/shardsdk/reconcile/test_ownapi.py plays it in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from shardsdk.cache.identity import ShardIdentity
from shardsdk.cache.objects import Request, controller_reference
from shardsdk.errors import Conflict
from shardsdk.kube.access import load_access
from shardsdk.kube.api import Api, PatchKind
from shardsdk.kube.client import Client
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import GroupResource, PartialObject, Resource
from shardsdk.reconcile.ownapi import OwnApi

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
ME = ShardIdentity(parse_ring_name("example"), "shard-1")


class Silent:
    def wrote(self, resource: GroupResource, request: Request, version: str) -> None:
        pass

    def deleting(self, resource: GroupResource, request: Request) -> Callable[[], None]:
        return lambda: None

    def outcome_unknown(self) -> None:
        raise AssertionError("every answer shows a version")


@pytest_asyncio.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Api]:
    async with Client(await load_access(str(control_plane.admin_kubeconfig))) as client:
        yield client


async def own_api(client: Api, namespace: str) -> tuple[Api, PartialObject]:
    owner: PartialObject = await client.create(
        SECRETS, {"metadata": {"name": "owner", "labels": {ME.ring.shard: ME.shard}}}, namespace
    )
    controlled = frozenset({CONFIGMAPS.group_resource})
    return OwnApi(client, ME, SECRETS, owner.metadata, controlled, Silent()), owner


def body_for(kind: PatchKind, value: str) -> Any:
    encoded = {"k": value}
    match kind:
        case PatchKind.JSON:
            return [{"op": "add", "path": "/data", "value": encoded}]
        case PatchKind.MERGE:
            return {"data": encoded}
        case PatchKind.APPLY:
            return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "owner"}, "data": encoded}


@pytest.mark.parametrize("kind", list(PatchKind))
async def test_a_main_object_that_has_changed_answers_409_to_every_kind_of_patch(
    client: Api, admin: AdminClient, namespace: str, kind: PatchKind
) -> None:
    own, _ = await own_api(client, namespace)
    manager = "test" if kind is PatchKind.APPLY else None
    for value in ("YQ==", "Yg=="):  # each builds on the one before
        await own.patch(SECRETS, "owner", namespace, body_for(kind, value), kind=kind, field_manager=manager)
    await admin.patch("v1/secrets", "owner", {"metadata": {"annotations": {"theirs": "yes"}}}, namespace)
    with pytest.raises(Conflict):
        await own.patch(SECRETS, "owner", namespace, body_for(kind, "Yw=="), kind=kind, field_manager=manager)
    assert (await admin.get("v1/secrets", "owner", namespace))["data"] == {"k": "Yg=="}


async def test_replacing_and_deleting_it_answer_409_too(client: Api, admin: AdminClient, namespace: str) -> None:
    own, _ = await own_api(client, namespace)
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "owner", "namespace": namespace}}
    await own.update(SECRETS, {**body, "data": {"k": "YQ=="}})
    kept = await admin.get("v1/secrets", "owner", namespace)
    assert kept["metadata"]["labels"] == {ME.ring.shard: ME.shard}
    await admin.patch("v1/secrets", "owner", {"metadata": {"annotations": {"theirs": "yes"}}}, namespace)
    with pytest.raises(Conflict):
        await own.update(SECRETS, body)
    with pytest.raises(Conflict):
        await own.delete(SECRETS, "owner", namespace)
    assert await admin.find("v1/secrets", "owner", namespace)


async def test_a_child_that_is_applied_keeps_its_label_whoever_moved_it_before(
    client: Api, admin: AdminClient, namespace: str
) -> None:
    """The sharder's merge patch makes it another manager of the label; applying the same value is no conflict."""
    own, owner = await own_api(client, namespace)
    reference = controller_reference(SECRETS, owner.metadata)
    metadata = {"name": "child", "ownerReferences": [reference]}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    await own.patch(CONFIGMAPS, "child", namespace, body, kind=PatchKind.APPLY, field_manager="controller")
    for shard in ("shard-2", "shard-1"):
        await admin.patch("v1/configmaps", "child", {"metadata": {"labels": {ME.ring.shard: shard}}}, namespace)
    body["data"] = {"k": "v"}
    await own.patch(CONFIGMAPS, "child", namespace, body, kind=PatchKind.APPLY, field_manager="controller")
    child = await admin.get("v1/configmaps", "child", namespace)
    assert child["metadata"]["labels"] == {ME.ring.shard: "shard-1"}
    assert child["data"] == {"k": "v"}
