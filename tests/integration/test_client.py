"""The client against a real API server: what it promises holds there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from shardsdk.errors import (
    AlreadyExists,
    Conflict,
    FenceClosed,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
    StreamInterrupted,
)
from shardsdk.kube.access import load_access
from shardsdk.kube.api import PatchKind, WatchKind
from shardsdk.kube.client import Client
from shardsdk.kube.selectors import Selector, equals, exists, join, not_in
from shardsdk.protocol.leases import Lease, render_micro_time
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, NAMESPACES, GroupResource, PartialObject, Resource
from tests.kube_fakes import CONFIGMAPS, FakeFence

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


@pytest_asyncio.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(await load_access(str(control_plane.admin_kubeconfig))) as opened:
        yield opened


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {"k": "v"}}


async def test_an_object_from_beginning_to_end(client: Client, namespace: str) -> None:
    made = await client.create(CONFIGMAPS, config_map("a", team="x"), namespace)
    assert made.metadata.labels == {"team": "x"}
    with pytest.raises(AlreadyExists):
        await client.create(CONFIGMAPS, config_map("a"), namespace)
    changed = await client.patch(CONFIGMAPS, "a", namespace, {"metadata": {"labels": {"team": None, "more": "y"}}})
    assert changed.metadata.labels == {"more": "y"}
    whole = await client.get(CONFIGMAPS, "a", namespace, model=dict)
    assert (whole["kind"], whole["data"]) == ("ConfigMap", {"k": "v"})
    whole["data"] = {"k": "w"}
    await client.update(CONFIGMAPS, whole)
    with pytest.raises(Conflict):
        await client.update(CONFIGMAPS, whole)
    found = await client.find(CONFIGMAPS, "a", namespace)
    assert found is not None
    with pytest.raises(Conflict):
        await client.delete(CONFIGMAPS, "a", namespace, resource_version=changed.metadata.resource_version)
    with pytest.raises(Conflict):
        await client.delete(CONFIGMAPS, "a", namespace, uid="somebody-else")
    meta = found.metadata
    await client.delete(CONFIGMAPS, "a", namespace, resource_version=meta.resource_version, uid=meta.uid)
    with pytest.raises(NotFound):
        await client.get(CONFIGMAPS, "a", namespace)
    assert await client.find(CONFIGMAPS, "a", namespace) is None


async def test_a_stale_version_is_a_conflict_even_if_nothing_would_change(client: Client, namespace: str) -> None:
    made = await client.create(CONFIGMAPS, config_map("a"), namespace)
    await client.patch(CONFIGMAPS, "a", namespace, {"metadata": {"labels": {"x": "y"}}})
    stale = {"metadata": {"resourceVersion": made.metadata.resource_version, "labels": {"x": "y"}}}
    with pytest.raises(Conflict):
        await client.patch(CONFIGMAPS, "a", namespace, stale)


async def test_every_kind_of_patch(client: Client, namespace: str) -> None:
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
    await client.patch(CONFIGMAPS, "a", namespace, applied, kind=PatchKind.APPLY, field_manager="one")
    other = {**applied, "data": {"k": "w"}}
    with pytest.raises(Conflict):
        await client.patch(CONFIGMAPS, "a", namespace, other, kind=PatchKind.APPLY, field_manager="two")
    await client.patch(CONFIGMAPS, "a", namespace, other, kind=PatchKind.APPLY, field_manager="two", force=True)
    refused = [{"op": "test", "path": "/data/k", "value": "v"}]
    with pytest.raises(Invalid):
        await client.patch(CONFIGMAPS, "a", namespace, refused, kind=PatchKind.JSON)
    added = [{"op": "add", "path": "/data/n", "value": "1"}]
    after = await client.patch(CONFIGMAPS, "a", namespace, added, kind=PatchKind.JSON, model=dict)
    assert after["data"] == {"k": "w", "n": "1"}


async def test_names_are_made_by_the_api_server(client: Client, namespace: str) -> None:
    made = await client.create(CONFIGMAPS, {"metadata": {"generateName": "made-"}}, namespace)
    assert made.metadata.name.startswith("made-")


async def test_an_object_says_where_it_belongs_and_its_resource_what_it_is(
    client: Client, installed: ControlPlane, namespace: str
) -> None:
    """An API server takes no custom resource without apiVersion and kind."""
    made = await client.create(CONFIGMAPS, {"metadata": {"name": "a", "namespace": namespace}})
    assert made.metadata.namespace == namespace
    spec = {"resources": [{"group": "", "resource": "secrets"}]}
    ring = {"metadata": {"name": namespace, "labels": {"a": "b"}}, "spec": spec}
    try:
        created = await client.create(CLUSTERRINGS, ring, model=dict)
        created["metadata"]["labels"] = {"a": "c"}
        untyped = {key: value for key, value in created.items() if key not in ("apiVersion", "kind")}
        changed = await client.update(CLUSTERRINGS, untyped)
        assert changed.metadata.labels == {"a": "c"}
    finally:
        await client.delete(CLUSTERRINGS, namespace)


async def test_a_lease_is_read_and_written_whole(client: Client, namespace: str) -> None:
    from shardsdk.kube.clock import SystemClock

    renewed = render_micro_time(SystemClock().now().replace(microsecond=0))
    body = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "renewTime": renewed}}
    made = await client.create(LEASES, body, namespace, model=Lease)
    assert (made.holder, made.spec.renew_time) == ("me", renewed)
    spec = {"metadata": {"resourceVersion": made.metadata.resource_version}, "spec": {"holderIdentity": ""}}
    assert (await client.patch(LEASES, "l", namespace, spec, model=Lease)).holder == ""


async def test_subresources_are_patched_alone(client: Client, namespace: str) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await client.create(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec}, namespace)
    scaled = {"spec": {"replicas": 0}}
    answer = await client.patch(
        DEPLOYMENTS, "d", namespace, scaled, subresource="scale", model=dict, metadata_only=False
    )
    assert answer["kind"] == "Scale"


async def test_typed_models_of_the_kubernetes_package_work(client: Client, namespace: str) -> None:
    from kubernetes.aio.client.models import V1ConfigMap

    await client.create(CONFIGMAPS, config_map("a"), namespace)
    typed: Any = V1ConfigMap
    found = await client.get(CONFIGMAPS, "a", namespace, model=typed)
    assert isinstance(found, V1ConfigMap)
    assert found.data == {"k": "v"}
    listed = [each async for page in client.pages(CONFIGMAPS, namespace, model=typed) for each in page]
    assert "a" in [each.metadata.name for each in listed]


async def test_resources_are_discovered_as_they_are_served(client: Client) -> None:
    assert await client.discover("", "namespaces") == NAMESPACES
    assert await client.discover("apps", "deployments") == DEPLOYMENTS
    assert await client.discover("coordination.k8s.io", "leases") == LEASES
    assert await client.discover("apps", "nothing") is None
    assert await client.discover("example.com", "nothing") is None


async def test_pages_are_one_snapshot_and_say_where_a_watch_may_go_on(client: Client, namespace: str) -> None:
    for number in range(7):
        await client.create(CONFIGMAPS, config_map(f"o{number}", team="x"), namespace)
    versions: list[str] = []
    selector = Selector(labels=equals("team", "x"))
    names: list[str] = []
    async for page in client.pages(CONFIGMAPS, namespace, selector=selector, limit=3, on_version=versions.append):
        assert len(page) <= 3
        if not names:
            await client.create(CONFIGMAPS, config_map("late", team="x"), namespace)
        names += [each.metadata.name for each in page]
    assert names == [f"o{number}" for number in range(7)]
    watch: Any = client.watch(CONFIGMAPS, namespace, selector=selector, resource_version=versions[0])
    async with aclosing(watch):
        found = [await anext(watch), await anext(watch)]
    assert found[0].kind is WatchKind.BOOKMARK
    assert found[1].object.metadata.name == "late"


async def test_selectors_mean_what_they_say(client: Client, namespace: str) -> None:
    for name, labels in {"none": {}, "a": {"s": "a"}, "b": {"s": "b"}, "c": {"s": "c"}}.items():
        await client.create(CONFIGMAPS, config_map(name, **labels), namespace)

    async def names(labels: str, fields: str = "") -> list[str]:
        selected = client.stream(CONFIGMAPS, namespace, selector=Selector(labels, fields))
        return sorted([each.metadata.name async for batch in selected for each in batch])

    assert await names(not_in("s", ["a", "b"]), "metadata.name!=kube-root-ca.crt") == ["c", "none"]
    assert await names(join(exists("s"), not_in("s", ["a", "b"]))) == ["c"]


async def test_what_one_api_server_took_another_shows_at_once(client: Client, control_plane: ControlPlane) -> None:
    second = await control_plane.add_apiserver()
    try:
        made = await client.create(NAMESPACES, {"metadata": {"generateName": "two-servers-"}})
        name = made.metadata.name
        access = await load_access(
            str(control_plane.kubeconfig(path=second.log.with_suffix(".kubeconfig"), server=second))
        )
        async with Client(access) as other:
            for number in range(40):
                await client.create(CONFIGMAPS, config_map(f"o{number}"), name)
                assert await other.find(CONFIGMAPS, f"o{number}", name) is not None
                found = {each.metadata.name async for batch in other.stream(CONFIGMAPS, name) for each in batch}
                assert f"o{number}" in found
    finally:
        await second.kill()
        control_plane.apiservers.remove(second)


async def test_many_objects_are_streamed_without_holding_up_the_loop(client: Client, namespace: str) -> None:
    limit = asyncio.Semaphore(16)

    async def make(number: int) -> None:
        async with limit:
            await client.create(CONFIGMAPS, config_map(f"o{number}"), namespace)

    await asyncio.gather(*map(make, range(1_500)))
    turns, running = 0, True

    async def count_turns() -> None:
        nonlocal turns
        while running:
            await asyncio.sleep(0)
            turns += 1

    async def at_a_time(batches: AsyncIterator[list[Any]]) -> tuple[int, int]:
        """How many objects came in all, and at most between two turns of the loop."""
        total = most = since = seen = 0
        async for batch in batches:
            total += len(batch)
            since = since + len(batch) if turns == seen else len(batch)
            most, seen = max(most, since), turns
        return total, most

    counting = asyncio.ensure_future(count_turns())
    streamed = await at_a_time(client.stream(CONFIGMAPS, namespace))
    paged = await at_a_time(client.pages(CONFIGMAPS, namespace, model=dict))
    running = False
    await counting
    assert streamed[0] == paged[0] >= 1_500
    assert max(streamed[1], paged[1]) <= 500, "others must get their turn between batches"


async def test_a_watch_from_a_version_that_never_was_is_accepted_and_silent(client: Client, namespace: str) -> None:
    """Which is why a reflector does not go on from a position that led to silence."""
    watch: Any = client.watch(CONFIGMAPS, namespace, resource_version="900000000", silence_seconds=3)
    async with aclosing(watch):
        assert (await anext(watch)).kind is WatchKind.BOOKMARK
        with pytest.raises(StreamInterrupted, match="silent"):
            await anext(watch)


async def test_the_api_server_ends_a_watch_when_asked_to(client: Client, namespace: str) -> None:
    version = (await client.create(CONFIGMAPS, config_map("a"), namespace)).metadata.resource_version
    watch = client.watch(CONFIGMAPS, namespace, resource_version=version, timeout_seconds=1)
    events = [event async for event in watch]
    assert events[0].kind is WatchKind.BOOKMARK, "it was accepted"


async def test_fenced_writes_are_understood_by_the_api_server(client: Client, namespace: str) -> None:
    await client.create(CONFIGMAPS, config_map("a"), namespace, fences=[FakeFence(left=30.5)])
    await client.patch(CONFIGMAPS, "a", namespace, {"data": {"k": "w"}}, fences=[FakeFence(left=20.9)])
    with pytest.raises(FenceClosed):
        await client.delete(CONFIGMAPS, "a", namespace, fences=[FakeFence(left=0.01)])
    assert (await client.get(CONFIGMAPS, "a", namespace, model=dict))["data"] == {"k": "w"}
    assert client.inflight_writes == 0


async def test_a_missing_permission_is_named_and_list_is_enough_to_find(
    client: Client, control_plane: ControlPlane, namespace: str, admin: AdminClient
) -> None:
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "reader"}}, namespace)
    await client.create(CONFIGMAPS, config_map("a"), namespace)
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    await admin.create(
        "rbac.authorization.k8s.io/v1/roles", {"metadata": {"name": "lister"}, "rules": rules}, namespace
    )
    binding = {
        "metadata": {"name": "lister"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lister"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
    }
    await admin.create("rbac.authorization.k8s.io/v1/rolebindings", binding, namespace)
    path = await control_plane.service_account_kubeconfig(namespace, "reader")
    configmaps = GroupResource("", "configmaps")
    async with Client(await load_access(str(path))) as reader:
        async with asyncio.timeout(120):
            while not await reader.allowed("list", configmaps, namespace=namespace):
                await asyncio.sleep(0.02)
        assert not await reader.allowed("get", configmaps, namespace=namespace)
        assert not await reader.allowed("list", configmaps)
        found = await reader.find(CONFIGMAPS, "a", namespace)
        assert isinstance(found, PartialObject)
        names = [each.metadata.name async for batch in reader.stream(CONFIGMAPS, namespace) for each in batch]
        assert "a" in names, "without `watch` a stream is read in pages"
        rule = r'apiGroups: \[""\], resources: \["configmaps"\], verbs: \["get"\]'
        with pytest.raises(Forbidden, match=rule):
            await reader.get(CONFIGMAPS, "a", namespace)
        with pytest.raises(Forbidden, match=r'verbs: \["patch"\]'):
            await reader.patch(CONFIGMAPS, "a", namespace, {"data": {"k": "x"}})
        with pytest.raises(Forbidden, match=r'resources: \["deployments/scale"\], verbs: \["patch"\]'):
            await reader.patch(DEPLOYMENTS, "d", namespace, {}, subresource="scale")


async def test_a_namespace_that_was_forgotten_is_asked_for(client: Client) -> None:
    whole = {"metadata": {"name": "web"}}
    for forgetful in (
        client.get(DEPLOYMENTS, "web"),
        client.patch(DEPLOYMENTS, "web", None, {}),
        client.update(CONFIGMAPS, whole),
        client.delete(CONFIGMAPS, "web"),
    ):
        with pytest.raises(NotFound, match="live in namespaces"):
            await forgetful
    with pytest.raises(MethodNotAllowed, match="live in namespaces"):
        await client.create(DEPLOYMENTS, whole)
    with pytest.raises(NotFound) as caught:
        await client.get(CLUSTERRINGS, "web")
    assert "live in namespaces" not in str(caught.value)
