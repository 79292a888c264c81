"""The local control plane does what tests, demo and benchmarks lean on."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from localcluster import AdminClient, AdminError, ControlPlane, LocalClusterError
from localcluster.etcd_data import kept_data

_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gadgets.localcluster.test"},
    "spec": {
        "group": "localcluster.test",
        "scope": "Cluster",
        "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}},
        ],
    },
}


def _deployment(name: str) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "none.invalid/none"}]},
    }
    selector = {"matchLabels": {"app": name}}
    return {"metadata": {"name": name}, "spec": {"replicas": 2, "selector": selector, "template": template}}


async def test_a_service_account_acts_under_its_own_name_and_only_with_its_own_rights(
    control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    await admin.create("v1/serviceaccounts", {"metadata": {"name": "robot"}}, namespace)
    kubeconfig = await control_plane.service_account_kubeconfig(namespace, "robot")

    who = await control_plane.kubectl("auth", "whoami", "-o", "json", kubeconfig=kubeconfig)
    assert f"system:serviceaccount:{namespace}:robot" in who
    with pytest.raises(LocalClusterError, match="forbidden"):
        await control_plane.kubectl("get", "secrets", kubeconfig=kubeconfig)

    role = {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": namespace}
    binding = {"metadata": {"name": "robot"}, "roleRef": role, "subjects": [subject]}
    await admin.create("rbac.authorization.k8s.io/v1/rolebindings", binding, namespace)
    await admin.until_allowed("list", "v1/configmaps", namespace, user=f"system:serviceaccount:{namespace}:robot")
    await control_plane.kubectl("get", "configmaps", kubeconfig=kubeconfig)


async def test_a_token_of_an_unknown_service_account_is_refused_with_what_to_do(
    control_plane: ControlPlane, namespace: str
) -> None:
    with pytest.raises(LocalClusterError, match="apply the file that creates it first"):
        await control_plane.service_account_kubeconfig(namespace, "nobody")


async def test_any_user_has_a_name_and_groups_but_no_rights(control_plane: ControlPlane, tmp_path: Path) -> None:
    kubeconfig = control_plane.kubeconfig("alice", ["developers"], path=tmp_path / "alice")
    who = await control_plane.kubectl("auth", "whoami", "-o", "json", kubeconfig=kubeconfig)
    assert '"alice"' in who
    assert '"developers"' in who
    with pytest.raises(LocalClusterError, match="forbidden"):
        await control_plane.kubectl("get", "namespaces", kubeconfig=kubeconfig)


def test_a_kubeconfig_is_for_its_owner_only(control_plane: ControlPlane) -> None:
    assert control_plane.admin_kubeconfig.stat().st_mode & 0o077 == 0


async def test_the_controller_manager_makes_children_of_children(admin: AdminClient, namespace: str) -> None:
    await admin.create("apps/v1/deployments", _deployment("web"), namespace)
    pods = await admin.eventually("v1/pods", lambda pods: len(pods) == 2 and pods, namespace)
    (replicaset,) = await admin.list("apps/v1/replicasets", namespace)
    assert replicaset["metadata"]["ownerReferences"][0]["name"] == "web"
    for pod in pods:
        assert pod["metadata"]["ownerReferences"][0]["uid"] == replicaset["metadata"]["uid"]


async def test_children_are_collected_after_their_owner(admin: AdminClient, namespace: str) -> None:
    owner = await admin.create("v1/secrets", {"metadata": {"name": "owner"}}, namespace)
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": owner["metadata"]["uid"]}
    child = {"metadata": {"name": "child", "ownerReferences": [reference]}}
    await admin.create("v1/configmaps", child, namespace)
    await admin.delete("v1/secrets", "owner", namespace)
    await admin.eventually("v1/configmaps", lambda children: not children, namespace)


async def test_a_deleted_namespace_goes_with_all_that_is_in_it(admin: AdminClient) -> None:
    await admin.namespace("short-lived", {"team": "a"})
    await admin.create("v1/configmaps", {"metadata": {"name": "inside"}}, "short-lived")
    await admin.delete("v1/namespaces", "short-lived")
    await admin.eventually("v1/namespaces", lambda found: not found, labels="team=a")
    assert await admin.find("v1/configmaps", "inside", "short-lived") is None


async def test_a_new_type_is_served_as_soon_as_it_is_applied(
    control_plane: ControlPlane, admin: AdminClient, tmp_path: Path
) -> None:
    (tmp_path / "crd.yaml").write_text(json.dumps(_CRD))
    await control_plane.apply(tmp_path)
    await admin.create(
        "localcluster.test/v1/gadgets",
        {"apiVersion": "localcluster.test/v1", "kind": "Gadget", "metadata": {"name": "first"}},
    )
    await admin.delete("apiextensions.k8s.io/v1/customresourcedefinitions", _CRD["metadata"]["name"])


async def test_an_error_says_what_was_asked_and_what_was_answered(admin: AdminClient) -> None:
    with pytest.raises(AdminError, match=r'GET /api/v1/namespaces/absent: 404 namespaces "absent" not found'):
        await admin.get("v1/namespaces", "absent")


async def test_waiting_in_vain_shows_what_was_there(admin: AdminClient, namespace: str) -> None:
    await admin.create("v1/configmaps", {"metadata": {"name": "lonely"}}, namespace)
    seen, seconds, said = False, 0.3, ""

    def two(found: list[dict[str, Any]]) -> bool:
        nonlocal seen
        seen = bool(found)
        return len(found) == 2

    while not seen:  # a busy machine may not even have answered by then
        with pytest.raises(TimeoutError) as in_vain:
            await admin.eventually("v1/configmaps", two, namespace, timeout_seconds=seconds)
        said, seconds = str(in_vain.value), 2 * seconds
    assert re.search("1 objects: .*lonely", said)


async def test_it_begins_with_what_an_api_server_made_before(control_plane: ControlPlane, admin: AdminClient) -> None:
    kept = kept_data(control_plane.binaries)
    began = datetime.fromtimestamp((control_plane.folder / "pki" / "serviceaccounts.key").stat().st_mtime, UTC)
    namespace = await admin.get("v1/namespaces", "default")
    made_before = datetime.fromisoformat(namespace["metadata"]["creationTimestamp"]) < began.replace(microsecond=0)
    assert made_before == (kept is not None and kept.is_dir())


async def test_what_is_applied_again_is_changed_and_a_new_type_is_served_at_once(
    control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied", "namespace": namespace}}
    for data in ({"a": "1", "b": "1"}, {"a": "2"}):
        await control_plane.apply(stdin=json.dumps({**made, "data": data}))
    found = await admin.get("v1/configmaps", "applied", namespace)
    assert found["data"] == {"a": "2"}
    assert {each["manager"] for each in found["metadata"]["managedFields"]} == {"kubectl"}

    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    spec = {**_CRD["spec"], "group": "applied.localcluster.test", "names": names}
    crd = {**_CRD, "metadata": {"name": "widgets.applied.localcluster.test"}, "spec": spec}
    await control_plane.apply(stdin=json.dumps(crd))
    widget = {"apiVersion": "applied.localcluster.test/v1", "kind": "Widget", "metadata": {"name": "one"}}
    await control_plane.apply(stdin=json.dumps(widget))
    assert await admin.get("applied.localcluster.test/v1/widgets", "one")


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [("ConfigMap", {"dato": {}}, "dato"), ("Confmap", {}, "nobody serves Confmap of v1, of which 'refused' is one")],
)
async def test_what_cannot_be_applied_is_named(
    control_plane: ControlPlane, namespace: str, kind: str, more: dict[str, Any], said: str
) -> None:
    body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "refused", "namespace": namespace}, **more}
    with pytest.raises(LocalClusterError, match=said):
        await control_plane.apply(stdin=json.dumps(body))
