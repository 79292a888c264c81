"""What an API server keeps of a write, for servers in memory: status apart from the rest, and its own metadata.

Of Kubernetes' own kinds some have no status, some no generation, and some take an
update that names no version; custom resources have both, and take none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shardsdk.errors import Invalid, NotFound, ServerError
from shardsdk.kube.answers import Status, Target, explain_status
from shardsdk.protocol.objects import Resource

Object = dict[str, Any]

STATUS: Final = "status"
_RBAC: Final = frozenset(
    f"{each}.rbac.authorization.k8s.io" for each in ("clusterrolebindings", "clusterroles", "rolebindings", "roles")
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
_PLAIN: Final = _RBAC | {
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
_OWN_GROUPS: Final = ("", "apps", "autoscaling", "batch", "policy")


def has_status(resource: Resource) -> bool:
    """Whether objects have a status, which its own subresource writes."""
    return str(resource.group_resource) not in _WITHOUT_STATUS


def has_generation(resource: Resource) -> bool:
    """Whether the server counts what changes beside metadata and status."""
    return str(resource.group_resource) not in _WITHOUT_GENERATION


def check_part(resource: Resource, subresource: str) -> None:
    """Raises: NotFound for a status of objects that have none."""
    if subresource == STATUS and not has_status(resource):
        raise NotFound("the server could not find the requested resource", status=404, reason="NotFound")


def check_new(body: Mapping[str, Any]) -> None:
    """Raises: ServerError for an object that says that it is there already."""
    if (body.get("metadata") or {}).get("resourceVersion"):
        message = "resourceVersion should not be set on objects to be created"
        raise ServerError(message, status=500, reason="InternalError")


def check_version(resource: Resource, body: Object) -> None:
    """Raises: Invalid for an update that names no version, of what needs one."""
    ours = resource.group in _OWN_GROUPS or resource.group.endswith(".k8s.io")
    needed = not ours or str(resource.group_resource) in _NEEDS_VERSION
    if needed and not body["metadata"].get("resourceVersion"):
        message = f"{resource.plural}: metadata.resourceVersion: must be specified for an update"
        raise Invalid(message, status=422, reason="Invalid")


def said_of(body: Object, subresource: str = "") -> Object:
    """The part of what is sent that a write of the object, or of its status, is about."""
    if subresource == STATUS:
        return {name: body[name] for name in ("apiVersion", "kind", "metadata", STATUS) if name in body}
    return {name: value for name, value in body.items() if name != STATUS}


def kept_of(resource: Resource, current: Object | None, wanted: Object, subresource: str = "") -> Object:
    """What is stored of a write: the status, or all but that, beside what there is; `current` None: it is new."""
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
    return {"uid": current["uid"], **others, **_parts(current, *own)}


def _parts(metadata: Object, *names: str) -> Object:
    return {name: metadata[name] for name in names if name in metadata}


def check_place(verb: str, resource: Resource, name: str, namespace: str | None) -> None:
    """A path without a namespace leads to no object of a resource that lives in some.

    Source: kube-apiserver's routes, which only list there; of custom resources, apiextensions' crdHandler.

    Raises: MethodNotAllowed, NotFound.
    """
    if not resource.namespaced or namespace:
        return
    builtin = "." not in resource.group or resource.group.endswith(".k8s.io")
    not_found, not_allowed = Status(404, "", "404 page not found"), Status(405, "MethodNotAllowed", "not allowed here")
    status = not_allowed if verb == "create" and builtin else not_found
    raise explain_status(Target(verb, resource.group, resource.plural, None, name or None, True), status)
