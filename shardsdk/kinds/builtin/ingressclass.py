"""The kind IngressClass, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.protocol.objects import Resource


class IngressClass(Kind, kw_only=True):
    """IngressClass represents the class of the Ingress, referenced by the Ingress Spec."""

    resource: ClassVar[Resource] = Resource("networking.k8s.io", "v1", "ingressclasses", "IngressClass", namespaced=False)

    spec: IngressClassSpec = msgspec.field(default_factory=lambda: IngressClassSpec())
    """spec is the desired state of the IngressClass."""


class IngressClassParametersReference(Model, kw_only=True):
    """IngressClassParametersReference identifies an API object."""

    api_group: str | None = None
    """apiGroup is the group for the resource being referenced."""
    kind: str
    """kind is the type of resource being referenced."""
    name: str
    """name is the name of resource being referenced."""
    namespace: str | None = None
    """namespace is the namespace of the resource being referenced."""
    scope: str | None = None
    """scope represents if this refers to a cluster or namespace scoped resource."""


class IngressClassSpec(Model, kw_only=True):
    """IngressClassSpec provides information about the class of an Ingress."""

    controller: str | None = None
    """controller refers to the name of the controller that should handle this class."""
    parameters: IngressClassParametersReference | None = None
    """parameters is a link to a custom resource containing additional configuration for the controller."""
