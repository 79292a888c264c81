"""The kind ResourceQuota, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.protocol.objects import Resource


class ResourceQuota(Kind, kw_only=True):
    """ResourceQuota sets aggregate quota restrictions enforced per namespace"""

    resource: ClassVar[Resource] = Resource("", "v1", "resourcequotas", "ResourceQuota")

    spec: ResourceQuotaSpec = msgspec.field(default_factory=lambda: ResourceQuotaSpec())
    """Spec defines the desired quota.
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status
    """
    status: ResourceQuotaStatus = msgspec.field(default_factory=lambda: ResourceQuotaStatus())
    """Status defines the actual enforced quota and its current usage.
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status
    """


class ResourceQuotaSpec(Model, kw_only=True):
    """ResourceQuotaSpec defines the desired hard limits to enforce for Quota."""

    hard: dict[str, str] | None = None
    """hard is the set of desired hard limits for each named resource."""
    scope_selector: ScopeSelector | None = None
    """scopeSelector is also a collection of filters like scopes that must match each object tracked by a quota but
    expressed using ScopeSelectorOperator in combination with possible values.
    """
    scopes: list[str] | None = None
    """A collection of filters that must match each object tracked by a quota."""


class ResourceQuotaStatus(Model, kw_only=True):
    """ResourceQuotaStatus defines the enforced hard limits and observed use."""

    hard: dict[str, str] | None = None
    """Hard is the set of enforced hard limits for each named resource."""
    used: dict[str, str] | None = None
    """Used is the current observed total usage of the resource in the namespace."""


class ScopeSelector(Model, kw_only=True):
    """A scope selector represents the AND of the selectors represented by the scoped-resource selector requirements.
    """

    match_expressions: list[ScopedResourceSelectorRequirement] | None = None
    """A list of scope selector requirements by scope of the resources."""


class ScopedResourceSelectorRequirement(Model, kw_only=True):
    """A scoped-resource selector requirement is a selector that contains values, a scope name, and an operator that
    relates the scope name and values.
    """

    operator: str
    """Represents a scope's relationship to a set of values."""
    scope_name: str
    """The name of the scope that the selector applies to."""
    values: list[str] | None = None
    """An array of string values."""
