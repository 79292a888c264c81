"""The kind PriorityClass; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

from shardsdk.kinds.base import Kind
from shardsdk.protocol.objects import Resource


class PriorityClass(Kind, kw_only=True):
    """PriorityClass defines mapping from a priority class name to the priority integer value."""

    resource: ClassVar[Resource] = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)

    description: str | None = None
    """description is an arbitrary string that usually provides guidelines on when this priority class should be used.
    """
    global_default: bool | None = None
    """globalDefault specifies whether this PriorityClass should be considered as the default priority for pods that do
    not have any priority class.
    """
    preemption_policy: str | None = None
    """preemptionPolicy is the Policy for preempting pods with lower priority."""
    value: int | None = None
    """value represents the integer value of this priority class."""
