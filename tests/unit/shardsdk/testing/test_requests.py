"""Requests that no client sends, and that no API server takes, are refused in memory as well."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, Final

import pytest

from shardsdk.errors import BadRequest, ConfigurationError, Conflict, Invalid, NotFound, ServerError, ShardingError
from shardsdk.kinds import ConfigMap, Lease
from shardsdk.kube.api import PatchKind
from shardsdk.protocol.objects import Resource
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

CONFIGMAPS, LEASES = ConfigMap.resource, Lease.resource
SITES: Final = Resource("sites.example.com", "v1", "sites", "Site")
CONFIGMAP: Final = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
OTHER: Final = {"kind": "Other"}
ENTRY: Final = {"manager": "x", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {}}
AT: Final = ("a", "default")


async def refused(asking: Awaitable[Any], *errors: type[ShardingError], match: str | None = None) -> None:
    with pytest.raises(errors, match=match):
        await asking


def api_with(clock: VirtualClock) -> MemoryApi:
    server = MemoryServer()
    for resource in (CONFIGMAPS, SITES):
        server.create(resource, {"metadata": {"name": "a"}}, "default")
    return MemoryApi(server, clock)


@in_virtual_time
async def test_what_names_no_object_is_not_sent(clock: VirtualClock) -> None:
    api = api_with(clock)
    for asking in (
        api.get(CONFIGMAPS, "", "default"), api.get(CONFIGMAPS, "\udcff", "default"),
        api.delete(CONFIGMAPS, "", "default"), api.patch(CONFIGMAPS, "", "default", {"data": {}}),
        api.update(CONFIGMAPS, {"metadata": {}}, "default"), api.update(CONFIGMAPS, {"data": {}}, "default"),
    ):  # fmt: skip
        await refused(asking, ConfigurationError)
    assert api.requests == []


@in_virtual_time
async def test_a_watch_begins_at_a_version(clock: VirtualClock) -> None:
    api = api_with(clock)
    assert MemoryServer().version > 0  # as which a list of nothing shows it
    for version, error in ((None, ConfigurationError), ("0", ConfigurationError), ("x", ServerError)):
        with pytest.raises(error):
            async for _ in api.watch(CONFIGMAPS, "default", resource_version=version):
                pass


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "ConfigMap", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "metadata": {"name": "a"}},
        {**CONFIGMAP, **OTHER},
        {**CONFIGMAP, "apiVersion": "v2"},
        {**CONFIGMAP, "metadata": {"name": "a", "managedFields": [ENTRY]}},
        [CONFIGMAP],
    ],
)
@in_virtual_time
async def test_an_apply_says_what_it_is(clock: VirtualClock, body: Any) -> None:
    api = api_with(clock)
    for name in ("a", "new"):
        applying = api.patch(CONFIGMAPS, name, "default", body, kind=PatchKind.APPLY, field_manager="me")
        await refused(applying, BadRequest)
    unnamed = {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}
    creating = api.patch(CONFIGMAPS, "new", "default", unnamed, kind=PatchKind.APPLY, field_manager="me")
    await refused(creating, BadRequest)
    await api.patch(CONFIGMAPS, *AT, unnamed, kind=PatchKind.APPLY, field_manager="me")


@pytest.mark.parametrize("manager", [None, "", "x" * 129, "ü" * 65, "a\nb"], ids=repr)
@in_virtual_time
async def test_an_apply_says_whose_it_is(clock: VirtualClock, manager: str | None) -> None:
    api = api_with(clock)
    await refused(api.patch(CONFIGMAPS, *AT, CONFIGMAP, kind=PatchKind.APPLY, field_manager=manager), Invalid)
    if manager:
        await refused(api.create(CONFIGMAPS, {"metadata": {"name": "b"}}, "default", field_manager=manager), Invalid)


@in_virtual_time
async def test_only_an_apply_is_forced(clock: VirtualClock) -> None:
    api = api_with(clock)
    await refused(api.patch(CONFIGMAPS, *AT, {"data": {}}, force=True), Invalid, match="force")
    await api.patch(CONFIGMAPS, *AT, CONFIGMAP, kind=PatchKind.APPLY, field_manager="x" * 128, force=True)


@in_virtual_time
async def test_a_patch_is_of_its_shape_and_leaves_an_object_what_it_is(clock: VirtualClock) -> None:
    api = api_with(clock)
    await refused(api.patch(CONFIGMAPS, *AT, {"data": {}}, kind=PatchKind.JSON), BadRequest)
    for resource in (CONFIGMAPS, SITES):
        for body in (OTHER, {"apiVersion": "x/v1"}):
            await refused(api.patch(resource, *AT, body), Invalid)
        for metadata in (None, {"name": None}):
            await refused(api.patch(resource, *AT, {"metadata": metadata}), BadRequest)
        for wrong in (OTHER, {"apiVersion": "x/v1"}):
            there = api.server.get(resource, *AT)
            await refused(api.update(resource, {**there, **wrong}), Invalid, BadRequest)
            await refused(api.create(resource, {"metadata": {"name": "b"}, **wrong}, "default"), Invalid, BadRequest)
    await refused(api.patch(SITES, *AT, {"metadata": {"resourceVersion": None}}), Invalid)
    await refused(api.patch(SITES, *AT, {"kind": None}), Invalid)
    await api.patch(CONFIGMAPS, *AT, {"kind": None, "metadata": {"resourceVersion": None, "uid": ""}})
    assert api.server.get(CONFIGMAPS, *AT)["kind"] == "ConfigMap"


def test_what_is_gone_is_not_made_anew_by_its_uid() -> None:
    server = MemoryServer()
    known = {"metadata": {"name": "a", "uid": "gone"}}
    with pytest.raises(Conflict, match="uid mismatch"):
        server.apply(CONFIGMAPS, *AT, known, "me")
    with pytest.raises(Conflict, match="uid mismatch"):
        server.update(LEASES, known, "default")
    with pytest.raises(NotFound):
        server.update(CONFIGMAPS, known, "default")
    assert server.log == []


def test_an_update_of_some_kinds_makes_what_is_not_there() -> None:
    server = MemoryServer()
    made = server.update(LEASES, {"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {}}, "default")
    assert made["metadata"]["resourceVersion"] == str(server.version)
    applied = server.apply(CONFIGMAPS, *AT, {"metadata": {"name": "a", "resourceVersion": "7"}}, "me")
    assert applied["metadata"]["resourceVersion"] == str(server.version)
    with pytest.raises(NotFound):
        server.update(SITES, {"metadata": {"name": "a", "resourceVersion": "7"}}, "default")


@pytest.mark.parametrize(
    ("finalizers", "takers"),
    [
        (["cleanup"], {SITES, LEASES}), (["my finalizer!"], set()), ([""], set()), (["Example.com/A"], set()),
        (["orphan"], {CONFIGMAPS, SITES, LEASES}), (["kubernetes"], {CONFIGMAPS, SITES, LEASES}),
        (["x.com/a"], {CONFIGMAPS, SITES, LEASES}), (["orphan", "foregroundDeletion"], set()),
    ],
)  # fmt: skip
def test_finalizers_are_qualified_names(finalizers: list[str], takers: set[Resource]) -> None:
    for resource in (CONFIGMAPS, SITES, LEASES):
        server = MemoryServer()
        body = {"metadata": {"name": "a", "finalizers": finalizers}}
        if resource in takers:
            server.create(resource, body, "default")
            continue
        with pytest.raises(Invalid, match="finalizers"):
            server.create(resource, body, "default")
        server.create(resource, {"metadata": {"name": "a"}}, "default")
        with pytest.raises(Invalid, match="finalizers"):
            server.patch(resource, *AT, {"metadata": {"finalizers": finalizers}})


def test_annotations_and_owners_have_their_bounds() -> None:
    server = MemoryServer()
    server.create(CONFIGMAPS, {"metadata": {"name": "a", "annotations": {"a": "x" * 262_143}}}, "default")
    with pytest.raises(Invalid, match="annotations"):
        server.patch(CONFIGMAPS, *AT, {"metadata": {"annotations": {"b": ""}}})
    event = {"apiVersion": "v1", "kind": "Event", "name": "n", "uid": "u"}
    with pytest.raises(Invalid, match="Event"):
        server.patch(CONFIGMAPS, *AT, {"metadata": {"ownerReferences": [event]}})


def test_what_is_immutable_stays() -> None:
    server = MemoryServer()
    server.create(CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"k": "1"}, "immutable": True}, "default")
    for body in ({"data": {"k": "2"}}, {"immutable": None}, {"binaryData": {"k": "MQ=="}}):
        with pytest.raises(Invalid, match="immutable"):
            server.patch(CONFIGMAPS, *AT, body)
    server.patch(CONFIGMAPS, *AT, {"metadata": {"labels": {"a": "b"}}})


@in_virtual_time
async def test_lists_of_its_own_kinds_do_not_say_what_each_is(clock: VirtualClock) -> None:
    api = api_with(clock)
    for resource, kind in ((CONFIGMAPS, None), (SITES, "Site")):
        listed = [each async for page in api.pages(resource, "default", model=dict) for each in page]
        found = await api.find(resource, "a", "default", model=dict)
        streamed = [each async for page in api.stream(resource, "default", model=dict) for each in page]
        assert found is not None
        assert [each.get("kind") for each in (*listed, found)] == [kind, kind]
        assert [each["kind"] for each in streamed] == [resource.kind]


@in_virtual_time
async def test_a_watch_is_accepted_by_a_bookmark_and_ends_when_it_is_to(clock: VirtualClock) -> None:
    api = api_with(clock)
    now = str(api.server.version)
    began, watch = clock.monotonic(), api.watch(CONFIGMAPS, "default", resource_version=now, timeout_seconds=2)
    told = [(event.kind.value, event.resource_version) async for event in watch]
    assert told == [("BOOKMARK", now)]
    assert 2 <= clock.monotonic() - began < 2.1


@in_virtual_time
async def test_what_says_nothing_of_which_is_any(clock: VirtualClock) -> None:
    api = api_with(clock)
    for part, value in (("uid", ""), ("uid", None), ("namespace", ""), ("namespace", None), ("resourceVersion", "0")):
        there = await api.get(CONFIGMAPS, "a", "default", model=dict)
        body = {**there, "metadata": {**there["metadata"], part: value}}
        made = await api.update(CONFIGMAPS, body, "default", model=dict)
        assert made["metadata"] == there["metadata"]
    for part, value in (("namespace", ""), ("resourceVersion", "0")):
        await api.delete(CONFIGMAPS, "a", "default")
        for _ in range(2):
            made = await applied(api, {**CONFIGMAP, "metadata": {"name": "a", part: value}})
            assert made["metadata"]["namespace"] == "default"
        await api.delete(CONFIGMAPS, "a", "default")
        await api.create(CONFIGMAPS, {**CONFIGMAP, "metadata": {"name": "a", part: value}}, "default")
    there = await api.get(SITES, "a", "default", model=dict)
    body = {**there, "metadata": {**there["metadata"], "resourceVersion": "0"}}
    await refused(api.update(SITES, body, "default"), Invalid, match="resourceVersion")
    await applied(api, {**CONFIGMAP, "metadata": {"name": "a", "managedFields": None}})


@in_virtual_time
async def test_metadata_are_of_their_types(clock: VirtualClock) -> None:
    api = api_with(clock)
    wrong: dict[str, list[Any]] = {
        "finalizers": [[None], [1], "x.com/a"],
        "ownerReferences": [[1], "a"],
        "labels": [5, ["a"], {"a": 1}],
        "resourceVersion": [5, 0],
    }
    for part, value in ((each, value) for each, values in wrong.items() for value in values):
        metadata = {"name": "a", part: value}
        body = {**CONFIGMAP, "metadata": metadata}
        await refused(api.create(CONFIGMAPS, body, "default"), BadRequest, match=part)
        await refused(api.update(CONFIGMAPS, body, "default"), BadRequest, match=part)
        await refused(api.patch(CONFIGMAPS, *AT, {"metadata": metadata}), Invalid, match=part)
        operations = [{"op": "add", "path": f"/metadata/{part}", "value": value}]
        await refused(api.patch(CONFIGMAPS, *AT, operations, kind=PatchKind.JSON), Invalid, match=part)
        await refused(applied(api, body), BadRequest, match=part)
    body = {**CONFIGMAP, "metadata": {"name": "a", "resourceVersion": "٣"}}
    await refused(api.update(CONFIGMAPS, body, "default"), ServerError, match="invalid syntax")


async def applied(api: MemoryApi, body: dict[str, Any]) -> Any:
    return await api.patch(CONFIGMAPS, *AT, body, kind=PatchKind.APPLY, field_manager="m", force=True, model=dict)


@in_virtual_time
async def test_each_version_of_a_kind_shows_the_same_objects(clock: VirtualClock) -> None:
    api, earlier = api_with(clock), replace(SITES, version="v1beta1")
    for resource in (SITES, earlier):
        there = await api.get(resource, "a", "default", model=dict)
        assert there["apiVersion"] == resource.api_version
        assert await api.update(resource, there, "default", model=dict) == there
        made = await api.update(resource, {**there, "spec": {"by": resource.version}}, "default", model=dict)
        assert (made["apiVersion"], made["spec"]) == (resource.api_version, {"by": resource.version})
        made = await api.patch(resource, *AT, {"spec": {"size": 1}}, model=dict)
        listed = [each async for page in api.pages(resource, "default", model=dict) for each in page]
        watch = api.watch(
            resource, "default", resource_version=str(api.server.version - 1), timeout_seconds=1, model=dict
        )
        told = [event.object async for event in watch if event.object]
        assert [each["apiVersion"] for each in (made, *listed, *told)] == [resource.api_version] * 3
