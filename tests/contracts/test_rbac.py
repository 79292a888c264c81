"""The RBAC files grant each identity exactly the verbs that it uses.

The tables below are the reason for every single permission: the file that uses
it.  tests/permissions.py compares the same files with an API server's audit log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from localcluster import AdminClient, ControlPlane, LocalClusterError
from localcluster.audit import audit_log
from sharder.install import CRD_NAMES
from sharder.kubectl.check.cluster import SHARDER_RULES
from sharder.rbac import RING_VERBS, ring_role
from shardsdk.protocol.objects import GroupResource
from tests.permissions import AUDIT_POLICY, Permission, compare, expand_rules, read_calls, read_files, read_permissions

SHARDER = "sharding-system/sharder"
SHARD = "default/checksum"
SYSTEM = "sharding-system"

#: Identity, resource, namespace ("" is any), name ("" is any) -> verb -> who uses it.
USES: dict[tuple[str, str, str, str], dict[str, str]] = {
    (SHARDER, "leases.coordination.k8s.io", "", ""): {
        "get": "shardsdk/lease/election.py",
        "list": "sharder/cache/rings.py",
        "watch": "sharder/cache/rings.py",
        "create": "sharder/takeover/controller.py",
        "patch": "sharder/takeover/controller.py",
        "delete": "sharder/takeover/controller.py",
    },
    (SHARDER, "clusterrings.sharding.timebertt.dev", "", ""): {
        "list": "sharder/cache/rings.py",
        "watch": "sharder/cache/rings.py",
    },
    (SHARDER, "clusterrings.sharding.timebertt.dev/status", "", ""): {
        "patch": "sharder/rings/status.py",
    },
    (SHARDER, "ringassignments.sharding.timebertt.dev", "", ""): {
        "get": "sharder/ranges/store.py",
        "list": "sharder/ranges/assignment.py",
        "watch": "sharder/ranges/assignment.py",
        "create": "sharder/ranges/store.py",
        "patch": "sharder/ranges/store.py",
    },
    (SHARDER, "ringassignments.sharding.timebertt.dev/status", "", ""): {
        "patch": "sharder/ranges/store.py",
    },
    (SHARDER, "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", ""): {
        "list": "sharder/rings/webhook_configurations.py",
        "watch": "sharder/rings/webhook_configurations.py",
        "create": "sharder/rings/webhook_configuration.py",
        "patch": "sharder/rings/webhook_configuration.py",
        "delete": "sharder/rings/webhook_configuration.py",
    },
    (SHARDER, "namespaces", "", ""): {
        "list": "sharder/cache/namespaces.py",
        "watch": "sharder/cache/namespaces.py",
    },
    (SHARDER, "events", "", ""): {
        "create": "shardsdk/events/recorder.py",
        "patch": "shardsdk/events/recorder.py",
    },
    (SHARDER, "selfsubjectaccessreviews.authorization.k8s.io", "", ""): {
        "create": "sharder/rings/permissions.py",
    },
    (SHARDER, "selfsubjectreviews.authentication.k8s.io", "", ""): {
        "create": "sharder/webhook/account.py",
    },
    (SHARDER, "secrets", SYSTEM, ""): {
        "create": "shardsdk/serving/secretstore.py",
    },
    (SHARDER, "secrets", SYSTEM, "sharder-webhook-certificates"): {
        "get": "shardsdk/serving/secretstore.py",
        "patch": "shardsdk/serving/secretstore.py",
    },
    (SHARD, "leases.coordination.k8s.io", "default", ""): {
        "get": "shardsdk/lease/shardlease.py",
        "create": "shardsdk/lease/shardlease.py",
        "patch": "shardsdk/lease/shardlease.py",
    },
    (SHARD, "events", "default", ""): {
        "create": "shardsdk/events/recorder.py",
        "patch": "shardsdk/events/recorder.py",
    },
    (SHARD, "events", "", ""): {
        "create": "shardsdk/events/recorder.py",
        "patch": "shardsdk/events/recorder.py",
    },
    (SHARD, "secrets", "", ""): {
        "list": "shardsdk/cache/cache.py",
        "watch": "shardsdk/cache/cache.py",
        "patch": "shardsdk/reconcile/drains.py",
    },
    # For clusters with OwnerReferencesPermissionEnforcement: its owner references block the owner's deletion.
    (SHARD, "secrets/finalizers", "", ""): {
        "update": "shardsdk/cache/objects.py",
    },
    (SHARD, "configmaps", "", ""): {
        "list": "shardsdk/cache/cache.py",
        "watch": "shardsdk/cache/cache.py",
        "create": "examples/checksum.py",
        "patch": "examples/checksum.py",
    },
    (SHARD, "clusterrings.sharding.timebertt.dev", "", "checksum"): {
        "get": "shardsdk/process/ringcheck.py",
    },
}

NOT_GRANTED = [
    (SHARDER, Permission("secrets", "list")),
    (SHARDER, Permission("secrets", "get", SYSTEM, "another")),
    (SHARDER, Permission("secrets", "get", "default", "sharder-webhook-certificates")),
    (SHARDER, Permission("configmaps", "list")),
    (SHARDER, Permission("clusterrings.sharding.timebertt.dev", "patch")),
    (SHARDER, Permission("pods", "create", SYSTEM)),
    (SHARD, Permission("leases.coordination.k8s.io", "patch", "kube-system")),
    (SHARD, Permission("secrets", "delete")),
    (SHARD, Permission("clusterrings.sharding.timebertt.dev", "list")),
    (SHARD, Permission("clusterrings.sharding.timebertt.dev", "get", "", "another")),
]


def used_by(account: str) -> set[Permission]:
    return {
        Permission(resource, verb, namespace, name)
        for (identity, resource, namespace, name), verbs in USES.items()
        if identity == account
        for verb in verbs
    }


@pytest.fixture(scope="module")
def granted() -> dict[str, set[Permission]]:
    return read_permissions(read_files(Path("rbac/sharder.yaml"), Path("rbac/shard.yaml")))


@pytest.mark.parametrize("account", [SHARDER, SHARD])
def test_files_grant_exactly_the_verbs_used(granted: dict[str, set[Permission]], account: str) -> None:
    assert sorted(granted[account]) == sorted(used_by(account))


def test_no_other_account_is_granted_anything(granted: dict[str, set[Permission]]) -> None:
    assert granted.keys() == {SHARDER, SHARD}


def test_whoever_uses_a_verb_is_there() -> None:
    users = {user for verbs in USES.values() for user in verbs.values()}
    assert not [user for user in sorted(users) if not Path(user).exists()]


def test_ring_file_is_what_the_code_renders() -> None:
    resources = [GroupResource("", "secrets"), GroupResource("", "configmaps")]

    assert read_files(Path("rbac/ring.yaml")) == ring_role("checksum", resources)


def test_ring_role_has_the_verbs_that_its_conditions_ask_for() -> None:
    [role, _] = ring_role("any", [GroupResource("apps", "deployments")])
    uses = {
        "list": "sharder/placement/resync.py",
        "watch": "sharder/backlog/informers.py",
        "patch": "sharder/placement/label_writer.py",
    }

    assert expand_rules(role["rules"]) == {Permission("deployments.apps", verb) for verb in uses}
    assert set(RING_VERBS) == set(uses)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane() -> AsyncIterator[ControlPlane]:
    """A control plane of its own: on the shared one other tests grant more."""
    async with ControlPlane(audit_policy=AUDIT_POLICY, controllers=()) as plane:
        await plane.apply(Path("rbac/sharder.yaml"), Path("rbac/shard.yaml"))
        yield plane


@pytest.mark.parametrize("account", [SHARDER, SHARD])
async def test_api_server_lets_each_identity_do_what_it_needs(plane: ControlPlane, account: str) -> None:
    async with plane.admin() as admin:
        refused = [need for need in sorted(used_by(account)) if not await may(admin, account, need)]
    assert not refused


@pytest.mark.parametrize(("account", "permission"), NOT_GRANTED)
async def test_api_server_refuses_what_none_of_them_needs(
    plane: ControlPlane, account: str, permission: Permission
) -> None:
    async with plane.admin() as admin:
        assert not await may(admin, account, permission)


async def may(admin: AdminClient, account: str, permission: Permission) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    plural, _, group = resource.partition(".")
    attributes = {
        "verb": permission.verb,
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "namespace": permission.namespace,
        "name": permission.name,
    }
    namespace, _, name = account.partition("/")
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    user = f"system:serviceaccount:{namespace}:{name}"
    answer = await admin.request(
        "POST",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        body={"spec": {"user": user, "groups": groups, "resourceAttributes": attributes}},
    )
    return bool(answer["status"]["allowed"])


async def test_audit_log_tells_what_was_used_and_what_was_missing(
    plane: ControlPlane, granted: dict[str, set[Permission]]
) -> None:
    sharder = await plane.service_account_kubeconfig("sharding-system", "sharder")
    await plane.kubectl("get", "leases", "-A", kubeconfig=sharder)
    with pytest.raises(LocalClusterError, match="forbidden"):
        await plane.kubectl("get", "secret", "another", "-n", SYSTEM, kubeconfig=sharder)

    comparison = compare(granted[SHARDER], read_calls(audit_log(plane.folder, plane.apiserver.name), SHARDER))

    assert [(call.resource, call.verb, call.name, call.allowed) for call in comparison.missing] == [
        ("secrets", "get", "another", False)
    ]
    assert granted[SHARDER] - set(comparison.unused) == {Permission("leases.coordination.k8s.io", "list")}


def test_plugin_asks_for_exactly_what_the_sharder_is_granted(granted: dict[str, set[Permission]]) -> None:
    asked = {
        Permission(f"{resource}.{group}" if group and "/" not in resource else resource, verb)
        for (group, resource), verbs in SHARDER_RULES.items()
        for verb in verbs
        if "/" not in resource
    }
    everywhere = {each for each in granted[SHARDER] if not each.namespace and "/" not in each.resource}
    assert asked == everywhere
    assert SHARDER_RULES["sharding.timebertt.dev", "clusterrings/status"] == ("patch",)


VIEWER_USES = {
    Permission("clusterrings.sharding.timebertt.dev", "get"): "cluster.py",
    Permission("clusterrings.sharding.timebertt.dev", "list"): "cluster.py",
    Permission("clusterrings.sharding.timebertt.dev", "watch"): "status/watch.py",
    Permission("ringassignments.sharding.timebertt.dev", "get"): "cluster.py",
    Permission("leases.coordination.k8s.io", "get"): "explain/command.py",
    Permission("leases.coordination.k8s.io", "watch"): "status/watch.py",
    Permission("leases.coordination.k8s.io", "list"): "cluster.py",
    Permission("namespaces", "list"): "cluster.py",
    **{
        Permission("customresourcedefinitions.apiextensions.k8s.io", "get", name=name): "check/definitions.py"
        for name in CRD_NAMES
    },
    Permission("mutatingwebhookconfigurations.admissionregistration.k8s.io", "get"): "cluster.py",
    Permission("mutatingwebhookconfigurations.admissionregistration.k8s.io", "list"): "check/evidence.py",
    Permission("services", "get"): "check/evidence.py",
    Permission("endpointslices.discovery.k8s.io", "list"): "check/evidence.py",
    Permission("subjectaccessreviews.authorization.k8s.io", "create"): "check/evidence.py",
}


def test_viewers_may_do_what_the_plugin_asks_for_them_and_no_more() -> None:
    [role] = read_files(Path("rbac/viewer.yaml"))

    # People read a ring's Events with kubectl itself, and look at RingAssignments.
    events = {
        Permission(kind, verb) for kind in ("events", "events.events.k8s.io") for verb in ("get", "list", "watch")
    }
    looks = {Permission("ringassignments.sharding.timebertt.dev", verb) for verb in ("list", "watch")}
    assert expand_rules(role["rules"]) == set(VIEWER_USES) | events | looks
    assert all((Path("sharder/kubectl") / user).exists() for user in VIEWER_USES.values())
