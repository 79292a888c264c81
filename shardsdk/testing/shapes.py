"""How the lists and maps of an object merge, for servers in memory: by key, as sets, or as one field each.

Of a custom resource its schema says so, of Kubernetes' own kinds the tables here, which
tests/integration/test_testing_lists.py holds against an API server's OpenAPI.  Of what nobody knows every list is one
field, every map merges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from shardsdk.protocol.objects import Resource
from shardsdk.testing.strategies import is_builtin

#: By which fields the entries of a list are told apart: of a list, below what has it.
_BY_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "metadata.ownerReferences": ("uid",),
    "containers.env": ("name",),
    "containers.ports": ("containerPort", "protocol"),
    "containers.volumeDevices": ("devicePath",),
    "containers.volumeMounts": ("mountPath",),
    "resources.claims": ("name",),
    "spec.containers": ("name",),
    "spec.ephemeralContainers": ("name",),
    "spec.hostAliases": ("ip",),
    "spec.imagePullSecrets": ("name",),
    "spec.initContainers": ("name",),
    "spec.ports": ("port", "protocol"),
    "spec.resourceClaims": ("name",),
    "spec.schedulingGates": ("name",),
    "spec.topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "spec.volumes": ("name",),
    "status.addresses": ("type",),
    "status.conditions": ("type",),
    "status.podIPs": ("ip",),
    "status.resourceClaimStatuses": ("name",),
    ".secrets": ("name",),
    ".webhooks": ("name",),
    "webhooks.matchConditions": ("name",),
}
_LIKE_CONTAINERS: Final = ("ephemeralContainers", "initContainers")
#: Lists in which each entry is there once, and is a field.
_SETS: Final = frozenset(
    {"metadata.finalizers", "spec.podCIDRs", "uncountedTerminatedPods.failed", "uncountedTerminatedPods.succeeded"}
)
#: Maps that are one field, also where they are the entries of a list.
_WHOLE: Final = frozenset(
    {
        *("configMapKeyRef", "dataSource", "fieldRef", "fileKeyRef", "imagePullSecrets", "involvedObject"),
        *("labelSelector", "namespaceSelector", "nodeSelector", "objectSelector", "ownerReferences", "podSelector"),
        *("port", "related", "required", "requiredDuringSchedulingIgnoredDuringExecution", "resource"),
        *("resourceFieldRef", "roleRef", "scopeSelector", "secretKeyRef", "secretRef", "secrets", "selector"),
        *("controllerExpandSecretRef", "controllerPublishSecretRef", "nodeExpandSecretRef", "nodePublishSecretRef"),
        "nodeStageSecretRef",
    }
)
#: Kinds whose conditions are one field.
_WHOLE_CONDITIONS: Final = frozenset({"jobs.batch"})
#: What an entry has for a key that it leaves out.
_DEFAULTS: Final[Mapping[str, Any]] = {"protocol": "TCP"}


class Shape(Protocol):
    """How a value merges, and what is in it."""

    @property
    def keys(self) -> Sequence[str]:
        """By which fields the entries of a list are told apart; empty: by none."""

    @property
    def is_set(self) -> bool:
        """Whether each entry of a list is there once, and is a field."""

    @property
    def is_whole(self) -> bool:
        """Whether a map is one field."""

    @property
    def entry(self) -> Shape:
        """Of an entry of a list."""

    def at(self, name: str) -> Shape:
        """Of what a map has there."""

    def declares(self, name: str) -> bool:
        """Whether all such maps have this field; what they do not is an entry of this one, and its own owner's."""

    def default_of(self, key: str) -> Any:
        """What an entry of a list has for a key that it leaves out."""


def shape_of(resource: Resource, schema: Mapping[str, Any] | None) -> Shape:
    """Of the objects of a resource; `schema`: a custom resource's, of the whole object, if it is known."""
    if is_builtin(resource):
        return _Own(str(resource.group_resource))
    return _Own("", known=False) if schema is None else _Custom(schema, is_object=True)


@dataclass(frozen=True, slots=True)
class _Own:
    """One of Kubernetes' own kinds, by the names of fields; of what is not `known`, metadata alone."""

    kind: str
    name: str = ""
    above: str = ""
    known: bool = True

    @property
    def keys(self) -> Sequence[str]:
        if not self.known or (self.name == "conditions" and self.kind in _WHOLE_CONDITIONS):
            return ()
        return _BY_KEYS.get(f"{self.above}.{self.name}", ())

    @property
    def is_set(self) -> bool:
        return self.known and f"{self.above}.{self.name}" in _SETS

    @property
    def is_whole(self) -> bool:
        return self.known and self.name in _WHOLE

    @property
    def entry(self) -> Shape:
        return self

    def at(self, name: str) -> Shape:
        is_metadata = not self.name and name == "metadata"
        above = "containers" if self.name in _LIKE_CONTAINERS else self.name
        return _Own(self.kind, name, above, self.known or is_metadata)

    def declares(self, name: str) -> bool:
        return True  # of maps whose entries are maps there are none

    def default_of(self, key: str) -> Any:
        return _DEFAULTS.get(key)


_METADATA: Final = _Own("").at("metadata")


@dataclass(frozen=True, slots=True)
class _Custom:
    """A part of a custom resource, by its schema; `is_object`: it has metadata."""

    schema: Mapping[str, Any]
    is_object: bool = False

    @property
    def keys(self) -> Sequence[str]:
        return self.schema.get("x-kubernetes-list-map-keys") or ()

    @property
    def is_set(self) -> bool:
        return self.schema.get("x-kubernetes-list-type") == "set"

    @property
    def is_whole(self) -> bool:
        return self.schema.get("x-kubernetes-map-type") == "atomic"

    @property
    def entry(self) -> Shape:
        return _part(self.schema.get("items"))

    def at(self, name: str) -> Shape:
        if self.is_object and name == "metadata":
            return _METADATA
        properties = self.schema.get("properties") or _NOTHING
        return _part(properties.get(name, self.schema.get("additionalProperties")))

    def declares(self, name: str) -> bool:
        about = ("apiVersion", "kind", "metadata") if self.is_object else ()
        return name in about or name in (self.schema.get("properties") or _NOTHING)

    def default_of(self, key: str) -> Any:
        return ((self.schema.get("items") or _NOTHING).get("properties") or _NOTHING).get(key, _NOTHING).get("default")


_NOTHING: Final[Mapping[str, Any]] = {}


def _part(schema: Any) -> Shape:
    found = schema if isinstance(schema, Mapping) else _NOTHING
    return _Custom(found, is_object=bool(found.get("x-kubernetes-embedded-resource")))
