"""The kind StatefulSet, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.builtin.pods import PodTemplateSpec
from shardsdk.kinds.builtin.shared import LabelSelector, PersistentVolumeClaim
from shardsdk.protocol.objects import Resource


class RollingUpdateStatefulSetStrategy(Model, kw_only=True):
    """RollingUpdateStatefulSetStrategy is used to communicate parameter for RollingUpdateStatefulSetStrategyType.
    """

    max_unavailable: int | str | None = None
    """The maximum number of pods that can be unavailable during the update."""
    partition: int | None = None
    """Partition indicates the ordinal at which the StatefulSet should be partitioned for updates."""


class StatefulSet(Kind, kw_only=True):
    """StatefulSet represents a set of pods with consistent identities."""

    resource: ClassVar[Resource] = Resource("apps", "v1", "statefulsets", "StatefulSet")

    spec: StatefulSetSpec
    """Spec defines the desired identities of pods in this set."""
    status: StatefulSetStatus = msgspec.field(default_factory=lambda: StatefulSetStatus())
    """Status is the current status of Pods in this StatefulSet."""


class StatefulSetCondition(Model, kw_only=True):
    """StatefulSetCondition describes the state of a statefulset at a certain point."""

    last_transition_time: datetime | None = None
    """Last time the condition transitioned from one status to another."""
    message: str | None = None
    """A human readable message indicating details about the transition."""
    reason: str | None = None
    """The reason for the condition's last transition."""
    status: str
    """Status of the condition, one of True, False, Unknown."""
    type: str
    """Type of statefulset condition."""


class StatefulSetOrdinals(Model, kw_only=True):
    """StatefulSetOrdinals describes the policy used for replica ordinal assignment in this StatefulSet."""

    start: int | None = None
    """start is the number representing the first replica's index."""


class StatefulSetPersistentVolumeClaimRetentionPolicy(Model, kw_only=True):
    """StatefulSetPersistentVolumeClaimRetentionPolicy describes the policy used for PVCs created from the StatefulSet
    VolumeClaimTemplates.
    """

    when_deleted: str | None = None
    """WhenDeleted specifies what happens to PVCs created from StatefulSet VolumeClaimTemplates when the StatefulSet is
    deleted.
    """
    when_scaled: str | None = None
    """WhenScaled specifies what happens to PVCs created from StatefulSet VolumeClaimTemplates when the StatefulSet is
    scaled down.
    """


class StatefulSetSpec(Model, kw_only=True):
    """A StatefulSetSpec is the specification of a StatefulSet."""

    min_ready_seconds: int | None = None
    """Minimum number of seconds for which a newly created pod should be ready without any of its container crashing
    for it to be considered available.
    """
    ordinals: StatefulSetOrdinals | None = None
    """ordinals controls the numbering of replica indices in a StatefulSet."""
    persistent_volume_claim_retention_policy: StatefulSetPersistentVolumeClaimRetentionPolicy | None = None
    """persistentVolumeClaimRetentionPolicy describes the lifecycle of persistent volume claims created from
    volumeClaimTemplates.
    """
    pod_management_policy: str | None = None
    """podManagementPolicy controls how pods are created during initial scale up, when replacing pods on nodes, or when
    scaling down.
    """
    replicas: int | None = None
    """replicas is the desired number of replicas of the given Template."""
    revision_history_limit: int | None = None
    """revisionHistoryLimit is the maximum number of revisions that will be maintained in the StatefulSet's revision
    history.
    """
    selector: LabelSelector
    """selector is a label query over pods that should match the replica count."""
    service_name: str | None = None
    """serviceName is the name of the service that governs this StatefulSet."""
    template: PodTemplateSpec
    """template is the object that describes the pod that will be created if insufficient replicas are detected."""
    update_strategy: StatefulSetUpdateStrategy | None = None
    """updateStrategy indicates the StatefulSetUpdateStrategy that will be employed to update Pods in the StatefulSet
    when a revision is made to Template.
    """
    volume_claim_templates: list[PersistentVolumeClaim] | None = None
    """volumeClaimTemplates is a list of claims that pods are allowed to reference."""


class StatefulSetStatus(Model, kw_only=True):
    """StatefulSetStatus represents the current state of a StatefulSet."""

    available_replicas: int | None = None
    """Total number of available pods (ready for at least minReadySeconds) targeted by this statefulset."""
    collision_count: int | None = None
    """collisionCount is the count of hash collisions for the StatefulSet."""
    conditions: list[StatefulSetCondition] | None = None
    """Represents the latest available observations of a statefulset's current state."""
    current_replicas: int | None = None
    """currentReplicas is the number of Pods created by the StatefulSet controller from the StatefulSet version
    indicated by currentRevision.
    """
    current_revision: str | None = None
    """currentRevision, if not empty, indicates the version of the StatefulSet used to generate Pods in the sequence
    [0,currentReplicas).
    """
    observed_generation: int | None = None
    """observedGeneration is the most recent generation observed for this StatefulSet."""
    ready_replicas: int | None = None
    """readyReplicas is the number of pods created for this StatefulSet with a Ready Condition."""
    replicas: int = 0
    """replicas is the number of Pods created by the StatefulSet controller."""
    update_revision: str | None = None
    """updateRevision, if not empty, indicates the version of the StatefulSet used to generate Pods in the sequence
    [replicas-updatedReplicas,replicas)
    """
    updated_replicas: int | None = None
    """updatedReplicas is the number of Pods created by the StatefulSet controller from the StatefulSet version
    indicated by updateRevision.
    """


class StatefulSetUpdateStrategy(Model, kw_only=True):
    """StatefulSetUpdateStrategy indicates the strategy that the StatefulSet controller will use to perform updates.
    """

    rolling_update: RollingUpdateStatefulSetStrategy | None = None
    """RollingUpdate is used to communicate parameters when Type is RollingUpdateStatefulSetStrategyType."""
    type: str | None = None
    """Type indicates the type of the StatefulSetUpdateStrategy."""
