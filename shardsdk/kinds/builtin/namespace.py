"""The kind Namespace, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.protocol.objects import Resource


class Namespace(Kind, kw_only=True):
    """Namespace provides a scope for Names."""

    resource: ClassVar[Resource] = Resource("", "v1", "namespaces", "Namespace", namespaced=False)

    spec: NamespaceSpec = msgspec.field(default_factory=lambda: NamespaceSpec())
    """Spec defines the behavior of the Namespace."""
    status: NamespaceStatus = msgspec.field(default_factory=lambda: NamespaceStatus())
    """Status describes the current status of a Namespace."""


class NamespaceCondition(Model, kw_only=True):
    """NamespaceCondition contains details about state of namespace."""

    last_transition_time: datetime | None = None
    """Last time the condition transitioned from one status to another."""
    message: str | None = None
    """Human-readable message indicating details about last transition."""
    reason: str | None = None
    """Unique, one-word, CamelCase reason for the condition's last transition."""
    status: str
    """Status of the condition, one of True, False, Unknown."""
    type: str
    """Type of namespace controller condition."""


class NamespaceSpec(Model, kw_only=True):
    """NamespaceSpec describes the attributes on a Namespace."""

    finalizers: list[str] | None = None
    """Finalizers is an opaque list of values that must be empty to permanently remove object from storage."""


class NamespaceStatus(Model, kw_only=True):
    """NamespaceStatus is information about the current status of a Namespace."""

    conditions: list[NamespaceCondition] | None = None
    """Represents the latest available observations of a namespace's current state."""
    phase: str | None = None
    """Phase is the current lifecycle phase of the namespace."""
