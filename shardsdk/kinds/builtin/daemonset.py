"""The kind DaemonSet, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.builtin.pods import PodTemplateSpec
from shardsdk.kinds.builtin.shared import LabelSelector
from shardsdk.protocol.objects import Resource


class DaemonSet(Kind, kw_only=True):
    """DaemonSet represents the configuration of a daemon set."""

    resource: ClassVar[Resource] = Resource("apps", "v1", "daemonsets", "DaemonSet")

    spec: DaemonSetSpec
    """The desired behavior of this daemon set."""
    status: DaemonSetStatus = msgspec.field(default_factory=lambda: DaemonSetStatus())
    """The current status of this daemon set."""


class DaemonSetCondition(Model, kw_only=True):
    """DaemonSetCondition describes the state of a DaemonSet at a certain point."""

    last_transition_time: datetime | None = None
    """Last time the condition transitioned from one status to another."""
    message: str | None = None
    """A human readable message indicating details about the transition."""
    reason: str | None = None
    """The reason for the condition's last transition."""
    status: str
    """Status of the condition, one of True, False, Unknown."""
    type: str
    """Type of DaemonSet condition."""


class DaemonSetSpec(Model, kw_only=True):
    """DaemonSetSpec is the specification of a daemon set."""

    min_ready_seconds: int | None = None
    """The minimum number of seconds for which a newly created DaemonSet pod should be ready without any of its
    container crashing, for it to be considered available.
    """
    revision_history_limit: int | None = None
    """The number of old history to retain to allow rollback."""
    selector: LabelSelector
    """A label query over pods that are managed by the daemon set."""
    template: PodTemplateSpec
    """An object that describes the pod that will be created."""
    update_strategy: DaemonSetUpdateStrategy | None = None
    """An update strategy to replace existing DaemonSet pods with new pods."""


class DaemonSetStatus(Model, kw_only=True):
    """DaemonSetStatus represents the current status of a daemon set."""

    collision_count: int | None = None
    """Count of hash collisions for the DaemonSet."""
    conditions: list[DaemonSetCondition] | None = None
    """Represents the latest available observations of a DaemonSet's current state."""
    current_number_scheduled: int = 0
    """The number of nodes that are running at least 1 daemon pod and are supposed to run the daemon pod."""
    desired_number_scheduled: int = 0
    """The total number of nodes that should be running the daemon pod (including nodes correctly running the daemon
    pod).
    """
    number_available: int | None = None
    """The number of nodes that should be running the daemon pod and have one or more of the daemon pod running and
    available (ready for at least spec.minReadySeconds)
    """
    number_misscheduled: int = 0
    """The number of nodes that are running the daemon pod, but are not supposed to run the daemon pod."""
    number_ready: int = 0
    """numberReady is the number of nodes that should be running the daemon pod and have one or more of the daemon pod
    running with a Ready Condition.
    """
    number_unavailable: int | None = None
    """The number of nodes that should be running the daemon pod and have none of the daemon pod running and available
    (ready for at least spec.minReadySeconds)
    """
    observed_generation: int | None = None
    """The most recent generation observed by the daemon set controller."""
    updated_number_scheduled: int | None = None
    """The total number of nodes that are running updated daemon pod"""


class DaemonSetUpdateStrategy(Model, kw_only=True):
    """DaemonSetUpdateStrategy is a struct used to control the update strategy for a DaemonSet."""

    rolling_update: RollingUpdateDaemonSet | None = None
    """Rolling update config params."""
    type: str | None = None
    """Type of daemon set update."""


class RollingUpdateDaemonSet(Model, kw_only=True):
    """Spec to control the desired behavior of daemon set rolling update."""

    max_surge: int | str | None = None
    """The maximum number of nodes with an existing available DaemonSet pod that can have an updated DaemonSet pod
    during during an update.
    """
    max_unavailable: int | str | None = None
    """The maximum number of DaemonSet pods that can be unavailable during the update."""
