"""What an API server keeps of a write, and refuses, for servers in memory: by kind, and status apart from the rest.

Of Kubernetes' own kinds some have no status, some no generation, and some take an
update that names no version; custom resources have both, and take none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shardsdk.errors import Invalid, NotFound
from shardsdk.kube.answers import Status, Target, explain_status
from shardsdk.protocol.objects import RBAC_GROUP, GroupResource, Resource
from shardsdk.reconcile.serverside import with_texts_as_data
from shardsdk.testing.patching import copy_tree

#: An object as it is stored.
Object = dict[str, Any]

STATUS: Final = "status"
RBAC: Final = frozenset(
    f"{each}.{RBAC_GROUP}" for each in ("clusterrolebindings", "clusterroles", "rolebindings", "roles")
)
_CONFIGURATIONS: Final = frozenset(
    f"{each}.admissionregistration.k8s.io"
    for each in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
)
_POLICIES: Final = frozenset(
    f"{each}.admissionregistration.k8s.io"
    for each in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicybindings")
)
#: Neither status nor generation.  Source: the strategies below kubernetes/pkg/registry, as Kubernetes 1.36 has them.
_PLAIN: Final = RBAC | {
    *("configmaps", "endpoints", "events", "limitranges", "secrets", "serviceaccounts"),
    *("controllerrevisions.apps", "events.events.k8s.io", "leases.coordination.k8s.io", "runtimeclasses.node.k8s.io"),
    *("csidrivers.storage.k8s.io", "storageclasses.storage.k8s.io"),
}
_WITHOUT_STATUS: Final = (
    _PLAIN
    | _CONFIGURATIONS
    | _POLICIES
    | {
        *("podtemplates", "endpointslices.discovery.k8s.io", "priorityclasses.scheduling.k8s.io"),
        *("ingressclasses.networking.k8s.io", "ipaddresses.networking.k8s.io", "networkpolicies.networking.k8s.io"),
        *("deviceclasses.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io", "resourceslices.resource.k8s.io"),
        *("csinodes.storage.k8s.io", "csistoragecapacities.storage.k8s.io", "volumeattributesclasses.storage.k8s.io"),
    }
)
_WITHOUT_GENERATION: Final = _PLAIN | {
    *("namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "resourcequotas", "services"),
    "volumeattachments.storage.k8s.io",
}
_NEEDS_VERSION: Final = _CONFIGURATIONS | {
    *("leases.coordination.k8s.io", "poddisruptionbudgets.policy", "runtimeclasses.node.k8s.io"),
    *("csidrivers.storage.k8s.io", "volumeattachments.storage.k8s.io"),
}
#: What an update makes if it is not there.
_CREATED_BY_UPDATES: Final = RBAC | {
    *("endpoints", "events", "limitranges", "services"),
    *("events.events.k8s.io", "leases.coordination.k8s.io", "runtimeclasses.node.k8s.io"),
}
#: Groups whose objects may have finalizers without a domain, as custom resources may.
_LAX_GROUPS: Final = frozenset(
    {"policy", *(f"{each}.k8s.io" for each in ("apiextensions", "apiregistration", "coordination", "node"))}
    | {"admissionregistration.k8s.io"}
)
#: What stays as it is once an object says that it is immutable.
_HELD: Final = {"configmaps": ("immutable", "data", "binaryData"), "secrets": ("immutable", "data")}
#: Maps that are not there while they have nothing in them.
_MAPS_OF_DATA: Final = {"configmaps": ("binaryData", "data"), "secrets": ("data", "stringData")}
#: Those of its groups that look like a community's.
_OWN_GROUPS: Final = frozenset(
    f"{each}.k8s.io"
    for each in (
        *("admissionregistration", "apiextensions", "apiregistration", "authentication", "authorization"),
        *("certificates", "coordination", "discovery", "events", "flowcontrol.apiserver", "internal.apiserver"),
        *("networking", "node", "rbac.authorization", "resource", "scheduling", "storage", "storagemigration"),
    )
)


def is_builtin(resource: Resource) -> bool:
    """Whether it is one of Kubernetes' own, and no custom resource."""
    return "." not in resource.group or resource.group in _OWN_GROUPS


def has_status(resource: Resource) -> bool:
    """Whether objects have a status, which its own subresource writes."""
    return str(resource.group_resource) not in _WITHOUT_STATUS


def has_generation(resource: Resource) -> bool:
    """Whether the server counts what changes beside metadata and status."""
    return str(resource.group_resource) not in _WITHOUT_GENERATION


def is_created_by_updates(resource: Resource) -> bool:
    """Whether an update of what is not there makes it."""
    return str(resource.group_resource) in _CREATED_BY_UPDATES


def takes_any_finalizer(resource: Resource) -> bool:
    """Whether the names of finalizers need no domain."""
    lax = resource.group in _LAX_GROUPS or str(resource.group_resource) == "events"
    return lax or not is_builtin(resource)


def check_part(resource: Resource, subresource: str, without_status: Mapping[GroupResource, str]) -> None:
    """Raises: NotFound for a status of objects that have none, and for any other part: there is none in memory."""
    said_by = without_status.get(resource.group_resource) if subresource == STATUS else None
    if not subresource or (subresource == STATUS and said_by is None and has_status(resource)):
        return
    if is_builtin(resource):
        target = Target("patch", resource.group, f"{resource.plural}/{subresource}")
        raise explain_status(target, Status(404, "", "404 page not found"))
    why = f": the class {said_by} says that {resource.plural} have none" if said_by else ""
    raise NotFound(f"the server could not find the requested resource{why}", status=404, reason="NotFound")


def check_version(resource: Resource, body: Object) -> None:
    """Raises: Invalid for an update that names no version, of what needs one."""
    needed = not is_builtin(resource) or str(resource.group_resource) in _NEEDS_VERSION
    if needed and body["metadata"].get("resourceVersion") in (None, "", "0"):
        message = f"{resource.plural}: metadata.resourceVersion: must be specified for an update"
        raise Invalid(message, status=422, reason="Invalid")


def check_held(resource: Resource, current: Object, wanted: Object) -> None:
    """Raises: Invalid for a change of what is immutable."""
    if not current.get("immutable"):
        return
    for part in _HELD.get(str(resource.group_resource), ()):
        if (wanted.get(part) or None) != (current.get(part) or None):
            message = f"{resource.plural}: {part}: Forbidden: field is immutable when `immutable` is set"
            raise Invalid(message, status=422, reason="Invalid")


def check_kind(resource: Resource, current: Object, wanted: Object) -> None:
    """A patch leaves an object what it is; of its own kinds a server knows without being told.

    Raises: Invalid.
    """
    if not wanted.get("kind") and is_builtin(resource):
        wanted["kind"] = current["kind"]
    # Each object is stored in the version that it was created in.
    kept = (("apiVersion", (current["apiVersion"], resource.api_version)), ("kind", (current["kind"],)))
    for part, known in kept:
        if wanted.get(part) not in known:
            message = f"{resource.plural}: {part}: Invalid value: {wanted.get(part)!r}: must be {known[0]}"
            raise Invalid(message, status=422, reason="Invalid")


def shown_in(resource: Resource, thing: Object) -> Object:
    """A copy of an object in the version of its kind that is asked for, whichever it is stored in."""
    return {**copy_tree(thing), "apiVersion": resource.api_version}


def said_of(body: Object, subresource: str = "") -> Object:
    """The part of what is sent that a write of the object, or of its status, is about."""
    if subresource == STATUS:
        return {name: body[name] for name in ("apiVersion", "kind", "metadata", STATUS) if name in body}
    return {name: value for name, value in body.items() if name != STATUS}


def content_of(thing: Object) -> Object:
    """What generations count changes of."""
    return {part: value for part, value in thing.items() if part not in ("metadata", STATUS)}


def kept_of(resource: Resource, current: Object | None, wanted: Object, subresource: str = "") -> Object:
    """What is stored of a write: the status, or all but that, beside what there is; `current` None: it is new."""
    maps = _MAPS_OF_DATA.get(str(resource.group_resource), ())
    given = with_texts_as_data(resource, wanted)
    wanted = {part: value for part, value in given.items() if value or part not in maps}
    if not resource.namespaced:
        wanted["metadata"] = {name: value for name, value in wanted["metadata"].items() if name != "namespace"}
    if current is None:
        return wanted if resource.kind == "Node" else said_of(wanted)
    if subresource == STATUS:
        there, status = current, wanted.get(STATUS)
        metadata = {**current["metadata"], **_parts(wanted["metadata"], "uid", "resourceVersion", "managedFields")}
        for name in {"resourceVersion", "managedFields"} - wanted["metadata"].keys():
            metadata.pop(name, None)
    else:
        there, status = wanted, current.get(STATUS)
        metadata = _with_the_servers_own(current["metadata"], wanted["metadata"])
    kept = {**{name: value for name, value in there.items() if name != STATUS}, "metadata": metadata}
    return kept if status is None or not has_status(resource) else {**kept, STATUS: status}


def _with_the_servers_own(current: Object, wanted: Object) -> Object:
    """Metadata as they are wanted, but for what nobody else may change."""
    own = ("creationTimestamp", "generation", "deletionTimestamp")
    others = {name: value for name, value in wanted.items() if name not in own}
    return {**others, "uid": wanted.get("uid") or current["uid"], **_parts(current, *own)}


def _parts(metadata: Object, *names: str) -> Object:
    return {name: metadata[name] for name in names if name in metadata}


def check_place(verb: str, resource: Resource, name: str, namespace: str | None) -> None:
    """A path without a namespace leads to no object of a resource that lives in some.

    Source: kube-apiserver's routes, which only list there; of custom resources, apiextensions' crdHandler.

    Raises: MethodNotAllowed, NotFound.
    """
    if not resource.namespaced or namespace:
        return
    not_found, not_allowed = Status(404, "", "404 page not found"), Status(405, "MethodNotAllowed", "not allowed here")
    status = not_allowed if verb == "create" and is_builtin(resource) else not_found
    raise explain_status(Target(verb, resource.group, resource.plural, None, name or None, True), status)
