"""The role that a ring needs."""

from __future__ import annotations

import yaml

from sharder.core.ringspec import parse_ring
from sharder.rbac import ring_role, ring_roles
from shardsdk.protocol.objects import GroupResource

RING = {
    "metadata": {"name": "example"},
    "spec": {
        "resources": [
            {"group": "apps", "resource": "deployments", "controlledResources": [{"resource": "configmaps"}]},
            {"group": "", "resource": "secrets", "controlledResources": [{"group": "apps", "resource": "replicasets"}]},
        ]
    },
}


def test_the_role_names_every_resource_with_list_watch_and_patch_and_nothing_else() -> None:
    role, binding = ring_role("example", parse_ring(RING).named)
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["list", "watch", "patch"]},
        {"apiGroups": ["apps"], "resources": ["deployments", "replicasets"], "verbs": ["list", "watch", "patch"]},
    ]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "sharder", "namespace": "sharding-system"}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "sharding:clusterring:example"
    assert (role["kind"], binding["kind"]) == ("ClusterRole", "ClusterRoleBinding")


def test_another_service_account_can_be_bound() -> None:
    _, binding = ring_role("example", [], namespace="team", service_account="mine")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "mine", "namespace": "team"}]


def test_the_order_of_the_resources_does_not_matter() -> None:
    resources = [GroupResource("", "b"), GroupResource("", "a"), GroupResource("x", "c"), GroupResource("", "a")]
    assert ring_role("r", resources) == ring_role("r", reversed(resources))


def test_the_manifests_are_plain_yaml_without_anchors() -> None:
    text = yaml.safe_dump_all(ring_role("r", [GroupResource("", "secrets")]))
    assert "&id" not in text
    assert "*id" not in text


def test_what_was_taken_off_the_ring_stays_granted_until_its_labels_are_gone() -> None:
    status = {"placedResources": [{"group": "batch", "resource": "jobs", "controlled": True}]}
    role, _ = ring_roles([(parse_ring(RING), status)], ("team", "sharder"))
    assert {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "watch", "patch"]} in role["rules"]


def test_of_a_ring_by_ranges_the_sharder_may_touch_nothing() -> None:
    spec = {"assignment": "Ranges", "hashBy": "Namespace", "resources": [{"resource": "secrets"}]}
    role, binding = ring_roles([(parse_ring({"metadata": {"name": "example"}, "spec": spec}), {})], ("team", "sharder"))
    assert role["rules"] == []
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
