"""Metadata of Kubernetes objects, and the resources they belong to.

Only what sharding looks at is decoded; msgspec skips the rest unread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import msgspec

#: Annotation in which `kubectl apply` leaves the whole of what it has applied.
#: Source: k8s.io/api, core/v1.LastAppliedConfigAnnotation.
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
#: A reference that says more, in characters, is to no object.  API servers compare references with nothing, so anybody
#: may write a megabyte there, and to ask for an object of such a name takes a second of a process's time.
#: Most kinds' names have 253 at most.
MAX_REFERENCE: Final = 4096


class OwnerReference(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, repr_omit_defaults=True
):
    """One entry of `metadata.ownerReferences`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None

    @property
    def group(self) -> str:
        """API group of the owner; empty for the core group."""
        group, slash, _ = self.api_version.rpartition("/")
        return group if slash else ""

    @property
    def names_an_object(self) -> bool:
        """Whether there can be such an object."""
        said = len(self.api_version) + len(self.kind) + len(self.name) + len(self.uid)
        return self.name != "" and said <= MAX_REFERENCE


class SlimMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, repr_omit_defaults=True):
    """The part of `metadata` that assigning an object reads, for whoever keeps or counts many; see `ObjectMeta`."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference with `controller: true`, if there is one."""
        for reference in self.owner_references or ():
            if reference.controller:
                return reference
        return None

    def label(self, key: str) -> str | None:
        """Value of the label `key`; `None` when the object does not carry it."""
        return self.labels.get(key) if self.labels else None


class ObjectMeta(SlimMeta, frozen=True, rename="camel"):
    """The part of `metadata` that sharding reads; a missing field has its empty value, an empty field is not sent."""

    generate_name: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None

    def __repr__(self) -> str:
        return super(ObjectMeta, self._masked()).__repr__()

    def __rich_repr__(self) -> Any:
        return super(ObjectMeta, self._masked()).__rich_repr__()

    def _masked(self) -> ObjectMeta:
        """The same, to be shown: of a Secret that was applied by kubectl, what was applied is in an annotation."""
        if not self.annotations or LAST_APPLIED not in self.annotations:
            return self
        return msgspec.structs.replace(self, annotations={**self.annotations, LAST_APPLIED: "..."})

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> dict[str, object]:
        """Have pydantic make one of an object's `metadata`, so that its models can have the field."""
        return {"type": "function-plain", "function": {"type": "no-info", "function": cls._of}}

    @classmethod
    def _of(cls, value: object) -> ObjectMeta:
        try:
            return value if isinstance(value, ObjectMeta) else msgspec.convert(value, cls)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error


class SlimObject(msgspec.Struct, frozen=True):
    """An object of which nothing but that is kept."""

    metadata: SlimMeta


class PartialObject(msgspec.Struct, frozen=True, rename="camel"):
    """What `PartialObjectMetadata` carries."""

    metadata: ObjectMeta
    api_version: str = ""
    kind: str = ""


class GroupResource(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A resource without its version, as rings name it; `group` is empty for core."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """A resource that the API server serves, as discovery tells it.

    `plural` is the path segment (`configmaps`), `kind` the object's (`ConfigMap`).  `verbs`: what can be done to its
    objects; empty: nobody has said.  They make no other resource of it.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    verbs: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __eq__(self, other: object) -> bool:
        # Nearly always one and the same.
        if self is other:
            return True
        if not isinstance(other, Resource):
            return NotImplemented
        return (
            self.plural == other.plural
            and self.group == other.group
            and self.version == other.version
            and self.kind == other.kind
            and self.namespaced == other.namespaced
        )

    def __hash__(self) -> int:
        return hash((self.group, self.plural))

    @property
    def api_version(self) -> str:
        """`v1` for the core group, else `<group>/<version>`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> GroupResource:
        """The same resource without version and kind."""
        return _group_resource(self.group, self.plural)

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """URL path of the collection, or of the object `name`, each quoted: a Role may be called `a?b`.

        `namespace` None means all namespaces, or a cluster-scoped resource.  Raises: UnicodeEncodeError.
        """
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if namespace:
            parts += ["namespaces", quote(namespace, safe=":")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=":"))
        return "/".join(parts)


@lru_cache(maxsize=256)
def _group_resource(group: str, plural: str) -> GroupResource:
    return GroupResource(group, plural)


RBAC_GROUP: Final = "rbac.authorization.k8s.io"
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
CLUSTERRINGS = Resource("sharding.timebertt.dev", "v1alpha1", "clusterrings", "ClusterRing", namespaced=False)
