"""The kind ReplicaSet, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.builtin.pods import PodTemplateSpec
from shardsdk.kinds.builtin.shared import LabelSelector
from shardsdk.protocol.objects import Resource


class ReplicaSet(Kind, kw_only=True):
    """ReplicaSet ensures that a specified number of pod replicas are running at any given time."""

    resource: ClassVar[Resource] = Resource("apps", "v1", "replicasets", "ReplicaSet")

    spec: ReplicaSetSpec
    """Spec defines the specification of the desired behavior of the ReplicaSet."""
    status: ReplicaSetStatus = msgspec.field(default_factory=lambda: ReplicaSetStatus())
    """Status is the most recently observed status of the ReplicaSet."""


class ReplicaSetCondition(Model, kw_only=True):
    """ReplicaSetCondition describes the state of a replica set at a certain point."""

    last_transition_time: datetime | None = None
    """The last time the condition transitioned from one status to another."""
    message: str | None = None
    """A human readable message indicating details about the transition."""
    reason: str | None = None
    """The reason for the condition's last transition."""
    status: str
    """Status of the condition, one of True, False, Unknown."""
    type: str
    """Type of replica set condition."""


class ReplicaSetSpec(Model, kw_only=True):
    """ReplicaSetSpec is the specification of a ReplicaSet."""

    min_ready_seconds: int | None = None
    """Minimum number of seconds for which a newly created pod should be ready without any of its container crashing,
    for it to be considered available.
    """
    replicas: int | None = None
    """Replicas is the number of desired pods."""
    selector: LabelSelector
    """Selector is a label query over pods that should match the replica count."""
    template: PodTemplateSpec | None = None
    """Template is the object that describes the pod that will be created if insufficient replicas are detected."""


class ReplicaSetStatus(Model, kw_only=True):
    """ReplicaSetStatus represents the current status of a ReplicaSet."""

    available_replicas: int | None = None
    """The number of available non-terminating pods (ready for at least minReadySeconds) for this replica set."""
    conditions: list[ReplicaSetCondition] | None = None
    """Represents the latest available observations of a replica set's current state."""
    fully_labeled_replicas: int | None = None
    """The number of non-terminating pods that have labels matching the labels of the pod template of the replicaset.
    """
    observed_generation: int | None = None
    """ObservedGeneration reflects the generation of the most recently observed ReplicaSet."""
    ready_replicas: int | None = None
    """The number of non-terminating pods targeted by this ReplicaSet with a Ready Condition."""
    replicas: int = 0
    """Replicas is the most recently observed number of non-terminating pods."""
    terminating_replicas: int | None = None
    """The number of terminating pods for this replica set."""
