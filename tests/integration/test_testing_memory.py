"""The API server in memory and a real one, asked the same: what one keeps and refuses, the other does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from localcluster import AdminClient, AdminError, ControlPlane
from shardsdk.errors import ShardingError
from shardsdk.kinds import ConfigMap, Deployment, Lease, Secret
from shardsdk.kube.access import load_access
from shardsdk.kube.api import PatchKind
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.protocol.objects import Resource
from shardsdk.testing import MemoryApi, MemoryServer
from shardsdk.testing.strategies import has_status, is_created_by_updates, takes_any_finalizer
from tests.integration.asked import (
    CONFIGMAPS,
    RULES,
    SECRETS,
    SITES,
    Ask,
    Asked,
    Numbers,
    Site,
    Thing,
    named,
    said,
    shown,
    site_definition,
)
from tests.integration.asked_changes import CHANGES
from tests.integration.asked_requests import REQUESTS
from tests.integration.served import served


async def a_status_is_not_created(asked: Asked) -> Any:
    return shown(await asked.create(status={"ready": 5})), shown(await asked.get())


async def what_the_server_gives_is_not_taken(asked: Asked) -> Any:
    made = await asked.create(metadata={"uid": "mine", "generation": 7, "deletionTimestamp": "2030-01-01T00:00:00Z"})
    return shown(made), made["metadata"]["uid"] == "mine"


async def what_is_there_already_is_not_created(asked: Asked) -> Any:
    found = []
    for resource, content in ((SITES, {"spec": {"size": 1}}), (SECRETS, {})):
        made = await asked.create(resource)
        body = named(resource, {"resourceVersion": made["metadata"]["resourceVersion"]}, **content)
        for name in ("a", "b"):
            again = {**body, "metadata": {**body["metadata"], "name": name}}
            found.append(await said(asked.api.create(resource, again, asked.namespace, model=dict)))
    return found


async def a_patch_changes_no_status(asked: Asked) -> Any:
    await asked.create()
    await asked.status({"status": {"ready": 1}})
    patches: list[Any] = [
        {"status": {"ready": 7}},
        {"status": None},
        {"spec": {"size": 2}, "status": {"ready": 7}},
    ]
    operations = [
        {"op": "replace", "path": "/status/ready", "value": 7},
        {"op": "replace", "path": "/spec/size", "value": 3},
    ]
    return [*[await asked.patch(each) for each in patches], await asked.patch(operations, kind=PatchKind.JSON)]


async def a_patch_of_the_status_changes_nothing_else(asked: Asked) -> Any:
    await asked.create()
    patches: list[Any] = [
        {"status": {"ready": 1}},
        {"spec": {"size": 2}, "metadata": {"labels": {"a": "b"}}, "status": {"seen": 7}},
        {"spec": {"size": 2}},
        {"status": {"ready": None}},
        {"status": None},
    ]
    operations = [{"op": "add", "path": "/status", "value": {"ready": 3}}, {"op": "remove", "path": "/spec/size"}]
    return [*[await asked.status(each) for each in patches], await asked.status(operations, kind=PatchKind.JSON)]


async def an_update_changes_no_status(asked: Asked) -> Any:
    await asked.create()
    made = await asked.api.patch(
        SITES, "a", asked.namespace, {"status": {"ready": 1}}, subresource="status", model=dict
    )
    version = {"resourceVersion": made["metadata"]["resourceVersion"]}
    first = await asked.update(named(SITES, version, spec={"size": 2}))
    whole = await asked.get()
    second = await asked.update({**whole, "spec": {"size": 3}, "status": {"ready": 9}})
    stale = await asked.update({**whole, "spec": {"size": 4}})
    return first, second, stale


async def an_update_of_the_status_changes_nothing_else(asked: Asked) -> Any:
    made = await asked.create()
    metadata = {**made["metadata"], "labels": {"a": "b"}}
    changed = {**made, "metadata": metadata, "spec": {"size": 99}, "status": {"ready": 1}}
    return await asked.update(changed, subresource="status"), await asked.update(changed, subresource="status")


async def an_update_says_which_version(asked: Asked) -> Any:
    found = []
    for kind, content in (
        (Site, {"spec": {"size": 2}}), (ConfigMap, {"data": {"a": "b"}}), (Secret, {}), (Lease, {"spec": {}})
    ):  # fmt: skip
        await asked.create(kind.resource)
        found.append(await asked.update(named(kind.resource, **content), kind.resource))
    found.append(await asked.update(named(SITES, status={"ready": 1}), subresource="status"))
    return found


async def another_objects_uid_is_a_conflict(asked: Asked) -> Any:
    found = []
    for resource, content in ((SITES, {"spec": {"size": 2}}), (CONFIGMAPS, {})):
        version = (await asked.create(resource))["metadata"]["resourceVersion"]
        for change in ({"uid": "another"}, {"uid": "another", "resourceVersion": version}):
            found.append(await asked.patch({"metadata": change}, resource))
            found.append(await asked.apply("m", resource, metadata=change))
            found.append(await asked.update(named(resource, change, **content), resource))
    return found


async def what_is_on_its_way_out_stays_so(asked: Asked) -> Any:
    await asked.create(metadata={"finalizers": ["example.com/a"]})
    await asked.api.delete(SITES, "a", asked.namespace)
    found = [await asked.patch({"metadata": {"deletionTimestamp": None, "labels": {"a": "b"}}})]
    whole = await asked.get()
    del whole["metadata"]["deletionTimestamp"]
    found.append(await asked.update({**whole, "spec": {"size": 2}}))
    found.append(await asked.status({"status": {"ready": 1}}))
    await asked.patch({"metadata": {"finalizers": None}})
    return found, await said(asked.get())


async def what_is_applied_of_status_and_the_rest_is_apart(asked: Asked) -> Any:
    return [
        await asked.apply("m", subresource="status", status={"ready": 1}),
        await asked.apply("m", spec={"size": 1, "colour": "red"}, status={"ready": 5}),
        await asked.apply("m", subresource="status", spec={"size": 7}, status={"ready": 1, "seen": 2}),
        await asked.apply("m", spec={"size": 1}),
        await asked.apply("m", subresource="status", status={"ready": 1}),
    ]


async def kinds_without_a_status_have_no_such_part(asked: Asked) -> Any:
    found = [shown(await asked.create(SECRETS, status={"x": 1})), await asked.patch({"status": {"x": 1}}, SECRETS)]
    found += [await asked.status({"status": {"x": 1}}, SECRETS), await asked.update(await asked.get(SECRETS), SECRETS)]
    found.append(await asked.update(await asked.get(SECRETS), SECRETS, subresource="status"))
    found.append(await asked.apply("m", SECRETS, "status", status={"x": 1}))
    return found


async def generations_count_what_is_wanted(asked: Asked) -> Any:
    await asked.create()
    bodies: list[Thing] = [{"metadata": {"labels": {"a": "b"}}}, {"spec": {"size": 1}}, {"spec": {"size": 2}}]
    found = [await asked.patch(body) for body in bodies]
    found.append(await asked.status({"status": {"ready": 1}}))
    await asked.create(SECRETS)
    found.append(await asked.patch({"stringData": None, "data": {"a": "aGk="}}, SECRETS))
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await asked.create(Deployment.resource, spec=spec)
    for body in ({"metadata": {"labels": {"a": "b"}}}, {"spec": {"replicas": 2}}):
        await asked.patch(body, Deployment.resource)
        found.append((await asked.get(Deployment.resource))["metadata"]["generation"])
    return found


async def texts_of_a_secret_are_stored_as_data(asked: Asked) -> Any:
    found = [shown(await asked.create(SECRETS, stringData={"a": "1", "b": "ü"}, data={"a": "eA==", "c": "eA=="}))]
    found.append(await asked.patch({"stringData": {"b": "", "d": "4"}, "data": {"c": None}}, SECRETS))
    found.append(await asked.update({**(await asked.get(SECRETS)), "stringData": {"a": "5"}}, SECRETS))
    found.append(await asked.patch({"metadata": {"labels": {"x": "y"}}}, SECRETS))
    return found


async def what_is_not_there_is_not_found(asked: Asked) -> Any:
    version = {"resourceVersion": "1"}
    return [
        await asked.patch({"spec": {"size": 1}}),
        await asked.status({"status": {"ready": 1}}),
        await asked.update(named(SITES, version, spec={"size": 1})),
        await said(asked.get()),
    ]


async def objects_are_read_as_strictly(asked: Asked) -> Any:
    await asked.create(CONFIGMAPS, data={"a": "1"})
    try:
        return await asked.api.get(CONFIGMAPS, "a", asked.namespace, model=Numbers)
    except ShardingError as error:
        return type(error).__name__


SCHEMA = site_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
CASES: list[Ask] = [
    texts_of_a_secret_are_stored_as_data,
    a_status_is_not_created,
    what_the_server_gives_is_not_taken,
    what_is_there_already_is_not_created,
    a_patch_changes_no_status,
    a_patch_of_the_status_changes_nothing_else,
    an_update_changes_no_status,
    an_update_of_the_status_changes_nothing_else,
    an_update_says_which_version,
    another_objects_uid_is_a_conflict,
    what_is_on_its_way_out_stays_so,
    what_is_applied_of_status_and_the_rest_is_apart,
    kinds_without_a_status_have_no_such_part,
    generations_count_what_is_wanted,
    what_is_not_there_is_not_found,
    objects_are_read_as_strictly,
    *RULES,
    *REQUESTS,
    *CHANGES,
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(control_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """With sites, served."""
    async with served(control_plane, site_definition()):
        yield control_plane


@pytest_asyncio.fixture
async def client(plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(await load_access(str(plane.admin_kubeconfig))) as made, asyncio.timeout(60):
        while await said(made.get(SITES, "none", "none", model=dict)) != ("NotFound", 404):
            await asyncio.sleep(0.05)
        yield made


async def test_kinds_have_a_status_where_the_api_server_serves_one(admin: AdminClient) -> None:
    served: dict[str, bool] = {}
    async for group, _, listed in own_kinds(admin):
        served |= statuses(group, listed)
    assert len(served) > 40
    assert {name: has_status(resource_named(name)) for name in served} == served


async def test_kinds_are_created_by_updates_and_have_finalizers_as_in_the_api_server(
    admin: AdminClient, namespace: str
) -> None:
    found: dict[str, tuple[bool, bool]] = {}
    async for group, path, listed in own_kinds(admin):
        for each in listed:
            if not {"create", "update"} <= set(each["verbs"]) or "/" in each["name"]:
                continue
            where = f"{path}/namespaces/{namespace}" if each["namespaced"] else path
            body = {"apiVersion": path.removeprefix("/apis/").removeprefix("/api/"), "kind": each["kind"]}
            metadata = {"name": "none"} | ({"namespace": namespace} if each["namespaced"] else {})
            updating = {**body, "metadata": metadata}
            creating = {**body, "metadata": {**metadata, "finalizers": ["cleanup"]}}
            updated = await answer(admin, "PUT", f"{where}/{each['name']}/none?dryRun=All", updating)
            created = await answer(admin, "POST", f"{where}/{each['name']}?dryRun=All", creating)
            name = f"{each['name']}.{group}" if group else each["name"]
            found[name] = ("not found" not in updated, "neither a standard finalizer" not in created)
    assert len(found) > 40
    of = {name: resource_named(name) for name in found}
    assert {name: (is_created_by_updates(each), takes_any_finalizer(each)) for name, each in of.items()} == found


async def answer(admin: AdminClient, method: str, path: str, body: Thing) -> str:
    """How it was refused; empty: it was not."""
    try:
        await admin.request(method, path, body=body)
    except AdminError as error:
        return str(error)
    return ""


async def own_kinds(admin: AdminClient) -> AsyncIterator[tuple[str, str, list[Thing]]]:
    """Kubernetes' own groups, where they are, and what is in them."""
    yield "", "/api/v1", (await admin.request("GET", "/api/v1"))["resources"]
    for group in (await admin.request("GET", "/apis"))["groups"]:
        for version in group["versions"] if group["name"].endswith(".k8s.io") or "." not in group["name"] else ():
            path = f"/apis/{version['groupVersion']}"
            yield group["name"], path, (await admin.request("GET", path))["resources"]


def statuses(group: str, listed: list[Thing]) -> dict[str, bool]:
    """Whether each resource that can be stored has a status."""
    names = {each["name"] for each in listed}
    stored = [each["name"] for each in listed if {"create", "patch"} <= set(each["verbs"]) and "/" not in each["name"]]
    return {f"{name}.{group}" if group else name: f"{name}/status" in names for name in stored}


def resource_named(name: str) -> Resource:
    plural, _, group = name.partition(".")
    return Resource(group, "v1", plural, "")


@pytest.mark.parametrize("ask", CASES, ids=lambda ask: str(ask.__name__))
async def test_both_answer_alike(client: Client, namespace: str, ask: Ask) -> None:
    real = await ask(Asked(client, namespace))
    server = MemoryServer(schema_of=lambda resource: SCHEMA if resource.kind == "Site" else None)
    assert await ask(Asked(MemoryApi(server, SystemClock()), namespace)) == real
