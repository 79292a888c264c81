"""What is asked of an API server in memory and of a real one alike, of applies, JSON patches, lists and watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from shardsdk.errors import ShardingError
from shardsdk.kinds import ClusterRole, Lease
from shardsdk.kube.api import PatchKind, WatchKind
from shardsdk.kube.selectors import Selector
from tests.integration.asked import CONFIGMAPS, SECRETS, SITES, Ask, Asked, Thing, named, shown


async def a_map_that_is_emptied_by_an_apply_is_null(asked: Asked) -> Any:
    found: list[Any] = []
    stories: list[list[Thing]] = [
        [{"tags": {"a": "1"}}, {"tags": {}}, {"tags": {}}, {}, {"tags": {}}, {"tags": {"b": "1"}}],
        [{"tags": {}}, {"tags": {"a": "1"}}, {}],
        [{"tags": {}}, {}],
        [{"box": {"tags": {"a": "1"}, "name": "1"}}, {"box": {"tags": {}, "name": "1"}}, {"box": {"name": "1"}}],
        [{"box": {"tags": {"a": "1"}}}, {"box": {}}, {}],
        [{"chest": {"usual": {"a": "1"}, "maybe": {"a": "1"}}}, *[{"chest": {"usual": {}, "maybe": {}}}] * 2],
        [{"free": {"a": {"b": 1}, "c": 1}}, *[{"free": {"a": {}, "c": 1}}] * 2],
    ]
    for story in stories:
        found += [(spec, await asked.apply("m", spec={"size": 1, **spec})) for spec in story]
        await asked.api.delete(SITES, "a", asked.namespace)
    await asked.create(spec={"size": 1, "tags": {"o": "1"}})
    found += [await asked.apply("m", spec={"size": 1, "tags": tags}) for tags in ({"a": "1"}, {}, {"o": "1"}, {})]
    await asked.patch({"spec": {"tags": None}})
    # Emptied by the one, while the other has it empty.
    for manager, spec in (("m", {"tags": {}}), ("n", {"tags": {"a": "1"}}), ("n", {}), ("m", {}), ("n", {})):
        found.append((manager, spec, await asked.apply(manager, spec={"size": 1, **spec})))
    labels: list[Thing] = [{"labels": {"a": "1"}}, {"labels": {}}]
    found += [await asked.apply("m", metadata=each, spec={"size": 1}) for each in labels]
    for status in ({"ready": 1}, {}):
        found.append(await asked.apply("m", subresource="status", status=status))
    applies: list[Thing] = [{"data": {"a": "1"}}, {"data": {}}, {}]
    for fields in applies:
        found.append(await asked.apply("m", CONFIGMAPS, metadata={}, **fields))
        found.append(await asked.apply("m", SECRETS, metadata={"labels": fields.get("data", {})}))
    return found


async def null_in_an_apply_keeps_what_others_have(asked: Asked) -> Any:
    found: list[Any] = []
    metadata = {"labels": {"x": "1"}, "annotations": {"x": "1"}, "finalizers": ["x.com/a"]}
    for resource, content in ((CONFIGMAPS, {"data": {"k": "1"}}), (SITES, {"spec": {"size": 1, "tags": {"k": "1"}}})):
        await asked.create(resource, metadata=metadata, **content)
        labels, finalizers = {"labels": None, "annotations": None}, {"finalizers": None, "ownerReferences": None}
        found.append(await asked.apply("m", resource, metadata=labels))
        found.append(await asked.apply("m", resource, metadata=finalizers))
    found.append(await asked.apply("m", CONFIGMAPS, data={"j": "1"}))
    found.append(await asked.apply("m", CONFIGMAPS, data=None))
    found.append(await asked.apply("m", CONFIGMAPS, binaryData=None))
    colours: list[Thing] = [{"colour": "r"}, {"colour": None}, {}, {"colour": None}]
    found += [await asked.apply("m", spec={"size": 1, **spec}) for spec in colours]
    found.append(await asked.apply("n", force=False, spec={"colour": "g"}))
    found.append(await asked.apply("n", force=False, spec={"colour": None}))
    found.append(await asked.apply("n", spec=None))
    found.append(await asked.apply("n", SITES, "status", status=None))
    for resource in (CONFIGMAPS, SITES):
        for force in (False, True):
            for part in ("labels", "annotations"):
                found.append(await asked.apply("o", resource, metadata={part: {"x": None, "y": None}}, force=force))
        found.append((resource.kind, (await asked.get(resource))["metadata"]["annotations"]))
    found.append(await asked.apply("o", CONFIGMAPS, data={"k": None, "z": None}))
    inner: Thing = {"metadata": {"a": None}, "labels": {"b": None}, "data": {"c": None}}
    found.append(await asked.apply("o", spec={"free": {**inner, "metadata": {**inner}}}))
    await asked.create(Lease.resource, spec={"holderIdentity": "a", "leaseTransitions": 1})
    found.append(shown(await asked.get(Lease.resource)))
    for resource in (CONFIGMAPS, SITES):
        await asked.patch({"metadata": {"finalizers": None}}, resource)
    return found


async def an_apply_that_changes_nothing_makes_no_version(asked: Asked) -> Any:
    found: list[Any] = []
    for resource, content in ((CONFIGMAPS, {"data": {"k": "1"}}), (SITES, {"spec": {"size": 1}})):
        version = (await asked.create(resource, **content))["metadata"]["resourceVersion"]
        for manager, applied in (("o", {}), ("m", content), ("m", content), ("n", content), ("o", {})):
            await asked.apply(manager, resource, force=False, **applied)
            now = await asked.get(resource)
            found.append((manager, now["metadata"]["resourceVersion"] == version, writers(now)))
            version = now["metadata"]["resourceVersion"]
    await asked.status({"status": {"ready": 1}})
    version = (await asked.get())["metadata"]["resourceVersion"]
    for manager in ("m", "m"):
        await asked.apply(manager, SITES, "status", status={"ready": 1})
        now = await asked.get()
        found.append((manager, now["metadata"]["resourceVersion"] == version, writers(now)))
        version = now["metadata"]["resourceVersion"]
    await asked.apply("m", SITES, "status")
    now = await asked.get()
    found.append((now["metadata"]["resourceVersion"] == version, writers(now)))
    return found


def writers(thing: Thing) -> list[tuple[str, str]]:
    entries = thing["metadata"].get("managedFields") or ()
    return sorted((each["manager"], each.get("subresource", "")) for each in entries if each["operation"] == "Apply")


async def metadata_of_an_applied_status_is_ignored(asked: Asked) -> Any:
    await asked.create(metadata={"labels": {"a": "1"}, "finalizers": ["x.com/a"]})
    changes: list[Thing] = [{"labels": {"a": "2"}}, {"annotations": {"b": "1"}}, {"finalizers": ["x.com/b"]}]
    status = {"ready": 1}
    found = [await asked.apply("m", SITES, "status", force=False, metadata=each, status=status) for each in changes]
    await asked.patch({"metadata": {"finalizers": None}})
    return [*found, writers(await asked.get())]


async def lists_of_other_maps_lose_what_is_null(asked: Asked) -> Any:
    await asked.create()
    free = [{"a": None, "b": "2"}, {"c": {"d": None, "e": "1"}}, [{"x": None}, None], None]
    found = [await asked.patch({"spec": {"free": free}})]
    found.append(await asked.patch({"spec": {"free": {"a": {"b": None, "c": 1}, "d": free}}}))
    name, role = f"ruled-{asked.namespace}", ClusterRole.resource
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    await asked.api.create(role, named(role, {"name": name}, rules=rules))
    without = [{**rules[0], "resourceNames": None}]
    made = await asked.api.patch(role, name, None, {"rules": without}, model=dict)
    await asked.api.delete(role, name)
    return [*found, made["rules"]]


async def json_patches_of_what_is_not_there(asked: Asked) -> Any:
    operations: list[Thing] = [
        {"op": "replace", "path": "/spec/colour", "value": "r"},
        {"op": "replace", "path": "/metadata/labels/x", "value": "r"},
        {"op": "replace", "path": "/metadata/labels", "value": {"x": "y"}},
        {"op": "replace", "path": "/metadata/finalizers/0", "value": "x.com/a"},
        {"op": "replace", "path": "/nothing/there", "value": 1},
        {"op": "copy", "from": "/spec/nothing", "path": "/spec/colour"},
        {"op": "copy", "from": "/spec/nothing/there", "path": "/spec/colour"},
        {"op": "move", "from": "/spec/nothing", "path": "/spec/colour"},
        {"op": "remove", "path": "/spec/nothing"},
        {"op": "test", "path": "/spec/nothing/there", "value": None},
        {"op": "add", "path": "/spec/colour"},
        {"op": "replace", "path": "/spec/colour"},
        {"op": "nothing", "path": "/spec/colour"},
        {"path": "/spec/colour"},
        {"op": "add"},
        {"op": "copy", "path": "/spec/colour"},
    ]
    found = []
    for each in operations:
        await asked.create()
        found.append((each, await asked.patch([each], kind=PatchKind.JSON)))
        await asked.api.delete(SITES, "a", asked.namespace)
    await asked.create(CONFIGMAPS, data={"x": "1"})
    replacing = [[{"op": "replace", "path": f"/data/{name}", "value": "2"}] for name in "yz"]
    return [*found, *[await asked.patch(each, CONFIGMAPS, kind=PatchKind.JSON) for each in replacing]]


async def what_a_list_has_says_its_kind_alike(asked: Asked) -> Any:
    await asked.create(CONFIGMAPS)
    await asked.create()
    found: list[Any] = []
    for resource in (CONFIGMAPS, SITES):
        for lists in (asked.api.pages, asked.api.stream):
            items = [each async for page in lists(resource, asked.namespace, model=dict) for each in page]
            ours = [each for each in items if each["metadata"]["name"] == "a"]
            found.append([(each.get("kind"), each.get("apiVersion")) for each in ours])
        one = await asked.api.find(resource, "a", asked.namespace, model=dict)
        found.append(one and (one.get("kind"), one.get("apiVersion")))
        read = await asked.api.get(resource, "a", asked.namespace, model=dict)
        found.append((read.get("kind"), read.get("apiVersion")))
    return found


async def watches_begin_and_end_alike(asked: Asked) -> Any:
    first = await asked.create(SECRETS)
    await asked.patch({"metadata": {"labels": {"x": "1"}}}, SECRETS)
    since = first["metadata"]["resourceVersion"]
    now = (await asked.get(SECRETS))["metadata"]["resourceVersion"]
    return [
        await seen(asked, resource_version=since, timeout_seconds=1),
        await seen(asked, resource_version=now, timeout_seconds=1),
        await seen(asked, resource_version=now, timeout_seconds=1, selector=Selector("x=2")),
        await seen(asked, initial_events=True, timeout_seconds=1),
        await seen(asked),
        await seen(asked, resource_version="0"),
        await seen(asked, resource_version="x"),
    ]


async def seen(asked: Asked, **options: Any) -> Any:
    """What a watch tells, and how it ends."""
    told: list[Any] = []
    events = cast("AsyncIterator[Any]", asked.api.watch(SECRETS, asked.namespace, model=dict, **options))
    try:
        async with asyncio.timeout(5), aclosing(events):  # type: ignore[type-var]
            async for each in events:
                about = each.object["metadata"].get("labels") if each.object else None
                if each.kind is not WatchKind.BOOKMARK or each.initial_end or not told:
                    told.append((each.kind.value, about, each.initial_end))
    except ShardingError as error:
        return told, type(error).__name__
    return told, "ended"


CHANGES: list[Ask] = [
    a_map_that_is_emptied_by_an_apply_is_null,
    null_in_an_apply_keeps_what_others_have,
    an_apply_that_changes_nothing_makes_no_version,
    metadata_of_an_applied_status_is_ignored,
    lists_of_other_maps_lose_what_is_null,
    json_patches_of_what_is_not_there,
    what_a_list_has_says_its_kind_alike,
    watches_begin_and_end_alike,
]
