"""What an API server refuses of names, metadata, parts, selectors and patches is refused in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shardsdk import Context, CustomResource, Model, Operator, Resource
from shardsdk.errors import BadRequest, Invalid, NotFound
from shardsdk.kinds import ConfigMap, Kind
from shardsdk.kube.api import Api, PatchKind
from shardsdk.kube.selectors import Selector
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.patching import apply_json_patch
from shardsdk.testing.rig import Rig, drive
from shardsdk.testing.selecting import matches
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, SECRETS

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
CERTIFICATES = Resource("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", False)
SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False)
FOREIGN = Resource("gateway.networking.k8s.io", "v1", "gateways", "Gateway")
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o"}
NAME = ("a", "default")


def server_with(**metadata: Any) -> MemoryServer:
    server = MemoryServer()
    server.create(CONFIGMAPS, {"metadata": {"name": "a", **metadata}}, "default")
    return server


@pytest.mark.parametrize(
    ("metadata", "refusal"),
    [
        ({"name": "My_Map"}, Invalid),
        ({"name": "a" * 254}, Invalid),
        ({"namespace": "other"}, BadRequest),
        ({"labels": {"a": "b" * 64}}, Invalid),
        ({"labels": {"a b": "c"}}, Invalid),
        ({"labels": {"a": 1}}, BadRequest),
        ({"annotations": {"a": True}}, BadRequest),
        ({"ownerReferences": [{**OWNER, "uid": uid, "controller": True} for uid in "ab"]}, Invalid),
        ({"ownerReferences": [OWNER]}, Invalid),
        ({"ownerReferences": [{**OWNER, "uid": "1", "name": ""}]}, Invalid),
    ],
)
def test_metadata_that_cannot_be_is_refused(metadata: dict[str, Any], refusal: type[Exception]) -> None:
    server = server_with()
    with pytest.raises(refusal):
        server.create(CONFIGMAPS, {"metadata": {"name": "new", **metadata}}, "default")
    with pytest.raises((Invalid, BadRequest)):
        server.patch(CONFIGMAPS, *NAME, {"metadata": metadata})
    assert [each["metadata"]["name"] for each in server.select(CONFIGMAPS)] == ["a"]


def test_keys_of_annotations_may_have_capitals_before_the_slash() -> None:
    server = server_with(annotations={"Example.com/Foo": "1"})
    for part in ({"annotations": {"Example_com/Foo": "1"}}, {"labels": {"Example.com/Foo": "1"}}):
        with pytest.raises(Invalid):
            server.patch(CONFIGMAPS, *NAME, {"metadata": part})


def test_what_is_in_no_namespace_has_none() -> None:
    server = MemoryServer()
    body = {"metadata": {"name": "a", "namespace": "default"}}
    assert "namespace" not in server.create(NAMESPACES, body)["metadata"]
    for write in (server.patch(NAMESPACES, "a", None, body), server.update(NAMESPACES, body)):
        assert "namespace" not in write["metadata"]
    assert [key.namespace for key in server.objects[NAMESPACES.group_resource]] == [""]


def test_some_names_are_narrower_and_some_wider() -> None:
    server = MemoryServer()
    with pytest.raises(Invalid):
        server.create(NAMESPACES, {"metadata": {"name": "a.b"}})
    assert server.create(ROLES, {"metadata": {"name": "system:Reader"}}, "default")


def test_an_object_keeps_its_name_and_namespace() -> None:
    server = server_with()
    for metadata in ({"name": "b"}, {"namespace": "other"}):
        with pytest.raises(BadRequest, match="does not match"):
            server.patch(CONFIGMAPS, *NAME, {"metadata": metadata})
        with pytest.raises(BadRequest, match="does not match"):
            server.apply(CONFIGMAPS, *NAME, {"metadata": metadata}, "me")
    without = [{"op": "remove", "path": "/metadata/namespace"}]
    assert server.patch(CONFIGMAPS, *NAME, without, PatchKind.JSON)["metadata"]["namespace"] == "default"


def test_what_is_being_deleted_takes_no_new_finalizers() -> None:
    server = server_with(finalizers=["x.com/a", "x.com/b"])
    server.delete(CONFIGMAPS, *NAME)
    with pytest.raises(Invalid, match=r"x\.com/c"):
        server.patch(CONFIGMAPS, *NAME, {"metadata": {"finalizers": ["x.com/a", "x.com/c"]}})
    assert server.patch(CONFIGMAPS, *NAME, {"metadata": {"finalizers": ["x.com/a"]}})


@pytest.mark.parametrize(("propagation", "held"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")])
def test_a_deletion_that_waits_for_dependents_holds_the_object(propagation: str, held: str) -> None:
    server = server_with()
    server.delete(CONFIGMAPS, *NAME, propagation=propagation)
    metadata = server.get(CONFIGMAPS, *NAME)["metadata"]
    assert (metadata["finalizers"], "deletionTimestamp" in metadata) == ([held], True)
    server.delete(CONFIGMAPS, *NAME, propagation="Background")
    assert server.find(CONFIGMAPS, *NAME) is None


@in_virtual_time
async def test_a_way_of_deletion_that_there_is_not_is_refused(clock: VirtualClock) -> None:
    server = server_with()
    with pytest.raises(Invalid, match="Nonsense"):
        await MemoryApi(server, clock).delete(CONFIGMAPS, *NAME, propagation="Nonsense")
    assert server.find(CONFIGMAPS, *NAME)


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("a in (1,2)", True),
        ("a in(1,2)", True),
        ("a  in ( 1 , 2 )", True),
        ("a notin(1)", False),
        ("a = 1", True),
        ("a == 1", True),
        ("a != 1", False),
        ("! b", True),
        ("!a", False),
        ("n>5", True),
        ("n > 7", False),
        ("n<9", True),
        ("a<9,b<9", False),
        ("e=", True),
        ("e in (,x)", True),
        ("in", False),
    ],
)
def test_label_selectors_are_read_with_or_without_spaces(selector: str, selected: bool) -> None:
    thing = {"metadata": {"name": "x", "labels": {"a": "1", "e": "", "n": "7"}}}
    assert matches(thing, None, Selector(selector)) is selected


@pytest.mark.parametrize("selector", ["A B", "a=1=2", "a,,b", "-a", "a/b/c", "n>x", "a in (1", "!a=1", "a in"])
def test_label_selectors_that_nobody_can_read_are_refused(selector: str) -> None:
    with pytest.raises(BadRequest):
        matches({"metadata": {"name": "x"}}, None, Selector(selector))


def test_objects_are_selected_by_fields_that_their_kind_has_for_that() -> None:
    server = server_with()
    for fields in ("metadata.name=a", "metadata.name==a", "metadata.name!=b"):
        assert len(server.select(CONFIGMAPS, None, Selector(fields=fields))) == 1
    assert server.select(SECRETS, None, Selector(fields="type=Opaque")) == []
    for fields in ("data.k=v", "type=Opaque", "metadata.labels.a=b"):
        with pytest.raises(BadRequest, match="not supported"):
            server.select(CONFIGMAPS, None, Selector(fields=fields))
    with pytest.raises(BadRequest, match="not supported"):
        server.select(FOREIGN, None, Selector(fields="metadata.labels.a=b"))


@pytest.mark.parametrize(
    ("resource", "body", "selected", "others"),
    [
        (
            Resource("events.k8s.io", "v1", "events", "Event"),
            {"regarding": {"name": "x"}, "reportingController": "me"},
            "regarding.name=x,reportingController=me",
            "regarding.kind=Pod",
        ),
        (CERTIFICATES, {"spec": {"signerName": "a.com/b"}}, "spec.signerName=a.com/b", "spec.signerName=c"),
        (SLICES, {"spec": {"nodeName": "n", "driver": "d"}}, "spec.driver=d,spec.nodeName=n", "spec.nodeName="),
        (Resource("", "v1", "nodes", "Node", False), {}, "spec.unschedulable=false", "spec.unschedulable=true"),
        (
            Resource("", "v1", "pods", "Pod"),
            {"spec": {"hostNetwork": True}},
            "spec.hostNetwork=true",
            "spec.hostNetwork=false",
        ),
        (Resource("batch", "v1", "jobs", "Job"), {}, "status.successful=0", "status.successful!=0"),
        (FOREIGN, {"spec": {"size": 3, "shiny": True}}, "spec.size=3,spec.shiny=true", "spec.size=4"),
    ],
)
def test_fields_of_all_kinds_select_as_texts(
    resource: Resource, body: dict[str, Any], selected: str, others: str
) -> None:
    server = MemoryServer()
    server.create(resource, {"metadata": {"name": "a"}, **body}, "default" if resource.namespaced else None)
    assert len(server.select(resource, None, Selector(fields=selected))) == 1
    assert server.select(resource, None, Selector(fields=others)) == []


@in_virtual_time
async def test_a_watch_by_another_field_is_refused(clock: VirtualClock) -> None:
    watch = MemoryApi(server_with(), clock).watch(
        CONFIGMAPS, resource_version="1", selector=Selector(fields="data.k=v")
    )
    with pytest.raises(BadRequest):
        await anext(aiter(watch))


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/n/x", "value": 1},
        {"op": "add", "path": "/n/x/y", "value": 1},
        {"op": "add", "path": "/list/5", "value": 1},
        {"op": "remove", "path": "/list/2"},
        {"op": "replace", "path": "/list/-", "value": 1},
        {"op": "add", "path": "/list/-4", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "add", "path": "list", "value": 1},
        {"op": "add", "path": "", "value": 1},
        {"op": "remove", "path": ""},
        {"op": "test", "path": "/n", "value": True},
        {"op": "copy", "from": "/none/there", "path": "/n"},
        {"op": "move", "from": "/none", "path": "/n"},
        {"op": "add", "value": 1},
        {"op": "merge", "path": "/n"},
    ],
)
def test_a_json_patch_that_does_not_apply_is_refused(operation: Mapping[str, Any]) -> None:
    with pytest.raises(Invalid):
        apply_json_patch({"n": 1, "list": [1, 2]}, [operation])


def test_json_patches_copy_move_and_replace_all() -> None:
    operations: list[Mapping[str, Any]] = [
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/b/0", "value": 0},
    ]
    assert apply_json_patch({"a": [1]}, operations) == {"a": [1], "b": [0, 1]}
    assert apply_json_patch({"a": [1]}, [{"op": "move", "from": "/a/0", "path": "/b"}]) == {"a": [], "b": 1}
    assert apply_json_patch({"a": [1]}, [{"op": "add", "path": "/a/-1", "value": 2}]) == {"a": [1, 2]}
    assert apply_json_patch({"a": [1, 2]}, [{"op": "remove", "path": "/a/-1"}]) == {"a": [1]}
    assert apply_json_patch({"a": 1}, [{"op": "test", "path": "/b", "value": None}]) == {"a": 1}
    assert apply_json_patch({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 1}}]) == {"b": 1}
    assert apply_json_patch({"a": 1}, [{"op": "test", "path": "", "value": {"a": 1}}]) == {"a": 1}


def test_what_is_empty_in_metadata_is_nothing() -> None:
    server = server_with()
    version = server.get(CONFIGMAPS, *NAME)["metadata"]["resourceVersion"]
    for part, empty in (("labels", {}), ("annotations", {}), ("finalizers", []), ("ownerReferences", [])):
        patched = server.patch(CONFIGMAPS, *NAME, {"metadata": {part: empty}})
        assert (patched["metadata"]["resourceVersion"], part in patched["metadata"]) == (version, False)


class Spec(Model):
    size: int = 1


class Plain(CustomResource[Spec], group="example.com", version="v1"):
    """It has no status."""


def driven(function: Any) -> Rig:
    operator = Operator("plain")
    operator.reconcile(Plain)(function)
    return drive(operator, [Plain("a")], rights=False)


def test_a_custom_resource_without_a_status_has_no_such_part() -> None:
    async def write(ctx: Context[Plain]) -> None:
        for part in ("status", "scale"):
            with pytest.raises(
                NotFound, match="class Plain says that plains have none" if part == "status" else "not find"
            ):
                await ctx.api.patch(Plain.resource, ctx.name, ctx.namespace, {"spec": {"size": 7}}, subresource=part)

    assert driven(write).get(Plain, "a").spec.size == 1


@pytest.mark.parametrize("others", [[], [Plain]], ids=["made", "owned"])
def test_a_class_that_leaves_out_the_status_takes_it_away_from_nobody_else(others: list[type[Kind]]) -> None:
    operator = Operator("buckets")

    @operator.reconcile(ConfigMap, owns=others)
    async def look(ctx: Context[ConfigMap]) -> None:
        await ctx.api.patch(Plain.resource, "b", "default", {"status": {"ready": True}}, subresource="status")

    async def story(rig: Rig) -> None:
        rig.create(ConfigMap("a"))
        await rig.settle()
        assert rig.get(Plain.resource, "b")["status"] == {"ready": True}

    drive(operator, [Plain("b")], story, rights=False)


def test_a_rig_serves_its_own_kinds_and_kubernetes_own() -> None:
    found: list[Resource | None] = []

    async def ask(ctx: Context[Plain]) -> None:
        api: Api = ctx.api
        for group, plural in (("example.com", "plains"), ("", "configmaps"), ("example.com", "nothings")):
            found.append(await api.discover(group, plural))

    driven(ask)
    assert found == [Plain.resource, ConfigMap.resource, None]
