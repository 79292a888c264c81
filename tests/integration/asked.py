"""What is asked of an API server in memory and of a real one alike, of metadata, deletions, selectors and patches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from shardsdk import CustomResource, Model
from shardsdk.errors import ApiError
from shardsdk.kinds import ClusterRole, ConfigMap, Kind, Secret, crd_of
from shardsdk.kube.api import Api, PatchKind, WatchKind
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.objects import Resource


class Spec(Model):
    size: int
    colour: str | None = None


class Status(Model):
    ready: int | None = None
    seen: int | None = None


class Site(CustomResource[Spec, Status], group="memory.example.com", version="v1"):
    """With a status of its own."""


class Numbers(Kind):
    """A config map as it never is."""

    resource = ConfigMap.resource
    data: dict[str, int] = {}


def site_definition() -> dict[str, Any]:
    """Of a site whose spec has maps as well, without the defaults that a class would give them."""
    definition = crd_of(Site)
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["tags"] = {"type": "object", "additionalProperties": {"type": "string"}}
    spec["box"] = {"type": "object", "properties": {"tags": spec["tags"], "name": {"type": "string"}}}
    spec["free"] = {"x-kubernetes-preserve-unknown-fields": True}
    usual, maybe = {**spec["tags"], "default": {}}, {**spec["tags"], "nullable": True}
    spec["chest"] = {"type": "object", "properties": {"usual": usual, "maybe": maybe}}
    versions = definition["spec"]["versions"]
    versions.append({**versions[0], "name": EARLIER.version, "storage": False})
    return definition


SITES, CONFIGMAPS, SECRETS = Site.resource, ConfigMap.resource, Secret.resource
#: The same objects in another version of their kind.
EARLIER = replace(SITES, version="v1beta1")
Thing = dict[str, Any]
Ask = Callable[["Asked"], Awaitable[Any]]


class Asked:
    """One of the two, with one object in one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace

    async def create(self, resource: Resource = SITES, **fields: Any) -> Thing:
        content = {"spec": {"size": 1}} if resource == SITES else {}
        return await self.api.create(resource, named(resource, **{**content, **fields}), self.namespace, model=dict)

    async def get(self, resource: Resource = SITES) -> Thing:
        return await self.api.get(resource, "a", self.namespace, model=dict)

    async def patch(self, body: Any, resource: Resource = SITES, **options: Any) -> Any:
        return await said(self.api.patch(resource, "a", self.namespace, body, model=dict, **options))

    async def status(self, body: Any, resource: Resource = SITES, **options: Any) -> Any:
        return await self.patch(body, resource, subresource="status", **options)

    async def update(self, body: Thing, resource: Resource = SITES, **options: Any) -> Any:
        return await said(self.api.update(resource, body, self.namespace, model=dict, **options))

    async def apply(
        self, manager: str, resource: Resource = SITES, subresource: str = "", *, force: bool = True, **fields: Any
    ) -> Any:
        body = named(resource, **fields)
        return await self.patch(
            body, resource, kind=PatchKind.APPLY, field_manager=manager, force=force, subresource=subresource
        )


def named(resource: Resource, metadata: Thing | None = None, **fields: Any) -> Thing:
    about = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**about, "metadata": {"name": "a", **(metadata or {})}, **fields}


async def said(asking: Awaitable[Thing]) -> Any:
    """What is stored, but for what no two servers have in common, or how it was refused."""
    try:
        return shown(await asking)
    except ApiError as error:
        return type(error).__name__, error.status


def shown(thing: Thing) -> Thing:
    metadata = thing["metadata"]
    kept = {part: metadata.get(part) for part in ("labels", "generation", "finalizers")}
    owners = [(each["name"], each.get("controller")) for each in metadata.get("ownerReferences") or ()]
    return {
        "metadata": {**kept, "owners": owners},
        "on its way out": "deletionTimestamp" in metadata,
        **{part: value for part, value in thing.items() if part not in ("apiVersion", "kind", "metadata", "type")},
    }


async def what_others_wrote_is_not_the_appliers(asked: Asked) -> Any:
    await asked.create(CONFIGMAPS, data={"k": "0"})
    found = [await asked.apply("m", CONFIGMAPS, force=False, data={"k": "1"})]
    found.append(await asked.apply("m", CONFIGMAPS, force=False, data={"k": "0", "j": "1"}))
    found.append(await asked.apply("m", CONFIGMAPS, force=False, data={"j": "1"}))
    await asked.patch({"data": {"j": "2"}}, CONFIGMAPS)
    found.append(await asked.apply("m", CONFIGMAPS, force=False, data={"j": "1"}))
    found.append(await asked.apply("m", CONFIGMAPS, data={"j": "1"}))
    return [*found, await asked.apply("m", CONFIGMAPS, data={})]


async def lists_in_metadata_are_merged(asked: Asked) -> Any:
    uids = {}
    for name in ("one", "two", "three"):  # garbage is collected in a cluster
        made = await asked.api.create(SECRETS, named(SECRETS, {"name": name}), asked.namespace, model=dict)
        uids[name] = made["metadata"]["uid"]

    def reference(name: str, **says: Any) -> Thing:
        return {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": uids[name], **says}

    theirs, mine = reference("one"), reference("two", controller=True)
    await asked.create(CONFIGMAPS, metadata={"finalizers": ["x.com/z"], "ownerReferences": [theirs]})
    both = {"finalizers": ["x.com/a"], "ownerReferences": [mine]}
    found = [await asked.apply("m", CONFIGMAPS, metadata=both)]
    another = {"ownerReferences": [reference("three", controller=True)]}
    found.append(await asked.apply("o", CONFIGMAPS, metadata=another))
    found.append(await asked.apply("m", CONFIGMAPS, metadata={"ownerReferences": [reference("two")]}))
    found.append(await asked.apply("m", CONFIGMAPS))
    return [*found, await asked.patch({"metadata": {"finalizers": None}}, CONFIGMAPS)]


async def an_apply_of_what_is_there_is_no_change(asked: Asked) -> Any:
    await asked.create(CONFIGMAPS, data={"k": "0"})
    await asked.apply("m", CONFIGMAPS, data={"j": "1"})
    await asked.patch({"metadata": {"labels": {"a": "b"}}}, CONFIGMAPS)
    before = await asked.get(CONFIGMAPS)
    await asked.apply("m", CONFIGMAPS, data={"j": "1"})
    return (await asked.get(CONFIGMAPS))["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def metadata_that_cannot_be_is_refused(asked: Asked) -> Any:
    reference = {"apiVersion": "v1", "kind": "X", "name": "n", "controller": True}
    found = []
    for metadata in (
        {"name": "My_Map"}, {"labels": {"a": "b" * 64}}, {"labels": {"a b": "c"}}, {"labels": {"a": 1}},
        {"annotations": {"a": True}}, {"namespace": "other"},
        {"ownerReferences": [{**reference, "uid": uid} for uid in "ab"]},
        {"ownerReferences": [reference]}, {"annotations": {"Example_com/A": "b"}}, {"labels": {"Example.com/A": "b"}},
    ):  # fmt: skip
        for resource, content in ((CONFIGMAPS, {}), (SITES, {"spec": {"size": 1}})):
            body = named(resource, metadata, **content)
            found.append(await said(asked.api.create(resource, body, asked.namespace, model=dict)))
    return found


async def what_is_in_no_namespace_takes_any(asked: Asked) -> Any:
    name, role = f"role-of-{asked.namespace}", ClusterRole.resource
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    body = named(role, {"name": name, "namespace": "default", "annotations": {"Example.com/A": "b"}}, rules=rules)
    found = [await said(asked.api.create(role, body, model=dict))]
    found.append(await said(asked.api.patch(role, name, None, body, model=dict)))
    found.append(await said(asked.api.update(role, body, model=dict)))
    metadata = (await asked.api.get(role, name, model=dict))["metadata"]
    await asked.api.delete(role, name)
    return found, metadata.get("namespace"), metadata["annotations"]


async def an_object_keeps_its_name(asked: Asked) -> Any:
    found = []
    for resource in (SITES, CONFIGMAPS):
        await asked.create(resource)
        found += [await asked.patch({"metadata": {part: "b"}}, resource) for part in ("name", "namespace")]
        found.append(await asked.apply("m", resource, metadata={"name": "b"}))
        remove = [{"op": "remove", "path": "/metadata/namespace"}]
        found.append(await asked.patch(remove, resource, kind=PatchKind.JSON))
    return found


async def nothing_in_metadata_is_no_change(asked: Asked) -> Any:
    found = []
    for resource in (SITES, CONFIGMAPS):
        before = await asked.create(resource)
        changes: list[Thing] = [{"labels": {}}, {"annotations": {}}, {"finalizers": []}, {"ownerReferences": []}]
        for change in changes:
            await asked.patch({"metadata": change}, resource)
        found.append(
            (await asked.get(resource))["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        )
    return found


async def what_is_being_deleted_takes_no_finalizers(asked: Asked) -> Any:
    found = []
    for resource in (SITES, CONFIGMAPS):
        await asked.create(resource, metadata={"finalizers": ["x.com/a"]})
        await asked.api.delete(resource, "a", asked.namespace)
        found.append(await asked.patch({"metadata": {"finalizers": ["x.com/a", "x.com/b"]}}, resource))
        found.append(await asked.patch({"metadata": {"finalizers": None}}, resource))
    return found


async def deletions_wait_for_dependents(asked: Asked) -> Any:
    found = []
    for propagation in ("Foreground", "Orphan", "Background", "Nonsense"):
        made = await asked.create()
        try:
            await asked.api.delete(SITES, "a", asked.namespace, propagation=propagation)
            found.append(await first_change(asked, made))
        except ApiError as error:
            found.append((type(error).__name__, error.status))
            await asked.api.delete(SITES, "a", asked.namespace)
        await asked.patch({"metadata": {"finalizers": None}})
    return found


async def first_change(asked: Asked, made: Thing) -> Any:
    """What a deletion makes of an object; of a real one the garbage collector makes more before it can be read."""
    since = made["metadata"]["resourceVersion"]
    watch = asked.api.watch(SITES, asked.namespace, resource_version=since, model=dict)
    async with aclosing(cast("AsyncGenerator[Any]", watch)) as events:
        async for each in events:
            if each.kind is not WatchKind.BOOKMARK:
                return each.kind.value, shown(each.object)
    raise AssertionError("the watch has ended before the object was deleted")


async def other_parts_are_not_there(asked: Asked) -> Any:
    await asked.create()
    return [await asked.patch({"spec": {"size": 3}}, subresource=part) for part in ("scale", "finalizers", "nothing")]


async def labels_are_selected_alike(asked: Asked) -> Any:
    await asked.create(SECRETS, metadata={"labels": {"a": "1", "e": "", "n": "7"}})
    selectors = (
        *("a in (1,2)", "a in(1,2)", "a  in (1)", "a notin(1)", "a==1", "a = 1", "a!=2", "a != 1", "!a", "! b", "b"),
        *("e=", "e", "n>5", "n>9", "n<9", "a<x", "a in ()", "a,b", "a,,e", "a,", "a in (1),e", "A B", "a=1=2"),
        *("e in (,x)", "-a", "a/b/c", "!a=1", "a in", "in", "a in 1", "a notin (1,2),e"),
    )
    return [(each, await selected(asked, SECRETS, Selector(each))) for each in selectors]


async def fields_are_selected_alike(asked: Asked) -> Any:
    await asked.create()
    await asked.create(SECRETS)
    fields = ("spec.size=1", "type=Opaque", "metadata.labels.a=b", "data.k=v", "status.phase=x", "metadata.name==a")
    every = (*fields, "metadata.name!=a", "metadata.name", "metadata.name in (a)", "metadata.namespace=x")
    # What the definition of a custom resource makes selectable, the memory does not know.
    alike = [(each, of) for each in every for of in (SITES, CONFIGMAPS) if of is CONFIGMAPS or "metadata" in each]
    return [(each, await selected(asked, of, Selector(fields=each))) for each, of in alike]


async def fields_of_other_kinds_are_known_alike(asked: Asked) -> Any:
    found: list[Any] = []
    for group, plural, kind, fields in OTHERS:
        resource = Resource(group, "v1", plural, kind, namespaced=kind in ("Event", "Job", "Pod"))
        every = (*fields, "spec.nothing=x")
        found.append((plural, [(each, await selected(asked, resource, Selector(fields=each))) for each in every]))
    return found


OTHERS = (
    ("certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest", ("spec.signerName=x",)),
    ("events.k8s.io", "events", "Event", ("regarding.name=x", "reportingController=x", "source=x", "regarding.x=y")),
    ("", "events", "Event", ("involvedObject.name=x", "reportingComponent=x", "source=x", "regarding.name=x")),
    ("resource.k8s.io", "resourceslices", "ResourceSlice", ("spec.nodeName=x", "spec.driver=x")),
    ("", "nodes", "Node", ("spec.unschedulable=false", "spec.unschedulable=true")),
    ("", "pods", "Pod", ("spec.hostNetwork=false", "status.podIPs=x")),
    ("batch", "jobs", "Job", ("status.successful=0",)),
)


async def selected(asked: Asked, resource: Resource, selector: Selector) -> Any:
    found: list[str] = []
    try:
        where = asked.namespace if resource.namespaced else None
        async for page in asked.api.pages(resource, where, selector=selector, model=dict):
            found += [each["metadata"]["name"] for each in page if each["metadata"]["name"] == "a"]
    except ApiError as error:
        return type(error).__name__, error.status
    return found


async def json_patches_apply_alike(asked: Asked) -> Any:
    await asked.create(metadata={"finalizers": ["x.com/a"]})
    operations: list[Thing] = [
        {"op": "add", "path": "/metadata/labels/x", "value": "y"},
        {"op": "remove", "path": "/metadata/annotations"},
        {"op": "add", "path": "/spec/colour", "value": "r"},
        {"op": "add", "path": "/metadata/finalizers/5", "value": "x.com/b"},
        {"op": "add", "path": "/metadata/finalizers/-1", "value": "x.com/b"},
        {"op": "remove", "path": "/metadata/finalizers/-1"},
        {"op": "remove", "path": "/metadata/finalizers/7"},
        {"op": "replace", "path": "/metadata/finalizers/-", "value": "x.com/c"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "x.com/c"},
        {"op": "add", "path": "/metadata/name/x", "value": "y"},
        {"op": "add", "path": "/spec/size/x", "value": "y"},
        {"op": "copy", "from": "/metadata/name", "path": "/spec/colour"},
        {"op": "move", "from": "/spec/colour", "path": "/metadata/generateName"},
        {"op": "test", "path": "/spec/size", "value": 1},
        {"op": "test", "path": "/spec/size", "value": True},
        {"op": "test", "path": "/spec/size", "value": 2},
        {"op": "test", "path": "/spec/colour", "value": None},
        {"op": "add", "path": "", "value": {}},
        {"op": "remove", "path": ""},
        {"op": "merge", "path": "/spec/size", "value": 2},
    ]
    found = [(str(each), await asked.patch([each], kind=PatchKind.JSON)) for each in operations]
    return [*found, await asked.patch({"metadata": {"finalizers": None}})]


RULES: list[Ask] = [
    what_others_wrote_is_not_the_appliers,
    lists_in_metadata_are_merged,
    an_apply_of_what_is_there_is_no_change,
    metadata_that_cannot_be_is_refused,
    an_object_keeps_its_name,
    nothing_in_metadata_is_no_change,
    what_is_being_deleted_takes_no_finalizers,
    deletions_wait_for_dependents,
    other_parts_are_not_there,
    labels_are_selected_alike,
    fields_are_selected_alike,
    fields_of_other_kinds_are_known_alike,
    what_is_in_no_namespace_takes_any,
    json_patches_apply_alike,
]
