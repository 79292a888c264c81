"""Who may write a shard's Lease while the accounts of shards are listed, on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
import yaml

from localcluster import AdminClient, AdminError, ControlPlane
from shardsdk.protocol.labels import LEASE_RING_LABEL
from tests.chart.helm import NAMESPACE, Helm
from tests.chart.identities import account_token, client_of, make_account
from tests.chart.options import RING

SPACE = "leases"
LEASES = "coordination.k8s.io/v1/leases"
POLICY = "sharder-leases"
VALUES: dict[str, Any] = {
    **RING,
    "admissionPolicy": {
        "enabled": True,
        "shards": [{"namespace": SPACE, "serviceAccount": "controller"}],
        "exempt": {
            "users": [f"system:serviceaccount:{SPACE}:janitor"],
            "groups": [f"system:serviceaccounts:{NAMESPACE}-admins"],
        },
    },
}
ACCOUNTS = {
    "shard": (SPACE, "controller"),
    "eve": (SPACE, "eve"),
    "janitor": (SPACE, "janitor"),
    "administrator": (f"{NAMESPACE}-admins", "alice"),
    "sharder": (NAMESPACE, "sharder"),
    "a sharder of another namespace": (SPACE, "sharder"),
    "a shard of another namespace": (NAMESPACE, "controller"),
}
MINE, NOBODYS = {LEASE_RING_LABEL: "checksum"}, {"a": "b"}
RENEWED = {"spec": {"holderIdentity": "eve", "leaseDurationSeconds": 3600}}


@dataclass(frozen=True, slots=True)
class World:
    """A cluster with the policy in force, and a token for everyone in the cases."""

    plane: ControlPlane
    tokens: Mapping[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(chart_control_plane: ControlPlane, helm: Helm) -> AsyncIterator[World]:
    plane = chart_control_plane
    rendered = [each for each in helm.render(VALUES) if each["kind"].startswith("ValidatingAdmissionPolicy")]
    policy = [each for each in rendered if each["metadata"]["name"] == POLICY]
    spaces = {namespace for namespace, _ in ACCOUNTS.values()}
    async with plane.admin() as admin:
        for namespace in sorted(spaces):
            if await admin.find("v1/namespaces", namespace) is None:
                await admin.namespace(namespace)
        await let_edit(admin, SPACE)
        tokens = {}
        for who, (namespace, account) in ACCOUNTS.items():
            await make_account(admin, namespace, account)
            tokens[who] = await account_token(admin, namespace, account)
        await plane.apply(stdin=yaml.safe_dump_all(policy))
        async with client_of(plane, tokens["eve"]) as eve:
            await in_force(eve)
        yield World(plane, tokens)
        await admin.delete("v1/serviceaccounts", "sharder", NAMESPACE)
        for namespace in sorted(spaces - {NAMESPACE}):
            await admin.delete("v1/namespaces", namespace)
            async with asyncio.timeout(120):  # with the leases of shards in it, while the policy is in force
                while await admin.find("v1/namespaces", namespace) is not None:
                    await asyncio.sleep(0.1)
        for resource in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            await admin.delete(f"admissionregistration.k8s.io/v1/{resource}", POLICY)


async def let_edit(admin: AdminClient, namespace: str) -> None:
    """Give every ServiceAccount what the role `edit` of Kubernetes gives in a namespace; in force on return."""
    rbac = "rbac.authorization.k8s.io"
    everybody = {"kind": "Group", "name": "system:serviceaccounts", "apiGroup": rbac}
    edit = {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:aggregate-to-edit"}
    body = {"metadata": {"name": "edit"}, "roleRef": edit, "subjects": [everybody]}
    await admin.create(f"{rbac}/v1/rolebindings", body, namespace)
    await admin.until_allowed("create", "coordination.k8s.io/v1/leases", namespace, groups=["system:serviceaccounts"])


async def in_force(eve: AdminClient) -> None:
    """Wait until the API server has taken notice of the policy."""
    async with asyncio.timeout(120):
        while True:
            try:
                await eve.create(LEASES, {"metadata": {"generateName": "probe-", "labels": MINE}}, SPACE)
            except AdminError as error:
                if "no shard" in str(error):
                    return
                raise
            await asyncio.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Case:
    """What is done to a Lease that has the labels `before` (None: that is made); `allowed` for `who`."""

    before: Mapping[str, str] | None
    change: Mapping[str, Any] | None
    allowed: frozenset[str]


SHARDS = frozenset({"shard", "sharder", "janitor", "administrator"})
ALL = frozenset(ACCOUNTS)
CASES = {
    "a shard's is made": Case(None, {"metadata": {"labels": MINE}}, SHARDS),
    "a shard's is renewed": Case(MINE, RENEWED, SHARDS),
    "a shard's loses the label": Case(MINE, {"metadata": {"labels": {LEASE_RING_LABEL: None}}}, SHARDS),
    "a shard's goes to another ring": Case(MINE, {"metadata": {"labels": {LEASE_RING_LABEL: "other"}}}, SHARDS),
    "a shard's is deleted": Case(MINE, None, SHARDS),
    "another becomes a shard's": Case(NOBODYS, {"metadata": {"labels": MINE}}, SHARDS),
    "another is made": Case(None, {"metadata": {"labels": NOBODYS}}, ALL),
    "another is renewed": Case(NOBODYS, RENEWED, ALL),
    "another is deleted": Case(NOBODYS, None, ALL),
}


@pytest.mark.parametrize("who", ACCOUNTS)
@pytest.mark.parametrize("title", CASES)
async def test_who_may_write_the_lease_of_a_shard(world: World, title: str, who: str) -> None:
    case = CASES[title]
    async with AsyncExitStack() as stack:
        shard = await stack.enter_async_context(client_of(world.plane, world.tokens["shard"]))
        client = await stack.enter_async_context(client_of(world.plane, world.tokens[who]))
        name = ""
        if case.before is not None:
            metadata = {"generateName": "lease-", "labels": dict(case.before)}
            name = (await shard.create(LEASES, {"metadata": metadata}, SPACE))["metadata"]["name"]

        said = await refusal(client, name, case.change)

    if who in case.allowed:
        assert said is None
    else:
        assert said is not None
        assert "is no shard's account: list it in admissionPolicy.shards of the chart sharder" in said


async def refusal(client: AdminClient, name: str, change: Mapping[str, Any] | None) -> str | None:
    """What is said when a Lease is changed so, made so (no name) or deleted (no change)."""
    try:
        if change is None:
            await client.delete(LEASES, name, SPACE)
        elif name:
            await client.patch(LEASES, name, change, SPACE)
        else:
            await client.create(LEASES, {"metadata": {"generateName": "made-", **change["metadata"]}}, SPACE)
    except AdminError as error:
        if error.status != 403:
            raise
        return str(error)
    return None


async def test_all_at_once_are_not_deleted_either(world: World) -> None:
    async with (
        client_of(world.plane, world.tokens["shard"]) as shard,
        client_of(world.plane, world.tokens["eve"]) as eve,
    ):
        await shard.create(LEASES, {"metadata": {"name": "kept", "labels": MINE}}, SPACE)
        with pytest.raises(AdminError, match="admissionPolicy"):
            await eve.request("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases")
        assert await shard.find(LEASES, "kept", SPACE) is not None


async def test_a_namespace_goes_with_the_leases_of_its_shards(world: World) -> None:
    async with world.plane.admin() as admin, client_of(world.plane, world.tokens["shard"]) as shard:
        await admin.namespace("leaving")
        await let_edit(admin, "leaving")
        await shard.create(LEASES, {"metadata": {"name": "gone", "labels": MINE}}, "leaving")

        await admin.delete("v1/namespaces", "leaving")

        async with asyncio.timeout(120):
            while await admin.find("v1/namespaces", "leaving") is not None:
                await asyncio.sleep(0.1)


async def test_a_lease_goes_with_its_owner(world: World) -> None:
    """As one does that names its pod: the garbage collector deletes it."""
    async with world.plane.admin() as admin, client_of(world.plane, world.tokens["shard"]) as shard:
        owner = await admin.create("v1/configmaps", {"metadata": {"name": "owner"}}, SPACE)
        meta = {"name": "owner", "uid": owner["metadata"]["uid"]}
        reference = {"apiVersion": "v1", "kind": "ConfigMap", **meta}
        metadata = {"name": "owned", "labels": MINE, "ownerReferences": [reference]}
        await shard.create(LEASES, {"metadata": metadata}, SPACE)

        await admin.delete("v1/configmaps", "owner", SPACE)

        async with asyncio.timeout(120):
            while await admin.find(LEASES, "owned", SPACE) is not None:
                await asyncio.sleep(0.1)
