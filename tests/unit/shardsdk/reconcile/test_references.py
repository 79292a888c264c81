"""Owner references: what may own what, and who signs what is applied."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shardsdk.errors import AlreadyOwned, ConfigurationError
from shardsdk.kube.api import Operation, PatchKind
from shardsdk.objects.apply import server_side_apply
from shardsdk.protocol.objects import ObjectMeta, PartialObject, Resource
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.references import set_controller_reference
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS, Rig

OWNER = ObjectMeta(name="a", namespace="team", uid="uid-a")
TENANTS = Resource("example.com", "v1", "tenants", "Tenant", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
REFERENCE = {
    "apiVersion": "v1", "kind": "Secret", "name": "a", "uid": "uid-a", "controller": True, "blockOwnerDeletion": True,
}  # fmt: skip


def test_the_child_gets_the_reference_and_its_owners_namespace() -> None:
    body = {"metadata": {"name": "child"}, "data": {}}
    made = set_controller_reference(SECRETS, OWNER, CONFIGMAPS, body)
    assert made == {"metadata": {"name": "child", "namespace": "team", "ownerReferences": [REFERENCE]}, "data": {}}
    assert body == {"metadata": {"name": "child"}, "data": {}}
    assert set_controller_reference(SECRETS, OWNER, CONFIGMAPS, made) == made


def test_other_owners_stay() -> None:
    other = {"kind": "Other", "name": "b", "uid": "uid-b"}
    made = set_controller_reference(SECRETS, OWNER, CONFIGMAPS, {"metadata": {"ownerReferences": [other]}})
    assert made["metadata"]["ownerReferences"] == [other, REFERENCE]


def test_a_second_controller_is_refused() -> None:
    taken = {"kind": "Deployment", "name": "b", "uid": "uid-b", "controller": True}
    body = {"metadata": {"name": "child", "ownerReferences": [taken]}}
    with pytest.raises(AlreadyOwned, match=r"ConfigMap child cannot .* by Secret a: Deployment b controls"):
        set_controller_reference(SECRETS, OWNER, CONFIGMAPS, body)


def test_a_reference_to_the_same_owner_with_another_uid_is_told_from_a_second_controller() -> None:
    written = {"kind": "Secret", "name": "a", "uid": "uid-x", "controller": True}
    body = {"metadata": {"name": "child", "ownerReferences": [written]}}
    with pytest.raises(AlreadyOwned, match=r"child has the uid 'uid-x' in .* to Secret a, whose uid is 'uid-a': leave"):
        set_controller_reference(SECRETS, OWNER, CONFIGMAPS, body)


def test_an_owner_in_another_namespace_is_refused() -> None:
    body = {"metadata": {"name": "child", "namespace": "elsewhere"}}
    with pytest.raises(ConfigurationError, match=r"in namespace 'elsewhere', its owner Secret a in 'team'.*finalizer"):
        set_controller_reference(SECRETS, OWNER, CONFIGMAPS, body)


def test_a_cluster_scoped_child_of_a_namespaced_owner_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Namespace n is cluster-scoped.*cannot own it: .*finalizer"):
        set_controller_reference(SECRETS, OWNER, NAMESPACES, {"metadata": {"name": "n"}})


def test_a_cluster_scoped_owner_may_own_both() -> None:
    owner = ObjectMeta(name="t", uid="uid-t")
    body = {"metadata": {"name": "child", "namespace": "anywhere"}}
    assert set_controller_reference(TENANTS, owner, CONFIGMAPS, body)["metadata"]["namespace"] == "anywhere"
    made = set_controller_reference(TENANTS, owner, NAMESPACES, {"metadata": {"name": "n"}})
    assert "namespace" not in made["metadata"]


@in_virtual_time
async def test_what_is_applied_is_signed_by_the_controller_and_not_by_the_shard(clock: VirtualClock) -> None:
    rig = Rig(clock)
    seen: list[Operation[Any]] = []
    send = rig.api.send

    async def spy(operation: Operation[Any]) -> Any:
        seen.append(operation)
        return await send(operation)

    rig.api.send = spy  # type: ignore[method-assign]

    async def reconcile(context: Context[PartialObject]) -> None:
        body = {"metadata": {"name": "child"}, "data": {"key": "value"}}
        body = set_controller_reference(context.main, context.metadata, CONFIGMAPS, body)
        await server_side_apply(context, CONFIGMAPS, body)
        assert context.field_owner == "first"

    rig.secret("a")
    async with rig.shard(reconcile):
        await asyncio.sleep(1)
    assert (seen[0].kind, seen[0].field_manager, seen[0].force) == (PatchKind.APPLY, "first", True)
    child = rig.server.get(CONFIGMAPS, "child", "default")
    assert child["kind"] == "ConfigMap"
    assert child["metadata"]["labels"] == {RING.shard: "shard-1"}


@in_virtual_time
async def test_nothing_is_applied_without_a_name(clock: VirtualClock) -> None:
    rig = Rig(clock)
    refused: list[str] = []

    async def reconcile(context: Context[PartialObject]) -> None:
        with pytest.raises(ConfigurationError) as caught:
            await server_side_apply(context, CONFIGMAPS, {"metadata": {"generateName": "child-"}})
        refused.append(str(caught.value))

    rig.secret("a")
    async with rig.shard(reconcile):
        await asyncio.sleep(1)
    assert refused == ["apply configmaps: the body has no metadata.name, which apply needs"]
