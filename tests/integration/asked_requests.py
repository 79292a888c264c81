"""What is asked of an API server in memory and of a real one alike: requests that none takes, and metadata."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from shardsdk.errors import ShardingError
from shardsdk.kinds import (
    ClusterRole,
    Deployment,
    Job,
    Lease,
    Namespace,
    Role,
    Service,
    ServiceAccount,
)
from shardsdk.kube.api import PatchKind
from shardsdk.protocol.objects import Resource
from tests.integration.asked import CONFIGMAPS, EARLIER, SECRETS, SITES, Ask, Asked, Thing, named, said, shown

BOTH = ((CONFIGMAPS, {"data": {"k": "1"}}), (SITES, {"spec": {"size": 1}}))
WRONG: tuple[Thing, ...] = ({"kind": "Other"}, {"apiVersion": "other.example.com/v1"})


async def how(asking: Awaitable[Any]) -> Any:
    """How it was refused, by the client or by the server."""
    try:
        await asking
    except ShardingError as error:
        return type(error).__name__, getattr(error, "status", None)
    return "done"


async def another_kind_is_refused(asked: Asked) -> Any:
    found: list[Any] = []
    for resource, content in BOTH:
        for wrong in WRONG:
            body = {**named(resource, **content), **wrong}
            found.append(("create", wrong, await how(asked.api.create(resource, body, asked.namespace))))
            found.append(("apply", wrong, await how(applied(asked, resource, body))))
        before = await asked.create(resource, **content)
        for wrong in WRONG:
            found.append(("update", wrong, await how(asked.api.update(resource, {**before, **wrong}, asked.namespace))))
            found.append(("merge", wrong, await how(asked.api.patch(resource, "a", asked.namespace, wrong))))
            found.append(("apply", wrong, await how(applied(asked, resource, {**named(resource, **content), **wrong}))))
            operations = [{"op": "replace", "path": f"/{part}", "value": value} for part, value in wrong.items()]
            found.append(("json", wrong, await how(patched(asked, resource, operations))))
        for part in ("kind", "metadata"):
            found.append(("gone", part, await how(asked.api.patch(resource, "a", asked.namespace, {part: None}))))
            removed = [{"op": "remove", "path": f"/{part}"}]
            found.append(("removed", part, await how(patched(asked, resource, removed))))
        found.append((await asked.get(resource))["kind"])
    return found


async def an_apply_says_what_it_is_and_whose(asked: Asked) -> Any:
    entry = {"manager": "x", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {}}
    found: list[Any] = []
    for resource, content in BOTH:
        body = named(resource, **content)
        for there in (False, True):
            if there:
                await asked.create(resource, **content)
            for part in ("apiVersion", "kind"):
                without = {name: value for name, value in body.items() if name != part}
                found.append((there, part, await how(applied(asked, resource, without))))
            found.append((there, "no name", await how(applied(asked, resource, {**body, "metadata": {}}))))
            await how(asked.api.delete(resource, "a", asked.namespace)) if not there else None
            found.append((there, "no metadata", await how(applied(asked, resource, {**body, "metadata": None}))))
            found.append((there, "nobody", await how(applied(asked, resource, body, field_manager=None))))
            found.append((there, "empty", await how(applied(asked, resource, body, field_manager=""))))
            managed = {**body, "metadata": {"name": "a", "managedFields": [entry]}}
            found.append((there, "managed", await how(applied(asked, resource, managed))))
            nothing: Any
            for nothing in ([], None):
                none = {**body, "metadata": {"name": "a", "managedFields": nothing}}
                found.append((there, "managed by none", await how(applied(asked, resource, none))))
            if not there:
                await how(asked.api.delete(resource, "a", asked.namespace))
    return found


async def patches_are_of_their_shape(asked: Asked) -> Any:
    found: list[Any] = []
    for resource, content in BOTH:
        await asked.create(resource, **content)
        part, value = next(iter(content.items()))
        operations = [{"op": "add", "path": f"/{part}", "value": value}]
        for kind, body in (
            (PatchKind.MERGE, operations),
            (PatchKind.APPLY, [named(resource, **content)]),
            (PatchKind.JSON, content),
            (PatchKind.JSON, []),
            (PatchKind.MERGE, {}),
        ):
            manager = "m" if kind is PatchKind.APPLY else None
            found.append(await asked.patch(body, resource, kind=kind, field_manager=manager))
        for kind, body in ((PatchKind.MERGE, content), (PatchKind.JSON, operations)):
            found.append(("forced", await asked.patch(body, resource, kind=kind, force=True)))
        for manager in ("x" * 128, "x" * 129, "a\nb", "ü" * 128, "a\u00a0b", "a\tb", "\u200bx", "\U0001f600"):
            found.append((manager, await asked.patch(content, resource, field_manager=manager)))
            found.append((manager, await how(applied(asked, resource, named(resource), field_manager=manager))))
            body = named(resource, {"name": f"b{len(found)}"}, **content)
            creating = asked.api.create(resource, body, asked.namespace, field_manager=manager)
            found.append((manager, await how(creating)))
    return found


async def what_says_nothing_of_where_is_not_sent(asked: Asked) -> Any:
    api, where = asked.api, asked.namespace
    return [
        await how(api.get(CONFIGMAPS, "", where)),
        await how(api.delete(CONFIGMAPS, "", where)),
        await how(api.patch(CONFIGMAPS, "", where, {"data": {}})),
        await how(api.update(CONFIGMAPS, {"metadata": {}}, where)),
        await how(api.update(CONFIGMAPS, {"data": {}}, where)),
        await how(api.create(CONFIGMAPS, {"data": {}}, where)),
        await how(api.get(CONFIGMAPS, "\udcff", where)),
        await how(api.patch(CONFIGMAPS, "a", where, {"data": {"a": float("nan")}})),
    ]


async def what_is_gone_is_not_made_anew_by_its_uid(asked: Asked) -> Any:
    found: list[Any] = []
    for resource, content in BOTH:
        metadata = (await asked.create(resource, **content))["metadata"]
        await asked.api.delete(resource, "a", asked.namespace)
        for parts in (("uid",), ("uid", "resourceVersion"), ("resourceVersion",)):
            known = {part: metadata[part] for part in parts}
            found.append((parts, await asked.apply("m", resource, metadata=known, **content)))
            found.append((parts, await asked.apply("m", resource, "status", metadata=known, **content)))
            found.append(await asked.patch({"metadata": known}, resource))
            found.append(await how(asked.api.delete(resource, "a", asked.namespace)))
    return found


async def some_updates_create(asked: Asked) -> Any:
    found: list[Any] = []
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    for resource, content in (
        (Lease.resource, {"spec": {"holderIdentity": "a"}}),
        (Role.resource, {"rules": rules}),
        (ServiceAccount.resource, {}),
        *BOTH,
    ):
        found.append(await asked.update(named(resource, **content), resource))
        await how(asked.api.delete(resource, "a", asked.namespace))
        before = await asked.create(resource, **content)
        await asked.api.delete(resource, "a", asked.namespace)
        for without in ((), ("resourceVersion",), ("uid",), ("uid", "resourceVersion")):
            kept = {part: value for part, value in before["metadata"].items() if part not in without}
            found.append(
                (without, await how(asked.api.update(resource, {**before, "metadata": kept}, asked.namespace)))
            )
            found.append(await how(asked.api.delete(resource, "a", asked.namespace)))
        if resource != SITES:
            found.append(await how(asked.api.update(resource, before, asked.namespace, subresource="status")))
    return found


FINALIZERS: tuple[Any, ...] = (
    ["cleanup"], ["my finalizer!"], [""], ["Example.com/A"], ["a/b/c"], ["example.com/a"], ["example.com/" + "x" * 64],
    ["orphan"], ["foregroundDeletion"], ["orphan", "foregroundDeletion"], ["kubernetes"], ["example.com/"], ["/a"],
)  # fmt: skip


async def finalizers_are_qualified_names(asked: Asked) -> Any:
    found: list[Any] = []
    for resource, content in BOTH:
        for finalizers in FINALIZERS:
            body = named(resource, {"finalizers": finalizers}, **content)
            found.append((finalizers, await said(asked.api.create(resource, body, asked.namespace, model=dict))))
            await asked.patch({"metadata": {"finalizers": None}}, resource)
            await how(asked.api.delete(resource, "a", asked.namespace))
        await asked.create(resource, **content)
        bodies = [{"metadata": {"finalizers": finalizers}} for finalizers in FINALIZERS]
        found += [(body, await asked.patch(body, resource)) for body in bodies]
        await asked.patch({"metadata": {"finalizers": None}}, resource)
    pod = {"containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod}
    job = {"template": {"spec": {**pod, "restartPolicy": "Never"}}}
    others: list[tuple[Resource, Thing]] = [
        (Lease.resource, {"spec": {}}), (Role.resource, {"rules": []}), (ServiceAccount.resource, {}),
        (SECRETS, {}), (Service.resource, {"spec": {"ports": [{"port": 80}], "clusterIP": "None"}}),
        (Deployment.resource, {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}),
        (Job.resource, {"spec": job}),
    ]  # fmt: skip
    for resource, content in others:
        body = named(resource, {"finalizers": ["cleanup"]}, **content)
        found.append((resource.plural, await how(asked.api.create(resource, body, asked.namespace))))
    for resource in (Namespace.resource, ClusterRole.resource):
        body = named(resource, {"name": f"finalized-{asked.namespace}", "finalizers": ["cleanup"]})
        found.append((resource.plural, await how(asked.api.create(resource, body))))
    return found


async def metadata_has_its_bounds(asked: Asked) -> Any:
    found: list[Any] = []
    event = {"apiVersion": "v1", "kind": "Event", "name": "n", "uid": "u"}
    changes: list[Thing] = [
        {"annotations": {"a": "x" * 262_143}}, {"annotations": {"a": "x" * 262_144}},
        {"annotations": {"a": "ü" * 131_072}},
        {"ownerReferences": [event]},
        {"resourceVersion": None}, {"uid": None}, {"resourceVersion": ""}, {"uid": ""}, {"resourceVersion": "x"},
        {"creationTimestamp": None}, {"generation": 9}, {"name": None}, {"namespace": None},
    ]  # fmt: skip
    for resource, content in BOTH:
        await asked.create(resource, **content)
        for change in changes:
            patching = asked.api.patch(resource, "a", asked.namespace, {"metadata": change})
            found.append((resource.plural, str(change)[:40], await how(patching)))
    return found


async def what_is_immutable_stays(asked: Asked) -> Any:
    found: list[Any] = []
    for resource in (CONFIGMAPS, SECRETS):
        await asked.create(resource, data={"k": "MQ=="}, immutable=True)
        bodies: list[Thing] = [
            {"data": {"k": "Mg=="}}, {"data": {"j": "Mg=="}}, {"data": None}, {"immutable": False}, {"immutable": None},
            {"metadata": {"labels": {"a": "b"}}}, {"immutable": True}, {"binaryData": {"x": "MQ=="}},
        ]  # fmt: skip
        every = [body for body in bodies if resource == CONFIGMAPS or "binaryData" not in body]
        found += [(body, await asked.patch(body, resource)) for body in every]
    return found


async def applied(asked: Asked, resource: Resource, body: Any, **options: Any) -> Any:
    given = {"field_manager": "m", "force": True, **options}
    return await asked.api.patch(resource, "a", asked.namespace, body, kind=PatchKind.APPLY, **given)


async def patched(asked: Asked, resource: Resource, operations: list[Thing]) -> Any:
    return await asked.api.patch(resource, "a", asked.namespace, operations, kind=PatchKind.JSON)


async def what_says_nothing_of_which_is_any(asked: Asked) -> Any:
    found: list[Any] = []
    for resource, content in BOTH:
        before = await asked.create(resource, **content)
        for part, value in (
            *(("uid", ""), ("uid", None), ("namespace", ""), ("namespace", None), ("resourceVersion", "0")),
            *(("resourceVersion", ""), ("resourceVersion", "٣"), ("resourceVersion", 5)),
            ("resourceVersion", 0),
        ):
            body = {**before, "metadata": {**before["metadata"], part: value}, **content}
            found.append(("update", part, value, await asked.update(body, resource)))
            found.append(("merge", part, value, await asked.patch({"metadata": {part: value}}, resource)))
            found.append(("apply", part, value, await asked.apply("m", resource, metadata={part: value}, **content)))
            before = await asked.get(resource)
        await asked.api.delete(resource, "a", asked.namespace)
        for part, value in (("namespace", ""), ("resourceVersion", "0"), ("uid", "")):
            found += [await asked.apply("m", resource, metadata={part: value}, **content) for _ in range(2)]
            await how(asked.api.delete(resource, "a", asked.namespace))
            found.append((part, await said(asked.create(resource, metadata={part: value}, **content))))
            await how(asked.api.delete(resource, "a", asked.namespace))
    return found


async def metadata_are_of_their_types(asked: Asked) -> Any:
    found: list[Any] = []
    of_lists: tuple[Any, ...] = ([1], [{}], "x.com/a")
    of_maps: tuple[Any, ...] = (5, "a", ["a"], {"a": 1})
    wrong: list[Thing] = [
        *({"finalizers": entries} for entries in of_lists),
        *({"ownerReferences": entries} for entries in ([1], ["a"], "a")),
        *({part: entries} for part in ("labels", "annotations") for entries in of_maps),
    ]
    for resource, content in BOTH:
        for each in wrong:
            found.append((each, "create", await said(asked.create(resource, metadata=each, **content))))
            await how(asked.api.delete(resource, "a", asked.namespace))
            found.append((each, "apply", await asked.apply("m", resource, metadata=each, **content)))
            await how(asked.api.delete(resource, "a", asked.namespace))
        await asked.create(resource, **content)
        for each in wrong:
            found.append((each, "merge", await asked.patch({"metadata": each}, resource)))
            found.append((each, "apply", await asked.apply("m", resource, metadata=each, **content)))
            body = {**named(resource, each, **content)}
            body["metadata"]["resourceVersion"] = (await asked.get(resource))["metadata"]["resourceVersion"]
            found.append((each, "update", await asked.update(body, resource)))
            operations = [{"op": "add", "path": f"/metadata/{part}", "value": value} for part, value in each.items()]
            found.append((each, "json", await asked.patch(operations, resource, kind=PatchKind.JSON)))
    return found


async def owners_can_be_forgotten(asked: Asked) -> Any:
    found: list[Any] = []
    for resource, content in BOTH:
        for applies in (False, True):
            await (asked.apply("m", resource, **content) if applies else asked.create(resource, **content))
            found.append(await asked.patch({"metadata": {"managedFields": [{}]}}, resource))
            found.append((await asked.get(resource))["metadata"].get("managedFields"))
            found.append(await asked.apply("m", resource, metadata={"labels": {"a": "1"}}, force=False))
            await asked.api.delete(resource, "a", asked.namespace)
    return found


async def versions_of_a_kind_show_the_same_objects(asked: Asked) -> Any:
    await asked.create()
    found: list[Any] = []
    for stored, other in ((SITES, EARLIER), (EARLIER, SITES)):
        for resource in (stored, other):
            there = await asked.get(resource)
            found.append(there["apiVersion"])
            unchanged = await asked.api.update(resource, there, asked.namespace, model=dict)
            found.append(unchanged["metadata"]["resourceVersion"] == there["metadata"]["resourceVersion"])
            there["spec"]["colour"] = resource.version
            made = await asked.api.update(resource, there, asked.namespace, model=dict)
            found.append((made["apiVersion"], shown(made)))
            made = await asked.api.patch(resource, "a", asked.namespace, {"spec": {"size": 3}}, model=dict)
            found.append((made["apiVersion"], shown(made)))
            body = named(resource, spec={"size": 4})
            made = await asked.api.patch(
                resource, "a", asked.namespace, body, kind=PatchKind.APPLY, field_manager="m", force=True, model=dict
            )
            found.append((made["apiVersion"], shown(made)))
            pages = asked.api.pages(resource, asked.namespace, model=dict)
            found.append([each["apiVersion"] async for page in pages for each in page])
            watch = asked.api.watch(resource, asked.namespace, initial_events=True, timeout_seconds=1, model=dict)
            found.append([each.object["apiVersion"] async for each in watch if each.object])
        await asked.api.delete(stored, "a", asked.namespace)
        await asked.create(other, spec={"size": 1})
    return found


REQUESTS: list[Ask] = [
    what_says_nothing_of_which_is_any,
    metadata_are_of_their_types,
    owners_can_be_forgotten,
    versions_of_a_kind_show_the_same_objects,
    another_kind_is_refused,
    an_apply_says_what_it_is_and_whose,
    patches_are_of_their_shape,
    what_says_nothing_of_where_is_not_sent,
    what_is_gone_is_not_made_anew_by_its_uid,
    some_updates_create,
    finalizers_are_qualified_names,
    metadata_has_its_bounds,
    what_is_immutable_stays,
]
