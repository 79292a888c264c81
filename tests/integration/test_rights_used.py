"""Sharder and shards get by with the rights of rbac/ and use nearly all of them, says the API server's audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from localcluster import ControlPlane
from localcluster.audit import audit_log
from localcluster.installation import ROOT, Installation
from sharder.rbac import ring_role
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import GroupResource
from tests.integration.processes import STEADY
from tests.permissions import AUDIT_POLICY, Permission, compare, read_calls, read_files, read_permissions

RING: Final = "checksum"
SPEC: Final[dict[str, Any]] = {
    "resources": [{"resource": "secrets", "controlledResources": [{"resource": "configmaps"}]}],
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
}
SHARDER: Final = "sharding-system/sharder"
SHARD: Final = "default/checksum"
CERTIFICATES: Final = "sharder-webhook-certificates"

_WEBHOOKS: Final = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
_ASSIGNMENTS: Final = "ringassignments.sharding.timebertt.dev"
_RANGES: Final = "a ring assigns by ranges (test_ranges.py)"
_OLDER: Final = "an API server does not stream lists"

#: What this story has no need of, and when it is needed.
LATER: Final[dict[str, dict[Permission, str]]] = {
    SHARDER: {
        Permission(_WEBHOOKS, "create"): "an apply makes what was not there; the log says `patch`",
        Permission(_WEBHOOKS, "list"): _OLDER,
        Permission("namespaces", "list"): _OLDER,
        Permission("leases.coordination.k8s.io", "list"): _OLDER,
        Permission("configmaps", "list"): _OLDER,
        Permission("secrets", "list"): _OLDER,
        Permission("clusterrings.sharding.timebertt.dev", "list"): _OLDER,
        Permission("secrets", "patch", "sharding-system", CERTIFICATES): "a certificate is renewed",
        Permission("leases.coordination.k8s.io", "delete"): "a shard has been gone for a minute",
        Permission(_WEBHOOKS, "patch"): "a ring changes",
        Permission(_WEBHOOKS, "delete"): "a ring is refused",
        Permission("events", "patch"): "something is told again",
        **{Permission(_ASSIGNMENTS, verb): _RANGES for verb in ("get", "list", "watch", "create", "patch")},
        Permission(f"{_ASSIGNMENTS}/status", "patch"): _RANGES,
    },
    SHARD: {
        Permission("secrets", "list"): _OLDER,
        Permission("configmaps", "list"): _OLDER,
        Permission("configmaps", "create"): "an apply makes what was not there; the log says `patch`",
        Permission("secrets/finalizers", "update"): "a cluster has OwnerReferencesPermissionEnforcement",
        Permission("events", "create"): "an object has an Event",
        Permission("events", "patch"): "it has it again",
        Permission("events", "create", "default"): "something is to be told",
        Permission("events", "patch", "default"): "something is told again",
    },
}


#: What a cluster grants to all accounts (system:basic-user): a shard asks what it may read. Where that was taken away,
#: it goes on without.
EVERYBODYS: Final = {"selfsubjectaccessreviews.authorization.k8s.io"}


@pytest_asyncio.fixture
async def audited() -> AsyncIterator[ControlPlane]:
    async with ControlPlane(audit_policy=AUDIT_POLICY) as plane:
        yield plane


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_nothing_is_asked_for_that_is_not_granted_and_what_is_granted_is_used(
    audited: ControlPlane,
) -> None:
    label = parse_ring_name(RING).shard
    async with Installation(audited, STEADY) as installation, audited.admin() as admin:
        await audited.apply(ROOT / "rbac" / "shard.yaml")
        kubeconfig = await audited.service_account_kubeconfig("default", "checksum")
        await installation.ring(RING, SPEC)
        await installation.start_sharder("sharder")
        arguments = ["--ring", RING, "--namespace", "default"]

        async def start(name: str) -> None:
            await installation.start_shard(name, module="examples.checksum", arguments=arguments, kubeconfig=kubeconfig)

        async def on(*shards: str) -> None:
            """Wait until every Secret and its ConfigMap are on one of these shards, and each of these has some."""

            def settled(objects: list[dict[str, Any]]) -> bool:
                found = [(each["metadata"].get("labels") or {}).get(label) for each in objects if _counts(each)]
                return len(found) == 20 and set(found) == set(shards)

            for resource in ("v1/secrets", "v1/configmaps"):
                await admin.eventually(resource, settled, "default", timeout_seconds=60)

        await start("one")
        for number in range(20):
            await admin.create("v1/secrets", {"metadata": {"name": f"secret-{number}"}}, "default")
        await on("one")
        await start("two")
        await on("one", "two")
        await installation.shards["one"].stop()
        await on("two")
        await installation.sharders["sharder"].process.stop()
        await installation.shards["two"].stop()

    files = read_files(ROOT / "rbac" / "sharder.yaml", ROOT / "rbac" / "shard.yaml")
    roles = ring_role(RING, [GroupResource("", "secrets"), GroupResource("", "configmaps")])
    granted = read_permissions([*files, *roles])
    log = audit_log(audited.folder, audited.apiserver.name)
    for account in (SHARDER, SHARD):
        comparison = compare(granted[account], read_calls(log, account))
        assert [call for call in comparison.missing if call.resource not in EVERYBODYS] == [], account
        assert set(comparison.unused) <= LATER[account].keys(), account


def _counts(thing: dict[str, Any]) -> bool:
    return str(thing["metadata"]["name"]).startswith("secret-")
