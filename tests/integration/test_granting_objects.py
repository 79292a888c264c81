"""Rings over roles and role bindings: whoever changes one, be it a label, needs more rights than `patch`."""

from __future__ import annotations

import pytest

from sharder.rbac import ring_role_name
from sharder.rings import permissions
from tests.integration.harness import Stage
from tests.integration.world import Family

GROUP = "rbac.authorization.k8s.io"
ROLES, BINDINGS, CLUSTER_ROLES = (f"{GROUP}/v1/{plural}" for plural in ("roles", "rolebindings", "clusterroles"))
READS_PODS = {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}


@pytest.fixture(autouse=True)
def _asks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing rights are asked for again every few seconds; tests need not wait that long."""
    monkeypatch.setattr(permissions, "DENIED_SECONDS", 0.5)


async def test_of_roles_it_is_told_at_once_what_is_missing_and_then_they_move(stage: Stage) -> None:
    ring = await stage.ring(Family("v1/secrets", "Secret", (ROLES,)))
    await stage.shard(ring, "one")
    await stage.sharder()
    condition = await ring.condition("PermissionsGranted", "False")
    assert condition["message"].startswith(f"the sharder may not escalate roles.{GROUP}; what grants rights")
    await ring.condition("Ready")
    await ring.in_force()
    for name in ring.pick_names(2, {"one", "two"}):
        owner = await ring.create(name=name)
        metadata = {"name": name, "ownerReferences": ring.reference_to(owner)}
        await stage.admin.create(ROLES, {"metadata": metadata, **READS_PODS}, stage.namespace)
    await ring.in_place({"one"})
    await stage.shard(ring, "two")
    event = await ring.events("PlacementRefused")
    assert f"or escalate roles.{GROUP}" in event["message"]
    rules = [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch", "patch"]},
        {"apiGroups": [GROUP], "resources": ["roles"], "verbs": ["list", "watch", "patch", "escalate"]},
    ]
    await stage.admin.patch(CLUSTER_ROLES, ring_role_name(ring.name), {"rules": rules})
    await ring.in_place({"one", "two"})
    await ring.condition("PermissionsGranted")
    await ring.condition("Settled")


async def test_an_owner_stays_with_its_shard_while_a_role_of_it_cannot_be_moved_along(stage: Stage) -> None:
    """Once drained it would wait with nobody, beside a shard that works."""
    ring = await stage.ring(Family("v1/secrets", "Secret", (ROLES,)))
    await stage.shard(ring, "one")
    await stage.sharder()
    await ring.in_force()
    ours, grants, other = [name for name, to in ring.pick_names(3, {"one", "two"}).items() if to == "two"]
    for name, role in ((ours, {"rules": []}), (grants, READS_PODS)):
        owner = await ring.create(name=name)
        metadata = {"name": name, "ownerReferences": ring.reference_to(owner)}
        await stage.admin.create(ROLES, {"metadata": metadata, **role}, stage.namespace)
    await ring.create(name=other)
    await ring.in_place({"one"})
    async with ring.history() as history:
        await stage.shard(ring, "two")
        event = await ring.events("PlacementRefused")
        assert f"roles.{GROUP} {stage.namespace}/{grants} cannot be given to shard two" in event["message"]
        for name in (ours, other):
            await ring.until_on(name, "two")
    assert history.of(grants) == ["one"]
    condition = await ring.condition("Settled", "False")
    assert "Event PlacementRefused" in condition["message"]


async def test_a_binding_whose_role_is_not_there_waits_until_it_is_and_is_told_of(stage: Stage) -> None:
    """The API server says that the *binding* is not there, by the name of the role."""
    ring = await stage.ring(Family(BINDINGS, "RoleBinding"))
    for name in ("late", "other"):
        role_ref = {"apiGroup": GROUP, "kind": "Role", "name": "late"}
        binding = {"metadata": {"name": name}, "roleRef": role_ref, "subjects": []}
        await stage.admin.create(BINDINGS, binding, stage.namespace)
    await stage.shard(ring, "one")
    await stage.sharder()
    event = await ring.events("PlacementRefused")
    assert '"late" not found' in event["message"]
    assert set((await ring.shards_of(BINDINGS)).values()) == {None}
    await stage.admin.create(ROLES, {"metadata": {"name": "late"}, "rules": []}, stage.namespace)
    await ring.in_place({"one"})
    await ring.condition("Settled")


async def test_an_owner_is_found_whatever_it_is_called(stage: Stage) -> None:
    ring = await stage.ring(Family(ROLES, "Role", ("v1/configmaps",)))
    await stage.shard(ring, "one")
    await stage.sharder()
    await ring.condition("Ready")
    for number, name in enumerate(("a,b", "c=d", "e\\f", "n!=o", "x==y,z")):
        role = {"metadata": {"name": name}, "rules": []}
        made = await stage.admin.create(ROLES, role, stage.namespace)
        await ring.create("v1/configmaps", name=f"child-{number}", ownerReferences=ring.reference_to(made))
    await ring.in_place({"one"})
    await ring.condition("Settled")
