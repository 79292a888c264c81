"""The kind Deployment, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.builtin.pods import PodTemplateSpec
from shardsdk.kinds.builtin.shared import LabelSelector
from shardsdk.protocol.objects import Resource


class Deployment(Kind, kw_only=True):
    """Deployment enables declarative updates for Pods and ReplicaSets."""

    resource: ClassVar[Resource] = Resource("apps", "v1", "deployments", "Deployment")

    spec: DeploymentSpec
    """Specification of the desired behavior of the Deployment."""
    status: DeploymentStatus = msgspec.field(default_factory=lambda: DeploymentStatus())
    """Most recently observed status of the Deployment."""


class DeploymentCondition(Model, kw_only=True):
    """DeploymentCondition describes the state of a deployment at a certain point."""

    last_transition_time: datetime | None = None
    """Last time the condition transitioned from one status to another."""
    last_update_time: datetime | None = None
    """The last time this condition was updated."""
    message: str | None = None
    """A human readable message indicating details about the transition."""
    reason: str | None = None
    """The reason for the condition's last transition."""
    status: str
    """Status of the condition, one of True, False, Unknown."""
    type: str
    """Type of deployment condition."""


class DeploymentSpec(Model, kw_only=True):
    """DeploymentSpec is the specification of the desired behavior of the Deployment."""

    min_ready_seconds: int | None = None
    """Minimum number of seconds for which a newly created pod should be ready without any of its container crashing,
    for it to be considered available.
    """
    paused: bool | None = None
    """Indicates that the deployment is paused."""
    progress_deadline_seconds: int | None = None
    """The maximum time in seconds for a deployment to make progress before it is considered to be failed."""
    replicas: int | None = None
    """Number of desired pods."""
    revision_history_limit: int | None = None
    """The number of old ReplicaSets to retain to allow rollback."""
    selector: LabelSelector
    """Label selector for pods."""
    strategy: DeploymentStrategy | None = None
    """The deployment strategy to use to replace existing pods with new ones."""
    template: PodTemplateSpec
    """Template describes the pods that will be created."""


class DeploymentStatus(Model, kw_only=True):
    """DeploymentStatus is the most recently observed status of the Deployment."""

    available_replicas: int | None = None
    """Total number of available non-terminating pods (ready for at least minReadySeconds) targeted by this deployment.
    """
    collision_count: int | None = None
    """Count of hash collisions for the Deployment."""
    conditions: list[DeploymentCondition] | None = None
    """Represents the latest available observations of a deployment's current state."""
    observed_generation: int | None = None
    """The generation observed by the deployment controller."""
    ready_replicas: int | None = None
    """Total number of non-terminating pods targeted by this Deployment with a Ready Condition."""
    replicas: int | None = None
    """Total number of non-terminating pods targeted by this deployment (their labels match the selector)."""
    terminating_replicas: int | None = None
    """Total number of terminating pods targeted by this deployment."""
    unavailable_replicas: int | None = None
    """Total number of unavailable pods targeted by this deployment."""
    updated_replicas: int | None = None
    """Total number of non-terminating pods targeted by this deployment that have the desired template spec."""


class DeploymentStrategy(Model, kw_only=True):
    """DeploymentStrategy describes how to replace existing pods with new ones."""

    rolling_update: RollingUpdateDeployment | None = None
    """Rolling update config params."""
    type: str | None = None
    """Type of deployment."""


class RollingUpdateDeployment(Model, kw_only=True):
    """Spec to control the desired behavior of rolling update."""

    max_surge: int | str | None = None
    """The maximum number of pods that can be scheduled above the desired number of pods."""
    max_unavailable: int | str | None = None
    """The maximum number of pods that can be unavailable during the update."""
