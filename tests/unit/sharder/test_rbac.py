"""The role that a ring needs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml

from sharder.cli import main
from sharder.core.ringspec import parse_ring
from sharder.manifests import MAX_MANIFEST, read_rings
from sharder.rbac import RING_VERBS, render_roles, ring_role, ring_roles, rules_on
from shardsdk.errors import ConfigurationError
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


def rbac(*plurals: str) -> list[GroupResource]:
    return [GroupResource("rbac.authorization.k8s.io", plural) for plural in plurals]


@pytest.mark.parametrize(
    ("plural", "rights"),
    [
        ("roles", ["escalate roles"]),
        ("clusterroles", ["escalate clusterroles"]),
        ("rolebindings", ["bind roles", "bind clusterroles"]),
        ("clusterrolebindings", ["bind clusterroles"]),
    ],
)
def test_what_grants_rights_takes_more_than_patch_and_no_manifest_grants_that(plural: str, rights: list[str]) -> None:
    resources = rbac(plural)
    wanted = [f"{right}.rbac.authorization.k8s.io" for right in rights]
    assert [str(rule) for rule in rules_on(resources) if rule.verb not in RING_VERBS] == wanted
    role, _ = ring_role("example", resources)
    assert [rule["verbs"] for rule in role["rules"]] == [["list", "watch", "patch"]]


def test_a_role_of_another_group_takes_no_more_than_others() -> None:
    assert {rule.verb for rule in rules_on([GroupResource("example.org", "roles")])} == set(RING_VERBS)


def test_what_is_not_granted_is_printed_as_a_comment_with_what_it_costs() -> None:
    spec = {"resources": [{"resource": "secrets", "controlledResources": [
        {"group": "rbac.authorization.k8s.io", "resource": "rolebindings"},
    ]}]}  # fmt: skip
    ring, account = parse_ring({"metadata": {"name": "example"}, "spec": spec}), ("team", "sharder")
    text = render_roles(iter([(ring, {})]), account)
    comment = [line for line in text.splitlines() if line.startswith("#")]
    assert any("any right" in line for line in comment)
    assert [yaml.safe_load(line.removeprefix("#"))[0] for line in comment if "apiGroups" in line] == [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "clusterroles"], "verbs": ["bind"]}
    ]
    assert list(yaml.safe_load_all(text)) == ring_roles([(ring, {})], account)
    assert "any right" not in render_roles([(ring, {})], account, "json")
    assert not render_roles([(parse_ring(RING), {})], account).startswith("#")


def test_a_manifest_that_is_too_long_to_be_one_is_refused_and_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ring = tmp_path / "ring.yaml", yaml.safe_dump(RING | {"kind": "ClusterRing"})
    for text, fits in ((ring.ljust(MAX_MANIFEST), True), (ring.ljust(MAX_MANIFEST + 1), False)):
        path.write_text(text)
        for filename in (str(path), "-"):
            monkeypatch.setattr("sys.stdin", io.StringIO(text))
            if fits:
                assert [spec.name for spec, _ in read_rings(filename)] == ["example"]
                continue
            with pytest.raises(ConfigurationError, match=r"has more than 4194304 characters; pass the rings' manifest"):
                read_rings(filename)


@pytest.mark.parametrize("account", ["sharder", "a/b/c", "/b", "a/"])
def test_an_account_needs_its_namespace(account: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", "--service-account", account, "-f", "-"]) == 2
    assert "is not NAMESPACE/NAME" in capsys.readouterr().err
