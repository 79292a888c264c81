"""The kind PodDisruptionBudget, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.builtin.shared import LabelSelector
from shardsdk.kinds.conditions import Condition
from shardsdk.protocol.objects import Resource


class PodDisruptionBudget(Kind, kw_only=True):
    """PodDisruptionBudget is an object to define the max disruption that can be caused to a collection of pods"""

    resource: ClassVar[Resource] = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")

    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=lambda: PodDisruptionBudgetSpec())
    """Specification of the desired behavior of the PodDisruptionBudget."""
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=lambda: PodDisruptionBudgetStatus())
    """Most recently observed status of the PodDisruptionBudget."""


class PodDisruptionBudgetSpec(Model, kw_only=True):
    """PodDisruptionBudgetSpec is a description of a PodDisruptionBudget."""

    max_unavailable: int | str | None = None
    """An eviction is allowed if at most "maxUnavailable" pods selected by "selector" are unavailable after the
    eviction, i.e. even in absence of the evicted pod.
    """
    min_available: int | str | None = None
    """An eviction is allowed if at least "minAvailable" pods selected by "selector" will still be available after the
    eviction, i.e. even in the absence of the evicted pod.
    """
    selector: LabelSelector | None = None
    """Label query over pods whose evictions are managed by the disruption budget."""
    unhealthy_pod_eviction_policy: str | None = None
    """UnhealthyPodEvictionPolicy defines the criteria for when unhealthy pods should be considered for eviction."""


class PodDisruptionBudgetStatus(Model, kw_only=True):
    """PodDisruptionBudgetStatus represents information about the status of a PodDisruptionBudget."""

    conditions: list[Condition] | None = None
    """Conditions contain conditions for PDB."""
    current_healthy: int | None = None
    """current number of healthy pods"""
    desired_healthy: int | None = None
    """minimum desired number of healthy pods"""
    disrupted_pods: dict[str, datetime] | None = None
    """DisruptedPods contains information about pods whose eviction was processed by the API server eviction
    subresource handler but has not yet been observed by the PodDisruptionBudget controller.
    """
    disruptions_allowed: int | None = None
    """Number of pod disruptions that are currently allowed."""
    expected_pods: int | None = None
    """total number of pods counted by this disruption budget"""
    observed_generation: int | None = None
    """Most recent generation observed when updating this PDB status."""
