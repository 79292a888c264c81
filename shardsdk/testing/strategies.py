"""What an API server keeps of a write, and refuses, for servers in memory: status apart from the rest, and metadata.

Of Kubernetes' own kinds some have no status, some no generation, and some take an
update that names no version; custom resources have both, and take none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardsdk.errors import BadRequest, Invalid, NotFound, ServerError
from shardsdk.kube.answers import Status, Target, explain_status
from shardsdk.protocol.labels import is_label_key, is_label_value
from shardsdk.protocol.names import is_dns_label, is_dns_subdomain
from shardsdk.protocol.objects import GroupResource, Resource
from shardsdk.reconcile.serverside import with_texts_as_data

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


def check_new(body: Mapping[str, Any]) -> None:
    """Raises: ServerError for an object that says that it is there already."""
    if (body.get("metadata") or {}).get("resourceVersion"):
        message = "resourceVersion should not be set on objects to be created"
        raise ServerError(message, status=500, reason="InternalError")


def check_version(resource: Resource, body: Object) -> None:
    """Raises: Invalid for an update that names no version, of what needs one."""
    needed = not is_builtin(resource) or str(resource.group_resource) in _NEEDS_VERSION
    if needed and not body["metadata"].get("resourceVersion"):
        message = f"{resource.plural}: metadata.resourceVersion: must be specified for an update"
        raise Invalid(message, status=422, reason="Invalid")


def check_place_in(body: Mapping[str, Any], name: str | None, namespace: str | None) -> None:
    """Raises: BadRequest for a body that names another object than its path does."""
    metadata = body.get("metadata") or {}
    for part, wanted in (("name", name), ("namespace", namespace)):
        if wanted is not None and metadata.get(part) not in (None, "", wanted):
            message = f"the {part} of the object ({metadata[part]}) does not match the {part} on the URL ({wanted})"
            raise BadRequest(message, status=400, reason="BadRequest")


def check_metadata(resource: Resource, old: Object | None, new: Object) -> None:
    """What metadata may say; `old` None: of a new object.

    Raises: Invalid; BadRequest for labels and annotations that are no texts.
    """
    faults = []
    if old is None and not _is_name(resource, new["name"]):
        faults.append(f"metadata.name: Invalid value: {new['name']!r}")
    for part in ("labels", "annotations"):
        entries = new.get(part) or {}
        if old is not None and entries == old.get(part):
            continue
        for key, value in entries.items():
            if not isinstance(value, str):
                message = f"metadata.{part}.{key}: {value!r} is no string"
                raise BadRequest(message, status=400, reason="BadRequest")
            # Those of annotations are read as if they had no capitals.
            if not is_label_key(key.lower() if part == "annotations" else key) or (
                part == "labels" and not is_label_value(value)
            ):
                faults.append(f"metadata.{part}: Invalid value: {key!r}: {value!r}")
    for each in new.get("ownerReferences") or ():
        faults += [f"metadata.ownerReferences.{part}: must not be empty" for part in _OF_OWNER if not each.get(part)]
    if len([each for each in new.get("ownerReferences") or () if each.get("controller")]) > 1:
        faults.append("metadata.ownerReferences: Invalid value: only one reference can have controller set to true")
    if old is not None and "deletionTimestamp" in old:
        added = set(new.get("finalizers") or ()).difference(old.get("finalizers") or ())
        if added:
            faults.append(f"metadata.finalizers: Forbidden: no new ones while it is being deleted: {sorted(added)}")
    if faults:
        raise Invalid(f"{resource.kind} {new['name']!r} is invalid: {'; '.join(faults)}", status=422, reason="Invalid")


def _is_name(resource: Resource, name: str) -> bool:
    """Whether an object may be called so.  Source: the validation below kubernetes/pkg/apis."""
    which = str(resource.group_resource)
    if which in _RBAC or which == "ipaddresses.networking.k8s.io":
        return name not in (".", "..") and "/" not in name and "%" not in name
    return is_dns_label(name) if which in ("namespaces", "services") else is_dns_subdomain(name)


def without_empties(metadata: Object) -> Object:
    """The same but for lists and maps that have nothing in them: an API server stores none of those."""
    return {name: value for name, value in metadata.items() if value or name not in _MAY_BE_EMPTY}


_OF_OWNER: Final = ("apiVersion", "kind", "name", "uid")
_MAY_BE_EMPTY: Final = frozenset({"annotations", "finalizers", "labels", "ownerReferences"})
#: What a way of deletion has an object wait for.
_HELD_BY: Final = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


def finalizers_of_deletion(propagation: str | None, finalizers: Sequence[str]) -> list[str]:
    """The finalizers of an object that is deleted in such a way; `None`: nobody has said.  Raises: Invalid."""
    if propagation is None:
        return list(finalizers)
    if propagation not in ("Background", *_HELD_BY):
        raise Invalid(f"propagationPolicy: Invalid value: {propagation!r}", status=422, reason="Invalid")
    others = [each for each in finalizers if each not in _HELD_BY.values()]
    return [*others, _HELD_BY[propagation]] if propagation in _HELD_BY else others


def said_of(body: Object, subresource: str = "") -> Object:
    """The part of what is sent that a write of the object, or of its status, is about."""
    if subresource == STATUS:
        return {name: body[name] for name in ("apiVersion", "kind", "metadata", STATUS) if name in body}
    return {name: value for name, value in body.items() if name != STATUS}


def kept_of(resource: Resource, current: Object | None, wanted: Object, subresource: str = "") -> Object:
    """What is stored of a write: the status, or all but that, beside what there is; `current` None: it is new."""
    wanted = dict(with_texts_as_data(resource, wanted))
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
    not_found, not_allowed = Status(404, "", "404 page not found"), Status(405, "MethodNotAllowed", "not allowed here")
    status = not_allowed if verb == "create" and is_builtin(resource) else not_found
    raise explain_status(Target(verb, resource.group, resource.plural, None, name or None, True), status)
