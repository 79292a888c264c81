"""Ring keys: one format, the same for an owner and its children."""

from __future__ import annotations

import pytest

from sharder.core.keys import controlled_key, main_key, resource_key
from shardsdk.protocol.objects import OwnerReference, Resource

SECRETS = Resource("", "v1", "secrets", "Secret")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)


def owner(api_version: str, kind: str, name: str = "a") -> OwnerReference:
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid="u", controller=True)


def test_the_format_is_group_kind_namespace_name() -> None:
    assert main_key("apps", "Deployment", "default", "web") == "apps/Deployment/default/web"


def test_a_core_key_starts_with_a_slash() -> None:
    assert resource_key(SECRETS, "default", "a") == "/Secret/default/a"


def test_a_cluster_scoped_object_has_an_empty_namespace_whatever_the_request_says() -> None:
    assert resource_key(ROLES, "view", "view") == "rbac.authorization.k8s.io/ClusterRole//view"


@pytest.mark.parametrize("api_version", ["apps/v1", "apps/v1beta2"])
def test_a_child_has_its_owners_key_in_every_version(api_version: str) -> None:
    key = controlled_key(owner(api_version, "Deployment", "web"), "default", DEPLOYMENTS)
    assert key == resource_key(DEPLOYMENTS, "default", "web")


@pytest.mark.parametrize("namespace", ["default", ""])
def test_a_child_of_a_cluster_scoped_owner_is_hashed_without_namespace(namespace: str) -> None:
    """Whether the child itself has a namespace or none."""
    key = controlled_key(owner("rbac.authorization.k8s.io/v1", "ClusterRole", "view"), namespace, ROLES)
    assert key == resource_key(ROLES, "", "view")


@pytest.mark.parametrize(
    ("reference", "namespace"),
    [
        (None, "default"),
        (owner("apps/v1", "ReplicaSet"), "default"),
        (owner("extensions/v1beta1", "Deployment"), "default"),
        (owner("v1", "Deployment"), "default"),
        (owner("", "Deployment"), "default"),
        (owner("apps/v1", ""), "default"),
        (owner("apps/v1", "Deployment", ""), "default"),
        (owner("apps/v1", "Deployment", "x" * 4097), "default"),
        (owner("apps/v1", "Deployment"), ""),
    ],
    ids=["none", "kind", "group", "core", "no version", "no kind", "no name", "long name", "no namespace"],
)
def test_what_the_main_resource_does_not_control_has_no_key(reference: OwnerReference | None, namespace: str) -> None:
    assert controlled_key(reference, namespace, DEPLOYMENTS) is None
